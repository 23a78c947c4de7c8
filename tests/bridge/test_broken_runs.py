"""Runs that lose what they need, leave children behind, or are asked for what cannot be."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Ok, Start, read
from coord_sim.cli.main import main
from coord_sim.cli.run import heartbeat_timeout_for
from coord_sim.faults import Crash, Restart
from coord_sim.moments import When
from coord_sim.scenarios import read_scenario
from coord_sim.scenarios.shelf import LIBRARY
from coord_sim.scenarios.writing import to_toml
from coord_sim.schedule import Schedule
from jax_bridge.compat import HEARTBEAT_TIMEOUT_S
from jax_bridge.scenario_runs import Setting, run_for_real
from jax_bridge.workloads.catalogue import FOLDER


@pytest.mark.jax
@pytest.mark.one_python
def test_a_kill_right_after_a_restart_is_not_lost(tmp_path: Path) -> None:
    """A process leads a group of its own before anybody can signal it."""
    died_once, died_twice = (When("crash", 1, count=n, plus_s=0.2) for n in (1, 2))
    faults = (
        Crash(1, When("after", 1, "key_value_set")),  # Who never connects keeps all others waiting.
        Restart(1, died_once),
        Crash(1, replace(died_once, plus_s=0.2005)),
        Restart(1, died_twice),
        Crash(1, died_twice),
    )
    schedule = Schedule(processes=2, faults=faults, heartbeat_timeout_s=30, limit_s=60)
    setting = Setting(service="model", out=tmp_path / "run.jsonl")
    run = run_for_real("steady_writes", {"writes": 4}, schedule, setting)
    assert run.finished
    assert run.ends[1].state == "crashed"
    assert str(run.ends[1].cause).startswith("killed: SIGKILL crash 1#2 +0.2")


@pytest.mark.jax
@pytest.mark.one_python
def test_what_a_durable_service_keeps_is_of_one_run(tmp_path: Path) -> None:
    schedule = Schedule(processes=2, durable=True, heartbeat_timeout_s=30, limit_s=60)
    for _ in range(2):
        setting = Setting(service="model", out=tmp_path / "run.jsonl")
        run = run_for_real("claimed_key", {}, schedule, setting)
        assert run.reached == {"claimed": 1, "found claimed": 1}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.jsonl", "run.run"]


@pytest.mark.jax
@pytest.mark.one_python
def test_grandchildren_in_sessions_of_their_own_do_not_outlive_a_launcher_that_is_killed(
    tmp_path: Path,
) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import os, sys, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    told = tmp_path / "pid"
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--processes", "1"]
    command += ["--out", str(tmp_path / "run.jsonl"), str(script), str(told)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as launcher:
        wait_until(lambda: told.exists() and told.read_text() != "")
        launcher.kill()
    pid = int(told.read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or is_zombie(pid))


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ("jax_bridge.real_service", "the real service died (signal SIGKILL)"),
        ("jax_bridge.relay", "the relay"),
        ("jax_bridge.fork_server", "what starts the processes has died"),
    ],
)
def test_what_a_run_needs_and_loses_is_named_and_its_history_kept(
    tmp_path: Path, victim: str, words: str
) -> None:
    what, out = tmp_path / "long.toml", tmp_path / "run.jsonl"
    what.write_text(LONG)
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--scenario", str(what)]
    command += ["--service", "real", "--out", str(out)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as launcher:
        parts = tmp_path / "run.run" / "parts"
        wait_until(lambda: any('"start"' in path.read_text() for path in parts.glob("*.jsonl")))
        found = [pid for pid in children_of(launcher.pid) if victim in command_of(pid)]
        assert len(found) == 1
        os.kill(found[0], signal.SIGKILL)
        output, _ = launcher.communicate(timeout=200)
    assert launcher.returncode == 2
    assert words in output
    assert "Traceback" not in output
    assert read(out).events
    assert words in read(out).faults[-1].name
    assert not (tmp_path / "run.run" / "parts").exists()


@pytest.mark.jax
@pytest.mark.one_python
def test_two_runs_do_not_write_to_the_same_file(tmp_path: Path) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import time; time.sleep(600)")
    out = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--processes", "1"]
    command += ["--out", str(out), str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        first.stdout.readline()
        second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
        assert second.returncode == 2
        assert "another run is writing to" in second.stderr
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        assert first.wait(200) == 130


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.parametrize(
    ("start", "is_interrupted", "code"), [("0@60", True, 130), ("0@never", False, 2)]
)
@pytest.mark.parametrize("is_earlier_there", [True, False])
def test_a_run_that_started_nothing_names_no_history(
    tmp_path: Path, start: str, is_interrupted: bool, code: int, is_earlier_there: bool
) -> None:
    script, out = tmp_path / "waits.py", tmp_path / "run.jsonl"
    script.write_text("import time; time.sleep(600)")
    if is_earlier_there:
        out.write_text("an earlier run's")
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--processes", "1"]
    command += ["--start", start, "--out", str(out), str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdout is not None
        assert "service at" in launcher.stdout.readline()
        if is_interrupted:
            launcher.send_signal(signal.SIGINT)
        printed, _ = launcher.communicate(timeout=200)
    assert launcher.returncode == code
    earlier = f"; {out} is of an earlier run" if is_earlier_there else ""
    told = printed.splitlines()
    assert told[-1] == f"nothing was started; no history was written{earlier}"
    assert ["interrupted: ending all processes" in line for line in told[:-1]] == (
        [True] if is_interrupted else []
    )
    assert (out.read_text() if out.exists() else "") == ("an earlier run's" * is_earlier_there)


@pytest.mark.jax
@pytest.mark.one_python
def test_a_scenario_that_starts_nobody_names_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "nobody.toml", tmp_path / "run.jsonl"
    nobody = NEVER.partition("[[faults]]")[0]
    path.write_text(nobody.replace("processes = 1\n", 'processes = 1\nstarts_s = ["never"]\n'))
    assert main(["run", "--scenario", str(path), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "\nnothing was started; no history was written\n" in printed
    assert str(out) not in printed
    assert not out.exists()


@pytest.mark.jax
@pytest.mark.one_python
def test_a_script_that_never_connects_is_told_why_that_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("pass")
    code = main(["run", "--processes", "1", "--out", str(tmp_path / "r.jsonl"), str(script)])
    assert code == 2
    printed = capsys.readouterr().out
    assert "no process connected" in printed
    assert "{process} and {address} are not among the arguments" in printed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--out", ".", "SCRIPT"], "is a folder; the history needs a file"),
        (["--out", "/dev/full", "SCRIPT"], "/dev/full is no regular file"),
        (["--start", "1@1e300", "SCRIPT"], "after the end of the run"),
        (
            ["--fault", "partition side=[0] other=[1] at=1 for_s=1", "SCRIPT"],
            "has the service on one side",
        ),
        (
            ["--fault", "skew process=0 at=1 drift=0.1", "SCRIPT"],
            "cannot be done to real processes",
        ),
        (["--fault", 'crash process=0 at="inside 1 nope#1"', "SCRIPT"], "called 'nope'"),
        (["--fault", "degrade at=1 for_s=1 duplicate=0.5", "SCRIPT"], "(duplicate)"),
        (["--fault", "degrade at=1 for_s=1 reorder=0.5", "SCRIPT"], "(reorder)"),
        (["--kill", "0@in:nope#1", "SCRIPT"], "--kill 0@in:nope#1: no operation"),
        (["--devices", "2", "SCRIPT"], "--devices goes with --platform gpu"),
    ],
)
def test_run_refuses_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    script = tmp_path / "script.py"
    script.write_text("pass")
    words_of_command = [str(script) if word == "SCRIPT" else word for word in arguments]
    if "--out" not in words_of_command:
        words_of_command = ["--out", str(tmp_path / "run.jsonl"), *words_of_command]
    assert main(["run", "--processes", "2", *words_of_command]) == 2
    assert words in capsys.readouterr().err


def test_a_scenario_takes_no_options_that_would_say_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "--scenario", "single-reset", "--heartbeat-timeout", "7"]) == 2
    assert "leave out --heartbeat-timeout" in capsys.readouterr().err


# --- what a run is worth -----------------------------------------------------------------------------

FORGETFUL = """\
import sys
from jax_bridge import compat
client = compat.new_client(sys.argv[1], 0, heartbeat_timeout_s=30, init_timeout_s=60)
client.connect()
try:
    client.key_value_try_get("k")
