"""The fast algorithms against the definition in executable form."""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from checker import (
    Inconclusive,
    Invalid,
    LiveProcesses,
    Unknown,
    Valid,
    Violation,
    Witness,
    check,
    loads,
)
from checker.history import Event, Header, History, Info, Invoke, Ok, Start
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from tests import executions
from tests.oracles.live_processes import is_valid
from tests.oracles.witnesses import verify_rounds
from tests.random_histories import histories, random_history

DATA = Path(__file__).parents[1] / "data"
READINGS = [(d, f) for d in DEFINITIONS for f in FAILURE_MODELS]


@functools.cache  # Drawing takes as long as checking.
def seeded(seed: int) -> History:
    """The random history of a seed."""
    return random_history(random.Random(seed))


def verdict(history: History, reading: tuple[str, str]) -> Valid | Invalid | Unknown:
    """The verdict of the fast algorithm."""
    definition, failures = reading
    return check(history, LiveProcesses(definition=definition, failures=failures))  # type: ignore[arg-type]


@pytest.mark.parametrize("execution", executions.load(), ids=lambda execution: execution.name)
def test_each_execution_of_the_guide_has_the_expected_verdict(
    execution: executions.Execution,
) -> None:
    for reading, expected in execution.expect.items():
        found = verdict(execution.history, reading)
        assert isinstance(found, Valid if expected else Invalid), found.explain()


@pytest.mark.parametrize("reading", READINGS, ids="-".join)
def test_the_checker_agrees_with_the_oracle_on_thousands_of_seeded_histories(
    reading: tuple[str, str],
) -> None:
    definition, failures = reading
    for seed in range(2500):
        history = seeded(seed)
        expected = is_valid(history, definition=definition, failures=failures)
        found = verdict(history, reading)
        assert not isinstance(found, Unknown), f"seed {seed}: {found.explain()}"
        assert isinstance(found, Valid) is expected, f"seed {seed}: {found.explain()}"


@settings(deadline=None)
@given(histories())
def test_the_checker_agrees_with_the_oracle_on_drawn_histories(history: History) -> None:
    for definition, failures in READINGS:
        found = verdict(history, (definition, failures))
        expected = is_valid(history, definition=definition, failures=failures)
        assert isinstance(found, Valid if expected else Invalid), found.explain()


@pytest.mark.parametrize("failures", FAILURE_MODELS)
def test_the_witness_of_a_valid_history_satisfies_the_definition(failures: str) -> None:
    verified = 0
    for seed in range(1500):
        history = seeded(seed)
        found = verdict(history, ("round", failures))
        if isinstance(found, Valid):
            assert isinstance(found.witness, Witness)
            verify_rounds(history, found.witness, failures=failures)
            verified += 1
    assert verified > 500


@settings(deadline=None)
@given(histories())
def test_renaming_processes_changes_no_verdict(history: History) -> None:
    """Processes are told apart by their numbers alone, so any permutation will do."""
    last = max(history.header.participants)

    def renamed(event: Event) -> Event:
        changes: dict[str, object] = {"process": last - event.process}
        if isinstance(event, Invoke) and "participants" in event.arguments:
            participants = event.arguments["participants"]
            assert isinstance(participants, tuple)
            changes["arguments"] = {"participants": tuple(last - p for p in participants)}
        if isinstance(event, Ok) and isinstance(event.result, dict):
            changes["result"] = {last - p: inc for p, inc in event.result.items()}
        return replace(event, **changes)  # type: ignore[arg-type]

    header = replace(
        history.header, participants=tuple(sorted(last - p for p in history.header.participants))
    )
    other = History(header, [renamed(event) for event in history.events])
    for reading in READINGS:
        assert verdict(history, reading).word == verdict(other, reading).word


@settings(deadline=None)
@given(histories())
def test_clock_errors_never_turn_valid_into_invalid(history: History) -> None:
    events = [replace(event, uncertainty_ns=2) for event in history.events]
    for reading in READINGS:
        if isinstance(verdict(history, reading), Valid):
            found = verdict(History(history.header, events), reading)
            assert isinstance(found, Valid), found.explain()


