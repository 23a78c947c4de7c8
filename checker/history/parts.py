"""Recordings of single processes of a job, as they lie in a folder before they are merged.

A recorder inside a program knows its own process, and not always how many there are, so that its
header may name fewer processes than its events; and what it wrote may be cut, or damaged since. A
part is read as far as it can be used, and says what could not.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from checker.errors import MalformedHistory
from checker.history.events import Crash, Event, Leave, Start
from checker.history.fields import INTEGER_MAX, process_numbers, shown
from checker.history.gaps import Gap
from checker.history.header import Header
from checker.history.history import History
from checker.history.jsonl_reader import LINE_BYTES_MAX, HistoryReader

BAD_LINES_MAX: Final = 20
"""With more bad lines than that, what follows the last of them is not used."""

RECORDER_LANE: Final = "recorder"
"""The lane of faults that are remarks of recorders (docs/history-format.md)."""

END_REMARK: Final = "the program has come to its end"
"""How the remark ends of a program that ended by itself, as far as it could tell."""

PROCESS_MAX: Final = 1_000_000
"""A larger number of a process is taken for damage: the header would have to name all up to it."""

SERVICE_MADE: Final = "service_made_ns"
"""The detail of a header that notes a service, and by the clock of its host when that was made."""

STOPPED: Final = ".stopped"
"""Behind the name of a recording whose recorder stopped before its process did: a file beside it."""

STAND_IN: Final = "calls of unknown outcome stand for it"

_MERGED: Final = "merged"
"""The detail of a header that lists the recordings of which a history was merged."""

_NAME: Final = re.compile(r"process-([0-9]{1,9})(?:-[0-9]+)?\.jsonl$", re.ASCII)
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd")
_NAMES_PROCESSES = (b'"participants":', b'"live":', b'"result":{', b'"failed":')


class EmptyRecording(MalformedHistory):
    """Nothing was written: the process was killed before, or the disk was full."""


@dataclass(frozen=True, slots=True)
class Part:
    """A recording, as far as it can be used.

    Attributes:
      path: The file.
      history: Times by the clock of its host; operations and lifetimes numbered from 0.
      notes: Sentences on what of the file could not be used.
      processes: How many the job has, or None if the recorder did not know.
      is_stopped: It stopped before its process did, or a copy of it is cut.
    """

    path: Path
    history: History
    notes: tuple[str, ...]
    processes: int | None
    is_stopped: bool = False

    @property
    def service_made_ns(self) -> int | None:
        """When a service began to be made, if that is what the file notes: it has no events then."""
        return self.number(SERVICE_MADE)

    @property
    def is_of_server(self) -> bool:
        """Whether it is of the service's side."""
        return self.history.header.source == "server"

    def text(self, name: str) -> str | None:
        """A detail of the header that is text."""
        value = self.history.header.details.get(name)
        return value if isinstance(value, str) else None

    def number(self, name: str) -> int | None:
        """A detail of the header that is a whole number."""
        value = self.history.header.details.get(name)
        return value if type(value) is int else None

    @property
    def numbers(self) -> tuple[int, ...]:
        """The processes that have events here."""
        return tuple(sorted({event.process for event in self.history.events}))

    @property
    def incarnations(self) -> frozenset[tuple[int, int]]:
        """Process and incarnation of each start."""
        events = self.history.events
        return frozenset((e.process, e.incarnation) for e in events if e.incarnation is not None)

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """From the first event to the last one, or None if there is none."""
        events = self.history.events
        return (events[0].time_ns, events[-1].time_ns) if events else None

    @property
    def gap(self) -> Gap:
        """What is missing at the end, if it is stopped."""
        events = self.history.events
        if events:
            return Gap(events[-1].process, events[-1].lifetime)
        process = self.number("process")
        return Gap(self.history.header.participants[0] if process is None else process, None)

    @property
    def is_ended(self) -> bool:
        """Whether the end of its last lifetime is known."""
        return any(isinstance(event, Crash | Leave) for event in self.history.events)