except Exception as error:
    print(error)
client.key_value_set("k", "1", allow_overwrite=True)
client.key_value_try_get("k")
client.shutdown()
"""
"""What it set must be there when it comes back; a service that was restarted has forgotten it."""


@pytest.mark.jax
@pytest.mark.one_python
def test_a_run_is_judged_as_the_check_of_its_history_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = tmp_path / "forgetful.py", tmp_path / "run.jsonl"
    script.write_text(FORGETFUL)
    words = ["--processes", "1", "--service", "real", "--heartbeat-timeout", "30"]
    words += ["--kill", "0@in:key_value_try_get#2"]
    words += ["--fault", "crash process=service at='crash 0#1 +0.1'"]
    words += ["--fault", "restart process=service at='crash 0#1 +0.3'", "--restart", "0@+0.6"]
    assert main(["run", *words, "--out", str(out), "--", str(script), "{address}"]) == 1
    printed = without_times(capsys.readouterr().out)
    assert main(["check", str(out)]) == 1
    checked = without_times(capsys.readouterr().out)
    assert checked[0].startswith(f"{out}: invalid")
    assert "  key 'k': invalid" in checked
    assert printed[-len(checked) :] == checked


@pytest.mark.jax
@pytest.mark.one_python
def test_an_invalid_history_that_nobody_expects_is_told_by_the_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = read_scenario(LIBRARY / "ghost-entry.toml")
    # One step, in which the victim has seconds to be back, and the last one seconds to come before it.
    schedule = replace(
        scenario.schedule,
        faults=(
            Crash(1, When("inside", 1, "live_processes", 2)),
            Restart(1, When("crash", 1, plus_s=0.2)),
        ),
        heartbeat_timeout_s=30.0,
    )
    times = {"steps": 1, "set_up_s": 12.0, "set_up_min_s": 11.0, "slow": 0, "slow_s": 5.0}
    expect = replace(scenario.expect, verdicts=None)
    path = tmp_path / "unasked.toml"
    unasked = replace(scenario, schedule=schedule, arguments=times, expect=expect, expect_of={})
    path.write_text(to_toml(unasked), encoding="utf-8")
    assert main(["run", "--scenario", str(path), "--service", "real"]) == 1
    printed = capsys.readouterr().out
    assert "FAILS" not in printed
    assert "\nghost-entry: invalid" in printed
    assert f"again: coordlab run --scenario {path}" in printed


NEVER = """\
name = "never"
title = "Faults that never come"
what = "Too late."
why = "Too late."
runs_on = ["processes"]
[job]
processes = 1
heartbeat_timeout_s = 30
limit_s = 60
[program]
name = "steady_writes"
writes = 3
every_s = 0.1
[expect]
finished = true
[[faults]]
kind = "reset"
process = 0
at = 50
[[faults]]
kind = "reset"
process = 0
at = "after 0 key_value_set#1 +50"
"""

LONG = NEVER.replace("writes = 3", "writes = 999").replace("processes = 1", "processes = 2")
"""Needs all that a run can need, and goes on until it is ended."""

UNMET = """\
[[faults]]
kind = "crash"
process = 0
at = "inside 0 key_value_set#99"
"""


@pytest.mark.jax
@pytest.mark.one_python
def test_faults_of_a_scenario_that_do_not_happen_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "never.toml"
    path.write_text(NEVER)
    assert main(["run", "--scenario", str(path), "--service", "real"]) == 0
    printed = capsys.readouterr().out
    assert "never: valid" in printed.splitlines()
    reset = "note: the planned reset of the connection of process 0"
    late = "did not happen: the run was over before"
    assert f"{reset} (at 50 s) {late}" in printed
    assert f"{reset} (after 0 key_value_set#1 +50) {late}" in printed
    path.write_text(NEVER + UNMET)
    assert main(["run", "--scenario", str(path), "--service", "real"]) == 2
    printed = capsys.readouterr().out
    crash = "the planned crash of process 0 (inside key_value_set #99)"
    assert f"not planned: {crash} was never reached" in printed
    assert printed.count(late) == 2


# --- heartbeats ------------------------------------------------------------------------------------

BARE = """\
import sys
from jaxlib import _jax
settings = {"heartbeat_timeout": int(sys.argv[3])} if sys.argv[3:] else {}
client = _jax.get_distributed_runtime_client(
    sys.argv[1], int(sys.argv[2]), init_timeout=60, shutdown_on_destruction=False, **settings
)
client.connect()
client.key_value_set(f"here/{sys.argv[2]}", "yes")
"""
"""A script that says nothing about heartbeats, unless it is told to."""


def run_bare(folder: Path, *words: str, heartbeats: tuple[str, ...] = ()) -> tuple[int, float]:
    """The exit code of a run, and the heartbeat time-out of its service."""
    script, out = folder / "bare.py", folder / "run.jsonl"
    script.write_text(BARE)
    words = ("run", "--processes", "2", *words, "--out", str(out), "--", str(script))
    code = main([*words, "{address}", "{process}", *heartbeats])
    timeout_s = read(out).header.details["heartbeat_timeout_s"]
    assert isinstance(timeout_s, float)
    return code, timeout_s


@pytest.mark.jax
@pytest.mark.parametrize("service", ["real", "model"])
def test_a_service_bears_the_heartbeats_of_a_script_that_says_nothing_about_them(
    tmp_path: Path, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import jax

    parameters = inspect.signature(jax.distributed.initialize).parameters
    assert parameters["heartbeat_timeout_seconds"].default == HEARTBEAT_TIMEOUT_S
    assert run_bare(tmp_path, "--service", service) == (0, HEARTBEAT_TIMEOUT_S)
    assert "beat" not in capsys.readouterr().out


@pytest.mark.jax
@pytest.mark.one_python
def test_clients_that_beat_too_seldom_for_the_service_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_bare(tmp_path, "--heartbeat-timeout", "50", "--service", "real") == (2, 50)
    assert (
        "not planned: the clients of processes 0 and 1 beat every 50 s, and the service of this run "
        "declares who is silent for 50 s dead: give --heartbeat-timeout 100 here, or "
        "heartbeat_timeout_seconds=50 there\n"
    ) in capsys.readouterr().out
    assert run_bare(tmp_path, "--heartbeat-timeout", "51", "--service", "real") == (0, 51)


@pytest.mark.jax
@pytest.mark.one_python
def test_a_service_that_declares_deaths_later_than_the_script_wants_is_told_if_there_are_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kill = ("--kill", "1@in:key_value_set#1")
    assert run_bare(tmp_path, heartbeats=("30",)) == (0, 100)
    assert "note: " not in capsys.readouterr().out
    assert run_bare(tmp_path, *kill, heartbeats=("30",)) == (0, 100)
    assert "beat every 15 s, but the service of this run declares nobody dead before 100 s" in (
        capsys.readouterr().out
    )
    assert run_bare(tmp_path, *kill, "--heartbeat-timeout", "30", heartbeats=("30",)) == (0, 30)
    assert "note: " not in capsys.readouterr().out


def test_the_service_of_a_shipped_workload_has_the_time_out_that_the_workload_gives() -> None:
    found = {}
    for script in FOLDER.rglob("*.py"):
        gives = re.search(r"^HEARTBEAT_TIMEOUT_S = .*?(\d+)$", script.read_text(), re.MULTILINE)
        if gives is not None:
            found[script.name] = float(gives[1])
            assert heartbeat_timeout_for(script) == found[script.name]
    assert found.keys() == {"ghost_entry.py", "live_sum.py", "alive.py", "collective.py", "live.py"}
    program = (FOLDER / "program.py").read_text()
    assert '"--heartbeat-timeout", type=int, default=3,' in program
    assert heartbeat_timeout_for(FOLDER / "psum.py") == 3


# --- output and histories that cannot be written -----------------------------------------------------


@pytest.mark.jax
@pytest.mark.one_python
def test_standard_output_that_is_full_costs_no_history(tmp_path: Path) -> None:
    script, out = tmp_path / "bare.py", tmp_path / "one run.jsonl"
    script.write_text(BARE)
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--processes", "2"]
    command += ["--out", str(out), str(script), "{address}", "{process}"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=200
        )
    assert done.returncode == 2
    kept = f"the history is kept: coordlab check '{out}'"
    assert done.stderr == f"coordlab: error: standard output: No space left on device; {kept}\n"
    assert sum(isinstance(event, Ok) for event in read(out).events) == 2
    assert main(shlex.split(kept)[-2:]) == 0


@pytest.mark.jax
@pytest.mark.one_python
def test_where_a_history_cannot_be_saved_the_recordings_and_how_to_merge_them_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, out = tmp_path / "bare.py", tmp_path / "run.jsonl"
    script.write_text(BARE + "import os\nos.mkdir(sys.argv[4])\n")
    words = ["--processes", "1", "--out", str(out), str(script)]
    assert main(["run", *words, "{address}", "{process}", "100", str(out)]) == 2
    (told,) = capsys.readouterr().err.splitlines()
    again = f"coordlab merge {tmp_path / 'run.run'} --out "
    assert told.startswith(f"coordlab: error: {out}: Is a directory")
    assert told.endswith(f"; the recordings are kept in {tmp_path / 'run.run/parts'}: {again}FILE")
    merged = tmp_path / "merged.jsonl"
    assert main([*again.split()[1:], str(merged)]) == 0
    assert any(isinstance(event, Ok) for event in read(merged).events)


# --- programs that outlive the command that started them ---------------------------------------------

OUTLIVES = """\
import socket, sys, time
from pathlib import Path

