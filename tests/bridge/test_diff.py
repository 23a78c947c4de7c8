"""`coordlab diff`: the same programs in the simulator and on real processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Enter, Event, History, Invoke, Ok, Start
from coord_sim.cli.diff import service_word
from coord_sim.cli.exit_codes import BAD_INPUT, VALID
from coord_sim.cli.main import main
from coord_sim.cli.scenarios import verdict_word
from coord_sim.faults import Crash, Degrade, Pause, Restart
from coord_sim.moments import SERVICE, When
from coord_sim.scenarios import read_scenario, run_scenario, scenario_named
from coord_sim.scenarios.scenario import PROCESSES
from coord_sim.scenarios.writing import to_toml
from coord_sim.schedule import Schedule
from coord_sim.sim import End, Run
from coord_sim.sim.case import Case
from jax_bridge.differential.arms import SERVICES, Arm
from jax_bridge.differential.comparison import Comparison, compare
from jax_bridge.differential.drawing import draw_case
from jax_bridge.differential.known import KNOWN, explanation_of
from jax_bridge.differential.outcome import (
    ABSENT,
    ANSWERS,
    BLOCKS,
    ENDS,
    PENDING,
    WORDS,
    Difference,
    Fact,
    Place,
    differences,
    outcome_of,
)
from jax_bridge.differential.running import Plan, run_case
from jax_bridge.differential.saving import SCENARIO, STORY, save_difference
from jax_bridge.differential.shrinking import RealBudget
from jax_bridge.differential.variations import Timing, Variation, vary
from jax_bridge.scenario_runs import obstacles
from tests.bridge.remains import MARKER, marked

DOCS = Path(__file__).parents[2] / "docs"

BACK_SOON = Case(
    "training_loop",
    Schedule(processes=3, seed=5, faults=(Crash(1, 1.9), Restart(1, 2.2)), limit_s=40.0),
    {"steps": 4},
)


def still(case: Case, **changes: object) -> Variation:
    shifts_s = (0.0,) * len(case.schedule.faults)
    plain = Variation(seed=1, phase_s=0.0, latency_s=0.001, lag_s=0.0, shifts_s=shifts_s)
    return replace(plain, **changes)  # type: ignore[arg-type]


def simulated(case: Case) -> Run:
    """A run of the simulator, whose program draws what it draws in real processes."""
    return vary(Timing(case, case.run()), still(case))


def with_events(run: Run, events: list[Event]) -> Run:
    return replace(run, history=History(run.history.header, events, faults=run.history.faults))


# --- outcomes ------------------------------------------------------------------------------------


def test_an_outcome_names_starts_in_place_of_incarnations() -> None:
    outcome = outcome_of(BACK_SOON.run())
    answers = {fact.value for place, fact in outcome.items() if place.what == "live_processes"}
    assert "{0, 1, 2}" in answers
    assert "{0, 1 (start 2), 2}" in answers
    assert outcome[Place(1, 0, "its end")].value == "killed"


def test_runs_with_other_latencies_have_one_outcome_where_timing_decides_nothing() -> None:
    case = Case("training_loop", Schedule(processes=3, seed=5), {"steps": 4})
    slower = replace(case, schedule=replace(case.schedule, latency_max_s=0.02))
    one, other = case.run(), slower.run()
    assert one.history.events != other.history.events
    assert differences(outcome_of(one), outcome_of(other)) == []


@pytest.mark.parametrize(
    ("change", "level"),
    [
        (lambda e: replace(e, result={0: None}) if isinstance(e, Ok) and e.result else e, ANSWERS),
        (lambda e: replace(e, live={0: None}) if isinstance(e, Enter) else e, BLOCKS),
        (lambda e: None if isinstance(e, Start) else e, ENDS),
    ],
)
def test_what_a_program_could_notice_is_a_difference(change, level: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    run = BACK_SOON.run()
    changed = with_events(run, [e for e in map(change, run.history.events) if e is not None])
    found = differences(outcome_of(changed), outcome_of(run))
    assert level in {each.level for each in found}


def test_ends_and_words_are_compared_too() -> None:
    case = Case("lockstep", Schedule(processes=2, seed=1), {"steps": 2})
    run = case.run()
    other = replace(run, log=run.log[:-1], ends=(*run.ends[:-1], End(1, "running")))
    levels = [each.level for each in differences(outcome_of(other), outcome_of(run))]
    assert sorted(levels) == sorted([ENDS, WORDS])


# --- variations ----------------------------------------------------------------------------------


def test_a_variation_follows_the_times_of_a_run() -> None:
    run = simulated(BACK_SOON)
    timing = Timing(BACK_SOON, run)
    again = vary(timing, still(BACK_SOON))
    later = vary(timing, still(BACK_SOON, phase_s=0.25))
    assert differences(outcome_of(run), outcome_of(again)) == []
    for varied, moved_ns in ((again, 0), (later, 250_000_000)):
        for before, after in zip(calls_of(run), calls_of(varied), strict=False):
            assert before.operation == after.operation
            assert 0 <= after.time_ns - before.time_ns - moved_ns < 50_000_000


def test_a_start_that_never_registered_is_not_taken_for_the_next_one() -> None:
    """The service stands still while process 1 is started, and killed again; both sides kill it."""
    faults = (
        Pause(SERVICE, 2.0, 5.0),
        Crash(1, 3.0),
        Restart(1, 4.0),
        Crash(1, 5.0),
        Restart(1, 7.5),
    )
    case = Case("training_loop", Schedule(processes=2, faults=faults, limit_s=40.0), {"steps": 4})
    run = simulated(case)
    assert [e.lifetime for e in run.history.events if isinstance(e, Start) and e.process] == [0, 2]
    again = vary(Timing(case, run), still(case))
    assert differences(outcome_of(run), outcome_of(again)) == []


def calls_of(run: Run) -> list[Invoke]:
    events = run.history.events
    return [event for event in events if isinstance(event, Invoke) and event.process == 0]


def test_a_run_of_the_simulator_is_found_in_the_simulator() -> None:
    comparison = compare(BACK_SOON, simulated(BACK_SOON), service_word)
    assert comparison.is_same
    assert comparison.explained == ()


def test_deaths_of_one_tick_may_have_come_in_any_order() -> None:
    """jaxlib's service declares them in the order of a hash table, and a round may tell."""
    inside = When("inside", 3, "live_processes", 3)
    faults = (Crash(2, inside), Crash(3, inside))
    schedule = Schedule(processes=4, faults=faults, limit_s=60.0)
    case = Case("training_loop", schedule, {"steps": 4, "slow": 2, "slow_s": 1.5})
    other = replace(case, schedule=replace(schedule, death_order=(3, 2)))
    assert differences(outcome_of(other.run()), outcome_of(case.run()))
    comparison = compare(case, other.run(), service_word)
    assert comparison.is_same
    assert comparison.explained == ()


