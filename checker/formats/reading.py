"""Reads a history of any known format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from checker.collector import collector_paused
from checker.errors import MalformedHistory
from checker.formats import recognition
from checker.formats.calls import Calls
from checker.formats.source import Source
from checker.operations import Operations


def read_operations(path: str | Path, *, independent: bool | None = None) -> Operations:
    """Reads a history as columns.

    The format is recognised by the beginning of the file, not by its name; gzip and zstd are unpacked.

    Args:
      path: The file; or a folder with the `client-N/operations.json` of etcd's robustness tests.
      independent: For Jepsen's formats, whether values are `[key value]` pairs of independent objects.
        None: if all values are such pairs, and a call that reads is among them.

    Raises:
      MalformedHistory: it is no history, or breaks the rules of its format; with file, line, field and
        remedy as far as they are known.
      OSError: the file cannot be read.
    """
    if Path(path).is_dir():
        from checker.formats.etcd import read_etcd_report

        return read_etcd_report(Path(path))
    with open(path, "rb") as file, collector_paused():
        try:
            source = Source(file, str(path))
            return _read(source, independent)
        except RecursionError:
            raise MalformedHistory("a value is nested too deeply", path=str(path)) from None
        except MalformedHistory as error:
            if error.path is not None:
                raise
            raise MalformedHistory(
                error.problem, path=str(path), line=error.line, field=error.field
            ) from None


def _read(source: Source, independent: bool | None) -> Operations:
    kind = recognition.format_of(source)
    read_calls = _call_reader(kind)
    if read_calls is not None:
        calls = Calls()
        read_calls(source, calls)
        return calls.operations(source=source.path, independent=independent)
    if kind == recognition.JSON_LINES:
        from checker.formats.from_history import read_json_lines

        return read_json_lines(source)
    if kind == recognition.PORCUPINE_PAGE:
        from checker.formats.porcupine_page import read_page

        return read_page(source)
    if kind == recognition.ETCD_OPERATIONS:
        from checker.formats.etcd import read_etcd

        return read_etcd(source)
    if kind == recognition.PORCUPINE_OPERATIONS:
        from checker.formats.porcupine import read_porcupine_operations

        return read_porcupine_operations(source)
    from checker.formats.porcupine import read_porcupine_events

    return read_porcupine_events(source)


def _call_reader(kind: str) -> Callable[[Source, Calls], None] | None:
    """Who reads a format of Jepsen."""
    if kind == recognition.JEPSEN_EDN:
        from checker.formats.jepsen import read_edn

        return read_edn
    if kind == recognition.JEPSEN_LOG:
        from checker.formats.jepsen import read_log

        return read_log
    if kind == recognition.JEPSEN_JSON:
        from checker.formats.jepsen_json import read_json

        return read_json
    return None
