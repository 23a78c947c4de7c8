"""What the processes share: communicators, and the collectives that are under way on them.

A communicator belongs to a set of members, each a process in one incarnation, and is cached by that set;
the k-th collective of one member on it meets the k-th of every other member. A collective begins at a
member when the member joins it. Once all have joined, and a message can go once around the ring of them
(partitions hold it up), each has the result after a latency of its own. Members that do not do the same
wait for ever.

Nothing here is atomic. If a member dies

* before it joined, the others wait for ever;
* after it joined and before all have the result, then of the others each one gets the result, or an
  error, or waits for ever, or gets a wrong result: each draws for itself.

Those that wait are only helped by cancelling, which each process does for itself (`devices.py`).

Source: the JAX guide "Fault Tolerant Distributed JAX", sections Getting Stuck in Collectives, Atomicity
(part 3) and Cancelling Collectives (part 3: communicators are cached by processes and incarnations).
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from coord_sim.core.identifiers import seconds
from coord_sim.core.messages import TaskState, TasksWatched
from coord_sim.errors import CollectiveError
from coord_sim.sim.data_plane.values import Operation, Value, nothing_like
from coord_sim.sim.entropy import Stream

Member: TypeAlias = tuple[int, int]
"""A process and one of its incarnations."""

GONE: Final = 0
"""In news of a task, in place of its incarnation: it is not connected."""

HeldUntil: TypeAlias = Callable[[int, int, int], int]
"""(sender, receiver, now in ns) -> when a message sent now gets through, in ns; now if nothing is in the
way."""

WITHOUT_INCARNATIONS: Final = "communicators-without-incarnations"
"""The mutant whose communicators are cached by process numbers, as gloo's on CPU in jaxlib 0.10 and 0.12
are by devices: after a come-back, the survivors use the one with the dead member."""

NEVER_JOINED: Final = "a member died before it joined a collective"
DIED_INSIDE: Final = "a member died inside a collective"
NOT_ATOMIC: Final = "a collective ended differently on its members"
WRONG_RESULT: Final = "a collective gave a wrong result"
MISMATCH: Final = "members of a communicator called different collectives"
CANCELLED: Final = "a collective was cancelled"


class Fate(enum.Enum):
    """What becomes of a member of a collective."""

    FINISHES = "it gets the result"
    WRONG = "it gets a wrong result"
    FAILS = "it gets an error"
    STUCK = "it waits for ever"


_FATES: Final = ((0.4, Fate.FINISHES), (0.45, Fate.WRONG), (0.75, Fate.FAILS), (1.0, Fate.STUCK))
"""What becomes of a member when another one dies inside: cumulated probabilities."""

End: TypeAlias = Callable[[Value, CollectiveError | None], None]
"""Takes the result, or the error."""


class Roster:
    """The members that a live set gives to a list of processes; one for all who got that answer.

    Attributes:
      processes: Ascending.
      incarnations: Process -> incarnation, of those that the live set names.
      unknown: The others: no collective is possible.
      text: The processes, in words.
      communicator: The members' communicator, once one of them has used it.
    """

    __slots__ = ("communicator", "incarnations", "live", "processes", "text", "unknown")

    def __init__(self, live: Mapping[int, int], processes: tuple[int, ...]) -> None:
        self.live = live
        self.processes = processes
        self.incarnations = {process: live[process] for process in processes if process in live}
        self.unknown = tuple(process for process in processes if process not in live)
        self.text = ", ".join(map(str, processes))
        self.communicator: _Communicator | None = None


class Timeline(Protocol):
    """The queue of virtual time."""

    @property
    def now_ns(self) -> int:
        """The virtual time."""

    def at(self, time_ns: int, action: Callable[[], None]) -> object:
        """Runs `action` at `time_ns`."""


class Part:
    """One member's part in one collective.

    Attributes:
      process: Whose part.
      value: What it brought.
    """

    __slots__ = ("_collective", "_end", "is_over", "process", "value")

    def __init__(self, collective: _Collective, process: int, value: Value, end: End) -> None:
        self.process = process
        self.value = value
        self.is_over = False
        self._collective = collective
        self._end = end

    def cancel(self) -> None:
        """The process gives up; it is not told the end any more."""
        if not self.is_over:
            self.is_over = True
            self._collective.count_end(is_good=False)
            self._collective.plane.reached(CANCELLED)

    def end(self, value: Value, error: CollectiveError | None, *, is_good: bool) -> None:
        """The process gets its result or its error."""
        self.is_over = True
        self._collective.count_end(is_good=is_good)
        self._end(value, error)


class DataPlane:
    """All communicators of a job.

    Args:
      timeline: The queue of virtual time.
      stream: Draws latencies, and fates when a member dies.
      latency_s: Shortest and longest time from when all have joined to the result, in seconds.
      held_until_ns: Partitions; None if there are none. Asked when the last member has joined.
      reached: Counts a condition, by name.
      mutant: `WITHOUT_INCARNATIONS`, or of no concern here.
    """

    def __init__(
        self,
        timeline: Timeline,
        *,
        stream: Stream,
        latency_s: tuple[float, float],
        held_until_ns: HeldUntil | None = None,
        reached: Callable[[str], None],
        mutant: str = "",
    ) -> None:
        self.timeline = timeline
        self.reached = reached
        self._stream = stream
        self._latency_s = latency_s
        self._held_until_ns = held_until_ns
        self._is_without_incarnations = mutant == WITHOUT_INCARNATIONS
        self._communicators: dict[tuple[Member, ...], _Communicator] = {}
        self._by_member: dict[Member, dict[_Communicator, None]] = {}
        self._over: set[Member] = set()
        self._latest_roster: Roster | None = None
        self._latest_watched: TasksWatched | None = None
        self._latest_news: dict[int, int] = {}

    def died(self, process: int, incarnation: int) -> None:
        """A lifetime is over, by a crash or by itself: its connections are closed."""
        member = (process, incarnation)
        self._over.add(member)
        for communicator in self._by_member.pop(member, ()):
            communicator.lose(process)
            if communicator.is_deserted and not self._is_without_incarnations:
                del self._communicators[communicator.members]

    def is_over(self, member: Member) -> bool:
        """Whether that lifetime is over."""
        return member in self._over

    def roster(self, live: Mapping[int, int], processes: tuple[int, ...]) -> Roster:
        """The members; the same object for all who ask for the same, one after the other."""
        latest = self._latest_roster
        if latest is None or latest.live is not live or latest.processes != processes:
            latest = self._latest_roster = Roster(live, processes)
        return latest

    def news(self, watched: TasksWatched) -> dict[int, int]:
        """The states of the tasks: process -> incarnation, or `GONE`. One for all who were told."""
        if watched is not self._latest_watched:
            self._latest_watched = watched
            self._latest_news = {
                task.task: task.incarnation if task.state is TaskState.CONNECTED else GONE
                for task in watched.tasks
                if task.incarnation  # It has registered some time.
            }
        return self._latest_news

    def join(
        self, member: Member, roster: Roster, operation: Operation, value: Value, end: End
    ) -> Part:
        """A member joins its next collective on the communicator of a roster without unknown ones.

        Args:
          member: Who joins.
          roster: All members, `member` among them.
          operation: What it does.
          value: What it brings.
          end: Called once with the result or an error, unless the part is cancelled or nothing comes.
        """
        communicator = roster.communicator
        if communicator is None:
            communicator = roster.communicator = self._communicator(roster)
        self._by_member.setdefault(member, {})[communicator] = None
        return communicator.join(member, operation, value, end)

    def _communicator(self, roster: Roster) -> _Communicator:
        members = tuple(roster.incarnations.items())
        key = members
        if self._is_without_incarnations:
            key = tuple((process, 0) for process, _ in members)
        communicator = self._communicators.get(key)
        if communicator is None:
            communicator = self._communicators[key] = _Communicator(self, key)
            for member in members:
                if member not in self._over:
                    self._by_member.setdefault(member, {})[communicator] = None
        return communicator

    def draw_latency_ns(self) -> int:
        """How long a result takes to a member."""
        return seconds(self._stream.between(*self._latency_s))

    def draw_fate(self) -> Fate:
        """What becomes of a member when another one dies inside a collective."""
        drawn = self._stream.between(0.0, 1.0)
        return next(fate for limit, fate in _FATES if drawn < limit)

    def open_at_ns(self, processes: tuple[int, ...]) -> int:
        """When a message sent now has gone once around the ring of these processes."""
        now_ns = self.timeline.now_ns
        held_until_ns = self._held_until_ns
        if held_until_ns is None or len(processes) == 1:
            return now_ns
        ring = zip(processes, (*processes[1:], processes[0]), strict=True)
        return max(held_until_ns(sender, receiver, now_ns) for sender, receiver in ring)


class _Communicator:
    """The members of one set, and those of their collectives that are not over."""

    def __init__(self, plane: DataPlane, members: tuple[Member, ...]) -> None:
        self.members = members
        self._plane = plane
        self._processes = tuple(process for process, _ in members)
        self._present = {process: None for process, i in members if not plane.is_over((process, i))}
        self._joins_by_member: dict[Member, int] = {}
        self._collectives: dict[int, _Collective] = {}

    @property
    def is_deserted(self) -> bool:
        """Whether all members are dead."""
        return not self._present

    def join(self, member: Member, operation: Operation, value: Value, end: End) -> Part:
        number = self._joins_by_member.get(member, 0)
        self._joins_by_member[member] = number + 1
        collective = self._collectives.get(number)
        if collective is None:
            collective = _Collective(self._plane, operation, self._processes)
            self._collectives[number] = collective
            collective.when_over = lambda: self._collectives.pop(number, None)
            for process in self._processes:
                if process not in self._present:
                    collective.lose(process)
        return collective.join(member[0], operation, value, end)

    def lose(self, process: int) -> None:
        self._present.pop(process, None)
        for collective in list(self._collectives.values()):
            collective.lose(process)


class _Collective:
    """One collective: who has joined, and what becomes of whom."""

    def __init__(self, plane: DataPlane, operation: Operation, processes: tuple[int, ...]) -> None:
        self.plane = plane
        self.when_over: Callable[[], object] = _nothing
        self._operation = operation
        self._processes = processes
        self._parts: dict[int, Part] = {}
        self._dead: dict[int, None] = {}
        self._fates: dict[int, Fate] = {}
        self._is_mismatched = False
        self._has_good_end = self._has_bad_end = False
        self._over = 0
        self._results: dict[Fate, Value] = {}

    def join(self, process: int, operation: Operation, value: Value, end: End) -> Part:
        part = self._parts[process] = Part(self, process, value, end)
        if operation != self._operation and not self._is_mismatched:
            self._is_mismatched = True
            self.plane.reached(MISMATCH)
        if self._fate(process) is Fate.FAILS:
            self._break(part)
        if len(self._parts) == len(self._processes) and not self._is_mismatched:
            start_ns = self.plane.open_at_ns(self._processes)
            for member in self._processes:
                if not self._parts[member].is_over:
                    self._send_result(self._parts[member], start_ns)
        return part

    def lose(self, process: int) -> None:
        """A member has died."""
        self._dead[process] = None
        part = self._parts.get(process)
        if part is None:
            self.plane.reached(NEVER_JOINED)
        if part is None or not part.is_over:
            self._count_over()
        if part is None:
            return
        part.is_over = True
        others = [other for other in self._processes if not self._is_over(other)]
        if others:
            self.plane.reached(DIED_INSIDE)
        for other in others:
            if self._fate(other) in {Fate.FINISHES, Fate.WRONG}:  # Others do not get better.
                fate = self._fates[other] = self.plane.draw_fate()
                if fate is Fate.FAILS and other in self._parts:
                    self._break(self._parts[other])

    def count_end(self, *, is_good: bool) -> None:
        """A member has got an end: the right result, or something else."""
        was_atomic = not (self._has_good_end and self._has_bad_end)
        self._has_good_end |= is_good
        self._has_bad_end |= not is_good
        if was_atomic and self._has_good_end and self._has_bad_end:
            self.plane.reached(NOT_ATOMIC)
        self._count_over()

    def _count_over(self) -> None:
        self._over += 1
        if self._over == len(self._processes):
            self.when_over()

    def _is_over(self, process: int) -> bool:
        part = self._parts.get(process)
        return process in self._dead or (part is not None and part.is_over)

    def _fate(self, process: int) -> Fate:
        return self._fates.get(process, Fate.FINISHES)

    def _send_result(self, part: Part, start_ns: int) -> None:
        plane = self.plane

        def arrive() -> None:
            fate = self._fate(part.process)
            if part.is_over or fate in {Fate.FAILS, Fate.STUCK}:
                return
            if fate is Fate.WRONG:
                plane.reached(WRONG_RESULT)
            try:
                result = copy.deepcopy(self._result(fate))  # Arrays are nobody else's.
            except (TypeError, ValueError) as error:
                part.end(None, CollectiveError(f"INVALID_ARGUMENT: {error}"), is_good=False)
                return
            part.end(result, None, is_good=fate is Fate.FINISHES)

        plane.timeline.at(start_ns + plane.draw_latency_ns(), arrive)

    def _break(self, part: Part) -> None:
        def arrive() -> None:
            if not part.is_over:
                error = CollectiveError("UNAVAILABLE: the connection to another member broke")
                part.end(None, error, is_good=False)

        self.plane.timeline.at(self.plane.timeline.now_ns + self.plane.draw_latency_ns(), arrive)

    def _result(self, fate: Fate) -> Value:
        """The right result, or a wrong one: as if the dead had brought empty buffers."""
        if fate not in self._results:
            values = {process: part.value for process, part in self._parts.items()}
            if fate is Fate.WRONG:
                values |= {process: nothing_like(values[process]) for process in self._dead}
            self._results[fate] = self._operation.result(values)
        return self._results[fate]


def _nothing() -> None:
    """Nobody is to be told."""
