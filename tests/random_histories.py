"""Small random histories of `live_processes`: valid, nearly valid and invalid.

Uniformly random events are almost always invalid, and for dull reasons. So the histories come from
a toy service: it holds rounds, counts or drops the calls of the dead, and at times declares dead a
process that lives on. Most histories also get some defects (see `_Habits`), which are the mistakes
that real services make or plain distortions of an answer. Nothing here decides whether a history
is valid; that is for the oracle.

One builder serves both `random` and Hypothesis: all its choices go through one function. Smaller
numbers stand for simpler choices, so that Hypothesis can shrink.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias, TypeVar

from hypothesis import strategies as st

from checker.history import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Header,
    History,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Start,
)

KEY_VALUE_SET = "key_value_set"

PROCESSES_MIN, PROCESSES_MAX = 2, 4
EVENTS_MIN, EVENTS_MAX = 4, 18

_Below: TypeAlias = Callable[[int], int]
"""Chooses a number from 0 to its argument, exclusive."""

_Action: TypeAlias = Callable[[], None]
_T = TypeVar("_T")


def random_history(
    rng: random.Random, *, processes: int | None = None, length: int | None = None
) -> History:
    """A history that depends only on the state of `rng` and the arguments.

    Args:
      rng: Where all choices come from.
      processes: How many participants; 2 to 4 by default.
      length: How many events; 4 to 18 by default, most often many.
    """
    return _history(rng.randrange, processes=processes, length=length)


@st.composite
def histories(
    draw: st.DrawFn, *, processes: int | None = None, length: int | None = None
) -> History:
    """The same histories, for Hypothesis."""
    return _history(
        lambda bound: draw(st.integers(0, bound - 1)), processes=processes, length=length
    )


def _history(below: _Below, *, processes: int | None, length: int | None) -> History:
    choose = _Choices(below)
    if processes is None:
        processes = choose.between(PROCESSES_MIN, PROCESSES_MAX)
    cluster = _Cluster(choose, processes)
    while not _is_long_enough(len(cluster.events), choose, length):
        cluster.step()
    header = Header(source="manual", participants=tuple(range(processes)), clock="abstract")
    return History(header, cluster.told_events())


def _is_long_enough(events: int, choose: _Choices, length: int | None) -> bool:
    """Decides after each event anew, so that Hypothesis can leave out single events."""
    if length is not None:
        return events >= length
    return events >= EVENTS_MAX or (events >= EVENTS_MIN and choose.below(50) == 0)


@dataclass(frozen=True, slots=True)
class _Choices:
    below: _Below

    def between(self, least: int, most: int) -> int:
        """A number in the closed interval."""
        return least + self.below(most - least + 1)

    def chance(self, percent: int) -> bool:
        """True in so many cases of a hundred."""
        return self.below(100) >= 100 - percent

    def pick(self, options: Sequence[_T]) -> _T:
        """One of the options, of which the first is the simplest."""
        return options[self.below(len(options))]

    def weighted(self, options: Sequence[tuple[int, _T]]) -> _T:
        """One of the options, each as often as its weight says."""
        number = self.below(sum(weight for weight, _ in options))
        for weight, option in options:
            number -= weight
            if number < 0:
                return option
        raise AssertionError("the number is below the sum of the weights")


@dataclass(slots=True, eq=False)
class _Call:
    id: int
    operation: str
    participants: frozenset[int] = frozenset()
    is_waiting: bool = True
    """The caller still expects a response."""
    is_withdrawn: bool = False
    """The service refused it."""
    round_: dict[int, int] | None = None
    """The answer, once the service has held the round that counts this call."""


@dataclass(slots=True, eq=False)
class _Lifetime:
    process: int
    number: int
    incarnation: int
    calls: list[_Call] = field(default_factory=list)
    has_ended: bool = False
    last_answer: dict[int, int] | None = None
    """Tells all incarnations, as the service means them."""
    last_told: LiveSet | None = None
    """The same answer as the caller got it."""
    blocks: int = 0
    is_in_block: bool = False

    def waiting(self, operation: str) -> list[_Call]:
        """The calls of the operation without a response."""
        return [call for call in self.calls if call.is_waiting and call.operation == operation]

    def has_invoked(self, operation: str) -> bool:
        """Whether the operation was ever called."""
        return any(call.operation == operation for call in self.calls)


@dataclass(frozen=True, slots=True)
class _Habits:
    """What goes wrong in one history, beyond crashes."""

    counts_twice: bool
    """Rounds may count a call that an earlier round counted, until it is answered."""
    keeps_ghosts: bool
    """Rounds count the call of a crashed lifetime as one of the process's next lifetime."""
    mixes_sets: bool
    """Rounds count calls with another participant set."""
    distortion_percent: int
    """How many answers are not what the service decided."""
    suspicion: int
    """Weight of answering although a live participant has not called: it is declared dead."""
    untold_percent: int
    """How many entries of answers lack the incarnation."""

    @staticmethod
    def choose(choose: _Choices) -> _Habits:
        return _Habits(
            counts_twice=choose.chance(40),
            keeps_ghosts=choose.chance(40),
            mixes_sets=choose.chance(30),
            distortion_percent=choose.pick((0, 0, 0, 20, 50)),
            suspicion=choose.pick((0, 4, 12, 40)),
            untold_percent=choose.pick((0, 0, 0, 0, 25, 100)),
        )


