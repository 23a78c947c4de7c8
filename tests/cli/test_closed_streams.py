"""Commands whose standard output or standard error was closed by who started them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checker import read
from tests.ports import reserved_port

DEADLINE_S = 200.0


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("command", ["tap", "serve"])
def test_they_serve_all_the_same(tmp_path: Path, command: str, closed: str) -> None:
    record = tmp_path / "run.jsonl"
    with reserved_port() as port:
        words = {
            "tap": f"tap --listen 127.0.0.1:{port} --upstream 127.0.0.1:9",
            "serve": f"serve --processes 1 --port {port} --state {tmp_path}/state --supervise",
        }[command]
        line = f"exec {sys.executable} -m coord_sim.cli.main {words} --record {record} {closed}"
        with subprocess.Popen(["sh", "-c", line], stderr=subprocess.PIPE, text=True) as running:
            until(lambda: record.exists() and record.stat().st_size > 0)
            running.send_signal(signal.SIGTERM)
            assert running.stderr is not None
            assert "Traceback" not in running.stderr.read()
            assert running.wait(DEADLINE_S) == 0
    assert read(record).header.source == "server"


def test_a_complaint_does_not_go_to_standard_output() -> None:
    line = f"exec {sys.executable} -m coord_sim.cli.main check nowhere.jsonl 2>&-"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
