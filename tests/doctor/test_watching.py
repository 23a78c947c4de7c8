"""`coordlab doctor --watch` stands between a program and who started it, and is not in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

DEADLINE_S = 60.0

NOTES_SIGNALS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])

def note(number, frame):
    with open(folder / "signals", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")
    if number == signal.SIGUSR1:
        sys.exit(7)

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, note)
(folder / "pid.new").write_text(str(os.getpid()))
(folder / "pid.new").rename(folder / "pid")
while True:
    time.sleep(0.1)
"""


def await_(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def watcher(*words: str) -> list[str]:
    return [sys.executable, "-m", "coord_sim.cli.main", "doctor", "--watch", *words]


class Watched:
    """A program under `doctor --watch` that notes the signals that it gets."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self._folder = folder
        program = [sys.executable, "-c", NOTES_SIGNALS, str(folder)]
        self.doctor = subprocess.Popen(watcher(*options, "--", *program))
        await_((folder / "pid").exists, "the program did not start")
        self.pid = int((folder / "pid").read_text())

    def signals(self) -> list[str]:
        """Those that came so far."""
        file = self._folder / "signals"
        return file.read_text().split() if file.exists() else []

    def lives(self) -> bool:
        """Whether the program is there; one that has ended and was not asked for counts as gone."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(params=[(), ("--give-up",)], ids=["goes on", "gives up"])
def watched(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    running = Watched(tmp_path, request.param)
    try:
        yield running
    finally:
        running.doctor.kill()
        running.doctor.wait()
        if running.lives():
            os.kill(running.pid, signal.SIGKILL)


def test_signals_of_a_scheduler_reach_the_program_which_ends_as_it_likes(watched: Watched) -> None:
    expected = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        watched.doctor.send_signal(number)
        expected.append(number.name)
        await_(lambda: watched.signals() == expected, f"{number.name} did not arrive")
    assert watched.doctor.wait(DEADLINE_S) == 7


def test_no_program_is_left_whose_messages_nobody_would_read(watched: Watched) -> None:
    watched.doctor.kill()
    await_(lambda: not watched.lives(), "the program goes on")
    assert watched.signals() == []


def test_a_program_that_sigterm_ends_gives_its_exit_code(tmp_path: Path) -> None:
    there = tmp_path / "there"
    program = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    words = watcher("--", sys.executable, "-c", program, str(there))
    with subprocess.Popen(words) as doctor:
        await_(there.exists, "the program did not start")
        doctor.terminate()
        assert doctor.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_a_program_does_not_wait_for_a_reader_that_is_gone() -> None:
    program = "import sys; sys.stderr.write('x' * 300_000 + '\\n'); sys.exit(5)"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        words = watcher("--", sys.executable, "-c", program)
        done = subprocess.run(words, stderr=writing, timeout=DEADLINE_S, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 5