def test_a_process_may_be_late_with_its_requests() -> None:
    """On a busy machine; how long each took was recorded."""
    case = Case("store_traffic", Schedule(processes=3, seed=7, limit_s=40.0), {"steps": 4})
    late = Degrade(1, 0.5, 3.5, delay_s=0.3)
    real = replace(case, schedule=replace(case.schedule, faults=(late,))).run()
    assert differences(outcome_of(real), outcome_of(case.run()))
    comparison = compare(case, replace(real, schedule=case.schedule), service_word)
    assert comparison.is_same
    assert comparison.explained == ()


def test_a_false_answer_is_not_found_there() -> None:
    """A live set without a process that was alive all the time: no timing explains that."""
    run = simulated(BACK_SOON)
    events = list(run.history.events)
    number = next(
        n for n, e in enumerate(events) if isinstance(e, Ok) and isinstance(e.result, dict)
    )
    told = events[number]
    assert isinstance(told, Ok)
    assert isinstance(told.result, dict)
    events[number] = replace(told, result=dict(list(told.result.items())[:2]))
    comparison = compare(BACK_SOON, with_events(run, events), service_word, variations=30)
    assert not comparison.is_same
    assert comparison.level == ANSWERS
    assert [each.found for each in comparison.differences] == ["{0, 1}"]


