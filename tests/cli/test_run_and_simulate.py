"""`coordlab simulate`, `run`, `serve` and `demo`: what they print, and what bad input gets."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import networkx as nx
import pytest

from checker import read
from coord_sim.cli.main import main

ROOT = Path(__file__).parents[2]


def failing(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The error of a command that must refuse its arguments with exit code 2."""
    try:
        code = main(arguments)
    except SystemExit as stopped:  # argparse
        code = stopped.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert code == 2
    assert "Traceback" not in captured.err
    return captured.err.strip().splitlines()[-1]


def test_simulate_records_checks_and_prints_how_to_replay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "naive.jsonl"
    arguments = ["--processes", "3", "--seed", "5", "--semantics", "naive", "--out", str(out)]
    arguments += ["--crash", "1@1.23456789", "--heartbeat-timeout", "2.000001"]
    assert main(["simulate", *arguments]) == 1
    printed = capsys.readouterr().out
    assert "seed 5: invalid (published: invalid)" in printed
    first = out.read_bytes()
    (replay,) = [
        line.removeprefix("replay: ") for line in printed.splitlines() if line.startswith("replay")
    ]
    again = tmp_path / "again.jsonl"
    assert main([*shlex.split(replay)[1:], "--out", str(again)]) == 1
    assert again.read_bytes() == first


def test_simulate_says_what_did_not_happen_and_who_gave_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--crash", "1@50", "--semantics", "published"]) == 0
    assert "Crash(process=1, at_s=50.0) did not happen" in capsys.readouterr().out
    assert main(["simulate", "--loss", "0.99"]) == 0
    printed = capsys.readouterr().out
    assert "note: process 0 ended at" in printed
    assert "client ended the process" in printed
    assert "Nothing was checked" in printed


