"""From events to lifetimes and calls: what the definitions of `live_processes` talk about.

A lifetime lies between the end of its start (a process that has only begun to register may be left
out) and its failure, which may be shifted up to the end of the next start. A call is an invocation of
`live_processes` with its answer, or pending without one; calls that failed definitely never took
place. With clock errors, an invocation counts from its earliest moment and an answer to its latest.
"""

from __future__ import annotations

from typing import cast

from checker.errors import MalformedHistory
from checker.history.events import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Crash,
    Event,
    Fail,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Start,
)
from checker.history.history import History


class Call:
    """A call of `live_processes` that was answered, or may have had an effect."""

    __slots__ = (
        "answer",
        "answered_ns",
        "group",
        "id",
        "invoked_ns",
        "lifetime",
        "matched",
        "skippable",
    )

    def __init__(self, call_id: int, lifetime: Lifetime, group: int, invoked_ns: int) -> None:
        self.id = call_id
        self.lifetime = lifetime
        self.group = group
        self.invoked_ns = invoked_ns
        self.answered_ns: int | None = None
        self.answer: LiveSet | None = None
        self.skippable = False
        """Ended with an unknown outcome, and its process went on: it may be in no round."""
        self.matched = False
        """Scratch of the grouping into rounds."""


class Lifetime:
    """One start of a process and what followed."""

    __slots__ = (
        "calls",
        "crash",
        "end",
        "incarnation",
        "index",
        "last_acknowledged",
        "last_event",
        "left",
        "next",
        "number",
        "process",
        "start",
        "start_ns",
    )

    def __init__(self, index: int, process: int, number: int) -> None:
        self.index = index
        self.process = process
        self.number = number
        self.incarnation: int | None = None
        self.start: Start | None = None
        self.start_ns = 0
        self.next: Lifetime | None = None
        """The next lifetime of the process that started."""
        self.crash: Crash | Leave | None = None
        self.last_event: Event | None = None
        """The last sign of life under crash-stop."""
        self.last_acknowledged: Invoke | None = None
        """The latest invoked operation other than `live_processes` that was answered: the last sign
        of life, besides rounds, under suspicion."""
        self.left = False
        """Has invoked a shutdown that did not surely fail: later events are no sign of life."""
        self.calls: dict[int, list[Call]] = {}
        """Calls by group of participants, in program order."""

    @property
    def next_start_ns(self) -> int | None:
        """Latest moment of the next start of the process, which this lifetime cannot outlive."""
        return None if self.next is None else self.next.start_ns

    @property
    def ordinal(self) -> str:
        """How people count: `1st`, `2nd`, ..."""
        n = self.number + 1
        suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
        return f"{n}{suffix}"

    def __str__(self) -> str:
        name = f"the {self.ordinal} incarnation of process {self.process}"
        return name if self.incarnation is None else f"{name} ({short(self.incarnation)})"


def short(incarnation: int) -> str:
    """An incarnation as people can tell it apart: whole if small, else its last digits."""
    digits = str(incarnation)
    return digits if len(digits) <= 6 else f"…{digits[-5:]}"


