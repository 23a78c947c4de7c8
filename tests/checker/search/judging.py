"""The judge of anomalies: by the definition of linearizability, and by trying everything."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from checker.anomaly import Anomaly
from checker.linearization import Contradiction
from checker.operations import Failed, Operation, Operations
from checker.search.explanation import POSSIBLE_SHOWN_MAX
from checker.search.words import UNTESTED
from checker.specification import Illegal, OneOf, Specification
from tests.oracles.linearizability import linearizable


def judge(anomaly: Anomaly) -> None:
    """Fails if something that an anomaly of a small history says is not true."""
    evidence = anomaly.evidence
    assert evidence is not None
    spec = evidence.spec
    assert isinstance(spec, Specification)
    operations = _only(evidence.operations, spec, evidence.key)
    failing = evidence.failing
    responded = {~event: place for place, event in enumerate(operations.events) if event < 0}
    done = responded[failing]
    assert linearizable(until(operations, done), spec), "the contradiction comes earlier"
    assert not linearizable(until(operations, done + 1), spec), "the contradiction comes later"
    _judge_prefix(operations, evidence, spec, done)
    _judge_core(operations, evidence, spec)
    _judge_possible(operations, evidence, spec, done)
    _judge_words(anomaly, evidence)


def until(operations: Operations, events: int) -> Operations:
    """The first events: what had not responded by then may have happened, with the result it got."""
    return with_events(operations, operations.events[:events])


def select(operations: Operations, kept: Collection[int], required: Collection[int]) -> Operations:
    """Some operations, of which only some have to have happened."""
    events = [
        event
        for event in operations.events
        if (event in kept if event >= 0 else ~event in required)
    ]
    return with_events(operations, events)


def with_events(operations: Operations, events: Iterable[int]) -> Operations:
    """Other events with the operations of a history, which are numbered anew by their invocations."""
    number: dict[int, int] = {}
    left = []
    for event in events:
        if event >= 0:
            number[event] = len(number)
            left.append(number[event])
        else:
            left.append(~number[~event])
    columns: dict[str, Any] = {
        name: array(
            getattr(operations, name).typecode, [getattr(operations, name)[i] for i in number]
        )
        for name in ("kind", "process", "invoked_ns", "ended_ns", "line")
    }
    return replace(operations, events=array("i", left), **columns)


def possible_states(operations: Operations, spec: Specification, events: int) -> set[Hashable]:
    """All states after some events, by trying all orders of what responded and of what may have been."""
    known = operations.events[:events]
    responded = {~event: place for place, event in enumerate(known) if event < 0}
    invoked = {event: place for place, event in enumerate(known) if event >= 0}
    there = [i for i in invoked if not _is_out(operations.at(i), spec)]
    owed = {i for i in there if i in responded}
    seen: set[tuple[frozenset[int], Hashable]] = set()
    waiting: list[tuple[frozenset[int], Hashable]] = [(frozenset(), spec.init())]
    found: set[Hashable] = set()
    while waiting:
        situation = waiting.pop()
        if situation in seen:
            continue
        seen.add(situation)
        done, state = situation
        if owed <= done:
            found.add(state)
        first = min((responded[i] for i in owed - done), default=events)
        for index in there:
            if index not in done and invoked[index] < first:
                following = _after(spec, state, operations.at(index))
                waiting.extend((done | {index}, after) for after in following)
    return found


class Lenient(Specification):
    """As another one, but that some operations need not have happened, in the time that they took.

    Attributes:
      operations: The history with those of `strict` as they are, and all others excused.
    """

    def __init__(
        self, spec: Specification, operations: Operations, strict: Collection[int]
    ) -> None:
        self._spec = spec
        kinds = [
            operations.at(index)
            if index in strict
            else Operation(_EXCUSED, None, operations.at(index))
            for index in range(len(operations))
        ]
        excused = replace(operations, kinds=kinds, kind=array("i", range(len(kinds))))
        self.operations = with_events(excused, operations.events)

    def init(self) -> Hashable:
        return self._spec.init()

    def partition(self, operation: Operation) -> None:
        """Whatever is in the history is about the one object that is judged."""

    def observes_failure(self, operation: Operation) -> bool:
        return self._spec.observes_failure(operation)

    def step(self, state: Hashable, operation: Operation) -> Hashable | Illegal | OneOf:
        if operation.function != _EXCUSED:
            return self._spec.step(state, operation)
        excused = operation.argument
        assert isinstance(excused, Operation)
        if _is_out(excused, self._spec):
            return state
        return OneOf((state, *_after(self._spec, state, excused)))


_EXCUSED = "perhaps"

_SEVERAL = {repr(UNTESTED), "a value that nobody read"}
"""Words for all states that operations cannot tell apart."""


def _judge_prefix(
    operations: Operations, evidence: Contradiction, spec: Specification, done: int
) -> None:
    known = operations.events[:done]
    responded = {~event: place for place, event in enumerate(known) if event < 0}
    invoked = {event: place for place, event in enumerate(known) if event >= 0}
    prefix = [index for group in evidence.prefix for index in group]
    assert len(prefix) == len(set(prefix))
    owed = {i for i in responded if not _is_out(operations.at(i), spec)}
    assert owed <= set(prefix), "what responded is not in the legal prefix"
    assert set(prefix) <= set(invoked)
    states: set[Hashable] = {spec.init()}
    latest = -1
    for index in prefix:
        latest = max(latest, invoked[index])
        assert responded.get(index, done) > latest, "the prefix breaks the order of time"
        states = {after for s in states for after in _after(spec, s, operations.at(index))}
        assert states, f"{operations.at(index)} is illegal in the prefix"


def _judge_core(operations: Operations, evidence: Contradiction, spec: Specification) -> None:
    core = set(evidence.core)
    assert core, "there is no core"
    assert evidence.failing in core
    assert not core & set(evidence.context)
    lenient = Lenient(spec, operations, core)
    assert not linearizable(lenient.operations, lenient), "the core can happen"
    alone = core.union(evidence.context)
    assert not linearizable(select(operations, alone, core), spec), "the context is incomplete"


def _judge_possible(
    operations: Operations, evidence: Contradiction, spec: Specification, done: int
) -> None:
    true = {spec.describe_state(state) for state in possible_states(operations, spec, done)}
    told = {possible.state for possible in evidence.possible}
    assert evidence.possible_count >= len(told)
    assert told, "no state is told"
    several = told & _SEVERAL
    assert told - several <= true, f"impossible states are told: {told - true}"
    if not several and evidence.possible_count <= POSSIBLE_SHOWN_MAX:
        assert true <= told, f"possible states are not told: {true - told}"
    for possible in evidence.possible:
        assert possible.reason


def _judge_words(anomaly: Anomaly, evidence: Contradiction) -> None:
    assert str(evidence.operations.at(evidence.failing)) in anomaly.summary
    assert anomaly.summary in anomaly.explain()
    for reason, following in zip(anomaly.cycle, anomaly.cycle[1:] + anomaly.cycle[:1], strict=True):
        assert reason.after == following.before


def _only(operations: Operations, spec: Specification, key: Hashable) -> Operations:
    """The history without what happened to other objects; numbers stay as they are."""
    events = [
        event
        for event in operations.events
        if spec.partition(operations.at(event if event >= 0 else ~event)) == key
    ]
    return replace(operations, events=array("i", events))  # Not numbered anew.


def _after(spec: Specification, state: Hashable, operation: Operation) -> Iterator[Hashable]:
    outcome = spec.step(state, operation)
    if isinstance(outcome, OneOf):
        yield from outcome.states
    elif not isinstance(outcome, Illegal):
        yield outcome


def _is_out(operation: Operation, spec: Specification) -> bool:
    return isinstance(operation.result, Failed) and not spec.observes_failure(operation)
