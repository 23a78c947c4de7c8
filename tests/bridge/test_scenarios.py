"""Scenarios of the library on real processes, and the same expectations as in the simulator.

Those that say most in a few seconds; `python -m tests.bridge.library` runs them all.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Invoke, read
from coord_sim.faults import Crash, Degrade, Pause
from coord_sim.moments import When
from coord_sim.scenarios import Answers, Ends, Expectations, scenario_named
from coord_sim.schedule import Schedule
from coord_sim.sim import simulate
from coord_sim.sim.programs import PROGRAMS
from jax_bridge.scenario_runs import (
    DYING_S,
    NotForProcesses,
    Setting,
    run_for_real,
    with_tolerance,
)
from tests.bridge.library import run_one

RUNS = [
    ("key-set-twice", "real"),
    ("single-reset", "real"),
    ("leader-killed", "real"),
    ("mixed-timeouts", "real"),
    ("service-restarted", "model"),
    ("short-stall", "model"),
    ("short-partition", "model"),
    ("early-leaver", "model"),
]


@pytest.mark.jax
def test_scenarios_come_out_on_real_processes_as_they_are_expected_to() -> None:
    """Kills, stalls, partitions, resets, a service that dies with its process or is restarted."""
    with ThreadPoolExecutor(len(RUNS)) as pool:
        outcomes = list(pool.map(lambda run: run_one(run[0], ["--service", run[1]]), RUNS))
    for (name, service), (code, output, _) in zip(RUNS, outcomes, strict=True):
        assert code == 0, f"{name} on the {service} service:\n{output}"
        assert "expectations hold" in output


@pytest.mark.jax
def test_a_process_draws_and_does_what_its_simulated_twin_does(tmp_path: Path) -> None:
    schedule = Schedule(processes=2, seed=3, limit_s=60)
    arguments: dict[str, object] = {"steps": 2, "step_s": 0.2, "set_up_s": 0.1}
    real = run_for_real(
        "training_loop", arguments, schedule, Setting(service="real", out=tmp_path / "run.jsonl")
    )
    simulated = simulate(PROGRAMS["training_loop"](steps=2, step_s=0.2, set_up_s=0.1), schedule)
    for run in (real, simulated):
        assert run.finished
        assert [end.state for end in run.ends] == ["left", "left"]
    values = [
        sorted(
            str(event.arguments["value"])
            for event in run.history.events
            if isinstance(event, Invoke) and event.operation == "key_value_set"
        )
        for run in (real, simulated)
    ]
    assert values[0] == values[1]
    saved = read(tmp_path / "run.jsonl")
    assert list(saved.events) == list(real.history.events)
    assert 0 < saved.events[0].time_ns < 60_000_000_000, "times count from the beginning of the run"


@pytest.mark.jax
def test_a_fault_may_wait_for_what_another_process_does(tmp_path: Path) -> None:
    faults = (
        Crash(1, When("after", 0, "block", 1)),
        Pause(2, When("crash", 1, plus_s=0.1), 0.3),
        Crash(2, When("inside", 2, "block", 99)),
    )
    schedule = Schedule(processes=3, faults=faults, heartbeat_timeout_s=10, limit_s=90)
    arguments: dict[str, object] = {"steps": 3, "step_s": 0.2, "set_up_s": 0.1}
    run = run_for_real(
        "training_loop", arguments, schedule, Setting(service="model", out=tmp_path / "run.jsonl")
    )
    assert [end.state for end in run.ends] == ["left", "crashed", "left"]
    assert run.ends[1].cause == "killed: SIGKILL after 0 block#1"
    assert run.missed == (faults[2],)
    names = [fault.name for fault in run.history.faults]
    assert names == ["crash of process 1", "pause of process 2 for 0.3 s"]


@pytest.mark.parametrize(
    ("schedule", "service", "words"),
    [
        (Schedule(processes=1, mutant="forgets-the-counter"), "model", "no mutants"),
        (Schedule(processes=1, loss=0.1), "model", "no packets are lost"),
        (Schedule(processes=1, semantics="naive"), "model", "no naive semantics"),
        (Schedule(processes=1, semantics="published"), "real", "as shipped, not published"),
        (Schedule(processes=1, durable=True), "real", "keeps nothing"),
        (Schedule(processes=1, heartbeat_timeout_s=2.5), "real", "heartbeat_timeout_s is 2.5"),
    ],
)
def test_what_real_processes_cannot_run_is_refused_with_the_reason(
    tmp_path: Path, schedule: Schedule, service: str, words: str
) -> None:
    with pytest.raises(NotForProcesses, match=words):
        run_for_real("lockstep", {}, schedule, Setting(service=service, out=tmp_path / "run.jsonl"))
    assert not list(tmp_path.iterdir())


def test_times_of_expectations_are_wider_and_narrower_where_there_must_not_be_more() -> None:
    ends = Ends(state="left", after_s=3, before_s=5)
    few = Answers(operation="barrier", code="OK", at_most=0, after_s=3, before_s=7)
    some = Answers(operation="barrier", code="OK", before_s=7)
    wider = with_tolerance(Expectations(ends=(ends,), answers=(few, some)), 1.0)
    assert wider.ends == (replace(ends, after_s=2, before_s=6 + DYING_S),)
    assert wider.answers == (replace(few, after_s=4, before_s=6), replace(some, before_s=8))


def test_the_library_has_no_scenario_for_processes_that_cannot_run_on_ours() -> None:
    """What jaxlib's own service cannot do (a durable one) may be among them."""
    from tests.bridge.library import for_processes

    for name in for_processes():
        schedule = scenario_named(name).schedule
        assert math.isclose(schedule.heartbeat_timeout_s, round(schedule.heartbeat_timeout_s))
        assert not any(isinstance(fault, Degrade) and fault.raw for fault in schedule.faults)
