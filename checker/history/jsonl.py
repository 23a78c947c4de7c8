"""Histories as JSON lines: the reader and the writer of docs/history-format.md.

Reading streams: a line is parsed, checked against the ones before it, and handed on. The last line of
a recorder that was killed may be cut; it is skipped with a note. Any other bad line is a
`MalformedHistory` with file, line and field.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, NoReturn, TypeAlias, TypeGuard

from checker.errors import MalformedHistory
from checker.history.events import (
    LIVE_PROCESSES,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Start,
)
from checker.history.header import CLOCKS, FORMAT_VERSION, SOURCES, Header
from checker.history.history import History
from checker.history.wellformed import WellFormed

VERSION_KEY = "coordlab_history"
INLINE_LIVE_SET_MAX = 8
"""Live sets of up to this many processes stand in each response; larger ones are written once."""

_REMEMBERED_ANSWERS_MAX = 64
_Object: TypeAlias = dict[str, object]


# --- reading ---------------------------------------------------------------------------------------


def read(path: str | Path) -> History:
    """Reads a whole history file.

    Raises:
      MalformedHistory: the file breaks the format.
      OSError: the file cannot be read.
    """
    with open(path, encoding="utf-8", newline="\n") as file:
        return _collect(HistoryReader(file, path=str(path)))


def loads(text: str) -> History:
    """Reads a history from a string."""
    return _collect(HistoryReader(io.StringIO(text)))


def _collect(reader: HistoryReader) -> History:
    events = list(reader)
    return History(reader.header, events, tuple(reader.notes))


class HistoryReader:
    """Iterates over the events of a history, line by line.

    Attributes:
      header: Known as soon as the reader exists.
      notes: Filled while iterating.
    """

    def __init__(self, lines: Iterable[str], *, path: str | None = None) -> None:
        self.notes: list[str] = []
        self._path = path
        self._number = 0
        self._lines = iter(lines)
        self._answers: dict[int, LiveSet] = {}
        self._operations: dict[int, str] = {}
        self.header = self._read_header()
        self._rules = WellFormed(self.header)

    def __iter__(self) -> Iterator[Event]:
        for line in self._numbered():
            if not line.strip():
                continue
            try:
                fields = _parse_object(line)
            except ValueError as error:
                if not line.endswith("\n"):
                    self.notes.append(
                        f"line {self._number} is cut off (the recorder was killed?) and was skipped"
                    )
                    return
                self._fail(MalformedHistory(f"not a JSON object: {error}"))
            try:
                event = self._event(fields)
                if event is None:
                    continue
                self._rules.accept(event)
            except MalformedHistory as error:
                self._fail(error)
            yield event

    def _numbered(self) -> Iterator[str]:
        while True:
            try:
                line = next(self._lines)
            except StopIteration:
                return
            except UnicodeDecodeError as error:
                self._number += 1
                self._fail(MalformedHistory(f"not UTF-8 text ({error.reason}); is it compressed?"))
            self._number += 1
            yield line

    def _fail(self, error: MalformedHistory) -> NoReturn:
        raise MalformedHistory(
            error.problem, path=self._path, line=self._number or None, field=error.field
        ) from None

    def _read_header(self) -> Header:
        line = next(self._numbered(), None)
        if line is None or not line.strip():
            self._number = 0
            self._fail(
                MalformedHistory("the file is empty; a history begins with a header line")
                if line is None
                else MalformedHistory("the first line is empty; a history begins with a header")
            )
        try:
            fields = _parse_object(line)
        except ValueError as error:
            self._fail(MalformedHistory(f"the header is not a JSON object: {error}"))
        try:
            return _header(fields)
        except MalformedHistory as error:
            self._fail(error)

    def _event(self, fields: _Object) -> Event | None:
        kind = fields.get("type")
        if kind == "answer":
            number = _integer(fields, "answer")
            self._answers[number] = _live_set(fields, "live")
            return None
        build = _BUILDERS.get(kind) if isinstance(kind, str) else None
        if build is None:
            raise MalformedHistory(
                f"unknown type {kind!r}; one of {', '.join([*_BUILDERS, 'answer'])}", field="type"
            )
        event = build(self, fields)
        if fields:
            raise MalformedHistory(f"unknown field in a {kind} event", field=next(iter(fields)))
        return event

    # Each builder takes its fields out of the object, so that what is left is unknown.

    def _start(self, fields: _Object) -> Event:
        return Start(since_ns=_optional_integer(fields, "since_ns"), **_common(fields))

    def _crash(self, fields: _Object) -> Event:
        return Crash(
            since_ns=_optional_integer(fields, "since_ns"),
            cause=_string(fields, "cause", None),
            **_common(fields),
        )

    def _leave(self, fields: _Object) -> Event:
        return Leave(**_common(fields))

    def _invoke(self, fields: _Object) -> Event:
        arguments = fields.pop("arguments", {})
        if not isinstance(arguments, dict):
            raise MalformedHistory("must be an object", field="arguments")
        if isinstance(arguments.get("participants"), list):
            arguments["participants"] = tuple(arguments["participants"])
        operation = _string(fields, "operation")
        event = Invoke(
            id=_integer(fields, "id"), operation=operation, arguments=arguments, **_common(fields)
        )
        self._operations[event.id] = operation
        return event

    def _ok(self, fields: _Object) -> Event:
        number = _integer(fields, "id")
        operation = self._operations.pop(number, None)
        result: object
        if "answer" in fields:
            result = self._shared_answer(fields)
        elif operation == LIVE_PROCESSES:
            result = _live_set(fields, "result")
        else:
            result = fields.pop("result", None)
        return Ok(id=number, result=result, **_common(fields))

    def _fail_event(self, fields: _Object) -> Event:
        event = Fail(**_error(fields), **_common(fields))
        self._operations.pop(event.id, None)
        return event

    def _info(self, fields: _Object) -> Event:
        event = Info(**_error(fields), **_common(fields))
        self._operations.pop(event.id, None)
        return event

    def _enter(self, fields: _Object) -> Event:
        block = _integer(fields, "block")
        live = self._shared_answer(fields) if "answer" in fields else _live_set(fields, "live")
        return Enter(block=block, live=live, **_common(fields))

    def _exit(self, fields: _Object) -> Event:
        failed = fields.pop("failed", [])
        if not isinstance(failed, list) or not all(_is_integer(p) for p in failed):
            raise MalformedHistory("must be a list of process numbers", field="failed")
        return Exit(
            block=_integer(fields, "block"),
            outcome=_string(fields, "outcome"),
            failed=tuple(failed),
            message=_string(fields, "message", ""),
            **_common(fields),
        )

    def _shared_answer(self, fields: _Object) -> LiveSet:
        number = _integer(fields, "answer")
        answer = self._answers.get(number)
        if answer is None:
            raise MalformedHistory(
                f"answer {number} is not defined; its answer line must come first", field="answer"
            )
        return answer


_BUILDERS: dict[str, Callable[[HistoryReader, _Object], Event]] = {
    "start": HistoryReader._start,
    "crash": HistoryReader._crash,
    "leave": HistoryReader._leave,
    "invoke": HistoryReader._invoke,
    "ok": HistoryReader._ok,
    "fail": HistoryReader._fail_event,
    "info": HistoryReader._info,
    "enter": HistoryReader._enter,
    "exit": HistoryReader._exit,
}
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


def _parse_object(line: str) -> _Object:
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError(f"found {type(value).__name__}")  # noqa: TRY004 - one kind of bad line
    return value


def _is_integer(value: object) -> bool:
    return type(value) is int


def _integer(fields: _Object, name: str) -> int:
    value = fields.pop(name, None)
    if type(value) is not int:
        if value is None:
            raise MalformedHistory("is missing", field=name)
        raise MalformedHistory(f"must be an integer, found {value!r:.60}", field=name)
    return value


def _optional_integer(fields: _Object, name: str) -> int | None:
    if name not in fields:
        return None
    return _integer(fields, name)


_REQUIRED = object()


def _string(fields: _Object, name: str, default: object = _REQUIRED) -> str:
    value = fields.pop(name, default)
    if value is _REQUIRED:
        raise MalformedHistory("is missing", field=name)
    if value is not default and not isinstance(value, str):
        raise MalformedHistory(f"must be a string, found {value!r:.60}", field=name)
    return value  # type: ignore[return-value]  # the default, or a string


def _common(fields: _Object) -> dict[str, int | None]:
    """The fields that all events share, taken out of `fields`."""
    common: dict[str, int | None] = {
        "time_ns": _integer(fields, "time_ns"),
        "process": _integer(fields, "process"),
        "lifetime": _integer(fields, "lifetime"),
    }
    if "incarnation" in fields:
        common["incarnation"] = _incarnation(fields.pop("incarnation"), "incarnation")
    if "uncertainty_ns" in fields:
        common["uncertainty_ns"] = _integer(fields, "uncertainty_ns")
    fields.pop("type", None)
    return common


def _error(fields: _Object) -> dict[str, object]:
    return {
        "id": _integer(fields, "id"),
        "code": _string(fields, "code"),
        "message": _string(fields, "message", ""),
    }


def _incarnation(value: object, field: str) -> int | None:
    """Incarnations are decimal strings in files: they have 64 bits, and JSON numbers often 53."""
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    raise MalformedHistory(
        f"an incarnation is a decimal string or null, found {value!r:.60}", field=field
    )


def _live_set(fields: _Object, name: str) -> LiveSet:
    value = fields.pop(name, None)
    if not isinstance(value, dict):
        raise MalformedHistory("must map processes to incarnations", field=name)
    live: dict[int, int | None] = {}
    for process, incarnation in value.items():
        if not (process.isascii() and process.isdigit()):
            raise MalformedHistory(f"{process!r:.60} is not a process number", field=name)
        live[int(process)] = _incarnation(incarnation, name)
    return live


def _header(fields: _Object) -> Header:
    if VERSION_KEY not in fields:
        raise MalformedHistory(
            f"the first line is no header; it must have '{VERSION_KEY}', the format's version",
            field=VERSION_KEY,
        )
    version = fields[VERSION_KEY]
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise MalformedHistory(
            f"format version {version!r} is not supported; this coordlab reads version "
            f"{FORMAT_VERSION}: use the coordlab that wrote the file",
            field=VERSION_KEY,
        )
    participants = fields.get("participants")
    if (
        not isinstance(participants, list)
        or not participants
        or not all(_is_integer(p) and p >= 0 for p in participants)
        or len(set(participants)) != len(participants)
    ):
        raise MalformedHistory(
            "must be a list of different process numbers, not empty", field="participants"
        )
    details = fields.get("details", {})
    if not isinstance(details, dict):
        raise MalformedHistory("must be an object", field="details")
    cannot_know = fields.get("cannot_know", [])
    if not isinstance(cannot_know, list) or not all(isinstance(s, str) for s in cannot_know):
        raise MalformedHistory("must be a list of strings", field="cannot_know")
    return Header(
        source=_choice(fields, "source", SOURCES),
        clock=_choice(fields, "clock", CLOCKS),
        participants=tuple(sorted(participants)),
        cannot_know=tuple(cannot_know),
        details=details,
    )


def _choice(fields: _Object, name: str, choices: tuple[str, ...]) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or value not in choices:
        raise MalformedHistory(f"must be one of {', '.join(choices)}; found {value!r}", field=name)
    return value


# --- writing ---------------------------------------------------------------------------------------


class HistoryWriter:
    """Writes a header and then events, each as one line in one call of `write`.

    Args:
      write: Takes the bytes of one or two whole lines. A recorder whose process may be killed passes
        an unbuffered append, so that nothing already written is lost.
      header: Written at once.
    """

    def __init__(self, write: Callable[[bytes], object], header: Header) -> None:
        self._write = write
        self._answers: dict[frozenset[tuple[int, int | None]], int] = {}
        self._answers_written = 0
        self._write(_encode(header_fields(header)))

    def append(self, event: Event) -> None:
        """Writes one event; a large live set is written once and then referred to."""
        live = _live_set_of(event)
        if live is None or len(live) <= INLINE_LIVE_SET_MAX:
            self._write(_encode(event_fields(event)))
            return
        key = frozenset(live.items())
        number = self._answers.get(key)
        prefix = b""
        if number is None:
            number = self._answers_written
            self._answers_written += 1
            if len(self._answers) >= _REMEMBERED_ANSWERS_MAX:
                del self._answers[next(iter(self._answers))]
            self._answers[key] = number
            prefix = _encode(
                {"type": "answer", "answer": number, "live": _live_set_fields(live)}
            )
        self._write(prefix + _encode(event_fields(event, answer=number)))


def dumps(history: History) -> str:
    """The history as JSON lines."""
    buffer = io.BytesIO()
    writer = HistoryWriter(buffer.write, history.header)
    for event in history.events:
        writer.append(event)
    return buffer.getvalue().decode()


def write(history: History, path: str | Path) -> None:
    """Writes a history file; a reader sees the old file or the whole new one, never a part."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write_all(history, file)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_all(history: History, file: IO[bytes]) -> None:
    writer = HistoryWriter(file.write, history.header)
    for event in history.events:
        writer.append(event)


def header_fields(header: Header) -> _Object:
    """The header as a JSON object."""
    fields: _Object = {
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


def event_fields(event: Event, *, answer: int | None = None) -> _Object:
    """An event as a JSON object; with `answer`, its live set is a reference."""
    fields: _Object = {
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


def _add_live_set_or_result(
    fields: _Object, name: str, result: object, answer: int | None
) -> None:
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


def _encode(fields: _Object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
