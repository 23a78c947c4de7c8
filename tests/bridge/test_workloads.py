"""The workloads: some run for real; all, with all faults: `coordlab workloads --check --fault ...`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from checker import read
from checker.history import Crash
from coord_sim.cli.main import main
from jax_bridge.workloads.catalogue import FOLDER, WORKLOADS, Fault, named
from jax_bridge.workloads.checking import End, Life, problems_of
from jax_bridge.workloads.program import check
from jax_bridge.workloads.train_ignoring_the_dead import (
    SAMPLES_PER_PROCESS,
    STEPS,
    repeated_in_numpy,
    samples_of,
)

PSUM, RECOVERY = named("psum"), named("train_with_recovery")

# --- the catalogue ---------------------------------------------------------------------------------


def test_every_script_is_in_the_catalogue() -> None:
    scripts = {path.stem for path in FOLDER.glob("*.py") if "__main__" in path.read_text()}
    assert scripts == {workload.name for workload in WORKLOADS}


def test_every_script_says_what_it_does() -> None:
    for workload in WORKLOADS:
        assert workload.title.endswith("."), workload.name
        assert len(workload.explanation.splitlines()) > 2, workload.name


def test_the_list_and_an_explanation_need_no_jax() -> None:
    program = (
        "import sys; from coord_sim.cli.main import main; main(['workloads']); "
        "main(['workloads', 'fsdp']); sys.exit('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    said = done.stdout.decode()
    assert all(workload.title in said for workload in WORKLOADS)
    assert "process 1 killed (in:key_value_set#3): the others fail" in said


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "no workload is called 'nothing'; there are psum,"),
        (["--fault", "kill", "psum"], "--fault goes with --check"),
        (["--check", "--keep", __file__, "psum"], "it is there, and no folder"),
        (["--check", "--fault", "kill", "ghost_entry"], "nothing was run"),
    ],
)
def test_bad_usage_is_told(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["workloads", *arguments]) == 2
    assert problem in capsys.readouterr().err


# --- how a number is judged ------------------------------------------------------------------------


def test_a_number_within_the_bound_is_right(capsys: pytest.CaptureFixture[str]) -> None:
    check("the sum", np.array([36.0], np.float32), np.array([36.0]), bound=0.0)
    check("weights", [1e6, 2.0 + 1e-3], [1e6, 2.0], bound=1e-8)
    assert capsys.readouterr().out.splitlines() == [
        "right: the sum 36, error 0.0e+00 (bound 0e+00)",
        "right: weights (2), error 1.0e-09 (bound 1e-08)",
    ]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([1.0, 2.1], "error 5.0e-02, more than 1e-06"),
        ([1.0, np.nan], "error nan, more than 1e-06"),
        ([np.nan, 2.0], "error nan, more than 1e-06"),
        ([np.inf, 2.0], "error inf, more than 1e-06"),
        ([1.0], r"has the shape \(1,\), not \(2,\)"),
    ],
)
def test_a_number_beyond_the_bound_is_wrong(found: list[float], words: str) -> None:
    with pytest.raises(SystemExit, match=f"^wrong: weights.*{words}"):
        check("weights", found, [1.0, 2.0], bound=1e-6)


def test_the_reference_follows_who_took_part() -> None:
    everybody, one_less = repeated_in_numpy([3] * STEPS), repeated_in_numpy([3] * 5 + [2] * 35)
    assert abs(everybody - 10.0) < 0.2
    assert 1e-3 < abs(everybody - one_less) < 0.2
    for step in range(1000):
        for processes in range(1, 12):
            samples = samples_of(step, processes)
            assert samples.start >= 0
            assert samples.stop - samples.start == SAMPLES_PER_PROCESS * processes
            assert samples.stop <= 600


# --- how an end is judged --------------------------------------------------------------------------


def lives(*ends: tuple[int, int, End]) -> list[Life]:
    return [Life(process, start, end, "") for process, start, end in ends]


@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        ("none", [(0, 0, "right"), (1, 0, "right")]),
        ("kill", [(0, 0, "raised"), (1, 0, "killed")]),
        ("kill", [(0, 0, "aborted"), (1, 0, "killed")]),
        ("restart", [(0, 0, "raised"), (1, 0, "killed"), (1, 1, "aborted")]),
    ],
)
def test_a_workload_that_cannot_go_on_must_fail(
    fault: Fault, ends: list[tuple[int, int, End]]
) -> None:
    assert problems_of(PSUM, fault, lives(*ends)) == ()


@pytest.mark.parametrize(
    ("fault", "ends", "problem"),
    [
        ("none", [(0, 0, "right"), (1, 0, "left")], "process 1: left; it was to finish"),
        ("none", [(0, 0, "right")], "process 1 was started 0 times, not 1"),
        ("none", [(0, 0, "raised"), (1, 0, "right")], "process 0: raised; it was to finish"),
        ("kill", [(0, 0, "wrong"), (1, 0, "killed")], "process 0: wrong"),
        ("kill", [(0, 0, "stuck"), (1, 0, "killed")], "process 0: stuck"),
        ("kill", [(0, 0, "right"), (1, 0, "killed")], "nobody can finish without the dead"),
        ("kill", [(0, 0, "raised"), (1, 0, "right")], "it was to be killed"),
        ("restart", [(0, 0, "raised"), (1, 0, "killed")], "process 1 was started 1 times, not 2"),
    ],
)
def test_what_is_not_as_it_must_be_is_told(
    fault: Fault, ends: list[tuple[int, int, End]], problem: str
) -> None:
    assert problem in "; ".join(problems_of(PSUM, fault, lives(*ends)))


def test_a_workload_that_survives_must_finish() -> None:
    ends: list[tuple[int, int, End]] = [(0, 0, "right"), (1, 0, "right"), (2, 0, "killed")]
    assert problems_of(RECOVERY, "restart", lives(*ends, (2, 1, "right"))) == ()
    problems = problems_of(RECOVERY, "restart", lives(*ends, (2, 1, "left")))
    assert problems == ("process 2, started again: left; it was to finish with the right numbers",)
    problems = problems_of(RECOVERY, "kill", lives((0, 0, "right"), (1, 0, "raised"), ends[2]))
    assert problems == ("process 1: raised; it was to finish with the right numbers",)


# --- for real --------------------------------------------------------------------------------------


@pytest.mark.jax
def test_undisturbed_workloads_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["workloads", "--check", "psum", "fsdp"])
    said = capsys.readouterr().out
    assert code == 0, said
    assert "process 1: right: the sum 1 + … + 8 = 36, error 0.0e+00 (bound 0e+00)" in said
    assert "2 of 2 as they must be, on the model service" in said


@pytest.mark.jax
def test_a_kill_makes_the_others_fail(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["workloads", "--check", "--fault", "kill", "--service", "real", "psum"])
    said = capsys.readouterr().out
    assert code == 0, said
    # Before the death is declared, it has got as far as the shutdown barrier, or not.
    words = "Shutdown barrier has failed|The following tasks are unhealthy"
    assert re.search(f"process 0: aborted: .*({words})", said), said
    assert "process 1: killed" in said


@pytest.mark.jax
def test_training_survives_more_come_backs_than_there_are_orders_of_its_processes(
    tmp_path: Path,
) -> None:
    """Two processes have two orders; three times, one of them dies and comes back.

    The heartbeat time-out is long, so that nobody goes on alone while the other one starts.
    """
    out = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--processes", "2"]
    command += ["--service", "real", "--heartbeat-timeout", "90", "--timeout", "300"]
    command += ["--out", str(out)]
    for kill in ("1@in:block#3", "0@in:block#7", "1@in:block#11"):  # Counted over all starts.
        command += ["--kill", kill, "--restart", f"{kill[0]}@+0.1"]
    command += ["--", str(RECOVERY.script), "{process}", "{processes}", "{address}"]
    command += ["--rounds", "12", "--heartbeat-timeout", "90"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    logs = {path.stem: path.read_text() for path in (tmp_path / "run.run" / "logs").iterdir()}
    report = "\n".join([done.stdout, done.stderr, *(f"--- {n}\n{t}" for n, t in logs.items())])
    assert done.returncode == 0, report
    assert sum(isinstance(event, Crash) for event in read(out).events) == 3, report
    for name in ("process-0-1", "process-1-2"):
        assert "right: the weight " in logs[name], report
        assert "with [0]:" not in logs[name], "it went on alone"
        assert "with [1]:" not in logs[name], "it went on alone"
