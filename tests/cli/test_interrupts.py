"""Signals that end a command: each as Ctrl-C does."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm

for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
for name in sys.argv[2:]:
    signal.signal(signal.Signals[name], signal.SIG_IGN)
end_like_ctrl_c_on_sigterm()
try:
    os.kill(os.getpid(), signal.Signals[sys.argv[1]])
    print("goes on")
except KeyboardInterrupt as interrupt:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
    print(f"ends by {interrupt}")
    try:
        for _ in range(2000):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.05)
    except KeyboardInterrupt:
        print("again")
"""


@pytest.mark.parametrize(
    ("sent", "ignored", "said"),
    [
        ("SIGINT", (), "ends by SIGINT\nagain"),
        ("SIGTERM", (), "ends by SIGTERM\nagain"),
        ("SIGHUP", (), "ends by SIGHUP\nagain"),
        ("SIGHUP", ("SIGHUP",), "goes on"),
    ],
)
def test_one_interrupts_and_what_follows_closely_does_not_come_in_between(
    sent: str, ignored: tuple[str, ...], said: str
) -> None:
    """A later one does: the first may have been lost. One that is ignored stays so, as under nohup."""
    command = [sys.executable, "-c", PROGRAM, sent, *ignored]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, f"{said}\n"), done.stderr
