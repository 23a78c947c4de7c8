"""The recordings of the processes of one job as one history, whatever hosts they ran on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from checker.clocks.correction import by_the_reference
from checker.clocks.messages import MESSAGES_MAX, messages_between, messages_of
from checker.clocks.offsets import (
    Clocks,
    InconsistentClocksError,
    Message,
    Offset,
    estimate_drifting,
    in_words,
)
from checker.errors import CheckerError
from checker.history.events import Fault, Invoke, Start
from checker.history.gaps import Gap, with_gaps
from checker.history.history import History
from checker.history.merge import merge
from checker.history.parts import (
    END_REMARK,
    RECORDER_LANE,
    STAND_IN,
    Part,
    header_of_all,
    starts_of,
    with_lifetimes_from,
)

JOB_GAP_NS: Final = 600 * 10**9
"""Recordings between which nothing happened for so long are of different runs."""

DRIFT_MAX_NS: Final = 10**9
"""Clocks that move further apart than this in a run were set, or are of different runs."""

_UNSEEN_MAX: Final = 5_000_000
"""So many processes without a recording, times events: what they may have called costs as much."""


class DifferentJobs(CheckerError):
    """Recordings that cannot be of one run of one job; says why."""


class UnknownClocks(CheckerError):
    """The clocks of the hosts cannot be compared as well as needed; says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A job's history.

    Attributes:
      history: By one clock, with the errors that remain.
      hosts: The names of the hosts, the one first whose clock is taken.
      report: Sentences on the clocks; nothing if there is one.
      notes: Sentences on what is odd or missing.
      processes: Of how many something was recorded.
      starts: How many of their starts.
    """

    history: History
    hosts: tuple[str, ...]
    report: tuple[str, ...]
    notes: tuple[str, ...]
    processes: int
    starts: int


def join(
    parts: Sequence[Part],
    *,
    servers: Sequence[Part] = (),
    largest_ns: int | None = None,
    is_one_job: bool = False,
    lost: Sequence[int] = (),
) -> Joined:
    """Joins the recordings of the processes of one job.

    Times of one host are kept. Those of others are moved by what messages between them tell of their
    clocks, and every event gets the error that remains.

    Args:
      parts: Of the processes; at least one.
      servers: Of the service's side. Their events tell the same calls; only their times are used.
      largest_ns: What is known beforehand: no two hosts' wall clocks are further apart.
      is_one_job: Do not ask whether the parts are of one run.
      lost: Processes of a recording of which nothing can be read.

    Raises:
      DifferentJobs: they are not of one run of one job.
      UnknownClocks: the clocks of two hosts cannot be compared.
    """
    parts, notes = without_copies(parts)
    if not is_one_job:
        reasons = reasons_against_one_job(parts)
        if reasons:
            raise DifferentJobs("; ".join(reasons))
    processes, is_guessed = _processes_of(parts)
    if is_guessed:
        notes.append(
            f"no recording tells how many processes the job has; they name {processes}, from 0 to "
            f"{processes - 1}"
        )
    hosts = _Hosts(parts)
    rough = [hosts.by_wall_clock(part) for part in parts] if len(hosts.keys) > 1 else list(parts)
    rough = _numbered(_without_borrowed(rough))
    notes += _two_at_once(rough)
    clock = "wall" if len(hosts.keys) > 1 else "monotonic"
    header = header_of_all(rough, processes, clock)
    if is_guessed:
        unknown = "how many processes the job has: those are taken that are named"
        header = replace(header, cannot_know=(*header.cannot_know, unknown))
    if not all(part.is_ended for part in rough if part.history.events):
        unknown = "how and when some of the processes ended: their recordings stop"
        header = replace(header, cannot_know=(*header.cannot_know, unknown))
    report: list[str] = []
    if len(hosts.keys) > 1 or servers:
        together = merge([part.history for part in rough], header)
        rough, report = _by_one_clock(rough, together, hosts, servers, largest_ns)
    everybody = frozenset(range(processes))
    history = merge([_tidied(part, everybody) for part in rough], header)
    recorded = history.events
    gaps = [part.gap for part in rough if part.is_stopped and not part.is_of_server]
    unseen = _without_recording(rough, everybody)
    if 0 < len(unseen) * len(history.events) <= _UNSEEN_MAX:
        notes.append(
            f"no recording is of process {', '.join(map(str, unseen))}: what it called is not known, "
            f"and {STAND_IN}"
        )
        gaps += [Gap(process, None) for process in unseen]
    gaps += [Gap(process, None) for process in lost if process in everybody - set(unseen)]
    history = with_gaps(history, gaps, RECORDER_LANE)
    return Joined(
        history,
        tuple(hosts.names),
        tuple(report),
        tuple(notes),
        processes=len({event.process for event in recorded}),
        starts=sum(isinstance(event, Start) for event in recorded),
    )


def _without_recording(parts: Sequence[Part], everybody: frozenset[int]) -> list[int]:
    """The processes of a job of which there is none; those that never connected have one."""
    seen = {part.number("process") for part in parts}
    for part in parts:
        seen.update(part.numbers)
    return sorted(everybody - seen)


# --- which recordings belong together ----------------------------------------------------------------


def without_copies(parts: Sequence[Part]) -> tuple[list[Part], list[str]]:
    """Leaves out recordings of a start that a longer one tells, too; and says so."""
    kept: list[Part] = []
    notes = []
    for part in sorted(parts, key=lambda part: -len(part.history.events)):
        twin = next((other for other in kept if _is_copy(part, other)), None)
        if twin is None:
            kept.append(part)
        else:
            process = min(twin.incarnations & part.incarnations)[0]
            notes.append(
                f"{part.path} tells the same start of process {process} as {twin.path}, which is longer "
                "or as long, and is not used"
            )
    position = {id(part): index for index, part in enumerate(parts)}
    return sorted(kept, key=lambda part: position[id(part)]), notes


def _is_copy(one: Part, other: Part) -> bool:
    return _is_same_pid(one, other) and bool(one.incarnations & other.incarnations)


def _without_borrowed(parts: Sequence[Part]) -> list[Part]:
    """Incarnations that two programs tell are those of the one that connected last.

    A recorder learns its incarnation from the service, which names the latest start of a process.
    """
    starts = sorted(
        (
            (event.time_ns, index, event)
            for index, part in enumerate(parts)
            for event in part.history.events
            if isinstance(event, Start)
        ),
        key=lambda start: start[:2],
    )
    owner = {(event.process, event.incarnation): index for _, index, event in starts}
    found = []
    for index, part in enumerate(parts):
        events = [
            replace(event, incarnation=None)
            if isinstance(event, Start) and owner[event.process, event.incarnation] != index
            else event
            for event in part.history.events
        ]
        found.append(replace(part, history=replace(part.history, events=events)))
    return found


def reasons_against_one_job(parts: Sequence[Part]) -> list[str]:
    """Why recordings cannot be of one run of one job; nothing if they can."""
    reasons = []
    for what, of in _FEATURES:
        seen: dict[object, Part] = {}
        for part in parts:
            value = of(part)
            if value is not None:
                seen.setdefault(value, part)
        if len(seen) > 1:
            (one, first), (other, second) = list(seen.items())[:2]
            reasons.append(f"{what} {one} in {first.path}, and {other} in {second.path}")
    spans = sorted(
        (span[0] + ahead_ns, span[1] + ahead_ns, str(part.path))
        for part in parts
        if (span := part.span_ns) is not None
        and (ahead_ns := part.number("wall_clock_ahead_ns")) is not None
    )
    latest_ns, latest = (spans[0][1], spans[0][2]) if spans else (0, "")
    for begin_ns, end_ns, path in spans[1:]:
        if begin_ns - latest_ns > JOB_GAP_NS:
            gap = in_words(begin_ns - latest_ns)
            reasons.append(f"{path} begins {gap} after all before it have ended, {latest} the last")
        if end_ns > latest_ns:
            latest_ns, latest = end_ns, path
    return reasons


def port_of(part: Part) -> str | None:
    """The port of the service: hosts may know its machine by different names."""
    address = part.text("address")
    return None if address is None else address.rpartition(":")[2]


_FEATURES: Final[tuple[tuple[str, Callable[[Part], object]], ...]] = (
    ("the service has port", port_of),
    ("the number of processes is", lambda part: part.processes),
)


def _processes_of(parts: Sequence[Part]) -> tuple[int, bool]:
    """How many processes there are, and whether that is taken from the numbers seen."""
    told = [part.processes for part in parts if part.processes is not None]
    seen = 1 + max(max(part.history.header.participants) for part in parts)
    return max([seen, *told]), not told


def _two_at_once(parts: Sequence[Part]) -> list[str]:
    """Sentences on processes of the job that two programs were at a time."""
    notes = []
    begun = sorted(parts, key=lambda part: part.span_ns or (0, 0))
    for index, later in enumerate(begun):
        for earlier in begun[:index]:
            shared = set(earlier.numbers) & set(later.numbers)
            spans = earlier.span_ns, later.span_ns
            if not shared or spans[0] is None or spans[1] is None or spans[0][1] < spans[1][0]:
                continue
            process = min(shared)
            pids = earlier.number("pid"), later.number("pid")
            if None in pids or _is_same_pid(earlier, later):
                continue
            notes.append(f"process {process} registered from two pids{_kinship(earlier, later)}")
    return notes


def _is_same_pid(one: Part, other: Part) -> bool:
    """Whether one process wrote both, as when it had two services, or replaced its program."""
    names = ("clock_id", "pid", "pid_started")
    return all(
        one.history.header.details.get(name) == other.history.header.details.get(name)
        for name in names
    )


def _kinship(one: Part, other: Part) -> str:
    if one.text("clock_id") == other.text("clock_id"):
        for parent, child in ((one, other), (other, one)):
            pid, its_pid = parent.number("pid"), child.number("pid")
            if child.number("forked_from_pid") == pid:
                return (
                    f": a child of it (pid {its_pid}, a fork of {pid}) did so under the same number"
                )
            if child.number("parent_pid") == pid:
                return f": a child of it (pid {its_pid}, started by {pid}) did so under the same number"
    where = [f"{part.number('pid')} on {part.text('host')}" for part in (one, other)]
    return f" at once: {where[0]} and {where[1]}; two programs were given the same number"


# --- one clock ---------------------------------------------------------------------------------------


class _Hosts:
    """Which recordings share a clock; hosts are numbered in the order of the recordings."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.keys: list[str] = []
        self.names: list[str] = []
        self._ahead_ns: list[int] = []
        for part in parts:
            key = clock_key(part)
            if key not in self.keys:
                self.keys.append(key)
                self.names.append(part.text("host") or str(part.path))
                self._ahead_ns.append(part.number("wall_clock_ahead_ns") or 0)

    def of(self, part: Part) -> int:
        """The number of a part's host."""
        return self.keys.index(clock_key(part))

    def by_wall_clock(self, part: Part) -> Part:
        """A part by the wall clock of its host, as that was when its first recording began."""
        behind = Offset(-self._ahead_ns[self.of(part)], -self._ahead_ns[self.of(part)])
        return replace(part, history=by_the_reference(part.history, behind))


