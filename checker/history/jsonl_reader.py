"""Reads histories from JSON lines (docs/history-format.md).

Reading streams: a line is parsed, checked against the ones before it, and handed on. The last line
of a recorder that was killed may be cut; it is skipped with a note. Any other bad line is a
`MalformedHistory` with file, line and field.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import IO, NoReturn, Required, TypedDict

from checker.collector import collector_paused
from checker.errors import MalformedHistory
from checker.history.events import (
    LIVE_PROCESSES,
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
    LiveSet,
    Ok,
    Start,
)
from checker.history.fields import (
    INTEGER_MAX,
    Object,
    choice,
    incarnation,
    integer,
    live_set,
    mapping,
    optional_integer,
    optional_string,
    parse_object,
    process_numbers,
    refuse_others,
    shown,
    string,
)
from checker.history.header import CLOCKS, FORMAT_VERSION, SOURCES, VERSION_KEY, Header
from checker.history.history import History
from checker.history.wellformed import WellFormed

LINE_BYTES_MAX = 1 << 26
"""Longer lines are refused before they fill the memory: an answer of a million processes fits."""

_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
"""How files begin that gzip or zstd has packed."""

_EVENTS_PER_REPORT = 65_536


def read(path: str | Path, *, report: Callable[[int], object] | None = None) -> History:
    """Reads a whole history file.

    Args:
      path: The file; one that is packed with gzip or zstd is unpacked.
      report: Called every 65,536 events with the number of events read so far.

    Raises:
      MalformedHistory: the file breaks the format.
      OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return _collect(HistoryReader(_text_lines(file, str(path)), path=str(path)), report)


def loads(text: str) -> History:
    """Reads a history from a string."""
    return _collect(HistoryReader(io.StringIO(text)), None)


def _collect(reader: HistoryReader, report: Callable[[int], object] | None) -> History:
    events: list[Event] = []
    with collector_paused():
        while some := list(islice(reader, _EVENTS_PER_REPORT)):
            events += some
            if report is not None:
                report(len(events))
    return History(reader.header, events, tuple(reader.notes), tuple(reader.faults))


def _text_lines(file: io.BufferedReader, path: str) -> Iterator[str]:
    if file.peek(4).startswith(_PACKED):
        from checker.formats.source import Source

        return Source(file, path).lines()
    return _decoded_lines(file)


def _decoded_lines(file: IO[bytes]) -> Iterator[str]:
    """Decodes line by line: a text file would blame a bad byte on a line some kilobytes earlier."""
    while line := file.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise MalformedHistory(
                f"the line is longer than {LINE_BYTES_MAX} bytes; is this a history file?"
            )
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            if line.endswith(b"\n") or error.reason != "unexpected end of data":
                raise
            text = line.decode(errors="ignore")  # The last line, cut inside a character.
        # Editors of some systems put a byte order mark before the first line.
        yield text.removeprefix("\ufeff")


