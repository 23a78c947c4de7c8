"""pytest with the plugin, as a user runs it: in a process of its own, loaded by its entry point."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from checker import Invalid, check, read

pytest_plugins = ("pytester",)

SUITE = """
import pytest
from coord_sim.faults import Crash, Restart
from coord_sim.schedule import Schedule
from coord_sim.sim import training_loop

async def counted(process):
    number = await process.client.key_value_increment("count")
    process.log(f"number {number}")
    process.sometimes("first" if number == 1 else "later")
    await process.client.shutdown()

def test_passes(simulation, coord_seed):
    run = simulation(counted, processes=2).require_valid().require_progress()
    assert run.schedule.seed == coord_seed == simulation.seed
    assert run.succeeded
    run.require_reached("later")

@pytest.mark.parametrize("steps", [4])
@pytest.mark.coord(processes=3, semantics="naive", faults=[Crash(1, 2.0)], seeds=2)
def test_fails(simulation, steps):
    simulation(training_loop(1), Schedule(processes=2))
    simulation(training_loop(steps)).require_valid()

@pytest.mark.coord(faults="any", stalls=False)
def test_draws_faults(simulation):
    schedules = [simulation.schedule(seed=seed) for seed in range(20)]
    assert all(schedule.quiet_from_s is not None for schedule in schedules)
    assert any(schedule.faults for schedule in schedules)
    only = [simulation.schedule(seed=s, faults=("crash", Crash(0, 1.0))) for s in range(20)]
    assert all(Crash(0, 1.0) in schedule.faults for schedule in only)
    kinds = {type(fault) for schedule in only for fault in schedule.faults}
    assert kinds == {Crash, Restart}

def test_without_a_simulation():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_suite=SUITE)
    return pytester


def kept_folders(text: str) -> list[Path]:
    return [Path(found) for found in re.findall(r"^kept in: (.*)$", text, re.MULTILINE)]


def replay_lines(text: str) -> list[str]:
    return re.findall(r"^replay: (.*)$", text, re.MULTILINE)


def test_seeds_are_part_of_the_tests_and_evidence_of_a_failure_is_kept(
    suite: pytest.Pytester,
) -> None:
    result = suite.runpytest_subprocess("-v")
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        [
            "test_suite.py::test_passes[[]seed0[]] PASSED*",
            "test_suite.py::test_fails[[]seed0-4[]] FAILED*",
            "test_suite.py::test_fails[[]seed1-4[]] FAILED*",
            "test_suite.py::test_draws_faults[[]seed0[]] PASSED*",
            "test_suite.py::test_without_a_simulation PASSED*",
            "run 1 of 2: Schedule(processes=2)",
            "run 2 of 2: Schedule(processes=3, faults=(Crash(process=1, at_s=2.0),), *naive*)",
            "*process 1: crashed: killed",
        ]
    )
    text = str(result.stdout)
    first, second = kept_folders(text)
    assert first.parent == Path(".pytest_cache/d/coordlab")
    assert first != second
    run = suite.path / first / "run2"
    assert {path.name for path in run.iterdir()} == {
        "history.jsonl",
        "log.txt",
        "schedule.txt",
        "tape.json",
        "timeline.txt",
    }
    history = read(run / "history.jsonl")
    assert isinstance(check(history), Invalid)
    assert "invalid" in (run / "timeline.txt").read_text(encoding="utf-8")
    replay = replay_lines(text)[1]
    assert replay == "pytest 'test_suite.py::test_fails[seed1-4]' --coord-seed 1"

    # The line that is printed runs that test alone, and gives the same history.
    before = (suite.path / second / "run2" / "history.jsonl").read_bytes()
    again = suite.runpytest_subprocess(*shlex.split(replay)[1:], "--coord-out", "again")
    again.assert_outcomes(failed=1)
    (folder,) = kept_folders(str(again.stdout))
    assert folder.parent == Path("again")
    assert (suite.path / folder / "run2" / "history.jsonl").read_bytes() == before