def read_part(path: str | Path) -> Part:
    """Reads a recording, and passes over lines that cannot be used.

    Raises:
      EmptyRecording: there is no whole line in it.
      MalformedHistory: nothing can be used: no header, or another version's.
      OSError: the file cannot be read.
    """
    path = Path(path)
    header, first = _header_line(path)
    details = header.get("details")
    told = details.get("processes") if isinstance(details, dict) else None
    named = process_numbers(header.get("participants"), "participants", may_be_empty=False)
    _check_numbers(path, header, named)
    processes: int | None = told if type(told) is int else 1 + max(named)
    if isinstance(details, dict) and "processes" in details and type(told) is not int:
        processes = None
        header["participants"] = list(range(1 + max(*named, *_processes_named(path))))
        first = json.dumps(header) + "\n"
    bad: set[int] = set()
    notes: list[str] = []
    while True:
        reader = HistoryReader(_lines(path, first, bad), path=str(path))
        events: list[Event] = []
        try:
            events.extend(reader)  # Keeps what came before an error.
        except MalformedHistory as error:
            if error.line is None:
                raise  # The header, of which a line is always known: this cannot be passed over.
            bad.add(error.line)
            notes.append(f"line {error.line} is not used: {_about(error)}")
            if len(bad) <= BAD_LINES_MAX:
                continue
            notes.append(f"nothing behind line {error.line} is used: too many bad lines")
        history = History(reader.header, events, (), tuple(reader.faults))
        part = Part(path, history, (*notes, *reader.notes), processes, is_stopped(path))
        if part.is_stopped and not part.is_of_server:
            part = replace(part, notes=(*part.notes, _about_gap(part)))
        return part


def is_stopped(path: Path) -> bool:
    """Whether a recording stopped before its process did, was cut when it was copied, or by SIGKILL."""
    if path.with_name(path.name + STOPPED).exists():
        return True
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def process_in_name(path: Path) -> int | None:
    """Whose an empty recording is, from its name as recorders give it; None for another name."""
    found = _NAME.search(path.name)
    number = None if found is None else int(found[1])
    return None if number is None or number > PROCESS_MAX else number


def _about_gap(part: Part) -> str:
    when = "before anything of it was seen"
    times = [e.time_ns for e in part.history.events if not isinstance(e, Crash | Leave)]
    if times:
        when = f"{(times[-1] - times[0]) / 10**9:.3f} s after its first event"
    return (
        f"the recording of process {part.gap.process} stopped {when}; what the process called from "
        f"then on is not known, and {STAND_IN}"
    )


def is_merged(path: str | Path) -> bool:
    """Whether a file holds no recording, but the result of merging some; also if it holds nothing.

    Raises:
      OSError: the file cannot be read.
    """
    try:
        header, _ = _header_line(Path(path))
    except EmptyRecording:
        return Path(path).stat().st_size == 0
    except MalformedHistory:
        return False
    details = header.get("details")
    return isinstance(details, dict) and _MERGED in details


def _check_numbers(path: Path, header: Mapping[str, object], participants: Sequence[int]) -> None:
    """Refuses numbers that damage has made: the result would have to list all processes up to them."""
    details = header.get("details")
    told = details if isinstance(details, dict) else {}
    for field, value, least, most in (
        ("participants", max(participants), 0, PROCESS_MAX),
        ("details.processes", told.get("processes"), 1, PROCESS_MAX + 1),
        ("details.process", told.get("process"), 0, PROCESS_MAX),
        (f"details.{SERVICE_MADE}", told.get(SERVICE_MADE), 0, INTEGER_MAX),
        ("details.wall_clock_ahead_ns", told.get("wall_clock_ahead_ns"), -INTEGER_MAX, INTEGER_MAX),
    ):
        if type(value) is int and not least <= value <= most:
            raise MalformedHistory(
                f"must be from {least} to {most}, found {shown(value)}; the line seems to be damaged",
                path=str(path),
                line=1,
                field=field,
            )


def _about(error: MalformedHistory) -> str:
    return error.problem if error.field is None else f"field {error.field!r}: {error.problem}"


def _header_line(path: Path) -> tuple[dict[str, object], str]:
    with open(path, "rb") as file:
        line = file.readline(LINE_BYTES_MAX + 1)
    if not line.strip():
        raise EmptyRecording("nothing was recorded in it", path=str(path))
    if line.startswith(_PACKED):
        raise MalformedHistory("the file is packed; unpack it first", path=str(path))
    try:
        text = line.decode()
        fields = json.loads(text)
    except (ValueError, RecursionError):
        if not line.endswith(b"\n"):
            raise EmptyRecording("its first line is cut off", path=str(path)) from None
        fields = None
    if not isinstance(fields, dict):
        raise MalformedHistory(
            "the first line is no header of a history; is this a recording?",
            path=str(path),
            line=1,
        )
    HistoryReader([text], path=str(path))  # Says what is wrong with it, if anything is.
    return fields, text


