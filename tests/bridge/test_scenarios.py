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
from coord_sim.scenarios.shelf import LIBRARY
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

HEARTBEATS = "heartbeat_timeout_s = 12\n"
"""Processes that live must not miss it on a busy machine; many of the library's are shorter, which in
virtual time is no risk."""

RUNS: list[tuple[str, str, dict[str, str]]] = [
    (
        "key-set-twice",
        "real",
        {"[job]\n": f"[job]\n{HEARTBEATS}", "limit_s = 30": "limit_s = 100"},
    ),
    (
        "single-reset",
        "real",
        {
            "heartbeat_timeout_s = 6\n": HEARTBEATS,
            "before_s = 7\n": "before_s = 10\n",
            "after_s = 8\nbefore_s = 12.2": "after_s = 11\nbefore_s = 25",
        },
    ),
    (
        "leader-killed",
        "real",
        {"[job]\n": f"[job]\n{HEARTBEATS}", "before_s = 5.3": "before_s = 10"},
    ),
    ("mixed-timeouts", "real", {"before_s = 4.5": "before_s = 12"}),
    (
        "service-restarted",
        "model",
        {"[job]\n": f"[job]\n{HEARTBEATS}", "before_s = 5.3": "before_s = 10"},
    ),
    (
        "short-stall",
        "model",
        {"heartbeat_timeout_s = 3\n": HEARTBEATS, "before_s = 10": "before_s = 40"},
    ),
    (
        "short-partition",
        "model",
        {"[job]\n": f"[job]\n{HEARTBEATS}", "before_s = 12": "before_s = 40"},
    ),
    (
        "early-leaver",
        "model",
        {
            "[job]\n": f"[job]\n{HEARTBEATS}",
            "early_s = 20.0": "early_s = 40.0",
            "after_s = 4.5\nbefore_s = 7.2": "after_s = 9\nbefore_s = 25",
        },
    ),
]
"""Scenario, service, and what is written in place of what in its file: a process may be held up for some
seconds. What is told at once is still told before a time-out could tell it."""


def patient(name: str, changes: dict[str, str], folder: Path) -> str:
    """The file of a scenario with these changes."""
    text = (LIBRARY / f"{name}.toml").read_text()
    for before, after in changes.items():
        assert text.count(before) == 1, f"{before!r} in {name}"
        text = text.replace(before, after)
    path = folder / f"{name}.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.jax
def test_scenarios_come_out_on_real_processes_as_they_are_expected_to(tmp_path: Path) -> None:
    """Kills, stalls, partitions, resets, a service that dies with its process or is restarted."""
    files = [patient(name, changes, tmp_path) for name, _, changes in RUNS]
    services = [service for _, service, _ in RUNS]
    with ThreadPoolExecutor(len(RUNS)) as pool:
        outcomes = list(
            pool.map(lambda file, service: run_one(file, ["--service", service]), files, services)
        )
    for (name, service, _), (code, output, _) in zip(RUNS, outcomes, strict=True):
        assert code == 0, f"{name} on the {service} service:\n{output}"
        assert "expectations hold" in output


@pytest.mark.jax
def test_a_process_draws_and_does_what_its_simulated_twin_does(tmp_path: Path) -> None:
    schedule = Schedule(processes=2, seed=3, heartbeat_timeout_s=30, limit_s=100)
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
    assert 0 < saved.events[0].time_ns < 100_000_000_000, (
        "times count from the beginning of the run"
    )


@pytest.mark.jax
def test_a_fault_may_wait_for_what_another_process_does(tmp_path: Path) -> None:
    """There are steps enough that nobody is done if the launcher is late to see the first one."""
    faults = (
        Crash(1, When("after", 0, "block", 1)),
        Pause(2, When("crash", 1, plus_s=0.1), 0.3),
        Crash(2, When("inside", 2, "block", 99)),
    )
    schedule = Schedule(processes=3, faults=faults, heartbeat_timeout_s=10, limit_s=90)
    arguments: dict[str, object] = {"steps": 40, "step_s": 0.2, "set_up_s": 0.1}
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