class Lifetimes:
    """All lifetimes of a history and their calls.

    Attributes:
      all: In order of their first event.
      groups: The participant sets of the calls; a call's `group` indexes it.
      by_process: Lifetimes that started, in order of start.
      by_incarnation: Lifetimes by process and incarnation, where that is known.
      completed: Answered calls in order of their answers.
      overlapping: A pair of calls of one lifetime and group that were open at once, if there is one:
        the definitions do not cover that.
      exact: No event has a clock error.
    """

    def __init__(self, history: History) -> None:
        self.all: list[Lifetime] = []
        self.groups: list[frozenset[int]] = []
        self.by_process: dict[int, list[Lifetime]] = {p: [] for p in history.header.participants}
        self.completed: list[Call] = []
        self.overlapping: tuple[Call, Call] | None = None
        self.exact = True
        self._all_participants = tuple(history.header.participants)
        self._group_of: dict[tuple[int, ...], int] = {}
        self._read(history)
        self.by_incarnation: dict[tuple[int, int | None], Lifetime] = {
            (lifetime.process, lifetime.incarnation): lifetime
            for lifetime in self.all
            if lifetime.incarnation is not None
        }

    def named(self, process: int, incarnation: int | None) -> list[Lifetime]:
        """The lifetimes that an answer may mean by `process: incarnation`, in order of start."""
        started = self.by_process[process]
        if incarnation is None:
            return started
        lifetime = self.by_incarnation.get((process, incarnation))
        if lifetime is not None:
            return [lifetime] if lifetime.start is not None else []
        return [lifetime for lifetime in started if lifetime.incarnation is None]

    def _read(self, history: History) -> None:  # noqa: PLR0915 - one loop, for speed
        # The hot loop of the checker: most events are calls of live_processes and their answers.
        at: dict[tuple[int, int], Lifetime] = {}
        current: dict[int, Lifetime] = {}
        open_calls: dict[int, Call] = {}
        open_others: dict[int, Invoke | None] = {}
        failed = {event.id for event in history.events if isinstance(event, Fail)}
        group_of_everybody = -1
        take_call, complete = open_calls.pop, self.completed.append
        for event in history.events:
            lifetime = current.get(event.process)
            if lifetime is None or lifetime.number != event.lifetime:
                lifetime = self._lifetime(at, event)
                current[event.process] = lifetime
            if event.incarnation is not None:
                lifetime.incarnation = event.incarnation
            uncertainty_ns = event.uncertainty_ns
            if uncertainty_ns:
                self.exact = False
            if isinstance(event, Invoke):
                if not lifetime.left:
                    lifetime.last_event = event
                if event.operation != LIVE_PROCESSES:
                    # What is invoked after leaving is no sign of life.
                    open_others[event.id] = None if lifetime.left else event
                    if event.operation == SHUTDOWN and event.id not in failed:
                        lifetime.left = True
                    continue
                if event.arguments:
                    group = self._group(event)
                else:
                    if group_of_everybody < 0:
                        group_of_everybody = self._group(event)
                    group = group_of_everybody
                call = Call(event.id, lifetime, group, event.time_ns - uncertainty_ns)
                open_calls[event.id] = call
                if event.id in failed:
                    continue  # It surely had no effect: as if it had not been made.
                calls = lifetime.calls.get(group)
                if calls is None:
                    self._first_call(lifetime, call)
                    continue
                last = calls[-1]
                if last.answered_ns is None and not last.skippable:
                    self.overlapping = self.overlapping or (last, call)
                calls.append(call)
            elif isinstance(event, Ok):
                answered = take_call(event.id, None)
                if answered is None:
                    invoke = _opened(open_others, event)
                    if invoke is not None and invoke.operation != SHUTDOWN:
                        _acknowledge(lifetime, invoke)
                    if not lifetime.left:
                        lifetime.last_event = event
                    continue
                if not lifetime.left:
                    lifetime.last_event = event
                answered.answered_ns = event.time_ns + uncertainty_ns
                answered.answer = answer = cast("LiveSet", event.result)
                complete(answered)
                if lifetime.incarnation is None:
                    lifetime.incarnation = answer.get(event.process)
            elif isinstance(event, Fail | Info):
                ended = open_calls.pop(event.id, None)
                if ended is None:
                    _opened(open_others, event)
                else:
                    ended.skippable = isinstance(event, Info)
                if not lifetime.left:
                    lifetime.last_event = event
            elif isinstance(event, Start):
                self._start(lifetime, event)
            elif isinstance(event, Crash | Leave):
                lifetime.crash = event
            elif not lifetime.left:
                lifetime.last_event = event

    def _lifetime(self, at: dict[tuple[int, int], Lifetime], event: Event) -> Lifetime:
        key = (event.process, event.lifetime)
        lifetime = at.get(key)
        if lifetime is None:
            lifetime = at[key] = Lifetime(len(self.all), event.process, event.lifetime)
            self.all.append(lifetime)
        return lifetime

    def _first_call(self, lifetime: Lifetime, call: Call) -> None:
        if lifetime.start is None:
            raise MalformedHistory(
                f"process {lifetime.process} calls live_processes (operation {call.id}) in lifetime "
                f"{lifetime.number} before its start"
            )
        lifetime.calls[call.group] = [call]

    def _start(self, lifetime: Lifetime, event: Start) -> None:
        lifetime.start = lifetime.last_event = event
        lifetime.start_ns = event.time_ns + event.uncertainty_ns
        started = self.by_process.get(event.process)
        if started is None:
            raise MalformedHistory(
                f"process {event.process} is not among the header's participants"
            )
        if started:
            started[-1].next = lifetime
        started.append(lifetime)

    def _group(self, event: Invoke) -> int:
        participants = event.arguments.get("participants", self._all_participants)
        assert isinstance(participants, tuple)
        group = self._group_of.get(participants)
        if group is None:
            members = frozenset(participants)
            if members not in self.groups:
                self.groups.append(members)
            group = self._group_of[participants] = self.groups.index(members)
        return group


def _acknowledge(lifetime: Lifetime, invoke: Invoke) -> None:
    latest = lifetime.last_acknowledged
    if latest is None or _earliest_ns(invoke) > _earliest_ns(latest):
        lifetime.last_acknowledged = invoke


def _opened(open_others: dict[int, Invoke | None], event: Ok | Fail | Info) -> Invoke | None:
    if event.id not in open_others:
        raise MalformedHistory(
            f"response to operation {event.id} of process {event.process}, which was never invoked"
        )
    return open_others.pop(event.id)


def _earliest_ns(event: Event) -> int:
    return event.time_ns - event.uncertainty_ns
