"""Where the log lines of a long-lived command go."""

from __future__ import annotations

import contextlib
import json
import logging
import logging.handlers
import queue
import threading
from collections.abc import Iterator

_RECORDS_MAX = 10_000
_LAST_LINES_S = 2.0
_OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextlib.contextmanager
def logging_to(handler: logging.Handler, *, level: int, as_json: bool) -> Iterator[None]:
    """Sends log lines to a handler, from a thread: a log that is not read must not stop a service.

    Args:
      handler: Writes them.
      level: The least that is written.
      as_json: One object a line; else a time and a text.
    """
    handler.setFormatter(
        _JsonFormatter() if as_json else logging.Formatter("%(asctime)s %(message)s")
    )
    records: queue.Queue[logging.LogRecord | None] = queue.Queue(_RECORDS_MAX)

    def write() -> None:
        while (record := records.get()) is not None:
            handler.handle(record)

    writer = threading.Thread(target=write, name="log", daemon=True)
    writer.start()
    root = logging.getLogger()
    sender = _LossyHandler(records)
    root.addHandler(sender)
    former = root.level
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(sender)
        root.setLevel(former)
        with contextlib.suppress(queue.Full):
            records.put_nowait(None)
        writer.join(_LAST_LINES_S)


class _LossyHandler(logging.handlers.QueueHandler):
    """Drops what nobody reads."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Records stay in this process, so they stay as they are."""
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Puts a record into the queue, if there is room."""
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)


class _JsonFormatter(logging.Formatter):
    """One object a line: time, level, message, and what the record names (task, round, ...)."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        fields = {
            name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD
        }
        line = {
            "time_s": record.created,
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **fields,
        }
        return json.dumps(line, default=str)
