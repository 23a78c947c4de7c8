"""Nothing of a run outlives its launcher, and nothing that was recorded is lost with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from checker.history import Start, WellFormed, read
from tests.bridge.remains import MARKER, listening, marked, sockets_of

TIMEOUT_S = 120.0
COORDLAB = (sys.executable, "-P", "-m", "coord_sim.cli.main")
"""`-P`: the folder that it runs in is none of its modules'."""

SCENARIO = """\
name = "long"
title = "A job that goes on for a while, with a network that has a relay"
what = "Nothing much."
why = "To be ended from outside."
runs_on = ["processes"]

[job]
processes = 3
heartbeat_timeout_s = 30
limit_s = 100

[program]
name = "steady_writes"
writes = 1600
every_s = 0.05

[[faults]]
kind = "reset"
process = 2
at = 90

[expect]
finished = true
"""


@dataclass
class Command:
    """A `coordlab` command that runs; all that it starts has its mark."""

    process: subprocess.Popen[str]
    mark: str

    def everybody(self) -> set[int]:
        """The command and all that it has started."""
        return set(marked(self.mark))


@contextlib.contextmanager
def started(words: Sequence[str], folder: Path) -> Iterator[Command]:
    mark = uuid.uuid4().hex
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(
            [*COORDLAB, *words],
            cwd=folder,
            env={**os.environ, MARKER: mark, "PYTHONUNBUFFERED": "1"},
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        command = Command(process, mark)
        try:
            yield command
        finally:
            for pid in command.everybody():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            process.wait()


def until(condition: Callable[[], object], folder: Path) -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, (folder / "output.txt").read_text()
        time.sleep(0.1)


def writes_in(parts: Path, process: int) -> int:
    part = parts / f"process-{process}-0.jsonl"
    return part.read_bytes().count(b"key_value_set") if part.exists() else 0


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.slow
@pytest.mark.parametrize(
    ("service", "number"), [("real", signal.SIGKILL), ("model", signal.SIGINT)]
)
def test_nothing_outlives_a_launcher_that_is_ended(
    service: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "long.toml").write_text(SCENARIO)
    out, parts = tmp_path / "run.jsonl", tmp_path / "run.run" / "parts"
    words = ["run", "--scenario", "long.toml", "--service", service, "--out", str(out)]
    with started(words, tmp_path) as command:
        until(lambda: all(writes_in(parts, process) > 10 for process in range(3)), tmp_path)
        everybody = command.everybody()
        assert len(everybody) >= 7, "launcher, service, relay, what forks, three processes"
        theirs = {inode for pid in everybody for inode in sockets_of(pid)}
        listeners = theirs & set(listening().values())
        assert len(listeners) >= 4, "the service's, and one of the relay for each process"
        recorded = [writes_in(parts, process) for process in range(3)]
        command.process.send_signal(number)
        code = command.process.wait(TIMEOUT_S)
        until(lambda: not command.everybody(), tmp_path)
    until(lambda: not listeners & set(listening().values()), tmp_path)
    if number == signal.SIGKILL:
        assert code == -signal.SIGKILL
        for process in range(3):
            part = parts / f"process-{process}-0.jsonl"
            assert read(part).events, "what was recorded can still be read"
            assert writes_in(parts, process) >= recorded[process]
        return
    assert code == 130
    history = read(out)
    rules = WellFormed(history.header)
    for event in history.events:
        rules.accept(event)
    assert sum(isinstance(event, Start) for event in history.events) == 3
    assert not parts.exists()


@pytest.mark.jax
@pytest.mark.one_python
@pytest.mark.slow
def test_ctrl_c_ends_a_hunt_with_all_its_processes(tmp_path: Path) -> None:
    out = tmp_path / "found"
    words = ["hunt", "--minutes", "9", "--service", "model", "--semantics", "published"]
    with started([*words, "--jobs", "2", "--out", str(out)], tmp_path) as command:
        until(
            lambda: len(list(out.glob(".runs/*/history.run/parts/process-0-0.jsonl"))) == 2,
            tmp_path,
        )
        command.process.send_signal(signal.SIGINT)
        code = command.process.wait(TIMEOUT_S)
        until(lambda: not command.everybody(), tmp_path)
    assert code == 130
    assert "Traceback" not in (tmp_path / "output.txt").read_text()
    summary = json.loads((out / "hunt.json").read_text())
    assert summary["interrupted"]
    assert summary["found"] == []
    assert not (out / ".runs").exists()


# --- bad input ---------------------------------------------------------------------------------------


def complaint_of(words: Sequence[str], folder: Path) -> str:
    """What a command says that ends with 2."""
    ended = subprocess.run(
        [*COORDLAB, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    return ended.stderr


@pytest.mark.jax
@pytest.mark.one_python
def test_a_scenario_that_cannot_be_run_is_told(tmp_path: Path) -> None:
    assert "runs in the simulator only" in complaint_of(
        ["run", "--scenario", "lossy-network", "--service", "real"], tmp_path
    )
    assert "did you mean 'ghost-entry'" in complaint_of(
        ["run", "--scenario", "ghost-entri", "--service", "real"], tmp_path
    )


@pytest.mark.jax
@pytest.mark.one_python
def test_a_service_that_does_not_come_up_is_told(tmp_path: Path) -> None:
    """Its interpreter finds a module in the current folder before jaxlib's."""
    (tmp_path / "jaxlib").mkdir()
    (tmp_path / "jaxlib" / "__init__.py").write_text("raise ImportError('no such CPU')\n")
    complaint = complaint_of(["run", "--scenario", "ghost-entry", "--service", "real"], tmp_path)
    assert "the real service did not come up" in complaint
    assert "no such CPU" in complaint
