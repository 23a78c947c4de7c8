"""The hunt: what it draws, how it judges and reduces, and that it finds what is there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Crash as CrashEvent
from checker.history import Event, Header, History, Invoke, Ok, Start
from coord_sim.cli.hunt import HuntJudge
from coord_sim.cli.main import main
from coord_sim.cli.scenarios import verdict_word
from coord_sim.faults import Crash, Pause, Restart
from coord_sim.moments import When
from coord_sim.scenarios import read_scenario, run_scenario
from coord_sim.schedule import Place, Schedule
from coord_sim.sim.case import Case, read_case
from coord_sim.sim.shrinking import Budget, shrink
from jax_bridge.hunt import Reduced, Trial, Where, draw_case, try_case
from jax_bridge.hunt.judging import by_task, judged
from jax_bridge.hunt.keeping import TRIES, folder_name, keep
from jax_bridge.hunt.reducing import Simulated, reduce_trial
from jax_bridge.hunt.workers import WorkerLost, Workers
from jax_bridge.scenario_runs import REAL, obstacles

GHOST_ENTRY = "live set: no-common-instant (a ghost entry)"
FINDINGS = Path(__file__).parents[2] / "docs" / "findings" / "hunt"

SEED_OF_A_GHOST_ENTRY = 2051
"""Process 0 dies in its second call, and is back while the others wait for a slow one."""


def small_ghost_entry() -> Case:
    """Process 0 dies in its first call and is back at once; the other one calls 2.5 s later.

    The successor's own call is 2 s later still, so that a busy machine shows the same.
    """
    schedule = Schedule(
        processes=2,
        seed=1371,
        faults=(
            Crash(0, When("inside", 0, "live_processes")),
            Restart(0, When("crash", 0)),
        ),
        limit_s=45.0,
    )
    return Case("training_loop", schedule, {"steps": 1, "set_up_s": 5.0})


# --- what is drawn -----------------------------------------------------------------------------------


def test_a_seed_draws_the_same_case_again() -> None:
    assert [draw_case(seed) for seed in range(50)] == [draw_case(seed) for seed in range(50)]
    assert len({repr(draw_case(seed)) for seed in range(50)}) == 50


def test_all_that_is_drawn_can_be_done_to_real_processes_on_the_real_service() -> None:
    kinds, programs, settings = set(), set(), set()
    for seed in range(300):
        case = draw_case(seed)
        schedule = case.schedule
        assert list(obstacles(schedule, REAL)) == []
        assert schedule.heartbeat_timeout_s.is_integer()
        assert not schedule.loss
        kinds |= {type(fault) for fault in schedule.faults}
        programs.add(case.program)
        settings |= {
            name
            for name in ("places", "starts_s", "client_heartbeat_timeout_s")
            if getattr(schedule, name)
        }
    assert len(kinds) == 6, "crashes, restarts, stalls, partitions, resets, bad networks"
    assert len(programs) == 6
    assert len(settings) == 3


def test_a_published_service_bears_in_the_simulator_whatever_is_drawn() -> None:
    for seed in range(25):
        case = draw_case(seed, semantics="published")
        found = judged(case.run(), case.program, HuntJudge())
        assert found.word != "invalid", f"seed {seed}: {found.kind}\n{found.explanation}"


# --- duplicates --------------------------------------------------------------------------------------


def history_of_a_duplicate(since_ns: int) -> History:
    """Process 2 is a second task 1, and was asked to start at `since_ns`."""
    header = Header(source="processes", participants=(0, 1, 2))
    events: list[Event] = [
        Start(time_ns=10, process=0, lifetime=0, incarnation=100),
        Start(time_ns=12, process=1, lifetime=0, incarnation=110),
        Start(time_ns=20, process=2, lifetime=0, incarnation=120, since_ns=since_ns),
        Invoke(time_ns=30, process=0, lifetime=0, id=0, operation="live_processes", arguments={}),
        Ok(time_ns=31, process=0, lifetime=0, id=0, result={0: 100, 1: 120}),
        CrashEvent(time_ns=40, process=1, lifetime=0),
    ]
    return History(header, events)


def test_a_duplicate_is_one_more_lifetime_of_its_task() -> None:
    history = by_task(history_of_a_duplicate(since_ns=15), (Place(process=2, task=1),))
    assert history is not None
    assert history.header.participants == (0, 1)
    lifetimes = [(event.process, event.lifetime) for event in history.events]
    assert lifetimes == [(0, 0), (1, 0), (1, 1), (0, 0), (0, 0), (1, 0)]


def test_two_starts_of_a_task_at_once_cannot_be_told_apart() -> None:
    assert by_task(history_of_a_duplicate(since_ns=11), (Place(process=2, task=1),)) is None


# --- reducing ----------------------------------------------------------------------------------------


def test_what_the_simulator_shows_is_made_small_there() -> None:
    small = small_ghost_entry()
    faults = (Pause(2, 0.2, 0.1), *small.schedule.faults, Crash(2, 0.5))
    large = replace(small, schedule=replace(small.schedule, processes=3, faults=faults))
    simulated = Simulated(HuntJudge(), GHOST_ENTRY, large.schedule)
    assert simulated(large)
    shrunk = shrink(large, simulated, Budget(runs=20)).after
    assert shrunk.schedule.processes == 2
    assert [type(fault) for fault in shrunk.schedule.faults] == [Crash, Restart]
    assert shrunk.schedule.limit_s == large.schedule.limit_s, "real processes need their time"


def test_what_holds_only_by_the_latencies_of_one_seed_does_not_count() -> None:
    """Process 0 calls 20 ms before the other, which real processes do not keep to."""
    drawn = small_ghost_entry()
    narrow = replace(drawn, arguments={"steps": 1, "set_up_s": 0.04})
    assert Simulated(HuntJudge(), GHOST_ENTRY, drawn.schedule)(drawn)
    assert not Simulated(HuntJudge(), GHOST_ENTRY, drawn.schedule)(narrow)


def test_a_scenario_is_written_for_what_scenarios_can_say(tmp_path: Path) -> None:
    case = small_ghost_entry()
    case.run().history.save(tmp_path / "history.jsonl")
    (tmp_path / "history.run" / "logs").mkdir(parents=True)
    duplicate = replace(
        case,
        schedule=replace(case.schedule, processes=3, tasks=2, places=(Place(process=2, task=0),)),
    )
    for number, (kind, written, told) in enumerate(
        (
            (GHOST_ENTRY, case, "--scenario"),
            (GHOST_ENTRY, duplicate, "--replay"),
            ("no progress: live_processes", case, "--scenario"),
            ("the judge raised ValueError", case, "--replay"),
        )
    ):
        trial = Trial(written, "invalid", kind, "So it is.", 3.0, 0, tmp_path)
        folder = tmp_path / str(number)
        keep(folder, trial, Reduced(trial), "real")
        assert told in (folder / "reproduce.sh").read_text()
        assert read_case(folder / "case.json") == written
        if told == "--scenario":
            assert read_scenario(folder / "scenario.toml").schedule == written.schedule


# --- the pages ---------------------------------------------------------------------------------------


def test_what_the_pages_of_the_hunt_say_holds_in_the_simulator() -> None:
    late = read_scenario(FINDINGS / "late-heartbeats.toml")
    for semantics in ("shipped", "published"):
        assert run_scenario(late, verdict_word, semantics=semantics).holds
    replaced = read_case(FINDINGS / "replaced-served.json")
    for semantics, word in (("shipped", "invalid"), ("published", "valid")):
        case = replace(replaced, schedule=replace(replaced.schedule, semantics=semantics))
        assert judged(case.run(), case.program, HuntJudge()).word == word


# --- workers -----------------------------------------------------------------------------------------


def halve(number: int) -> int:
    """Work; kills its worker for 13."""
    if number == 13:
        os._exit(1)
    return number // 2


def test_workers_that_die_are_replaced_and_their_tasks_told() -> None:
    done = {}
    with Workers[int, int](1, halve) as workers:
        tasks = [4, 13, 10]
        while tasks or workers.idle < workers.count:
            while tasks and workers.idle:
                workers.give(tasks.pop(0))
            for task, result in workers.wait(1.0):
                done[task] = "lost" if isinstance(result, WorkerLost) else result
    assert done == {4: 2, 13: "lost", 10: 5}


# --- real processes ----------------------------------------------------------------------------------


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.slow
def test_a_ghost_entry_is_found_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["hunt", "--runs", "1", "--seed", str(SEED_OF_A_GHOST_ENTRY), "--jobs", "1"]
    for attempt in range(TRIES):  # Real processes are not deterministic.
        out = tmp_path / f"found-{attempt}"
        folder = out / folder_name(GHOST_ENTRY)
        # On a busy machine something else may be found: a heartbeat that was late.
        if main([*words, "--reduce", "0", "--out", str(out)]) == 1 and folder.exists():
            break
    assert GHOST_ENTRY in capsys.readouterr().out
    assert read_case(folder / "drawn.json") == draw_case(SEED_OF_A_GHOST_ENTRY)
    assert (folder / "history.jsonl").exists()
    assert list((folder / "logs").glob("process-0-1.log")), "of the process that came back"
    (found,) = json.loads((out / "hunt.json").read_text())["found"]
    assert found["kind"] == GHOST_ENTRY
    assert not (out / ".runs").exists()


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.slow
def test_what_is_kept_can_be_seen_again_by_its_script(tmp_path: Path) -> None:
    where = Where("real", HuntJudge(), tmp_path / "runs")
    for attempt in range(TRIES):  # Real processes are not deterministic.
        trial = try_case(small_ghost_entry(), f"first-{attempt}", where)
        if trial.kind == GHOST_ENTRY:
            break
    assert trial.kind == GHOST_ENTRY, trial.explanation
    # It is small already; a smaller one would leave a process less time to be back.
    reduced = reduce_trial(trial, where, budget_s=0.0)
    assert reduced.failed <= reduced.tried
    assert reduced.blamed == ("keeps-ghost-entries",)
    keep(tmp_path / "kept", trial, reduced, "real")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    script = tmp_path / "kept" / "reproduce.sh"
    again = subprocess.run(
        ["sh", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stdout + again.stderr
    environment["PATH"] = "/usr/bin:/bin"
    again = subprocess.run(
        ["sh", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert again.returncode == 2
    assert "coordlab is not on the path" in again.stderr


# --- bad input ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--minutes", "0"], "above 0"),
        (["--semantics", "published"], "the real one is as shipped"),
        (["--replay", "nothing.json"], "nothing.json"),
        (["--out", "."], "not empty"),
        (["--jobs", "none"], "whole number"),
    ],
)
def test_bad_input_is_told(
    words: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "something").touch()
    with contextlib.suppress(SystemExit):  # It is argparse's way to end with 2.
        assert main(["hunt", *words]) == 2
    assert complaint in capsys.readouterr().err