@settings(deadline=None)
@given(histories())
def test_equal_times_never_turn_valid_into_invalid(history: History) -> None:
    events = [replace(event, time_ns=event.time_ns // 3) for event in history.events]
    for reading in READINGS:
        if isinstance(verdict(history, reading), Valid):
            found = verdict(History(history.header, events), reading)
            assert isinstance(found, Valid), found.explain()


def test_calls_that_overlap_leave_the_verdict_unknown() -> None:
    history = loads(
        '{"coordlab_history":0,"source":"manual","clock":"abstract","participants":[0]}\n'
        '{"type":"start","time_ns":1,"process":0,"lifetime":0,"incarnation":"5"}\n'
        '{"type":"invoke","time_ns":2,"process":0,"lifetime":0,"id":0,"operation":"live_processes"}\n'
        '{"type":"invoke","time_ns":3,"process":0,"lifetime":0,"id":1,"operation":"live_processes"}\n'
        '{"type":"ok","time_ns":4,"process":0,"lifetime":0,"id":0,"result":{"0":"5"}}\n'
    )
    found = check(history)
    assert isinstance(found, Unknown)
    assert "operations 0 and 1" in found.explain()
    with pytest.raises(Inconclusive):
        found.require_valid()


def test_too_many_ways_to_read_a_history_leave_the_verdict_unknown() -> None:
    """Each of eight rounds may use any of twelve calls of unknown outcome, and the end is invalid."""
    events: list[Event] = [
        Start(time_ns=0, process=0, lifetime=0, incarnation=1),
        Start(time_ns=0, process=1, lifetime=0, incarnation=2),
    ]
    for number in range(12):
        events.append(invoke(1, 1, number))
        events.append(Info(time_ns=1, process=1, lifetime=0, id=number, code="UNAVAILABLE"))
    for number in range(8):
        events.append(invoke(2 + 2 * number, 0, 100 + number))
        events.append(told(3 + 2 * number, 0, 100 + number, {0: 1, 1: 2}))
    events += [invoke(50, 0, 200), told(51, 0, 200, {0: 1}), invoke(60, 1, 201)]
    history = History(Header(source="manual", clock="abstract", participants=(0, 1)), events)
    found = check(history, LiveProcesses(failures="crash-stop", matchings_max=50))
    assert isinstance(found, Unknown)
    assert "50 ways" in found.explain()
    assert isinstance(check(history), Valid)


def invoke(time_ns: int, process: int, number: int) -> Invoke:
    return Invoke(
        time_ns=time_ns,
        process=process,
        lifetime=0,
        id=number,
        operation="live_processes",
        arguments={},
    )


def told(time_ns: int, process: int, number: int, live: dict[int, int]) -> Ok:
    return Ok(time_ns=time_ns, process=process, lifetime=0, id=number, result=live)


def test_a_crash_is_reported_as_moved_only_if_it_must_move() -> None:
    """The round that leaves process 1 out may be before or after its crash: it stays."""
    stays = loads(HEADER + START_BOTH + call(0, 3, 0) + crash(1, 5) + answer(0, 9, 0, '{"0":"1"}'))
    found = check(stays)
    assert isinstance(found, Valid)
    assert isinstance(found.witness, Witness)
    assert found.witness.failures == ()
    moves = loads(HEADER + START_BOTH + call(0, 3, 0) + answer(0, 9, 0, '{"0":"1"}') + crash(1, 11))
    found = check(moves)
    assert isinstance(found, Valid)
    assert isinstance(found.witness, Witness)
    (failure,) = found.witness.failures
    assert (failure.process, failure.recorded_ns, failure.before) == (1, 11, 1)
    assert failure.taken_ns <= 9
    assert "recorded at 11, is taken to be at" in found.explain()


HEADER = '{"coordlab_history":0,"source":"manual","clock":"abstract","participants":[0,1]}\n'
START_BOTH = (
    '{"type":"start","time_ns":1,"process":0,"lifetime":0,"incarnation":"1"}\n'
    '{"type":"start","time_ns":2,"process":1,"lifetime":0,"incarnation":"2"}\n'
)


def call(process: int, time_ns: int, number: int) -> str:
    return (
        f'{{"type":"invoke","time_ns":{time_ns},"process":{process},"lifetime":0,'
        f'"id":{number},"operation":"live_processes"}}\n'
    )


def answer(process: int, time_ns: int, number: int, live: str) -> str:
    return (
        f'{{"type":"ok","time_ns":{time_ns},"process":{process},"lifetime":0,'
        f'"id":{number},"result":{live}}}\n'
    )


def crash(process: int, time_ns: int) -> str:
    return f'{{"type":"crash","time_ns":{time_ns},"process":{process},"lifetime":0}}\n'


def test_a_violation_is_explained_by_a_cycle_of_reasons() -> None:
    history = loads(
        HEADER
        + START_BOTH
        + call(0, 3, 0)
        + answer(0, 4, 0, '{"0":"1"}')
        + call(1, 5, 1)
        + answer(1, 6, 1, '{"1":"2"}')
    )
    found = check(history)
    assert isinstance(found, Invalid)
    assert found.anomaly.kind == "left-out-while-alive"
    assert found.anomaly.operations == (0, 1)
    assert found.explain() + "\n" == EXPLANATION.read_text()
    with pytest.raises(Violation, match="leaves out"):
        found.require_valid()


EXPLANATION = DATA / "explanation-of-left-out-while-alive.txt"


def test_explanations_are_the_same_under_every_hash_seed() -> None:
    script = (
        "from tests import executions\n"
        "from checker import check\n"
        "for execution in executions.load():\n"
        "    print(check(execution.history).explain())\n"
    )
    root = Path(__file__).parents[2]
    texts = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=root,
            check=True,
            capture_output=True,
        ).stdout
        for hash_seed in ("0", "1", "2")
    }
    assert len(texts) == 1


@pytest.mark.parametrize("definition", DEFINITIONS)
def test_it_makes_no_difference_whether_equal_answers_are_one_object(definition: str) -> None:
    """The reader shares them, also between groups of participants with other absent members."""
    for seed in range(400):
        history = seeded(seed)
        answers: dict[str, object] = {}
        shared = replace(
            history,
            events=[
                replace(event, result=answers.setdefault(repr(event.result), event.result))
                if isinstance(event, Ok)
                else event
                for event in history.events
            ],
        )
        copied = replace(
            history,
            events=[
                replace(event, result=dict(event.result))
                if isinstance(event, Ok) and isinstance(event.result, dict)
                else event
                for event in history.events
            ],
        )
        reading = (definition, "suspicion")
        assert verdict(shared, reading).word == verdict(copied, reading).word, seed
