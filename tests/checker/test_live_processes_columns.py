"""Columns, and the compiled check of them, against plain Python on events."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from checker import Invalid, LiveProcesses, MalformedHistory, Valid, Witness
from checker.history import (
    Crash,
    Enter,
    Event,
    Fail,
    Header,
    History,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from checker.live_processes.check import check_columns, check_live_processes
from checker.live_processes.columns import CALL, CRASH, OK, START, Columns, columns_of
from checker.live_processes.compiled import choice
from tests.random_histories import random_history

SPECS = [LiveProcesses(definition=d, failures=f) for d in DEFINITIONS for f in FAILURE_MODELS]
UNEVEN = "uneven clock errors"


@pytest.fixture(scope="module")
def driver() -> ModuleType:
    """The compiled check: here whatever the size of the history."""
    pytest.importorskip("numba", reason="the extra coordlab[fast] is not installed")
    return choice.CODE.load()


def some_histories(count: int) -> Iterator[tuple[str, History]]:
    """Random histories: as they are, with clock errors, with equal times."""
    for seed in range(count):
        rng = random.Random(seed)
        history = random_history(rng, length=None if seed % 3 else rng.randrange(4, 60))
        errors = rng.randrange(1, 4)
        for variant, events in {
            "exact": history.events,
            "clock errors": [replace(event, uncertainty_ns=errors) for event in history.events],
            UNEVEN: [replace(e, uncertainty_ns=rng.randrange(4)) for e in history.events],
            "equal times": [replace(e, time_ns=e.time_ns // 3) for e in history.events],
        }.items():
            yield f"seed {seed}, {variant}", History(history.header, events)


def leaves_nothing_open(history: History, columns: Columns) -> bool:
    """Whether answers tell incarnations, and no call of the barrier ended with an unknown outcome."""
    calls = {
        event.id
        for event in history.events
        if isinstance(event, Invoke) and event.operation == "live_processes"
    }
    given_up = any(isinstance(event, Info) and event.id in calls for event in history.events)
    return not given_up and all(None not in answer.values() for answer in columns.answers)


def test_the_compiled_check_is_never_valid_where_plain_python_is_not_and_decides_what_is_usual(
    driver: ModuleType,
) -> None:
    decided = 0
    for name, history in some_histories(250):
        columns = columns_of(history)
        assert columns is not None
        for spec in SPECS:
            found = driver.is_surely_valid(columns, spec)
            plain = check_live_processes(history, spec, compiled=False)
            decided += found
            if found:
                assert isinstance(plain, Valid), f"{name}, {spec}: {plain.explain()}"
            elif spec.definition == "round" and leaves_nothing_open(history, columns):
                # With uneven errors, two starts of a process may be in the wrong order.
                assert UNEVEN in name or not isinstance(plain, Valid), f"{name}, {spec}"
    assert decided > 1500


def test_verdicts_and_witnesses_are_the_same_with_and_without_the_compiled_check(
    driver: ModuleType,
) -> None:
    del driver
    words = set()
    for name, history in some_histories(60):
        for spec in SPECS:
            plain = check_live_processes(history, spec, compiled=False)
            fast = check_live_processes(history, spec, compiled=True)
            words.add((fast.word, fast.algorithm))
            assert fast.word == plain.word, name
            assert fast.explain() == plain.explain(), name
            if isinstance(fast, Valid) and isinstance(plain, Valid):
                assert isinstance(fast.witness, Witness)
                assert isinstance(plain.witness, Witness)
                assert fast.witness.noun == plain.witness.noun
                assert fast.witness.answers == plain.witness.answers
                assert fast.witness.failures == plain.witness.failures
    assert words == {("valid", "compiled rounds"), ("valid", ""), ("invalid", "")}


def test_columns_and_the_history_made_of_them_have_the_same_verdict() -> None:
    for name, history in some_histories(60):
        columns = columns_of(history)
        assert columns is not None
        for spec in SPECS:
            expected = check_live_processes(history, spec, compiled=False)
            found = check_columns(columns, spec, compiled=False)
            assert found.word == expected.word, name


def test_columns_keep_every_kind_of_event() -> None:
    first, second = {0: 10, 1: 20}, {0: 10}
    events: list[Event] = [
        Start(time_ns=1, process=0, lifetime=0, incarnation=10, since_ns=0),
        Start(time_ns=2, process=1, lifetime=0, incarnation=20, uncertainty_ns=3),
        Invoke(time_ns=3, process=0, lifetime=0, id=0, operation="live_processes", arguments={}),
        Invoke(
            time_ns=4,
            process=1,
            lifetime=0,
            id=1,
            operation="live_processes",
            arguments={"participants": (0,)},
        ),
        Invoke(time_ns=5, process=1, lifetime=0, id=2, operation="key_value_set", arguments={}),
        Ok(time_ns=6, process=0, lifetime=0, id=0, result=first),
        Ok(time_ns=7, process=1, lifetime=0, id=2, result=None),
        Fail(time_ns=8, process=1, lifetime=0, id=1, code=""),
        Invoke(time_ns=9, process=1, lifetime=0, id=3, operation="shutdown", arguments={}),
        Info(time_ns=10, process=1, lifetime=0, id=3, code=""),
        Leave(time_ns=11, process=1, lifetime=0),
        Enter(time_ns=12, process=0, lifetime=0, block=12, live={}),
        Invoke(time_ns=13, process=0, lifetime=0, id=4, operation="live_processes", arguments={}),
        Ok(time_ns=14, process=0, lifetime=0, id=4, result=second),
        Crash(time_ns=16, process=0, lifetime=0, since_ns=15),
    ]
    header = Header(source="manual", participants=(0, 1), clock="abstract")
    columns = columns_of(History(header, events))
    assert columns is not None
    incarnation = {0: 10, 1: 20}
    expected: list[Event] = [
        replace(event, incarnation=incarnation[event.process], block=11)
        if isinstance(event, Enter)
        else replace(event, incarnation=incarnation[event.process])
        for event in events
    ]
    assert columns.history() == History(header, expected)
    assert columns.answers == [first, second]
    assert columns.nbytes == len(events) * (21 + 8)


@pytest.mark.parametrize("later", [1, 2], ids="{} late caller(s)".format)
def test_answers_that_clock_errors_put_before_an_earlier_round_wait_for_it(
    driver: ModuleType, later: int
) -> None:
    """The late callers are told of the second round before process 0 is told of the first, it seems."""
    participants = tuple(range(later + 1))
    columns = Columns(Header(source="manual", participants=participants, clock="wall"))
    everybody = columns.group_index(participants)
    for process in participants:
        columns.lifetime_index(process, 0)
    columns.incarnations[:] = participants
    alone = columns.answer_index({0: 0})
    together = columns.answer_index({process: process for process in participants})
    columns.append(START, 0, 0)
    columns.append(CALL, 0, 10, 0, everybody)
    for process in participants[1:]:
        columns.append(START, process, 23)
    for process in participants[1:]:
        columns.append(CALL, process, 24, process, everybody)
    for process in participants[1:]:
        columns.append(OK, process, 25, process, together)
    columns.append(OK, 0, 26, 0, alone)
    columns.append(CALL, 0, 27, later + 1, everybody)
    columns.append(OK, 0, 28, later + 1, together)
    spec = LiveProcesses()
    assert isinstance(check_columns(columns, spec, compiled=True), Invalid)
    columns.uncertainty_ns.extend([5] * len(columns))
    assert driver.is_surely_valid(columns, spec)
    assert isinstance(check_columns(columns, spec, compiled=False), Valid)


def test_a_failure_that_must_move_again_takes_another_sweep(driver: ModuleType) -> None:
    """The first round to be answered leaves out a process that a round formed later still counts in."""
    columns = Columns(Header(source="manual", participants=(0, 1, 2), clock="abstract"))
    all_three, but_two = columns.group_index((0, 1, 2)), columns.group_index((0, 2))
    for process in range(3):
        columns.lifetime_index(process, 0)
        columns.append(START, process, process)
    columns.incarnations[:] = [10, 20, 30]
    columns.append(CALL, 2, 10, 0, all_three)
    columns.append(CALL, 0, 11, 1, but_two)
    columns.append(CALL, 1, 12, 2, all_three)
    columns.append(CALL, 0, 13, 3, all_three)
    columns.append(CRASH, 2, 14)
    columns.append(OK, 0, 20, 1, columns.answer_index({0: 10}))
    columns.append(OK, 1, 21, 2, columns.answer_index({0: 10, 1: 20, 2: 30}))
    spec = LiveProcesses()
    assert driver.is_surely_valid(columns, spec)
    plain = check_columns(columns, spec, compiled=False)
    assert isinstance(plain, Valid)
    assert isinstance(plain.witness, Witness)
    instants = {answer.number: answer.instant for answer in plain.witness.answers}
    assert instants[1] > instants[2]


@pytest.mark.parametrize(
    ("operation", "lifetime", "detail"),
    [(7, 0, 0), (0, 0, 3), (-5, 0, 0), (0, 9, 0), (0, -1, 0), (0, 0, -2)],
)
def test_numbers_out_of_range_are_refused(
    driver: ModuleType, operation: int, lifetime: int, detail: int
) -> None:
    columns = Columns(Header(source="manual", participants=(0,), clock="abstract"))
    columns.lifetime_index(0, 0)
    columns.incarnations[0] = 10
    columns.append(START, 0, 1)
    columns.append(CALL, 0, 2, 0, columns.group_index((0,)))
    columns.answer_index({0: 10})
    columns.append(OK, lifetime, 3, operation, detail)
    assert not driver.is_surely_valid(columns, LiveProcesses())
    with pytest.raises(MalformedHistory):
        check_columns(columns, LiveProcesses(), compiled=True)


def test_a_response_to_nothing_is_refused(driver: ModuleType) -> None:
    del driver
    header = Header(source="manual", participants=(0,), clock="abstract")
    events: list[Event] = [
        Start(time_ns=1, process=0, lifetime=0),
        Ok(time_ns=2, process=0, lifetime=0, id=4, result={0: 1}),
    ]
    with pytest.raises(MalformedHistory, match="never invoked"):
        check_live_processes(History(header, events), LiveProcesses(), compiled=True)


def test_a_small_check_in_a_fresh_process_imports_neither_numpy_nor_numba() -> None:
    script = """
import sys
from checker import History, check
from checker.history import Header, Start
header = Header(source="manual", participants=(0,), clock="abstract")
assert check(History(header, [Start(time_ns=1, process=0, lifetime=0)])).word == "valid"
sys.exit(sorted({"numpy", "numba"} & sys.modules.keys()) or 0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=30)