begin, here = Path(sys.argv[1]), Path(sys.argv[2])
here.touch()
deadline_s = time.monotonic() + 200
while not begin.exists():
    if time.monotonic() > deadline_s:
        sys.exit("nobody wants it to begin")
    time.sleep(0.02)
from jaxlib import _jax

with socket.create_server(("127.0.0.1", 0)) as free:
    address = f"127.0.0.1:{free.getsockname()[1]}"
service = _jax.get_distributed_runtime_service(address, 1)
client = _jax.get_distributed_runtime_client(address, 0, init_timeout=60)
client.connect()
client.key_value_set("here", "yes")
client.shutdown()
"""
"""Connects when the command that started it has ended long ago."""


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_the_folder_of_recordings_is_kept_for_who_outlives_the_command(
    tmp_path: Path, is_interrupted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "outlives.py").write_text(OUTLIVES)
    daemon = tmp_path / "daemon.sh"
    waits = "exec sleep 600" if is_interrupted else "exit 7"
    daemon.write_text(
        f'"{sys.executable}" outlives.py begin here > log 2>&1 &\n'
        f"until [ -e here ]; do sleep 0.05; done\ntouch ready\n{waits}\n"
    )
    command = [sys.executable, "-m", "coord_sim.cli.main", "record", "--", "sh", str(daemon)]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as recorder:
        wait_until((tmp_path / "ready").exists)
        if is_interrupted:
            recorder.send_signal(signal.SIGINT)
        _, errors = recorder.communicate(timeout=200)
    assert recorder.returncode == (130 if is_interrupted else 7)
    left = re.search(r"has left processes behind \(pid (\d+)\)", errors)
    assert left is not None, errors
    assert "no program has made a client of a coordination service yet" in errors
    assert "coordlab merge run.parts --out run.jsonl" in errors
    (tmp_path / "begin").touch()
    wait_until(lambda: is_zombie(int(left[1])))
    assert "coordlab" not in (tmp_path / "log").read_text()
    out = tmp_path / "run.jsonl"
    assert main(["merge", str(tmp_path / "run.parts"), "--out", str(out)]) == 0
    capsys.readouterr()
    assert any(isinstance(event, Ok) for event in read(out).events)


RECORDED = f'touch begin; "{sys.executable}" outlives.py begin here > log 2>&1; touch ready'
LEAVES_A_CHILD = (
    "(touch ready; until [ -e over ]; do sleep 0.05; done) > log 2>&1 &\n"
    "until [ -e ready ]; do sleep 0.05; done"
)
"""Shells hand their environment on, by which processes are found that will be recorded."""


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.parametrize(
    "commands", [RECORDED, LEAVES_A_CHILD, "touch ready"], ids=["merging", "waiting", "nothing"]
)
def test_ctrl_c_after_the_command_has_ended_names_the_recordings_and_how_to_merge_them(
    tmp_path: Path, commands: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot come too late: standard error takes nothing until then, so merging does not end."""
    (tmp_path / "outlives.py").write_text(OUTLIVES)
    command = [sys.executable, "-m", "coord_sim.cli.main", "record", "--", "sh", "-c", commands]
    errors, filled = os.pipe()
    filling = fill(filled)
    with (
        subprocess.Popen(
            command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=filled
        ) as recorder,
        open(errors, "rb") as reader,
    ):
        os.close(filled)
        wait_until((tmp_path / "ready").exists)
        wait_until(lambda: not children_of(recorder.pid))
        recorder.send_signal(signal.SIGINT)
        told = reader.read()[filling:].decode()
    (tmp_path / "over").touch()
    assert recorder.returncode == 130
    assert told.endswith("coordlab: interrupted\n")
    again = "coordlab merge run.parts --out run.jsonl"
    kept = f"the recordings are kept in run.parts/parts; when all processes have ended: {again}\n"
    if commands == "touch ready":
        assert "merge" not in told
        assert not (tmp_path / "run.parts").exists()
        return
    assert f"coordlab: {kept}coordlab: interrupted\n" in told
    assert (tmp_path / "run.parts" / "parts").is_dir()
    if commands == RECORDED:
        out = tmp_path / "run.jsonl"
        assert main(["merge", str(tmp_path / "run.parts"), "--out", str(out)]) == 0
        capsys.readouterr()
        assert any(isinstance(event, Ok) for event in read(out).events)