def _lines(path: Path, first: str, bad: set[int]) -> Iterator[str]:
    """The lines of a file with another first one; blank lines in place of bad ones."""
    with open(path, "rb") as file:
        for number, line in enumerate(_byte_lines(file), start=1):
            if number == 1:
                yield first
            elif number in bad:
                yield "\n"
            elif line.endswith(b"\n"):
                # Bytes that are no text become a character that JSON has outside of nothing.
                yield line.decode(errors="surrogateescape") if _is_text(line) else "\x00\n"
            else:
                yield line.decode(errors="ignore")


def _byte_lines(file: Iterable[bytes]) -> Iterator[bytes]:
    for line in file:
        yield line if len(line) <= LINE_BYTES_MAX else b"\x00\n"


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def _processes_named(path: Path) -> Iterator[int]:
    """The numbers of processes in participants, answers and blocks, for a header that lacks them."""
    yield 0
    with open(path, "rb") as file:
        for line in _byte_lines(file):
            if not any(name in line for name in _NAMES_PROCESSES):
                continue
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(fields, dict):
                yield from _numbers(fields)


def _numbers(fields: Mapping[str, object]) -> Iterator[int]:
    arguments = fields.get("arguments")
    lists = [arguments.get("participants") if isinstance(arguments, dict) else None]
    lists += [fields.get("failed"), fields.get("live"), fields.get("result")]
    for some in lists:
        if isinstance(some, list | dict):
            for value in some:
                text = str(value)
                if text.isascii() and text.isdecimal() and int(text) <= PROCESS_MAX:
                    yield int(text)


def with_lifetimes_from(part: Part, first: Mapping[int, int]) -> Part:
    """The same with its lifetimes numbered from others on.

    Args:
      part: Its lifetimes are numbered from 0.
      first: By process, what becomes of lifetime 0.
    """
    events = [
        replace(e, lifetime=e.lifetime + first.get(e.process, 0)) for e in part.history.events
    ]
    return replace(part, history=replace(part.history, events=events))


def with_lifetimes_only(part: Part, kept: Callable[[int, int], bool]) -> Part:
    """The same with some of its lifetimes, each process's numbered from 0, and all that has no process.

    Args:
      part: As read.
      kept: Whether to keep a lifetime; called with its process and its number.
    """
    events = [event for event in part.history.events if kept(event.process, event.lifetime)]
    numbers: dict[int, dict[int, int]] = {}
    for key in sorted({(event.process, event.lifetime) for event in events}):
        of_process = numbers.setdefault(key[0], {})
        of_process[key[1]] = len(of_process)
    events = [replace(e, lifetime=numbers[e.process][e.lifetime]) for e in events]
    last = part.gap
    is_last = last.lifetime is None or kept(last.process, last.lifetime)
    return replace(
        part,
        history=replace(part.history, events=events),
        is_stopped=part.is_stopped and is_last,
    )


def starts_of(part: Part) -> dict[int, int]:
    """By process, when it joined the job, or did something without that; by the part's clock."""
    found: dict[int, int] = {}
    for event in part.history.events:
        if isinstance(event, Start):
            found.setdefault(event.process, event.time_ns)
    for event in part.history.events:
        found.setdefault(event.process, event.time_ns)
    return found


def header_of_all(parts: Iterable[Part], processes: int, clock: str) -> Header:
    """The header of a merged history: what no part knows, and where the parts came from."""
    cannot_know: dict[str, None] = {}
    sources: list[dict[str, object]] = []
    for part in parts:
        header = part.history.header
        cannot_know.update(dict.fromkeys(header.cannot_know))
        kept = ("host", "pid", "process", "address", "python", "jaxlib")
        details = {name: header.details[name] for name in kept if name in header.details}
        sources.append({"file": part.path.name, **details})
    return Header(
        source="processes",
        clock=clock,
        participants=tuple(range(processes)),
        cannot_know=tuple(cannot_know),
        details={_MERGED: sources},
    )