class _Cluster:
    """Processes and the toy service, and the events that the processes saw so far."""

    def __init__(self, choose: _Choices, processes: int) -> None:
        self.events: list[Event] = []
        self._choose = choose
        self._habits = _Habits.choose(choose)
        self._lifetimes: dict[int, list[_Lifetime]] = {p: [] for p in range(processes)}
        self._registered: dict[int, _Lifetime] = {}
        self._ids = 0
        everybody = frozenset(self._lifetimes)
        self._participant_sets = [everybody]
        if choose.chance(30):
            subset = frozenset(p for p in range(processes) if not choose.chance(40))
            self._participant_sets = choose.pick(([everybody, subset], [subset, everybody]))

    def told_events(self) -> list[Event]:
        """The events, each lifetime's incarnation on at least one of them.

        Only where no answer tells an incarnation, the events may not tell any either.
        """
        events = list(self.events)
        if self._habits.untold_percent == 100 and self._choose.chance(50):
            return events
        for lifetimes in self._lifetimes.values():
            for lifetime in lifetimes:
                places = [
                    at
                    for at, event in enumerate(events)
                    if (event.process, event.lifetime) == (lifetime.process, lifetime.number)
                ]
                at = self._choose.pick(places) if self._choose.chance(20) else places[0]
                events[at] = replace(events[at], incarnation=lifetime.incarnation)
        return events

    def step(self) -> None:
        """Lets one process do something, or wait; appends at most one event.

        The process is chosen before the action, so that what one process does changes little of
        what a number means for another: that helps Hypothesis to shrink.
        """
        process = self._choose.pick(range(len(self._lifetimes)))
        lifetimes = self._lifetimes[process]
        actions: list[tuple[int, _Action]] = []
        for lifetime in reversed(lifetimes):
            if not lifetime.has_ended:
                is_zombie = lifetime is not lifetimes[-1]
                actions += self._actions_of(lifetime, is_zombie=is_zombie)
        is_up = bool(lifetimes) and not lifetimes[-1].has_ended
        actions.append((1 if is_up else 40, partial(self._start, process)))
        actions.append((60, self._wait))
        self._choose.weighted(actions)()

    def _wait(self) -> None:
        """Does nothing: others act first."""

    # --- what a process may do next --------------------------------------------------------------

    def _actions_of(self, lifetime: _Lifetime, *, is_zombie: bool) -> list[tuple[int, _Action]]:
        actions: list[tuple[int, _Action]] = [
            *self._live_processes_actions(lifetime),
            *self._other_actions(lifetime),
            *self._block_actions(lifetime),
            (4, partial(self._end, lifetime, Crash)),
            (1, partial(self._end, lifetime, Leave)),
        ]
        if is_zombie:
            actions = [(max(1, weight // 3), action) for weight, action in actions]
        return actions

    def _live_processes_actions(self, lifetime: _Lifetime) -> list[tuple[int, _Action]]:
        actions: list[tuple[int, _Action]] = []
        waiting = lifetime.waiting(LIVE_PROCESSES)
        for participants in self._participant_sets:
            if lifetime.process in participants and all(
                call.participants != participants for call in waiting
            ):
                weight = 6 if waiting else 40
                actions.append((weight, partial(self._call_live_processes, lifetime, participants)))
        for call in waiting:
            is_known = self._registered.get(lifetime.process) is lifetime
            weight = 80 if call.round_ is not None or (is_known and self._is_full(call)) else 0
            weight = weight or self._habits.suspicion // (1 if is_known else 2)
            if weight:
                actions.append((weight, partial(self._answer, lifetime, call)))
            actions.append((2 if is_known else 12, partial(self._refuse, lifetime, call)))
            actions.append((3, partial(self._give_up, lifetime, call)))
        return actions

    def _other_actions(self, lifetime: _Lifetime) -> list[tuple[int, _Action]]:
        actions: list[tuple[int, _Action]] = []
        waiting = lifetime.waiting(KEY_VALUE_SET) + lifetime.waiting(SHUTDOWN)
        for call in waiting:
            actions.append((25, partial(self._acknowledge, lifetime, call)))
            actions.append((1, partial(self._refuse, lifetime, call)))
            actions.append((1, partial(self._give_up, lifetime, call)))
        if not waiting:
            is_known = self._registered.get(lifetime.process) is lifetime
            weight = 4 if is_known else 12
            actions.append((weight, partial(self._call_other, lifetime, KEY_VALUE_SET)))
        if not lifetime.has_invoked(SHUTDOWN):
            actions.append((2, partial(self._call_other, lifetime, SHUTDOWN)))
        return actions

    def _block_actions(self, lifetime: _Lifetime) -> list[tuple[int, _Action]]:
        if lifetime.is_in_block:
            return [(4, partial(self._exit_block, lifetime))]
        if lifetime.last_told is not None:
            return [(4, partial(self._enter_block, lifetime, lifetime.last_told))]
        return []

    # --- doing it --------------------------------------------------------------------------------

    def _start(self, process: int) -> None:
        lifetimes = self._lifetimes[process]
        number = len(lifetimes)
        lifetime = _Lifetime(process, number, incarnation=100 * (process + 1) + number)
        lifetimes.append(lifetime)
        self._registered[process] = lifetime
        self.events.append(Start(time_ns=self._now(), process=process, lifetime=lifetime.number))

    def _end(self, lifetime: _Lifetime, kind: type[Crash | Leave]) -> None:
        lifetime.has_ended = True
        self.events.append(
            kind(time_ns=self._now(), process=lifetime.process, lifetime=lifetime.number)
        )

    def _call_live_processes(self, lifetime: _Lifetime, participants: frozenset[int]) -> None:
        is_everybody = len(participants) == len(self._lifetimes)
        arguments: dict[str, object] = {"participants": tuple(sorted(participants))}
        if is_everybody and not self._choose.chance(20):
            arguments = {}
        self._invoke(lifetime, LIVE_PROCESSES, arguments, participants)

    def _call_other(self, lifetime: _Lifetime, operation: str) -> None:
        arguments = {"key": "k", "value": "v"} if operation == KEY_VALUE_SET else {}
        self._invoke(lifetime, operation, arguments, frozenset())

    def _invoke(
        self,
        lifetime: _Lifetime,
        operation: str,
        arguments: dict[str, object] | dict[str, str],
        participants: frozenset[int],
    ) -> None:
        call = _Call(id=self._ids, operation=operation, participants=participants)
        self._ids += 1
        lifetime.calls.append(call)
        self.events.append(
            Invoke(
                time_ns=self._now(),
                process=lifetime.process,
                lifetime=lifetime.number,
                id=call.id,
                operation=operation,
                arguments=dict(arguments),
            )
        )

    def _answer(self, lifetime: _Lifetime, call: _Call) -> None:
        if call.round_ is None:
            self._hold_round(lifetime, call)
        assert call.round_ is not None
        answer = call.round_
        if self._choose.chance(self._habits.distortion_percent):
            answer = self._distorted(lifetime, answer)
        lifetime.last_answer = answer
        told = {
            process: None if self._choose.chance(self._habits.untold_percent) else incarnation
            for process, incarnation in sorted(answer.items())
        }
        lifetime.last_told = told
        self._respond_ok(lifetime, call, told)

    def _acknowledge(self, lifetime: _Lifetime, call: _Call) -> None:
        if call.operation == SHUTDOWN:
            self._forget(lifetime)
        self._respond_ok(lifetime, call, None)

    def _respond_ok(self, lifetime: _Lifetime, call: _Call, result: object) -> None:
        call.is_waiting = False
        self.events.append(
            Ok(
                time_ns=self._now(),
                process=lifetime.process,
                lifetime=lifetime.number,
                id=call.id,
                result=result,
            )
        )

    def _refuse(self, lifetime: _Lifetime, call: _Call) -> None:
        call.is_waiting = False
        call.is_withdrawn = True
        self.events.append(
            Fail(
                time_ns=self._now(),
                process=lifetime.process,
                lifetime=lifetime.number,
                id=call.id,
                code="ABORTED",
            )
        )

    def _give_up(self, lifetime: _Lifetime, call: _Call) -> None:
        call.is_waiting = False
        self.events.append(
            Info(
                time_ns=self._now(),
                process=lifetime.process,
                lifetime=lifetime.number,
                id=call.id,
                code="DEADLINE_EXCEEDED",
            )
        )

    def _enter_block(self, lifetime: _Lifetime, live: LiveSet) -> None:
        lifetime.is_in_block = True
        self.events.append(
            Enter(
                time_ns=self._now(),
                process=lifetime.process,
                lifetime=lifetime.number,
                block=lifetime.blocks,
                live=live,
            )
        )

    def _exit_block(self, lifetime: _Lifetime) -> None:
        lifetime.is_in_block = False
        self.events.append(
            Exit(
                time_ns=self._now(),
                process=lifetime.process,
                lifetime=lifetime.number,
                block=lifetime.blocks,
                outcome="completed",
            )
        )
        lifetime.blocks += 1

    def _now(self) -> int:
        return len(self.events)

    # --- the service -----------------------------------------------------------------------------

    def _entry(self, lifetime: _Lifetime, participants: frozenset[int]) -> _Call | None:
        """The call by which the lifetime is in the barrier."""
        entries = [
            call
            for call in lifetime.calls
            if call.operation == LIVE_PROCESSES
            and (call.participants == participants or self._habits.mixes_sets)
            and not call.is_withdrawn
            and (
                call.round_ is None
                if not self._habits.counts_twice
                else call.is_waiting or call.round_ is None
            )
        ]
        return entries[0] if entries else None

    def _is_full(self, call: _Call) -> bool:
        """Whether the round may be held without declaring dead a process that could still act."""
        return all(
            lifetime.has_ended or self._entry(lifetime, call.participants) is not None
            for process, lifetime in self._registered.items()
            if process in call.participants
        )

    def _hold_round(self, caller: _Lifetime, call: _Call) -> None:
        """Decides the answer of the call and of those that it waited with."""
        members: dict[int, tuple[_Lifetime, _Call]] = {caller.process: (caller, call)}
        for process in sorted(call.participants - {caller.process}):
            lifetime = self._registered.get(process)
            if lifetime is None:
                continue
            entry = self._entry(lifetime, call.participants)
            if entry is None and self._habits.keeps_ghosts and lifetime.number > 0:
                ghost = self._lifetimes[process][lifetime.number - 1]
                entry = self._entry(ghost, call.participants)
            if entry is None or (lifetime.has_ended and self._choose.chance(50)):
                self._forget(lifetime)
            else:
                members[process] = (lifetime, entry)
        answer = {process: member.incarnation for process, (member, _) in members.items()}
        for _, entry in members.values():
            if entry.round_ is None:
                entry.round_ = answer

    def _forget(self, lifetime: _Lifetime) -> None:
        if self._registered.get(lifetime.process) is lifetime:
            del self._registered[lifetime.process]

    def _distorted(self, caller: _Lifetime, answer: dict[int, int]) -> dict[int, int]:
        others = [process for process in self._lifetimes if process != caller.process]
        process = self._choose.pick(others)
        started = self._lifetimes[process]
        choices = [{p: i for p, i in answer.items() if p != process}]
        choices += [answer | {process: lifetime.incarnation} for lifetime in started]
        choices.append({p: self._lifetimes[p][0].incarnation for p in answer})
        if caller.last_answer is not None:
            choices.append(caller.last_answer)
        return self._choose.pick(choices)