def test_seeds_and_workers(suite: pytest.Pytester) -> None:
    result = suite.runpytest_subprocess("-n", "2", "--coord-seed", "5", "--coord-seeds", "3")
    result.assert_outcomes(passed=7, failed=3)
    text = str(result.stdout)
    assert sorted(replay_lines(text)) == [
        f"pytest 'test_suite.py::test_fails[seed{seed}-4]' --coord-seed {seed}"
        for seed in (5, 6, 7)
    ]
    folders = kept_folders(text)
    assert len({folder.name for folder in folders}) == 3
    for folder in folders:
        assert (suite.path / folder / "run2" / "history.jsonl").is_file()


ODD = """
import pytest

COUNT = 0

async def remembers(process):
    global COUNT
    COUNT += 1
    await process.sleep(COUNT)
    await process.client.key_value_set("k", str(COUNT))

async def draws(process):
    await process.client.key_value_set(f"drawn{process.number}", str(process.random.between(0, 1)))

async def waits(process):
    await process.client.blocking_key_value_get("never")

async def raises(process):
    raise RuntimeError("a bug of the program")

async def sleeps_for_real(process):
    import time
    time.sleep(1)

def test_nondeterministic(simulation):
    simulation(remembers)
    assert False

def test_drawn(simulation):
    simulation(draws, processes=1)
    assert False

def test_stuck(simulation):
    simulation(waits, processes=1, limit_s=5).require_progress()

def test_raising(simulation):
    assert simulation(raises, processes=1).succeeded

def test_foreign(simulation):
    simulation(sleeps_for_real, processes=1)

def test_unknown_setting(simulation):
    simulation(waits, semantic="naive")

def test_unknown_kind(simulation):
    simulation(waits, faults="crashes")

def test_unknown_condition(simulation):
    simulation(draws).require_reached("step")

@pytest.mark.xfail(strict=True)
def test_known(simulation):
    simulation(waits, processes=1, limit_s=5).require_progress()
"""

BAD_MARKER = """
import pytest

@pytest.mark.coord("naive")
def test_bad_marker(simulation):
    pass
"""


def test_every_way_to_fail_says_why(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_odd=ODD)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", "--tb=line")
    text = str(result.stdout)
    for expected in (
        "run again, it gave another history: the program depends on something else than its process",
        "no progress by 5 s: process 0 waits for key_value_get never",
        "process 0: crashed: the program raised RuntimeError: a bug of the program",
        "time.sleep: use `await process.sleep(seconds)`",
        "simulation has no setting 'semantic'; did you mean 'semantics'?",
        "no kind of fault is called 'crashes'",
        "'step' was not reached",
    ):
        assert expected in text, expected


def test_a_bad_marker_and_a_bad_count_are_errors_that_name_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_marker=BAD_MARKER)
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_marker.py::test_bad_marker: settings of the marker have*"])
    result = pytester.runpytest_subprocess("--coord-seeds", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--coord-seeds: a count of seeds is at least 1, found '0'"])


def test_a_kept_tape_replaces_the_seed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_odd=ODD)
    test = "test_odd.py::test_drawn"
    result = pytester.runpytest_subprocess(test, "--coord-seed", "3", "--coord-out", "out")
    (folder,) = kept_folders(str(result.stdout))
    tape = pytester.path / folder / "tape.json"
    drawn = (pytester.path / folder / "history.jsonl").read_text(encoding="utf-8")
    assert json.loads(tape.read_text(encoding="utf-8"))["run"] == 1
    again = pytester.runpytest_subprocess(
        test, "--coord-seed", "4", "--coord-tape", str(tape), "--coord-out", "again"
    )
    (folder,) = kept_folders(str(again.stdout))
    played = (pytester.path / folder / "history.jsonl").read_text(encoding="utf-8")
    assert drawn.splitlines()[1:] == played.splitlines()[1:]
    assert "the code has changed" not in str(again.stdout)


def test_the_plugin_costs_next_to_nothing_until_it_is_used() -> None:
    program = (
        "import sys, coord_sim.testing.pytest_plugin; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}), "
        "*sorted(name for name in sys.modules if name.startswith('coord_sim')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(told.stdout.split())
    assert "pytest" in loaded
    assert not loaded & {"grpc", "google", "jax", "jaxlib", "hypothesis", "numpy", "checker"}
    ours = {name for name in loaded if name.startswith("coord_sim")}
    assert ours == {"coord_sim", "coord_sim.testing", "coord_sim.testing.pytest_plugin"}