class HistoryReader:
    """Iterates over the events of a history, line by line.

    Attributes:
      header: Known as soon as the reader exists.
      notes: Filled while iterating.
      faults: Filled while iterating, too.
    """

    def __init__(self, lines: Iterable[str], *, path: str | None = None) -> None:
        self.notes: list[str] = []
        self.faults: list[Fault] = []
        self._path = path
        self._number = 0
        self._lines = iter(lines)
        self._answers: dict[int, LiveSet] = {}
        self._operations: dict[int, str] = {}
        self._builders: dict[str, Callable[[Object], Event]] = {
            "start": self._start,
            "crash": self._crash,
            "leave": self._leave,
            "invoke": self._invoke,
            "ok": self._ok,
            "fail": self._fail_event,
            "info": self._info,
            "enter": self._enter,
            "exit": self._exit,
        }
        self.header = self._read_header()
        self._rules = WellFormed(self.header)
        self._events = self._read_events()

    def __iter__(self) -> Iterator[Event]:
        return self._events

    @property
    def line(self) -> int:
        """Number of the line that was read last."""
        return self._number

    def _read_events(self) -> Iterator[Event]:
        for line in self._numbered():
            try:
                fields = parse_object(line)
            except ValueError as error:
                if not line.strip():
                    continue
                if not line.endswith("\n"):
                    self.notes.append(
                        f"line {self._number} is cut off (the recorder was killed?) and was skipped"
                    )
                    return
                self._fail(
                    MalformedHistory(f"not a JSON object: {error}; every line must be a whole one")
                )
            try:
                event = self._event(fields)
                if event is None:
                    continue
                self._rules.accept(event)
            except MalformedHistory as error:
                self._fail(error)
            yield event

    def _numbered(self) -> Iterator[str]:
        try:
            for line in self._lines:
                self._number += 1
                yield line
        except UnicodeDecodeError as error:
            self._number += 1
            problem = f"not UTF-8 text ({error.reason}); if it is compressed, unpack it first"
            self._fail(MalformedHistory(problem))
        except MalformedHistory as error:
            self._number += 1
            self._fail(error)

    def _fail(self, error: MalformedHistory) -> NoReturn:
        raise MalformedHistory(
            error.problem, path=self._path, line=self._number or None, field=error.field
        ) from None

    def _read_header(self) -> Header:
        line = next(self._numbered(), None)
        if line is None:
            self._fail(MalformedHistory("the file is empty; a history begins with a header line"))
        if not line.strip():
            self._fail(
                MalformedHistory("the first line is blank; a history begins with a header line")
            )
        try:
            return _header(parse_object(line))
        except MalformedHistory as error:
            self._fail(error)
        except ValueError as error:
            self._fail(
                MalformedHistory(f"not a JSON object: {error}; a history begins with a header line")
            )

    def _event(self, fields: Object) -> Event | None:
        kind = fields.pop("type", None)
        build = self._builders.get(kind) if isinstance(kind, str) else None
        if build is None or not isinstance(kind, str):
            if kind == "answer":
                self._define_answer(fields)
                return None
            if kind == "fault":
                self._add_fault(fields)
                return None
            names = ", ".join([*self._builders, "fault", "answer"])
            raise MalformedHistory(
                f"is missing; one of {names}"
                if kind is None
                else f"unknown type {shown(kind)}; one of {names}",
                field="type",
            )
        event = build(fields)
        if fields:
            refuse_others(fields, kind)
        return event

    def _define_answer(self, fields: Object) -> None:
        number = integer(fields, "answer")
        if number in self._answers:
            raise MalformedHistory(
                f"answer {number} is defined a second time; give it a number of its own",
                field="answer",
            )
        self._answers[number] = live_set(fields, "live")
        refuse_others(fields, "answer")

    def _add_fault(self, fields: Object) -> None:
        lane = optional_string(fields, "lane")
        fault = Fault(
            time_ns=integer(fields, "time_ns"),
            name=string(fields, "name"),
            until_ns=optional_integer(fields, "until_ns"),
            lane=NEMESIS if lane is None else lane,
        )
        refuse_others(fields, "fault")
        self._rules.accept_fault(fault)
        self.faults.append(fault)

    # Each builder takes its fields out of the object, so that what is left is unknown.

    def _start(self, fields: Object) -> Event:
        return Start(since_ns=optional_integer(fields, "since_ns"), **_common(fields))

    def _crash(self, fields: Object) -> Event:
        return Crash(
            since_ns=optional_integer(fields, "since_ns"),
            cause=optional_string(fields, "cause"),
            **_common(fields),
        )

    def _leave(self, fields: Object) -> Event:
        return Leave(**_common(fields))

    def _invoke(self, fields: Object) -> Event:
        arguments = mapping(fields, "arguments")
        if isinstance(arguments.get("participants"), list):
            arguments["participants"] = process_numbers(
                arguments["participants"], "arguments.participants", may_be_empty=True
            )
        operation = string(fields, "operation")
        event = Invoke(
            id=integer(fields, "id"), operation=operation, arguments=arguments, **_common(fields)
        )
        self._operations[event.id] = operation
        return event

    def _ok(self, fields: Object) -> Event:
        number = integer(fields, "id")
        operation = self._operations.pop(number, None)
        result: object
        if "answer" in fields:
            result = self._shared_answer(fields)
        elif operation == LIVE_PROCESSES:
            result = live_set(fields, "result")
        else:
            result = fields.pop("result", None)
        return Ok(id=number, result=result, **_common(fields))

    def _fail_event(self, fields: Object) -> Event:
        event = Fail(
            id=integer(fields, "id"),
            code=string(fields, "code"),
            message=optional_string(fields, "message") or "",
            **_common(fields),
        )
        self._operations.pop(event.id, None)
        return event

    def _info(self, fields: Object) -> Event:
        event = Info(
            id=integer(fields, "id"),
            code=string(fields, "code"),
            message=optional_string(fields, "message") or "",
            **_common(fields),
        )
        self._operations.pop(event.id, None)
        return event

    def _enter(self, fields: Object) -> Event:
        block = integer(fields, "block")
        live = self._shared_answer(fields) if "answer" in fields else live_set(fields, "live")
        return Enter(block=block, live=live, **_common(fields))

    def _exit(self, fields: Object) -> Event:
        failed = process_numbers(fields.pop("failed", []), "failed", may_be_empty=True)
        return Exit(
            block=integer(fields, "block"),
            outcome=string(fields, "outcome"),
            failed=failed,
            message=optional_string(fields, "message") or "",
            **_common(fields),
        )

    def _shared_answer(self, fields: Object) -> LiveSet:
        number = integer(fields, "answer")
        answer = self._answers.get(number)
        if answer is None:
            raise MalformedHistory(
                f"answer {number} is not defined; its answer line must come first", field="answer"
            )
        return answer


