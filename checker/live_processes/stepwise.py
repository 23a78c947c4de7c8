"""The definition of `live_processes` as an automaton that reads one event at a time.

The other checks look at whole histories. A search over all histories needs one that goes step by step,
forks, and recognises that two beginnings have the same future; that is this one. It is a subset
construction. A *configuration* is one way to explain what was read: which lifetimes still count as
alive, and which open calls have had their instant, with which answer. A state is the set of all
configurations; an event maps them; if none is left, the beginning that was read is invalid, and so is
every continuation, for failures and instants that nobody can place now can never be placed.

What is not known yet when a configuration decides is owed, and paid when the event comes:

* A lifetime that counts as dead may still act. Under `crash-stop` any event of it ends the
  configuration; under `suspicion` only the acknowledgement of an operation that it invoked when it was
  dead.
* An instant decides its answer, and ends the configuration if the caller is told another one.
* A call may yet end with a definite error; then it was never open, and configurations that used it end.
* A shutdown may yet fail definitely; only then do later events count as signs of life. A configuration
  in which a dead lifetime acted after it invoked one has a *debt*: it ends when all shutdowns that
  cover the act have failed.

Configurations move (a lifetime fails, an instant happens) as late as they can: just before a start and
before an answer, the only events that take possibilities away. So of two configurations of which one can
become the other now, the one that has moved less is enough, and a state keeps only those.

Source: the machine in `tests/oracles/live_processes.py` is the definition; this is compared with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, cast

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
from checker.live_processes.spec import LiveProcesses

_Key: TypeAlias = tuple[int, int]
"""Process and number of a lifetime."""

_Answer: TypeAlias = tuple[tuple[int, int], ...]
"""Process and incarnation of each member, ascending by process."""

_UNTOLD = -1
"""The incarnation of a lifetime whose start did not tell it."""


class _Lifetime(NamedTuple):
    process: int
    number: int
    incarnation: int
    is_over: bool
    """A crash or leave was read: it acts no more."""
    has_left: bool
    """A shutdown of it surely had an effect, or may have had: what it does is no sign of life."""
    shutdowns: tuple[int, ...]
    """Operations of shutdowns without a response."""

    @property
    def key(self) -> _Key:
        return self.process, self.number


class _Call(NamedTuple):
    id: int
    lifetime: _Key
    participants: tuple[int, ...]
    is_lost: bool
    """Ended with an unknown outcome: never answered, and open until its lifetime fails."""


class _Configuration(NamedTuple):
    alive: tuple[_Key, ...] = ()
    fired: tuple[tuple[int, _Answer], ...] = ()
    """Calls that had their instant. Of a lifetime that is over, the answer does not matter."""
    relied_on: tuple[int, ...] = ()
    """Calls that other answers counted in (`published`), and that may not fail definitely."""
    unacknowledged: tuple[tuple[int, _Key, tuple[int, ...]], ...] = ()
    """Operations of the dead that must not be acknowledged, unless one of these shutdowns happened."""
    debts: tuple[tuple[_Key, tuple[int, ...]], ...] = ()
    """Lifetimes that acted when dead: one of these shutdowns must not fail definitely."""

    @property
    def moved(self) -> tuple[int, int]:
        """Grows with every failure and every instant."""
        return -len(self.alive), len(self.fired) + len(self.relied_on)


class _State(NamedTuple):
    """What was read: facts that all configurations share, and the configurations."""

    lifetimes: tuple[_Lifetime, ...]
    calls: tuple[_Call, ...]
    configurations: tuple[_Configuration, ...]


@dataclass(frozen=True, slots=True)
class Renaming:
    """Other names for the same things.

    Attributes:
      processes: The new number of each process.
      operation: From operation id to the new one.
      incarnation: From incarnation to the new one.
    """

    processes: Sequence[int]
    operation: Callable[[int], int]
    incarnation: Callable[[int], int]


class StepwiseMonitor:
    """Reads histories one event at a time; states are small integers, equal where futures are.

    Incarnations must be told by the start of their lifetime. Events count as totally ordered by the
    order in which they are read; times are not looked at.

    Args:
      participants: Who takes part in a call that does not say it.
      spec: The definition and the failure model.
    """

    initial = 0
    """The state before the first event."""

    def __init__(self, participants: Iterable[int], spec: LiveProcesses | None = None) -> None:
        self._everybody = tuple(sorted(participants))
        spec = spec or LiveProcesses()
        self._by_round = spec.definition == "round"
        self._crash_stop = spec.failures == "crash-stop"
        self._states: list[_State] = []
        self._numbers: dict[_State, int] = {}
        self._number(_State((), (), (_Configuration(),)))

    def __len__(self) -> int:
        """How many states were met."""
        return len(self._states)

    def after(self, state: int, event: Event) -> int | None:
        """The state after one more event, or None if no explanation is left.

        Complexity: grows with the number of open calls and of lifetimes that may have failed, which
        are few in histories that are read step by step.
        """
        before = self._states[state]
        step = _Step(
            before,
            event,
            by_round=self._by_round,
            crash_stop=self._crash_stop,
            everybody=self._everybody,
        )
        after = step.take()
        return None if after is None else self._number(after)

    def renamed(self, state: int, renaming: Renaming) -> int:
        """The state that the same events under other names lead to."""
        return self._number(_renamed(self._states[state], renaming))

    def _number(self, state: _State) -> int:
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number


def first_violation(history: History, spec: LiveProcesses | None = None) -> int | None:
    """Position of the first event that no explanation survives, or None if the history is valid.

    Incarnations that a lifetime tells on any of its events count from its start.
    """
    told = {
        (event.process, event.lifetime): event.incarnation
        for event in history.events
        if event.incarnation is not None
    }
    monitor = StepwiseMonitor(history.header.participants, spec)
    state = monitor.initial
    for position, event in enumerate(history.events):
        if isinstance(event, Start):
            event = Start(
                time_ns=event.time_ns,
                process=event.process,
                lifetime=event.lifetime,
                incarnation=told.get((event.process, event.lifetime)),
            )
        following = monitor.after(state, event)
        if following is None:
            return position
        state = following
    return None


class _Step:
    """One event of one state."""

    def __init__(
        self,
        state: _State,
        event: Event,
        *,
        by_round: bool,
        crash_stop: bool,
        everybody: tuple[int, ...],
    ) -> None:
        self._event = event
        self._by_round = by_round
        self._crash_stop = crash_stop
        self._everybody = everybody
        self._lifetimes = {lifetime.key: lifetime for lifetime in state.lifetimes}
        self._calls = {call.id: call for call in state.calls}
        self._configurations: Iterable[_Configuration] = state.configurations
        self._key = (event.process, event.lifetime)

    def take(self) -> _State | None:
        event = self._event
        if isinstance(event, Start):
            self._start(event)
        elif isinstance(event, Crash | Leave):
            self._set(is_over=True)
        else:
            self._act(event)
        configurations = self._sources(map(self._tidied, self._configurations))
        if not configurations:
            return None
        alive = {key for configuration in configurations for key in configuration.alive}
        lifetimes = [
            lifetime
            for key, lifetime in sorted(self._lifetimes.items())
            if not lifetime.is_over or key in alive
        ]
        kept = {lifetime.key for lifetime in lifetimes}
        calls = (call for _, call in sorted(self._calls.items()) if call.lifetime in kept)
        return _State(tuple(lifetimes), tuple(calls), tuple(sorted(configurations)))

    # --- events ----------------------------------------------------------------------------------

    def _start(self, event: Start) -> None:
        process = event.process
        told = _UNTOLD if event.incarnation is None else event.incarnation
        self._configurations = [
            configuration._replace(alive=tuple(sorted((*configuration.alive, self._key))))
            for configuration in self._closure(self._configurations)
            if all(other != process for other, _ in configuration.alive)
        ]
        self._lifetimes[self._key] = _Lifetime(
            process, event.lifetime, told, is_over=False, has_left=False, shutdowns=()
        )

    def _act(self, event: Event) -> None:
        call = self._calls.get(event.id) if isinstance(event, Ok | Fail | Info) else None
        if isinstance(event, Ok) and call is not None:
            self._answer(call, cast("LiveSet", event.result))
        elif isinstance(event, Fail) and call is not None:
            del self._calls[call.id]
            self._configurations = [
                configuration
                for configuration in self._configurations
                if call.id not in configuration.relied_on
                and all(id_ != call.id for id_, _ in configuration.fired)
            ]
        elif isinstance(event, Info) and call is not None:
            self._calls[call.id] = call._replace(is_lost=True)
        elif isinstance(event, Ok | Fail | Info):
            self._respond(event)
        elif isinstance(event, Invoke) and event.operation == LIVE_PROCESSES:
            listed = event.arguments.get("participants")
            participants = (
                self._everybody
                if listed is None
                else tuple(sorted(set(cast("Sequence[int]", listed))))
            )
            self._calls[event.id] = _Call(event.id, self._key, participants, is_lost=False)
        elif isinstance(event, Invoke) and event.operation != SHUTDOWN:
            self._invoke(event)
        if self._crash_stop:
            self._show_life()
        if isinstance(event, Invoke) and event.operation == SHUTDOWN:
            lifetime = self._lifetimes.get(self._key)
            if lifetime is not None:
                self._set(shutdowns=(*lifetime.shutdowns, event.id))

    def _answer(self, call: _Call, answer: LiveSet) -> None:
        del self._calls[call.id]
        kept = []
        for configuration in self._closure_with(call):
            fired = dict(configuration.fired)
            told = fired.pop(call.id, None)
            if told is not None and _says(answer, told):
                relied_on = tuple(id_ for id_ in configuration.relied_on if id_ != call.id)
                kept.append(
                    configuration._replace(fired=tuple(sorted(fired.items())), relied_on=relied_on)
                )
        self._configurations = kept

    def _invoke(self, event: Invoke) -> None:
        """An operation of another kind: of the dead, it may not be acknowledged (`suspicion`)."""
        lifetime = self._lifetimes.get(self._key)
        if self._crash_stop or lifetime is None or lifetime.has_left:
            return
        mark = (event.id, self._key, lifetime.shutdowns)
        self._configurations = [
            configuration
            if self._key in configuration.alive
            else configuration._replace(
                unacknowledged=tuple(sorted((*configuration.unacknowledged, mark)))
            )
            for configuration in self._configurations
        ]

    def _respond(self, event: Ok | Fail | Info) -> None:
        lifetime = self._lifetimes.get(self._key)
        if lifetime is not None and event.id in lifetime.shutdowns:
            self._respond_to_shutdown(event, lifetime)
            return
        kept = []
        for configuration in self._configurations:
            mark = next((m for m in configuration.unacknowledged if m[0] == event.id), None)
            if mark is not None:
                others = tuple(m for m in configuration.unacknowledged if m[0] != event.id)
                configuration = configuration._replace(unacknowledged=others)
                if isinstance(event, Ok):
                    if not mark[2]:
                        continue
                    configuration = _in_debt(configuration, mark[1], mark[2])
            kept.append(configuration)
        self._configurations = kept

    def _respond_to_shutdown(self, event: Ok | Fail | Info, lifetime: _Lifetime) -> None:
        others = tuple(id_ for id_ in lifetime.shutdowns if id_ != event.id)
        if not isinstance(event, Fail):
            self._set(has_left=True, shutdowns=())
            return
        self._set(shutdowns=others)
        kept = []
        for configuration in self._configurations:
            debts = tuple(
                (key, tuple(id_ for id_ in cover if id_ != event.id))
                for key, cover in configuration.debts
            )
            if any(not cover for _, cover in debts):
                continue
            marks = tuple(
                (operation, key, tuple(id_ for id_ in cover if id_ != event.id))
                for operation, key, cover in configuration.unacknowledged
            )
            kept.append(configuration._replace(debts=debts, unacknowledged=marks))
        self._configurations = kept

    def _show_life(self) -> None:
        """Under crash-stop the lifetime has not failed yet, unless it has left."""
        lifetime = self._lifetimes.get(self._key)
        if lifetime is None or lifetime.has_left:
            return
        kept = []
        for configuration in self._configurations:
            if self._key not in configuration.alive:
                if not lifetime.shutdowns:
                    continue
                configuration = _in_debt(configuration, self._key, lifetime.shutdowns)
            kept.append(configuration)
        self._configurations = kept

    def _set(
        self,
        *,
        is_over: bool | None = None,
        has_left: bool | None = None,
        shutdowns: tuple[int, ...] | None = None,
    ) -> None:
        lifetime = self._lifetimes.get(self._key)
        if lifetime is None:
            return
        self._lifetimes[self._key] = lifetime._replace(
            is_over=lifetime.is_over if is_over is None else is_over,
            has_left=lifetime.has_left if has_left is None else has_left,
            shutdowns=lifetime.shutdowns if shutdowns is None else shutdowns,
        )

    # --- what happens between events -----------------------------------------------------------

    def _closure_with(self, call: _Call) -> set[_Configuration]:
        """The closure in which `call`, whose answer is read, is still open."""
        self._calls[call.id] = call
        closure = self._closure(self._configurations)
        del self._calls[call.id]
        return closure

    def _closure(self, configurations: Iterable[_Configuration]) -> set[_Configuration]:
        """All that the configurations can become before the next event."""
        found = set(configurations)
        unexplored = list(found)
        while unexplored:
            configuration = unexplored.pop()
            for following in self._moves(configuration):
                if following not in found:
                    found.add(following)
                    unexplored.append(following)
        return found

    def _sources(self, configurations: Iterable[_Configuration]) -> list[_Configuration]:
        """The configurations that no other one can become."""
        sources: list[_Configuration] = []
        covered: set[_Configuration] = set()
        different = sorted(set(configurations), key=lambda each: (each.moved, each))
        for configuration in different:
            if configuration not in covered:
                sources.append(configuration)
                if len(different) > 1:
                    covered |= self._closure([configuration])
        return sources

    def _moves(self, configuration: _Configuration) -> Iterator[_Configuration]:
        for key in configuration.alive:
            alive = tuple(other for other in configuration.alive if other != key)
            yield self._tidied(configuration._replace(alive=alive))
        for participants in {call.participants: None for call in self._calls.values()}:
            members = [key for key in configuration.alive if key[0] in participants]
            at_barrier = [
                [
                    call
                    for call in self._calls.values()
                    if call.lifetime == key and call.participants == participants
                ]
                for key in members
            ]
            if not members or not all(at_barrier):
                continue
            answer = tuple((key[0], self._lifetimes[key].incarnation) for key in members)
            if self._by_round:
                yield from self._rounds(configuration, at_barrier, answer)
            else:
                yield from self._answers(configuration, at_barrier, answer)

    def _rounds(
        self, configuration: _Configuration, at_barrier: list[list[_Call]], answer: _Answer
    ) -> Iterator[_Configuration]:
        used = {id_ for id_, _ in configuration.fired}
        unused = [[call for call in calls if call.id not in used] for calls in at_barrier]
        for calls in itertools.product(*unused):
            if all(call.is_lost or self._lifetimes[call.lifetime].is_over for call in calls):
                continue  # Nobody of them is ever told: it would only use up their calls.
            fired = (*configuration.fired, *((call.id, answer) for call in calls))
            yield self._tidied(configuration._replace(fired=tuple(sorted(fired))))

    def _answers(
        self, configuration: _Configuration, at_barrier: list[list[_Call]], answer: _Answer
    ) -> Iterator[_Configuration]:
        used = {id_ for id_, _ in configuration.fired}
        for caller, calls in enumerate(at_barrier):
            for call in calls:
                if call.id in used or call.is_lost or self._lifetimes[call.lifetime].is_over:
                    continue
                others = [*at_barrier[:caller], *at_barrier[caller + 1 :]]
                fired = tuple(sorted((*configuration.fired, (call.id, answer))))
                for relied_on in itertools.product(*map(self._reliances, others)):
                    surely = {id_ for ids in relied_on for id_ in ids}.union(
                        configuration.relied_on
                    )
                    yield configuration._replace(fired=fired, relied_on=tuple(sorted(surely)))

    def _reliances(self, calls: Sequence[_Call]) -> list[tuple[int, ...]]:
        """The calls of which one must not fail definitely, or nothing if one surely does not."""
        if any(call.is_lost or self._lifetimes[call.lifetime].is_over for call in calls):
            return [()]
        return [(call.id,) for call in calls]

    def _tidied(self, configuration: _Configuration) -> _Configuration:
        """Without what can make no difference any more."""
        lifetimes, calls = self._lifetimes, self._calls
        alive = []
        for key in configuration.alive:
            if lifetimes[key].is_over:
                waiting = [call.id for call in calls.values() if call.lifetime == key]
                if self._by_round:
                    used = {id_ for id_, _ in configuration.fired}
                    waiting = [id_ for id_ in waiting if id_ not in used]
                if not waiting:
                    continue  # It is in no barrier and will be in none: best dead.
            alive.append(key)
        is_alive = set(alive)

        def acts(key: _Key) -> bool:
            return key in lifetimes and not lifetimes[key].is_over

        fired = []
        for id_, answer in configuration.fired:
            call = calls.get(id_)
            if call is None:
                continue
            if acts(call.lifetime) and not call.is_lost:
                fired.append((id_, answer))
            elif call.lifetime in is_alive:
                fired.append((id_, ()))
        relied_on = tuple(
            id_
            for id_ in configuration.relied_on
            if id_ in calls and not calls[id_].is_lost and acts(calls[id_].lifetime)
        )
        return _Configuration(
            alive=tuple(alive),
            fired=tuple(fired),
            relied_on=relied_on,
            unacknowledged=tuple(
                mark
                for mark in configuration.unacknowledged
                if acts(mark[1]) and not (mark[2] and lifetimes[mark[1]].has_left)
            ),
            debts=tuple(
                debt
                for debt in configuration.debts
                if acts(debt[0]) and not lifetimes[debt[0]].has_left
            ),
        )


def _in_debt(configuration: _Configuration, key: _Key, cover: tuple[int, ...]) -> _Configuration:
    """With the debt; of two debts of a lifetime the earlier covers less, and is enough."""
    if any(debtor == key for debtor, _ in configuration.debts):
        return configuration
    return configuration._replace(debts=tuple(sorted((*configuration.debts, (key, cover)))))


def _says(answer: LiveSet, told: _Answer) -> bool:
    """Whether an answer is this one; an incarnation that it leaves out may be any."""
    return len(answer) == len(told) and all(
        process in answer and answer[process] in (None, incarnation)
        for process, incarnation in told
    )


def _renamed(state: _State, renaming: Renaming) -> _State:
    process, operation = renaming.processes, renaming.operation

    def key(old: _Key) -> _Key:
        return process[old[0]], old[1]

    def operations(ids: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(map(operation, ids)))

    def incarnation(old: int) -> int:
        return old if old == _UNTOLD else renaming.incarnation(old)

    def answer(old: _Answer) -> _Answer:
        return tuple(sorted((process[p], incarnation(i)) for p, i in old))

    return _State(
        lifetimes=tuple(
            sorted(
                each._replace(
                    process=process[each.process],
                    incarnation=incarnation(each.incarnation),
                    shutdowns=tuple(map(operation, each.shutdowns)),
                )
                for each in state.lifetimes
            )
        ),
        calls=tuple(
            sorted(
                each._replace(
                    id=operation(each.id),
                    lifetime=key(each.lifetime),
                    participants=tuple(sorted(process[p] for p in each.participants)),
                )
                for each in state.calls
            )
        ),
        configurations=tuple(
            sorted(
                _Configuration(
                    alive=tuple(sorted(map(key, each.alive))),
                    fired=tuple(sorted((operation(i), answer(told)) for i, told in each.fired)),
                    relied_on=operations(each.relied_on),
                    unacknowledged=tuple(
                        sorted(
                            (operation(i), key(k), tuple(map(operation, cover)))
                            for i, k, cover in each.unacknowledged
                        )
                    ),
                    debts=tuple(
                        sorted((key(k), tuple(map(operation, cover))) for k, cover in each.debts)
                    ),
                )
                for each in state.configurations
            )
        ),
    )
