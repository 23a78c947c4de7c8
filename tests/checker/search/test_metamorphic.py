"""What may be done to a history without changing the verdict, or without making a valid one invalid."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Hashable
from dataclasses import replace

from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from checker.operations import UNKNOWN, Failed, Operation, Operations
from checker.search.budget import Budget
from checker.specification import Hint, Specification
from checker.specs import SPECS, spec_named
from tests.checker.search.algorithms import ALGORITHMS
from tests.checker.search.judging import with_events
from tests.random_operations import TOYS, Style, random_operations

SEQUENTIAL = [name for name in TOYS if issubclass(SPECS[name], Specification)]
RENAMABLE = ["register", "cas-register", "multi-register", "set", "queue", "stack", "append-log"]
"""Their values have no meaning of their own."""

_settings = hypothesis_settings(deadline=None, derandomize=True, max_examples=150)

names = st.sampled_from(SEQUENTIAL)
randoms = st.integers(0, 1 << 32).map(random.Random)
algorithms = st.sampled_from(sorted(ALGORITHMS))


def _spec(name: str) -> Specification:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    return spec


def _drawn(rng: random.Random, name: str) -> Operations:
    style: Style = rng.choice(("valid", "valid", "nearly"))
    return random_operations(rng, name, style=style, operations_max=16)


def _stays_valid(
    rng: random.Random,
    name: str,
    algorithm: str,
    change: Callable[[Operations], Operations | None],
) -> None:
    search, spec = ALGORITHMS[algorithm], _spec(name)
    history = _drawn(rng, name)
    assume(search(history, spec, Budget()) is True)
    changed = change(history)
    assume(changed is not None)
    assert changed is not None
    assert search(changed, spec, Budget()) is not False


def _with_result(operations: Operations, index: int, result: Hashable) -> Operations:
    kind = operations.kind[:]
    kind[index] = len(operations.kinds)
    kinds = (*operations.kinds, operations.at(index)._replace(result=result))
    return replace(operations, kind=kind, kinds=kinds)


@_settings
@given(randoms, names, algorithms)
def test_processes_may_have_any_names(rng: random.Random, name: str, algorithm: str) -> None:
    history = _drawn(rng, name)
    renamed = replace(history, process=array("q", (997 - 3 * each for each in history.process)))
    search, spec = ALGORITHMS[algorithm], _spec(name)
    assert search(history, spec, Budget()) is search(renamed, spec, Budget())


@_settings
@given(randoms, st.sampled_from(RENAMABLE), algorithms)
def test_values_may_have_any_names(rng: random.Random, name: str, algorithm: str) -> None:
    history = _drawn(rng, name)
    # 0 is the first value of the registers of a transaction.
    new = {0: 0, 1: 71, 2: "two"} if name == "multi-register" else {0: "zero", 1: 71, 2: ("two",)}

    def renamed(value: Hashable) -> Hashable:
        if isinstance(value, tuple):
            return tuple(map(renamed, value))
        if isinstance(value, frozenset):
            return frozenset(map(renamed, value))
        return new[value] if isinstance(value, int) and not isinstance(value, bool) else value

    kinds = [
        kind._replace(argument=renamed(kind.argument), result=renamed(kind.result))
        for kind in history.kinds
    ]
    search, spec = ALGORITHMS[algorithm], _spec(name)
    other = replace(history, kinds=kinds)
    assert search(history, spec, Budget()) is search(other, spec, Budget())


@_settings
@given(randoms, names, algorithms)
def test_events_of_one_sort_may_change_places(
    rng: random.Random, name: str, algorithm: str
) -> None:
    """No operation ends before another one begins that did not before."""
    history = _drawn(rng, name)
    events = list(history.events)
    for _ in range(20):
        place = rng.randrange(len(events) - 1)
        if (events[place] < 0) == (events[place + 1] < 0):
            events[place], events[place + 1] = events[place + 1], events[place]
    search, spec = ALGORITHMS[algorithm], _spec(name)
    other = with_events(history, events)
    assert search(history, spec, Budget()) is search(other, spec, Budget())


@_settings
@given(randoms, names, algorithms)
def test_longer_intervals_keep_a_history_valid(
    rng: random.Random, name: str, algorithm: str
) -> None:
    def widen(history: Operations) -> Operations:
        events = list(history.events)
        for _ in range(rng.randrange(1, 12)):
            place = rng.randrange(len(events) - 1)
            if events[place] < 0 <= events[place + 1]:
                events[place], events[place + 1] = events[place + 1], events[place]
        return with_events(history, events)

    _stays_valid(rng, name, algorithm, widen)


@_settings
@given(randoms, names, algorithms)
def test_the_beginning_of_a_valid_history_is_valid(
    rng: random.Random, name: str, algorithm: str
) -> None:
    def cut(history: Operations) -> Operations:
        length = rng.randrange(len(history.events) + 1)
        ended = {~event for event in history.events[:length] if event < 0}
        for index in range(len(history)):
            if index not in ended:
                history = _with_result(history, index, UNKNOWN)
        return with_events(history, history.events[:length])

    _stays_valid(rng, name, algorithm, cut)


@_settings
@given(randoms, names, algorithms)
def test_what_changes_nothing_may_be_left_out(
    rng: random.Random, name: str, algorithm: str
) -> None:
    spec = _spec(name)

    def drop(history: Operations) -> Operations | None:
        pure = [i for i in range(len(history)) if _is_pure(spec, history.at(i))]
        if not pure:
            return None
        left_out = rng.choice(pure)
        return with_events(history, [e for e in history.events if e not in (left_out, ~left_out)])

    _stays_valid(rng, name, algorithm, drop)


def _is_pure(spec: Specification, operation: Operation) -> bool:
    if isinstance(operation.result, Failed) and not spec.observes_failure(operation):
        return True
    return bool(spec.hints(operation) & Hint.PURE)


@_settings
@given(randoms, names, algorithms)
def test_to_know_less_of_an_outcome_keeps_a_history_valid(
    rng: random.Random, name: str, algorithm: str
) -> None:
    def forget(history: Operations) -> Operations | None:
        ended = [~event for event in history.events if event < 0]
        if not ended:
            return None
        index = rng.choice(ended)
        forgotten = _with_result(history, index, UNKNOWN)
        return with_events(forgotten, [event for event in history.events if event != ~index])

    _stays_valid(rng, name, algorithm, forget)