@pytest.mark.parametrize("words", [["--prepare", "a:b"], ["--out", "a:b/run.jsonl", "--", "true"]])
def test_a_folder_that_cannot_be_on_pythonpath_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if "--out" in words:
        (tmp_path / "a:b").mkdir()
    assert main(["record", *words]) == 2
    told = capsys.readouterr().err
    assert "on PYTHONPATH, which ends a path at each ':'; name a folder without one" in told
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


# --- what a launcher that was killed leaves ----------------------------------------------------------


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.parametrize("is_scenario", [True, False])
def test_the_recordings_of_a_launcher_that_was_killed_can_be_merged(
    tmp_path: Path, is_scenario: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_scenario:
        what = tmp_path / "long.toml"
        what.write_text(LONG)
        words = ["--scenario", str(what), "--out", str(tmp_path / "run.jsonl")]
    else:
        what = tmp_path / "long.py"
        what.write_text(
            "import sys, time\n"
            "from jax_bridge import compat\n"
            "client = compat.new_client(sys.argv[2], int(sys.argv[1]), heartbeat_timeout_s=30,"
            " init_timeout_s=60)\n"
            "client.connect()\n"
            "client.key_value_set(f'here/{sys.argv[1]}', 'yes')\n"
            "time.sleep(600)\n"
        )
        words = ["--processes", "2", "--heartbeat-timeout", "30"]
        words += ["--out", str(tmp_path / "run.jsonl"), str(what)]
        words += ["{process}", "{address}"]
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--service", "real", *words]
    parts = tmp_path / "run.run" / "parts"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as launcher:
        wait_until(
            lambda: sum('"ok"' in path.read_text() for path in parts.glob("*.jsonl")) == 2,
        )
        launcher.kill()
    merged = tmp_path / "merged.jsonl"
    assert main(["merge", str(tmp_path / "run.run"), "--out", str(merged)]) == 0
    assert "2 recordings of one host" in capsys.readouterr().out
    history = read(merged)
    assert {event.process for event in history.events if isinstance(event, Start)} == {0, 1}
    assert main(["check", str(merged)]) == 0


def without_times(printed: str) -> list[str]:
    """The lines, without how long each object took."""
    return [re.sub(r" +[\d.]+ ms$", "", line) for line in printed.splitlines()]


def fill(pipe: int) -> int:
    """Writes to a pipe until it takes no more; how many bytes it took."""
    took = 0
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            took += os.write(pipe, b" ")
    os.set_blocking(pipe, True)
    return took


def wait_until(holds: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 200
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
