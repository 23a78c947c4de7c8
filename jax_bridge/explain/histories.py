"""Reads a history into what matters for its failure, event by event."""

from __future__ import annotations

import gzip
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from checker.errors import MalformedHistory
from checker.history import (
    LIVE_PROCESSES,
    Crash,
    Event,
    Exit,
    Fail,
    Fault,
    Header,
    HistoryReader,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.history.gaps import NOT_RECORDED, RECORDING_STOPPED
from checker.history.header import VERSION_KEY
from checker.history.parts import END_REMARK, RECORDER_LANE
from jax_bridge.explain.causes import Evidence, quoted
from jax_bridge.explain.logs import Sighting
from jax_bridge.explain.messages import find_known

NS_PER_S = 1_000_000_000

ZERO = "zero_monotonic_ns"
"""In the header's details: when the run began by the host's clock, which is the zero of all times."""

HEARTBEAT = "heartbeat"
REGISTER = "register"
SHUTDOWN = "shutdown"

MERGED = "merged"
"""In the header's details: the recordings of which the history was merged."""

_END_REMARK = re.compile(rf"process (\d+): {END_REMARK}.*")
_STOP_REMARK = re.compile(rf"process (\d+): {RECORDING_STOPPED}.*")

_GZIP = b"\x1f\x8b"
_LINE_CHARACTERS_MAX = 1 << 26
_KEPT = 3
_KEPT_STRANGERS = 200
_EVENTS_PER_REPORT = 65_536


@dataclass(slots=True)
class Life:
    """One start of one process.

    Attributes:
      process, lifetime: Whose, and which.
      started_ns, connecting_ns: When its connect returned, and when that was called.
      ended_ns, ended_since_ns: When it ended, and since when it may have been over.
      end: `crash`, `leave`, or empty while it lives.
      cause: Of a crash.
      end_line: The line that tells the end.
      last_ns, last_line: Its last event that is recorded, but for its end.
      last_beat_ns, gap_ns, gap_end_ns, gap_line: The last heartbeat; the longest time between two, and
        when and where that ended.
      raised: The line and the text of a block whose body raised.
      calls: How often it called the service.
      asked_line: The line of its first call to register; 0 if there is none.
      is_leaving: Whether it has asked to leave.
      left_out: The time and the line of the first answer that does not count it among the live
        processes, of those after the last that does.
      is_ended_by_itself: Whether its recorder remarked that the program came to its end.
      is_stopped: Whether its recording stopped before it did, so that its last calls and its end may be
        missing.
      is_told_by_others: Whether nothing of it is recorded, and only others were told that it lived.
    """

    process: int
    lifetime: int
    started_ns: int | None = None
    connecting_ns: int | None = None
    ended_ns: int | None = None
    ended_since_ns: int | None = None
    end: str = ""
    cause: str = ""
    end_line: int = 0
    last_ns: int = 0
    last_line: int = 0
    last_beat_ns: int | None = None
    last_beat_line: int = 0
    gap_ns: int = 0
    gap_end_ns: int = 0
    gap_line: int = 0
    raised: tuple[int, str] | None = None
    calls: int = 0
    asked_line: int = 0
    is_leaving: bool = False
    left_out: tuple[int, int] | None = None
    is_ended_by_itself: bool = False
    is_stopped: bool = False
    is_told_by_others: bool = False


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A call without an end."""

    invoke: Invoke
    line: int


@dataclass(frozen=True, slots=True)
class Complaint:
    """A known message in the error of a call, or in what is told of a crash.

    Attributes:
      sighting: The message.
      process, lifetime: Of which start of which process.
      calls_before: How many calls that had made by then.
    """

    sighting: Sighting
    process: int
    lifetime: int
    calls_before: int


@dataclass(slots=True)
class HistoryFacts:
    """What matters of one history.

    Attributes:
      path, header: The file.
      lives: Each start of each process, in the order of the file.
      open_calls: By id.
      complaints: Known messages in the errors that calls ended with, and in what is told of crashes: of
        each kind in each start of a process the first three, and the last.
      strangers: Calls for another incarnation of the service: the line, the process and the number.
      faults: What was done to the system; remarks of recorders are left out.
      incarnations: Of each process, all that it had.
      first_ns, last_ns: Of all events; the first may be a fault.
      events, notes: How many there are, and what could not be read.
      is_cut: Whether it was not read to its end.
      has_gaps: Whether calls stand in it that were not recorded, for what a process may have done after
        its recording stopped. They are nothing that it did.
    """

    path: Path
    header: Header
    lives: dict[tuple[int, int], Life] = field(default_factory=dict)
    open_calls: dict[int, OpenCall] = field(default_factory=dict)
    complaints: dict[tuple[int, int, str], list[Complaint]] = field(default_factory=dict)
    strangers: list[tuple[int, int, str]] = field(default_factory=list)
    faults: tuple[Fault, ...] = ()
    incarnations: dict[int, set[int]] = field(default_factory=dict)
    first_ns: int = 0
    last_ns: int = 0
    events: int = 0
    notes: list[str] = field(default_factory=list)
    is_cut: bool = False
    has_gaps: bool = False

    @property
    def counts_from_its_beginning(self) -> bool:
        """Whether the zero of its times is the beginning of the run, and not a clock's own."""
        return self.header.clock == "virtual" or ZERO in self.header.details

    @property
    def size(self) -> int | None:
        """How many processes the job has; None if the header names only who was seen so far.

        A tap that was not told writes there who registers or is in an answer, and process 0. All have
        been seen when the first is let in, but until then nobody knows of the others.
        """
        participants = set(self.header.participants)
        asked = {life.process for life in self.lives.values() if life.asked_line}
        is_told = self.header.details.get("observer") != "tap" or participants - asked - {0}
        if is_told or any(life.started_ns is not None for life in self.lives.values()):
            return len(participants)
        return None

    def at(self, time_ns: int) -> str:
        """A time as people say it: since the beginning of the run, or else since the first event."""
        zero_ns = 0 if self.counts_from_its_beginning else self.first_ns
        return f"{(time_ns - zero_ns) / NS_PER_S:.1f} s"

    def kept_complaints(self) -> list[Complaint]:
        """All of them, in the order of the file."""
        kept = [complaint for same in self.complaints.values() for complaint in same]
        return sorted(kept, key=lambda complaint: complaint.sighting.evidence.line)

    def evidence(self, line: int, text: str) -> Evidence:
        """A line of this file."""
        return Evidence(str(self.path), line, quoted(text))

    def heartbeat_timeout_ns(self) -> int | None:
        """The service's time-out, if the header tells it."""
        told = self.header.details.get("heartbeat_timeout_s")
        is_number = isinstance(told, int | float) and not isinstance(told, bool)
        return round(told * NS_PER_S) if is_number and told > 0 else None  # type: ignore[operator]


def is_history(path: Path) -> bool:
    """Whether a file begins as a history of ours; packed by gzip or not.

    Raises:
      OSError: it cannot be opened.
    """
    with open(path, "rb") as file:
        beginning = file.read(4096)
    if beginning.startswith(_GZIP):
        try:
            with gzip.open(path) as unpacked:
                beginning = unpacked.read(4096)
        except (OSError, EOFError, zlib.error):
            return False
    return beginning.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") and (
        f'"{VERSION_KEY}"'.encode() in beginning
    )


