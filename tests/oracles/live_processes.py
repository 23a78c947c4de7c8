"""The definition of a valid `live_processes` history in executable form: the judge of checkers.

A small machine reads the history event by event. Between two events it may let a lifetime fail, or
fire an *instant*: the moment at which an answer (definition `published`) or the common answer of a
whole round (definition `round`) was true. The history is valid if some run of the machine reads it
to its end. All runs are tried, so this is slow and only for small histories; nothing here is
clever, because everything clever is compared with it.

The machine's state is the number of events read, the lifetimes that are alive, and the calls whose
instant has fired. Four rules say which runs there are:

* *start* needs every older lifetime of the process to have failed. That alone forces a failure;
  recorded crashes and leaves have no effect, since failure times shift.
* *failure* needs the lifetime's signs of life to have been read. Under `crash-stop` these are all
  its own events; under `suspicion` they are the invocations of its acknowledged operations other
  than `live_processes` and `shutdown`. What follows the invocation of a `shutdown` that did not
  surely fail is never a sign of life. Besides, every answered `live_processes` call of the lifetime
  must have had its instant.
* *instant* needs the barrier of one participant set to be complete: every live participant has an
  open call with this very set. The answers must name exactly these lifetimes. In `round`, one open
  call of each member is used up by the round; in `published`, only the call whose answer it is.
* *ok* of `live_processes` needs the call's instant to have fired.

A call is open from its invocation until it is answered, or, if it never is (a response of kind
`info`, or none), until its lifetime fails. A call that ended with a definite error was never open.
Members of an instant are alive, so a lifetime cannot fail before an instant that counts it, and
what a lifetime does after its failure has no effect on anybody.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from checker.history import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Crash,
    Event,
    Fail,
    History,
    Info,
    Invoke,
    Leave,
    LiveSet,
    Ok,
    Start,
)

DEFINITIONS = ("round", "published")
FAILURE_MODELS = ("suspicion", "crash-stop")

_LifetimeKey: TypeAlias = tuple[int, int]
"""Process and number of the lifetime."""


def is_valid(history: History, *, definition: str, failures: str) -> bool:
    """Whether some choice of instants and failure times makes every answer true.

    Events count as totally ordered by their place in the list; times are not looked at.

    Args:
      history: A well-formed history. An incarnation in an answer means the lifetime that has it on
        one of its own events; one that no lifetime has makes the answer false.
      definition: `round` or `published`.
      failures: `suspicion` or `crash-stop`.

    Complexity:
      Exponential in the number of calls and of lifetimes that may fail at the same time.
    """
    if definition not in DEFINITIONS:
        raise ValueError(f"unknown definition {definition!r}; one of {', '.join(DEFINITIONS)}")
    if failures not in FAILURE_MODELS:
        raise ValueError(f"unknown failure model {failures!r}; one of {', '.join(FAILURE_MODELS)}")
    machine = _Machine(history, definition=definition, failures=failures)
    first = _State(position=0, alive=frozenset(), fired=frozenset())
    found = {first}
    unexplored = [first]
    while unexplored:
        state = unexplored.pop()
        if state.position == len(history.events):
            return True
        for successor in machine.successors(state):
            if successor not in found:
                found.add(successor)
                unexplored.append(successor)
    return False


class _State(NamedTuple):
    position: int
    """How many events have been read."""
    alive: frozenset[_LifetimeKey]
    fired: frozenset[int]
    """Ids of the calls that had their instant."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of `live_processes` that did not end with a definite error."""

    id: int
    lifetime: _LifetimeKey
    participants: frozenset[int]
    invoked_at: int
    answered_at: int | None
    answer: LiveSet | None

    def is_open(self, position: int) -> bool:
        """Whether it waits for its answer when `position` events have been read (if it lives)."""
        return self.invoked_at < position and (
            self.answered_at is None or position <= self.answered_at
        )