class _Common(TypedDict, total=False):
    time_ns: Required[int]
    process: Required[int]
    lifetime: Required[int]
    incarnation: int | None
    uncertainty_ns: int


def _common(fields: Object) -> _Common:
    """The fields that all events share, taken out of `fields`."""
    time_ns, process, lifetime = (
        fields.get("time_ns"),
        fields.get("process"),
        fields.get("lifetime"),
    )
    if (
        type(time_ns) is type(process) is type(lifetime) is int
        and 0 <= time_ns <= INTEGER_MAX
        and 0 <= process <= INTEGER_MAX
        and 0 <= lifetime <= INTEGER_MAX
    ):
        del fields["time_ns"], fields["process"], fields["lifetime"]
        common: _Common = {"time_ns": time_ns, "process": process, "lifetime": lifetime}
    else:
        common = {
            "time_ns": integer(fields, "time_ns"),
            "process": integer(fields, "process"),
            "lifetime": integer(fields, "lifetime"),
        }
    if not fields:
        return common
    if "incarnation" in fields:
        common["incarnation"] = incarnation(fields.pop("incarnation"), "incarnation")
    if "uncertainty_ns" in fields:
        common["uncertainty_ns"] = integer(fields, "uncertainty_ns")
    return common


def _header(fields: Object) -> Header:
    if VERSION_KEY not in fields:
        raise MalformedHistory(
            f"the first line is no header; it must have '{VERSION_KEY}', the format's version",
            field=VERSION_KEY,
        )
    version = fields[VERSION_KEY]
    if type(version) is not int or version != FORMAT_VERSION:
        raise MalformedHistory(
            f"format version {shown(version)} is not supported; this coordlab reads version "
            f"{FORMAT_VERSION}: use the coordlab that wrote the file",
            field=VERSION_KEY,
        )
    if "participants" not in fields:
        raise MalformedHistory("is missing; a list of process numbers", field="participants")
    participants = process_numbers(fields["participants"], "participants", may_be_empty=False)
    cannot_know = fields.get("cannot_know", [])
    if not isinstance(cannot_know, list) or not all(isinstance(s, str) for s in cannot_know):
        raise MalformedHistory(
            f"must be a list of strings, found {shown(cannot_know)}", field="cannot_know"
        )
    # Fields that this version does not know are ignored here, and only here: a later recorder may
    # tell more about itself.
    return Header(
        source=choice(fields, "source", SOURCES),
        clock=choice(fields, "clock", CLOCKS),
        participants=tuple(sorted(participants)),
        cannot_know=tuple(cannot_know),
        details=mapping(fields, "details"),
    )
