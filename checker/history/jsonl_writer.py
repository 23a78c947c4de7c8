"""Writes histories as JSON lines (docs/history-format.md)."""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, TypeGuard

from checker.history.events import (
    NEMESIS,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Fault,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.history.fields import Object
from checker.history.header import FORMAT_VERSION, VERSION_KEY, Header
from checker.history.history import History

INLINE_LIVE_SET_MAX = 8
"""Live sets of up to this many processes stand in each response; larger ones are written once."""

_REMEMBERED_ANSWERS_MAX = 64
_TYPE_NAMES: dict[type, str] = {
    Start: "start",
    Crash: "crash",
    Leave: "leave",
    Invoke: "invoke",
    Ok: "ok",
    Fail: "fail",
    Info: "info",
    Enter: "enter",
    Exit: "exit",
}


class HistoryWriter:
    """Writes a header and then events, each as one line in one call of `write`.

    Args:
      write: Takes the bytes of one or two whole lines. A recorder whose process may be killed
        passes an unbuffered append, so that nothing already written is lost.
      header: Written at once.
    """

    def __init__(self, write: Callable[[bytes], object], header: Header) -> None:
        self._write = write
        self._answers: dict[frozenset[tuple[int, int | None]], int] = {}
        self._answers_written = 0
        self._latest: tuple[object, int] = (None, -1)
        self._write(_encode(header_fields(header)))

    def append_fault(self, fault: Fault) -> None:
        """Writes a fault; like events, faults are in the order of time."""
        self._write(_encode(fault_fields(fault)))

    def append(self, event: Event) -> None:
        """Writes one event; a large live set is written once and then referred to."""
        live = _live_set_of(event)
        if live is None or len(live) <= INLINE_LIVE_SET_MAX:
            self._write(_encode(event_fields(event)))
            return
        prefix = b""
        if live is not self._latest[0]:  # Else it need not be looked at, however large it is.
            key = frozenset(live.items())
            number = self._answers.get(key)
            if number is None:
                number = self._answers_written
                self._answers_written += 1
                if len(self._answers) >= _REMEMBERED_ANSWERS_MAX:
                    del self._answers[next(iter(self._answers))]
                self._answers[key] = number
                fields = _live_set_fields(live)
                prefix = _encode({"type": "answer", "answer": number, "live": fields})
            self._latest = (live, number)
        self._write(prefix + _encode(event_fields(event, answer=self._latest[1])))


def dumps(history: History) -> str:
    """The history as JSON lines."""
    buffer = io.BytesIO()
    _append_all(history, HistoryWriter(buffer.write, history.header))
    return buffer.getvalue().decode()


def write(history: History, path: str | Path) -> None:
    """Writes a history file; a reader sees the old file or the whole new one, never a part."""
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or a pipe is written to, and must never be replaced; a folder is an error.
        with open(target, "wb") as file:
            _write_all(history, file)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_all(history, file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_all(history: History, file: IO[bytes]) -> None:
    _append_all(history, HistoryWriter(file.write, history.header))


def _append_all(history: History, writer: HistoryWriter) -> None:
    faults = iter(history.faults)
    fault = next(faults, None)
    for event in history.events:
        while fault is not None and fault.time_ns <= event.time_ns:
            writer.append_fault(fault)
            fault = next(faults, None)
        writer.append(event)
    if fault is not None:
        writer.append_fault(fault)
    for fault in faults:
        writer.append_fault(fault)


def header_fields(header: Header) -> Object:
    """The header as a JSON object."""
    fields: Object = {
        VERSION_KEY: FORMAT_VERSION,
        "source": header.source,
        "clock": header.clock,
        "participants": list(header.participants),
    }
    if header.cannot_know:
        fields["cannot_know"] = list(header.cannot_know)
    if header.details:
        fields["details"] = dict(header.details)
    return fields


def event_fields(event: Event, *, answer: int | None = None) -> Object:
    """An event as a JSON object; with `answer`, its live set is a reference."""
    fields: Object = {
        "type": _TYPE_NAMES[type(event)],
        "time_ns": event.time_ns,
        "process": event.process,
        "lifetime": event.lifetime,
    }
    if event.incarnation is not None:
        fields["incarnation"] = str(event.incarnation)
    if event.uncertainty_ns:
        fields["uncertainty_ns"] = event.uncertainty_ns
    match event:
        case Start() | Crash():
            if event.since_ns is not None:
                fields["since_ns"] = event.since_ns
            if isinstance(event, Crash) and event.cause is not None:
                fields["cause"] = event.cause
        case Invoke():
            fields |= {"id": event.id, "operation": event.operation}
            fields["arguments"] = dict(event.arguments)
        case Ok():
            fields["id"] = event.id
            _add_live_set_or_result(fields, "result", event.result, answer)
        case Fail() | Info():
            fields |= {"id": event.id, "code": event.code, "message": event.message}
        case Enter():
            fields["block"] = event.block
            _add_live_set_or_result(fields, "live", event.live, answer)
        case Exit():
            fields |= {"block": event.block, "outcome": event.outcome}
            if event.failed:
                fields["failed"] = list(event.failed)
            if event.message:
                fields["message"] = event.message
        case Leave():
            pass
    return fields


def fault_fields(fault: Fault) -> Object:
    """A fault as a JSON object."""
    fields: Object = {"type": "fault", "time_ns": fault.time_ns, "name": fault.name}
    if fault.until_ns is not None:
        fields["until_ns"] = fault.until_ns
    if fault.lane != NEMESIS:
        fields["lane"] = fault.lane
    return fields


def _add_live_set_or_result(fields: Object, name: str, result: object, answer: int | None) -> None:
    if answer is not None:
        fields["answer"] = answer
    elif _is_live_set(result):
        fields[name] = _live_set_fields(result)
    else:
        fields[name] = result


def _live_set_of(event: Event) -> Mapping[int, int | None] | None:
    if isinstance(event, Enter):
        return event.live
    if isinstance(event, Ok) and _is_live_set(event.result):
        return event.result
    return None


def _is_live_set(result: object) -> TypeGuard[Mapping[int, int | None]]:
    """Results of other operations are JSON values, whose keys are strings."""
    return isinstance(result, dict) and (not result or isinstance(next(iter(result)), int))


def _live_set_fields(live: Mapping[int, int | None]) -> dict[str, str | None]:
    return {
        str(process): None if live[process] is None else str(live[process])
        for process in sorted(live)
    }


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once: `json.dumps` makes one for every line."""


def _encode(fields: Object) -> bytes:
    return _ENCODER.encode(fields).encode() + b"\n"
