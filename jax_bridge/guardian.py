"""Ends what a run has left, when its launcher has ended, however that was: a process of its own.

Children of the launcher die with it. Their own children do not, and may have left their process groups:
but all have the run's mark in their environment, as they inherit it. When standard input ends, whoever
has the mark is killed. Executed as a file, by an interpreter without our packages: it must be light.
"""

import contextlib
import os
import signal
import sys

MARK = "COORDLAB_RUN"
"""Name of the variable with the mark."""


def end_marked(mark: str) -> int:
    """Kills all processes with this mark but this one; how many there were."""
    wanted = f"{MARK}={mark}".encode()
    found = 0
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes long to import
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                if wanted not in file.read().split(b"\0"):
                    continue
            os.kill(int(name), signal.SIGKILL)
            found += 1
    return found


def main() -> None:
    """Waits for the end of standard input; the mark is the argument."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    # Who has just been started may not have its environment yet, and who dies may be starting others.
    while end_marked(sys.argv[1]):
        pass


if __name__ == "__main__":
    main()