class _Machine:
    def __init__(self, history: History, *, definition: str, failures: str) -> None:
        self._events = history.events
        self._definition = definition
        everybody = frozenset(history.header.participants)
        ends = {
            e.id: (at, e) for at, e in enumerate(self._events) if isinstance(e, Ok | Fail | Info)
        }
        self._calls = list(_live_processes_calls(self._events, ends, everybody))
        self._call_by_id = {call.id: call for call in self._calls}
        self._incarnation_by_lifetime = {
            (event.process, event.lifetime): event.incarnation
            for event in self._events
            if event.incarnation is not None
        }
        signs = signs_of_life(self._events, failures=failures)
        self._last_sign_of_life: dict[_LifetimeKey, int] = {}
        for at in signs:
            event = self._events[at]
            self._last_sign_of_life[event.process, event.lifetime] = at

    def successors(self, state: _State) -> Iterator[_State]:
        """The states one step further; the search tries the last one first."""
        yield from self._failures(state)
        yield from self._next_event(state)
        if self._definition == "round":
            yield from self._rounds(state)
        else:
            yield from self._single_answers(state)

    def _next_event(self, state: _State) -> Iterator[_State]:
        event = self._events[state.position]
        alive = state.alive
        if isinstance(event, Start):
            if any(process == event.process for process, _ in alive):
                return
            alive = alive | {(event.process, event.lifetime)}
        elif isinstance(event, Ok) and event.id in self._call_by_id and event.id not in state.fired:
            return
        yield state._replace(position=state.position + 1, alive=alive)

    def _failures(self, state: _State) -> Iterator[_State]:
        for lifetime in state.alive:
            signs_were_read = self._last_sign_of_life.get(lifetime, -1) < state.position
            answers_were_true = all(
                call.id in state.fired
                for call in self._calls
                if call.lifetime == lifetime and call.answer is not None
            )
            if signs_were_read and answers_were_true:
                yield state._replace(alive=state.alive - {lifetime})

    def _rounds(self, state: _State) -> Iterator[_State]:
        """Rounds with an answered call; to hold one of pending calls only would help nobody."""
        for participants in {call.participants for call in self._calls}:
            barrier = self._barrier(state, participants)
            unused = [
                [call for call in calls if call.id not in state.fired] for calls in barrier.values()
            ]
            for round_ in itertools.product(*unused):
                answers = [call.answer for call in round_ if call.answer is not None]
                if answers and all(self._names_exactly(answer, barrier) for answer in answers):
                    yield state._replace(fired=state.fired | {call.id for call in round_})

    def _single_answers(self, state: _State) -> Iterator[_State]:
        for call in self._calls:
            if call.answer is None or call.id in state.fired:
                continue
            barrier = self._barrier(state, call.participants)
            if (
                call in barrier.get(call.lifetime, ())
                and all(barrier.values())
                and self._names_exactly(call.answer, barrier)
            ):
                yield state._replace(fired=state.fired | {call.id})

    def _barrier(
        self, state: _State, participants: frozenset[int]
    ) -> dict[_LifetimeKey, list[_Call]]:
        """The live participants, each with its open calls for this participant set."""
        return {
            lifetime: [
                call
                for call in self._calls
                if call.lifetime == lifetime
                and call.participants == participants
                and call.is_open(state.position)
            ]
            for lifetime in state.alive
            if lifetime[0] in participants
        }

    def _names_exactly(self, answer: LiveSet, barrier: Mapping[_LifetimeKey, object]) -> bool:
        """Whether the answer is these lifetimes; an incarnation that it leaves out may be any."""
        return answer.keys() == {process for process, _ in barrier} and all(
            answer[lifetime[0]] is None
            or answer[lifetime[0]] == self._incarnation_by_lifetime.get(lifetime)
            for lifetime in barrier
        )


def _live_processes_calls(
    events: Sequence[Event],
    ends: Mapping[int, tuple[int, Ok | Fail | Info]],
    everybody: frozenset[int],
) -> Iterator[_Call]:
    for invoked_at, event in enumerate(events):
        if not isinstance(event, Invoke) or event.operation != LIVE_PROCESSES:
            continue
        ended_at, end = ends.get(event.id, (None, None))
        if isinstance(end, Fail):
            continue
        yield _Call(
            id=event.id,
            lifetime=(event.process, event.lifetime),
            participants=_participants(event, everybody),
            invoked_at=invoked_at,
            answered_at=ended_at if isinstance(end, Ok) else None,
            answer=_live_set(end.result) if isinstance(end, Ok) else None,
        )


def _participants(invoke: Invoke, everybody: frozenset[int]) -> frozenset[int]:
    participants = invoke.arguments.get("participants")
    if participants is None:
        return everybody
    assert isinstance(participants, tuple)
    return frozenset(participants)


def _live_set(result: object) -> LiveSet:
    assert isinstance(result, Mapping)
    return result


def signs_of_life(events: Sequence[Event], *, failures: str) -> list[int]:
    """Positions of the events before which their lifetime cannot have failed, ascending."""
    ends = {event.id: event for event in events if isinstance(event, Ok | Fail | Info)}

    def is_acknowledged(invoke: Invoke) -> bool:
        return isinstance(ends.get(invoke.id), Ok)

    def may_have_happened(invoke: Invoke) -> bool:
        return not isinstance(ends.get(invoke.id), Fail)

    def is_sign(event: Event) -> bool:
        if failures == "crash-stop":
            return not isinstance(event, Crash | Leave)
        return (
            isinstance(event, Invoke)
            and event.operation not in (LIVE_PROCESSES, SHUTDOWN)
            and is_acknowledged(event)
        )

    signs: list[int] = []
    has_left: set[_LifetimeKey] = set()
    for at, event in enumerate(events):
        lifetime = (event.process, event.lifetime)
        if lifetime in has_left:
            continue
        if is_sign(event):
            signs.append(at)
        if isinstance(event, Invoke) and event.operation == SHUTDOWN and may_have_happened(event):
            has_left.add(lifetime)
    return signs
