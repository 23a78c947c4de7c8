"""The stepwise monitor against the whole-history checker, and what a search relies on."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest

from checker import Invalid, LiveProcesses, check
from checker.history import LIVE_PROCESSES, Event, Fail, History, Info, Invoke, Ok, Start
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from checker.live_processes.stepwise import Renaming, StepwiseMonitor, first_violation
from tests.oracles.live_processes import is_valid
from tests.random_histories import random_history

SPECS = [
    LiveProcesses(definition=definition, failures=failures)
    for definition, failures in itertools.product(DEFINITIONS, FAILURE_MODELS)
]
HISTORIES = 300
EVENTS = 11
"""In longer ones, many open calls make the subset construction slow (`published`)."""


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.definition}-{spec.failures}")
def test_it_agrees_with_the_checker_on_random_histories(spec: LiveProcesses) -> None:
    invalid = 0
    for seed in range(HISTORIES):
        history = random_history(random.Random(seed), length=4 + seed % EVENTS)
        expected = isinstance(check(history, spec), Invalid)
        assert (first_violation(history, spec) is not None) == expected, f"seed {seed}"
        invalid += expected
    assert 15 < invalid < HISTORIES - 15


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.definition}-{spec.failures}")
def test_it_says_so_at_the_first_event_that_cannot_be_explained(spec: LiveProcesses) -> None:
    """The beginning up to that event is invalid, and the one before it is not."""
    found = 0
    for seed in range(200):
        history = random_history(random.Random(seed), processes=2)
        if not all(event.incarnation is not None for event in history.events if _starts(event)):
            continue  # Told later: a beginning does not know it yet.
        position = first_violation(history, spec)
        if position is None:
            continue
        found += 1
        for length, expected in ((position, True), (position + 1, False)):
            beginning = History(history.header, history.events[:length])
            valid = is_valid(beginning, definition=spec.definition, failures=spec.failures)
            assert valid is expected, f"seed {seed}"
    assert found > 10


def test_renaming_commutes_with_reading() -> None:
    """A renamed state is the state that the renamed events lead to."""
    order = (1, 2, 0)
    renaming = Renaming(order, operation=lambda id_: id_ + 1000, incarnation=lambda i: i + 5)
    compared = 0
    for seed in range(200):
        history = random_history(random.Random(seed), processes=3, length=12)
        monitor = StepwiseMonitor(range(3))
        state, renamed = monitor.initial, monitor.initial
        for event in _with_told_starts(history):
            following = monitor.after(state, event)
            other = monitor.after(renamed, _renamed(event, order))
            assert (following is None) == (other is None)
            if following is None or other is None:
                break
            state, renamed = following, other
            assert monitor.renamed(state, renaming) == renamed
            compared += 1
    assert compared > 1000


def test_equal_futures_are_equal_states() -> None:
    """A round that is over, and whose members all were answered, leaves nothing behind."""
    monitor = StepwiseMonitor(range(2))
    starts: list[Event] = [
        Start(time_ns=0, process=p, lifetime=0, incarnation=10 + p) for p in range(2)
    ]
    state = monitor.initial
    for event in starts:
        state = _after(monitor, state, event)
    before = state
    for event in _round(0):
        state = _after(monitor, state, event)
    assert state == before
    for event in _round(2):
        state = _after(monitor, state, event)
    assert state == before


def _after(monitor: StepwiseMonitor, state: int, event: Event) -> int:
    after = monitor.after(state, event)
    assert after is not None
    return after


def _round(first_id: int) -> list[Event]:
    invokes: list[Event] = [
        Invoke(
            time_ns=0,
            process=p,
            lifetime=0,
            id=first_id + p,
            operation=LIVE_PROCESSES,
            arguments={},
        )
        for p in range(2)
    ]
    answer = {0: 10, 1: 11}
    return [
        *invokes,
        *(Ok(time_ns=0, process=p, lifetime=0, id=first_id + p, result=answer) for p in range(2)),
    ]


def _starts(event: Event) -> bool:
    return isinstance(event, Start)


def _with_told_starts(history: History) -> list[Event]:
    told = {
        (event.process, event.lifetime): event.incarnation
        for event in history.events
        if event.incarnation is not None
    }
    return [
        replace(event, incarnation=told.get((event.process, event.lifetime)))
        if isinstance(event, Start)
        else event
        for event in history.events
    ]


def _renamed(event: Event, order: tuple[int, ...]) -> Event:
    renamed = replace(event, process=order[event.process])
    if event.incarnation is not None:
        renamed = replace(renamed, incarnation=event.incarnation + 5)
    if isinstance(renamed, Invoke | Ok | Fail | Info):
        renamed = replace(renamed, id=renamed.id + 1000)
    if isinstance(renamed, Ok) and isinstance(renamed.result, dict):
        result = {order[p]: None if i is None else i + 5 for p, i in renamed.result.items()}
        renamed = replace(renamed, result=result)
    if isinstance(renamed, Invoke) and renamed.operation == LIVE_PROCESSES:
        listed = renamed.arguments.get("participants")
        if listed is not None:
            assert isinstance(listed, tuple)
            participants = tuple(sorted(order[p] for p in listed))
            renamed = replace(renamed, arguments={"participants": participants})
    return renamed