def clock_key(part: Part) -> str:
    """Whose clock a recording's times are by."""
    return part.text("clock_id") or part.text("host") or str(part.path)


def _numbered(parts: Sequence[Part]) -> list[Part]:
    """Lifetimes of a process numbered throughout, in the order of their starts, as are the parts."""
    following: dict[int, int] = {}
    numbered: list[Part] = []
    for part in sorted(parts, key=lambda part: min(starts_of(part).values(), default=0)):
        first = {process: following.get(process, 0) for process in part.numbers}
        moved = with_lifetimes_from(part, first)
        for event in moved.history.events:
            following[event.process] = max(following.get(event.process, 0), event.lifetime + 1)
        numbered.append(moved)
    return numbered


def _by_one_clock(
    parts: Sequence[Part],
    together: History,
    hosts: _Hosts,
    servers: Sequence[Part],
    largest_ns: int | None,
) -> tuple[list[Part], list[str]]:
    """The parts by the clock of the first host, and what was found out about the others."""
    host_of = {
        (event.process, event.lifetime): hosts.of(part)
        for part in parts
        for event in part.history.events
    }

    def host(process: int, lifetime: int) -> int:
        return host_of[process, lifetime]

    messages = messages_of(together, host_of=host)
    names = dict(enumerate(hosts.names))
    unused = []
    for index, server in enumerate(servers):
        number = len(hosts.keys) + index
        names[number] = f"the service in {server.path}"
        seen = messages_between(together, server.history, server_host=number, host_of=host)
        messages += seen
        if not seen:
            unused.append(
                f"{server.path} is not used: no call in it is one of those that the processes recorded; "
                "it seems to be of another job"
            )
    try:
        clocks, drift_ns = estimate_drifting(
            messages, range(len(hosts.keys)), largest_ns=largest_ns
        )
    except InconsistentClocksError as error:
        raise UnknownClocks(str(error)) from None
    if drift_ns > 2 * DRIFT_MAX_NS:
        raise UnknownClocks(
            f"the clocks of the hosts moved by {in_words(drift_ns // 2)} while this was recorded: one "
            "was set, or the recordings are of different runs"
        )
    unknown = [names[n] for n in range(len(hosts.keys)) if clocks.offsets[n].width_ns is None]
    if unknown:
        raise UnknownClocks(
            f"nothing bounds the clock of {' and '.join(unknown)} against that of {names[0]} on both "
            f"sides: {clocks.messages} messages between hosts were seen; say how far wall clocks may be "
            "apart, and the rest is taken from that (--largest-clock-error SECONDS)"
        )
    corrected = [
        replace(
            part,
            history=by_the_reference(
                part.history, clocks.offsets[hosts.of(part)], drift_ns=drift_ns
            ),
        )
        for part in parts
    ]
    if len(clocks.offsets) > 1:
        unused = [*_clock_sentences(clocks, drift_ns, names, messages), *unused]
    return corrected, unused