def test_runs_with_the_same_facts_must_have_the_same_verdict() -> None:
    run = simulated(BACK_SOON)
    comparison = compare(
        BACK_SOON, run, lambda h: "invalid" if h is run.history else "valid", variations=3
    )
    assert comparison.differences == ()
    assert not comparison.is_same
    assert comparison.level == "verdict"


def test_what_is_explained_may_change_the_verdict() -> None:
    """Who takes time to die may make a call that the checker holds against the service."""
    run = BACK_SOON.run()
    late = Difference(Place(1, 0, "key_value_set a", 1), ANSWERS, "OK", ABSENT, 5.0)
    explained = Comparison(run, 1, (), ((late, KNOWN[1]),), ("invalid", "valid"))
    assert explained.is_same
    assert not replace(explained, explained=()).is_same


# --- known differences -----------------------------------------------------------------------------


def test_known_differences_are_those_of_the_documentation() -> None:
    text = (DOCS / "diff.md").read_text(encoding="utf-8")
    section = text.partition("## Known differences")[2]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    assert rows[2:] == [f"| {known.name} | {known.why} |" for known in KNOWN]


def test_known_differences_need_their_circumstances() -> None:
    place = Place(1, 0, "barrier sync", 2)
    difference = Difference(place, ANSWERS, PENDING, ABSENT, 5.0)

    def outcome(end: str, at_s: float) -> dict[Place, Fact]:
        return {
            Place(1, 0, "its end"): Fact(ENDS, end, at_s),
            place: Fact(ANSWERS, PENDING, 5.0),
        }

    aborted = "ended by its client: UNAVAILABLE"
    known = explanation_of(difference, outcome(aborted, 5.5), outcome(aborted, 5.0))
    assert known is not None
    assert known.name == "a process takes time to die"
    for end, at_s in (("killed", 5.5), ("ended by itself", 5.5), (aborted, 9.0)):
        assert explanation_of(difference, outcome(end, at_s), outcome(end, 5.0)) is None


# --- cases, and what is saved ----------------------------------------------------------------------


def test_drawn_cases_can_be_run_on_real_processes_and_differ_from_each_other() -> None:
    cases = [draw_case(seed) for seed in range(40)]
    for service in SERVICES:
        assert [reason for case in cases for reason in obstacles(case.schedule, service)] == []
    assert all(not case.schedule.durable and not case.schedule.loss for case in cases)
    assert {case.program for case in cases} >= {"lockstep", "training_loop", "store_traffic"}
    assert {case.schedule.recoverable for case in cases} == {True, False}
    assert draw_case(3) == draw_case(3)


def test_a_saved_difference_is_a_scenario_that_holds_in_the_simulator(tmp_path: Path) -> None:
    run = BACK_SOON.run()
    place = Place(0, 0, "barrier sync", 1)
    difference = Difference(place, ANSWERS, "OK", "INTERNAL", 1.0)
    comparison = Comparison(run, 7, (difference,), (), ("valid", "valid"))
    histories = tmp_path / "real"
    histories.mkdir()
    run.history.save(histories / "real.jsonl")
    arm = Arm(BACK_SOON, "real", run, comparison, histories)
    save_difference(tmp_path / "out", "seed-5-real", arm, None, "As found.")
    scenario = read_scenario(tmp_path / "out" / SCENARIO)
    assert (scenario.program, scenario.schedule) == (BACK_SOON.program, BACK_SOON.schedule)
    assert run_scenario(scenario, verdict_word).holds
    story = (tmp_path / "out" / STORY).read_text(encoding="utf-8")
    assert "process 0: barrier sync #1" in story
    assert f"coordlab diff --service real --scenario {tmp_path / 'out' / SCENARIO}" in story
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"difference.txt", "real.jsonl", "scenario.toml", "simulator.jsonl"}


# --- the command -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenario", "no-such"], "no scenario 'no-such'"),
        (["--scenario", "ghost-entry", "--scenario", "ghost-entry"], "two of the name ghost-entry"),
        (["--seeds", "0"], "from 1 on"),
        (["--seeds", "1", "--first", "x"], "a seed is a whole number"),
        (["--seeds", "1", "--jobs", "0"], "from 1 on"),
        ([], "one of the arguments --scenario --seeds is required"),
    ],
)
def test_bad_input_is_told_in_words(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["diff", *arguments])
    except SystemExit as ended:
        code = int(ended.code or 0)
    assert code == BAD_INPUT
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_a_scenario_that_real_processes_cannot_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert PROCESSES not in scenario_named("clock-jump").runs_on
    out = tmp_path / "out"
    assert main(["diff", "--scenario", "clock-jump", "--out", str(out)]) == BAD_INPUT
    assert "clock-jump runs in the simulator only" in capsys.readouterr().err
    assert not out.exists()