def test_an_output_that_is_no_regular_file_is_never_replaced() -> None:
    assert main(["simulate", "--semantics", "published", "--out", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


def test_simulate_stops_at_the_first_seed_that_is_invalid(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--random-faults", "--seeds", "100"]) == 1
    printed = capsys.readouterr().out
    assert "of 100 tried: invalid" in printed
    assert "ghost entry" in printed


def test_simulate_takes_crashes_and_restarts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl"
    faults = ["--crash", "1@2", "--restart", "1@2.5", "--semantics", "published"]
    assert main(["simulate", *faults, "--out", str(out)]) == 0
    assert ": valid" in capsys.readouterr().out
    assert {event.lifetime for event in read(out).events if event.process == 1} == {0, 1}


def line_of(printed: str, beginning: str) -> str:
    """What stands behind the beginning of the one line that has it."""
    (line,) = [line for line in printed.splitlines() if line.startswith(beginning)]
    return line.removeprefix(beginning)


def test_simulate_shrinks_what_it_found_and_the_shortest_schedule_fails_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--swarm", "--seeds", "100"]) == 1
    printed = capsys.readouterr().out
    assert "-> 2 processes, 2 faults, steps 1" in line_of(printed, "shrunk: ")
    shortest = line_of(printed, "shortest: ")
    assert main(shlex.split(shortest)[1:]) == 1
    assert "ghost entry" in capsys.readouterr().out


def test_a_tape_is_kept_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tape, first, again = tmp_path / "tape", tmp_path / "first.jsonl", tmp_path / "again.jsonl"
    arguments = ["--swarm", "--seed", "3", "--no-shrink", "--tape", str(tape), "--out", str(first)]
    assert main(["simulate", *arguments]) == 1
    assert main(["simulate", "--replay", str(tape), "--out", str(again)]) == 1
    assert "note: the code has changed" not in capsys.readouterr().out
    assert again.read_bytes() == first.read_bytes()
    assert "no such file" in failing(capsys, "simulate", "--replay", str(tmp_path / "no")).lower()
    assert "not a tape" in failing(capsys, "simulate", "--replay", str(first))


def test_a_program_that_is_not_deterministic_is_found_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import random\n"
        "async def steady(process):\n"
        "    await process.client.key_value_set('k', str(process.random.below(1000)))\n"
        "async def unsteady(process):\n"
        "    await process.client.key_value_set('k', str(random.random()))\n"
    )
    job = ["--processes", "1", "--twice", "--seeds", "3"]
    assert main(["simulate", "--program", f"{program}:steady", *job]) == 0
    assert "each seed gave the same history twice" in capsys.readouterr().out
    assert main(["simulate", "--program", f"{program}:unsteady", *job]) == 1
    assert "seed 0: not deterministic: line 3 of the history was" in capsys.readouterr().out
    assert "has no function 'nobody'" in failing(
        capsys, "simulate", "--program", f"{program}:nobody"
    )


def test_simulate_takes_any_fault_any_setting_and_any_scenario(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fault = "pause process=1 at='inside 1 block#2' for_s=6"
    job = ["--fault", fault, "--job", "limit_s=30", "--semantics", "published"]
    assert main(["simulate", *job]) == 0
    assert "process 1 ended at" in capsys.readouterr().out
    # Who goes on after a stall longer than the time-out was no crash.
    assert main(["simulate", *job, "--failures", "crash-stop"]) == 1
    assert main(["simulate", "--scenario", "ghost-entry", "--seed", "3"]) == 0
    assert "expectations hold with seed 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--crash", "1"], "'1' is not of the form PROCESS@SECONDS, e.g. 1@2.5"),
        (["--crash", "1@-3"], "'1@-3' is not of the form PROCESS@SECONDS"),
        (["--crash", "1@1e300"], "'1@1e300' is not of the form PROCESS@SECONDS"),
        (["--heartbeat-timeout", "1e300"], "up to 1e+09, found '1e300'"),
        (["--out", "/tmp"], "/tmp: Is a directory"),
        (["--crash", "7@1"], "processes are 0 to 2"),
        (["--restart", "1@1"], "add the crash"),
        (["--processes", "0"], "must be a whole number from 1 on, found '0'"),
        (["--heartbeat-timeout", "0"], "must be a time in seconds above 0"),
        (["--loss", "1.5"], "loss is a probability below 1"),
        (["--random-faults", "--crash", "1@1"], "leave out --crash and --restart"),
        (["--semantics", "kind"], "invalid choice: 'kind'"),
        (["--swarm", "--random-faults"], "leave out --random-faults"),
        (["--swarm", "--fault", "reset process=1 at=1"], "--swarm draws all faults"),
        (["--fault", "crush process=1 at=1"], "did you mean 'crash'?"),
        (["--job", "limit=1"], "did you mean 'limit_s'?"),
        (["--program", "train"], "unknown program 'train'"),
        (["--argument", "step=3"], "step: unknown key 'step'; did you mean 'steps'?"),
        (["--argument", "steps"], "'steps' is not of the form KEY=VALUE"),
        (["--scenario", "goast-entry"], "did you mean 'ghost-entry'?"),
    ],
)
def test_simulate_refuses_what_makes_no_sense(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in failing(capsys, "simulate", *arguments)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--kill", "1"], "'1' does not begin with a process number and '@'"),
        (["--kill", "1@soon"], "P@SECONDS or P@in:OPERATION#K"),
        (["--kill", "1@in:block#0"], "P@SECONDS or P@in:OPERATION#K"),
        (["--kill", "5@1"], "there is no process 5: processes are 0 to 1"),
        (["--kill", "1@1", "--restart", "1@2"], "is not of the form P@+SECONDS"),
        (["--restart", "1@+2"], "needs a --kill of that process"),
        (["--service", "real", "--semantics", "published"], "the real one is as shipped"),
        (["--kill", "0@in:live_proceses#1"], "no operation is called 'live_proceses'; one of"),
        (["--service", "real", "--heartbeat-timeout", "2.5"], "takes whole seconds only"),
        ([], "missing.py: there is no such script"),
    ],
)
def test_run_refuses_what_makes_no_sense(
    arguments: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run.jsonl"
    command = ["run", "--processes", "2", *arguments, "--out", str(out), "missing.py"]
    assert problem in failing(capsys, *command)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--processes", "2", "--port", "70000"], "a port is a number from 0 to 65535"),
        (["--processes", "2", "--host", "192.0.2.1"], "the host is not this machine's"),
        (["--processes", "0"], "must be a whole number from 1 on"),
        (["--processes", "2", "--semantics", "naive"], "invalid choice: 'naive'"),
        (["--processes", "2", "--record", "/nowhere/run.jsonl"], "No such file or directory"),
    ],
)
def test_serve_refuses_what_makes_no_sense(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem in failing(capsys, "serve", *arguments)


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter that has networkx and nothing else: neither JAX nor gRPC."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    installed = metadata.distribution("coordlab").locate_file("")
    (about,) = Path(str(installed)).glob("coordlab-*.dist-info")
    (site / about.name).symlink_to(about)
    (site / "networkx").symlink_to(Path(nx.__file__).parent)
    for package in ("checker", "coord_sim", "jax_bridge"):
        (site / package).symlink_to(ROOT / package)
    python = folder / "bin" / "python"
    assert python.stat().st_mode & stat.S_IXUSR
    return python


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["demo"], "`coordlab demo` needs jax, which is not installed; install coordlab[jax]"),
        (["run", "--processes", "1", "--out", "x", "x.py"], "install coordlab[jax]"),
        (["serve", "--processes", "1"], "needs google.protobuf, which is not installed"),
    ],
)
def test_without_jax_or_grpc_the_commands_that_need_them_say_what_to_install(
    bare_python: Path, arguments: list[str], problem: str, tmp_path: Path
) -> None:
    done = coordlab(bare_python, arguments, tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert problem in line


def test_without_jax_or_grpc_the_simulator_and_the_checker_work(
    bare_python: Path, tmp_path: Path
) -> None:
    done = coordlab(bare_python, ["simulate", "--semantics", "naive", "--out", "x"], tmp_path)
    assert done.returncode == 1, done.stderr
    for command in (["check", "x"], ["show", "x"]):
        done = coordlab(bare_python, command, tmp_path)
        assert "invalid" in done.stdout, done.stderr


def coordlab(python: Path, arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [python, "-m", "coord_sim.cli.main", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_simulated_parts_of_the_demo_come_out_as_expected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    parts = ["sim-published", "sim-naive", "sim-shipped"]
    only = [word for part in parts for word in ("--only", part)]
    assert main(["demo", "--out", str(out), *only]) == 0
    printed = capsys.readouterr().out
    assert sorted(path.stem for path in out.glob("*.jsonl")) == sorted(parts)
    assert "ghost entry" in printed
    assert f"coordlab check {out}" in printed


def test_a_module_of_the_command_runs_as_a_program() -> None:
    command = [sys.executable, "-m", "coord_sim.cli.main", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("coordlab ")


INTERRUPTED_BY_AN_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
from coord_sim.cli.main import main
assert "checker" not in sys.modules, "it takes long to import"
sys.meta_path.insert(0, Interrupting())
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("imported", ["checker", "coord_sim.cli.run"])
def test_ctrl_c_is_quiet_while_a_command_is_being_imported(imported: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED_BY_AN_IMPORT, imported, "run", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert (done.returncode, done.stderr) == (130, "coordlab: interrupted\n")
