"""Runs that lose what they need, leave children behind, or are asked for what cannot be."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Start, read
from coord_sim.cli.main import main
from coord_sim.faults import Crash, Restart
from coord_sim.moments import When
from coord_sim.scenarios import read_scenario
from coord_sim.scenarios.shelf import LIBRARY
from coord_sim.scenarios.writing import to_toml
from coord_sim.schedule import Schedule
from jax_bridge.scenario_runs import Setting, run_for_real


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
def test_a_script_that_never_connects_is_told_why_that_may_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "nothing.py"
    script.write_text("pass")
    code = main(["run", "--processes", "1", "--out", str(tmp_path / "r.jsonl"), str(script)])
    assert code == 2
    assert "no process connected" in capsys.readouterr().out


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