def test_a_scenario_that_the_simulator_cannot_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = scenario_named("single-reset")
    faults = (Degrade(1, 1.0, 2.0, bytes_per_s=100.0),)
    schedule = replace(scenario.schedule, faults=faults)
    throttled = replace(scenario, runs_on=(PROCESSES,), schedule=schedule)
    path = tmp_path / "throttled.toml"
    path.write_text(to_toml(throttled), encoding="utf-8")
    out = tmp_path / "out"
    assert main(["diff", "--scenario", str(path), "--out", str(out)]) == BAD_INPUT
    assert "runs on real processes only" in capsys.readouterr().err


@pytest.mark.jax
def test_real_processes_do_what_simulated_ones_do_on_both_services(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks, words of errors, time-outs; some seconds each, all at once.

    Nobody dies at a time of the clock in them, nor because a busy machine held a heartbeat up: what a
    process has done by then is up to the machine, and a simulated run that fits is searched for, not
    found for certain.
    """
    out = tmp_path / "out"
    words = ["diff", "--jobs", "6", "--json", "--out", str(out)]
    for name in ("raise-in-block", "key-set-twice", "never-announced"):
        scenario = scenario_named(name)
        schedule = replace(scenario.schedule, heartbeat_timeout_s=30.0, limit_s=60.0)
        path = tmp_path / f"{name}.toml"
        path.write_text(to_toml(replace(scenario, schedule=schedule)), encoding="utf-8")
        words += ["--scenario", str(path)]
    code = main(words)
    told = json.loads(capsys.readouterr().out)
    assert [run["story"] for run in told["runs"] if run["differs"]] == []
    assert code == VALID
    assert told["the_same"] == 6
    assert not out.exists(), "nothing differs, nothing is saved"


@pytest.mark.jax
def test_a_difference_is_made_small_saved_and_told(tmp_path: Path) -> None:
    """A judge that calls real runs invalid, whatever they are, makes each of them differ.

    The fault does the same at any time: what else differed would be at a coarser level.
    """
    schedule = Schedule(
        processes=2, seed=5, faults=(Pause(1, 0.2, 0.1),), heartbeat_timeout_s=30, limit_s=60.0
    )
    case = Case("leaving", schedule, {"work_s": 0.3, "late_s": 0.5, "apart": 1})
    plan = Plan(
        verdict=against_real_runs, out=tmp_path, services=("model",), budget=RealBudget(runs=2)
    )
    result = run_case("small", case, "model", plan)
    assert result.differs
    assert result.level == "verdict"
    assert "Seen again and made smaller: 2 processes, 1 fault -> " in result.note
    scenario = read_scenario(Path(result.saved) / SCENARIO)
    assert scenario.schedule.faults == () or scenario.schedule.processes == 1
    saved = {path.name for path in Path(result.saved).iterdir()}
    assert saved >= {STORY, "simulator.jsonl", "model.jsonl", "real.jsonl"}


def against_real_runs(history: History) -> str:
    return "invalid" if history.header.source == "processes" else "valid"


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.parametrize("first", ["spawn_main", "jax_bridge.fork_server"])
def test_nothing_outlives_a_command_that_is_killed(tmp_path: Path, first: str) -> None:
    """Killed while its workers are still being started, or when they run real processes."""
    mark = uuid.uuid4().hex
    command = [sys.executable, "-m", "coord_sim.cli.main", "diff", "--jobs", "2"]
    command += ["--scenario", "single-reset", "--out", str(tmp_path / "out")]
    environment = {**os.environ, MARKER: mark, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as comparing:
        wait_until(lambda: any(first in command_of(pid) for pid in marked(mark)))
        comparing.kill()
    try:
        wait_until(lambda: not marked(mark))
    finally:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 100
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