def _clock_sentences(
    clocks: Clocks, drift_ns: int, names: dict[int, str], messages: Sequence[Message]
) -> list[str]:
    used = f"{clocks.messages:,} messages between hosts"
    if len(messages) >= MESSAGES_MAX:
        used = f"the first {used}"
    lines = [f"Clocks: by {used}, compared with the clock of {names[0]}, that of"]
    for host, offset in clocks.offsets.items():
        if host != clocks.reference:
            error = "" if offset.width_ns is None else f" (± {in_words(-(-offset.width_ns // 2))})"
            lines.append(f"  {names[host]} {offset}{error}")
    if drift_ns:
        lines.append(f"  and each moved meanwhile, by up to {in_words(drift_ns)}")
    return lines


# --- the events ----------------------------------------------------------------------------------------


def _tidied(part: Part, everybody: frozenset[int]) -> History:
    """All participants are left out, as is understood, and remarks that an end makes superfluous."""
    history = part.history
    events = [
        replace(event, arguments={k: v for k, v in event.arguments.items() if k != "participants"})
        if isinstance(event, Invoke) and _participants_of(event) == everybody
        else event
        for event in history.events
    ]
    faults = tuple(fault for fault in history.faults if not part.is_ended or not _is_end(fault))
    return replace(history, events=events, faults=faults)


def _participants_of(call: Invoke) -> frozenset[object]:
    participants = call.arguments.get("participants")
    return frozenset(participants) if isinstance(participants, tuple) else frozenset()


def _is_end(fault: Fault) -> bool:
    return fault.lane == RECORDER_LANE and fault.name.endswith(END_REMARK)