def read_history(path: Path, report: Callable[[int], object] | None = None) -> HistoryFacts | str:
    """Reads a history as far as it goes; a bad line ends it, and is named in the notes.

    Returns:
      The facts, or why there are none, as the header is bad.

    Raises:
      OSError: the file cannot be opened.
    """
    with open(path, "rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        file = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if packed else raw
        try:
            reader = HistoryReader(_lines(file), path=str(path))
        except (MalformedHistory, OSError, EOFError, zlib.error) as error:
            return str(error)
        facts = HistoryFacts(path, reader.header)
        facts.has_gaps = any(told.startswith(NOT_RECORDED) for told in reader.header.cannot_know)
        try:
            for event in reader:
                _take(facts, event, reader.line)
                if report is not None and facts.events % _EVENTS_PER_REPORT == 0:
                    report(facts.events)
        except (MalformedHistory, OSError, EOFError, zlib.error) as error:
            facts.notes.append(f"read up to line {max(reader.line - 1, 0)} only: {error}")
            facts.is_cut = True
        facts.notes += reader.notes
        facts.faults = tuple(fault for fault in reader.faults if fault.lane != RECORDER_LANE)
        remarks = [fault for fault in reader.faults if fault.lane == RECORDER_LANE]
        if facts.has_gaps:
            _leave_out_unrecorded(facts, remarks)
        for remark in remarks:
            _take_remark(facts, remark)
        facts.first_ns = min([facts.first_ns, *(fault.time_ns for fault in reader.faults)])
    return facts


def _lines(file: IO[bytes]) -> Iterator[str]:
    while line := file.readline(_LINE_CHARACTERS_MAX):
        yield line.decode("utf-8", errors="replace").removeprefix("\ufeff")


def _take(facts: HistoryFacts, event: Event, line: int) -> None:
    time_ns, key = event.time_ns, (event.process, event.lifetime)
    if not facts.events:
        facts.first_ns = time_ns
    facts.events += 1
    facts.last_ns = time_ns
    life = facts.lives.get(key)
    if life is None:
        life = facts.lives[key] = Life(*key)
    # Calls that were not recorded stand at the time of the last event that was.
    is_recorded = not (facts.has_gaps and life.last_line and time_ns == life.last_ns)
    if is_recorded and not isinstance(event, Crash | Leave):
        life.last_ns, life.last_line = time_ns, line
    match event:
        case Start():
            life.started_ns, life.connecting_ns = time_ns, event.since_ns
            if event.incarnation is not None:
                facts.incarnations.setdefault(event.process, set()).add(event.incarnation)
        case Crash():
            life.end, life.cause = "crash", event.cause or ""
            life.ended_ns, life.end_line = time_ns, line
            life.ended_since_ns = event.since_ns
            _complain(facts, life, line, life.cause)
        case Leave():
            life.end, life.ended_ns, life.end_line = "leave", time_ns, line
        case Invoke():
            facts.open_calls[event.id] = OpenCall(event, line)
            _invoked(facts, life, event, line)
        case Ok():
            call = facts.open_calls.pop(event.id, None)
            if call is not None and call.invoke.operation == LIVE_PROCESSES:
                _answered(facts, call, event, line)
        case Info() if facts.has_gaps and event.message == RECORDING_STOPPED:
            facts.open_calls.pop(event.id, None)
            life.calls -= 1
        case Fail() | Info():
            facts.open_calls.pop(event.id, None)
            text = f"{event.code}: {event.message}"
            _complain(facts, life, line, text)
        case Exit(outcome="raised"):
            life.raised = (line, event.message)
        case _:
            pass


def _answered(facts: HistoryFacts, call: OpenCall, answer: Ok, line: int) -> None:
    """Marks who is in an answer of the live processes, and who is not."""
    live = answer.result
    asked = participants_of(facts, call)
    if not isinstance(live, Mapping) or asked is None:
        return
    for life in facts.lives.values():
        if life.process in live:
            life.left_out = None
        elif (
            life.process in asked
            and life.started_ns is not None
            and life.started_ns < call.invoke.time_ns
            and life.left_out is None
        ):
            life.left_out = (answer.time_ns, line)


def _leave_out_unrecorded(facts: HistoryFacts, remarks: list[Fault]) -> None:
    """Takes out the calls that were not recorded, and marks the starts whose recordings stopped."""
    stops: dict[int, set[int]] = {}
    for remark in remarks:
        found = _STOP_REMARK.fullmatch(remark.name)
        if found is not None:
            stops.setdefault(int(found[1]), set()).add(remark.time_ns)
    waiting = Counter(
        (each.invoke.process, each.invoke.lifetime) for each in facts.open_calls.values()
    )
    for key, life in list(facts.lives.items()):
        stops_ns = stops.get(life.process, ())
        if not stops_ns:
            continue
        if life.started_ns is None and not life.end and life.calls == waiting[key]:
            del facts.lives[key]
        elif not life.last_line or life.last_ns in stops_ns:
            life.is_stopped = True
        elif life.connecting_ns in stops_ns and not life.end:
            life.is_stopped = life.is_told_by_others = True
    for call in list(facts.open_calls.values()):
        invoke = call.invoke
        stopped = facts.lives.get((invoke.process, invoke.lifetime))
        if stopped is None or stopped.is_stopped:
            # Also those that are recorded: they may have ended after the recording.
            del facts.open_calls[invoke.id]
            if stopped is not None and invoke.operation == LIVE_PROCESSES:
                stopped.calls -= 1


def _take_remark(facts: HistoryFacts, remark: Fault) -> None:
    """Marks of which start a recorder remarked that its program came to its end."""
    found = _END_REMARK.fullmatch(remark.name)
    if found is None:
        return
    lives = [
        life
        for life in facts.lives.values()
        if life.process == int(found[1]) and (life.started_ns or 0) <= remark.time_ns
    ]
    if lives:
        max(lives, key=lambda life: life.lifetime).is_ended_by_itself = True


def _complain(facts: HistoryFacts, life: Life, line: int, text: str) -> None:
    for found in find_known(text):
        evidence = facts.evidence(line, text)
        sighting = Sighting(
            found.message, found.fields, evidence, life.process, None, is_fatal=False
        )
        complaint = Complaint(sighting, life.process, life.lifetime, life.calls)
        key = (life.process, life.lifetime, found.message.name)
        kept = facts.complaints.setdefault(key, [])
        if len(kept) > _KEPT:
            kept[-1] = complaint
        else:
            kept.append(complaint)


def _invoked(facts: HistoryFacts, life: Life, event: Invoke, line: int) -> None:
    life.calls += 1
    life.is_leaving |= event.operation == SHUTDOWN
    if event.operation == REGISTER and not life.asked_line:
        life.asked_line = line
    if event.operation == HEARTBEAT:
        if life.last_beat_ns is not None and event.time_ns - life.last_beat_ns > life.gap_ns:
            life.gap_ns = event.time_ns - life.last_beat_ns
            life.gap_end_ns, life.gap_line = event.time_ns, line
        life.last_beat_ns, life.last_beat_line = event.time_ns, line
    told = event.arguments.get("service_incarnation")
    if isinstance(told, str) and len(facts.strangers) < _KEPT_STRANGERS:
        facts.strangers.append((line, event.process, told))


def participants_of(facts: HistoryFacts, call: OpenCall) -> tuple[int, ...] | None:
    """Whom a call waits for, itself included; None if it waits for nobody in particular."""
    arguments = call.invoke.arguments
    if call.invoke.operation == LIVE_PROCESSES:
        told = arguments.get("participants")
    elif call.invoke.operation == "barrier":
        told = arguments.get("processes")
    else:
        return None
    if isinstance(told, list | tuple):
        return tuple(number for number in told if isinstance(number, int))
    return facts.header.participants
