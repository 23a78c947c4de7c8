"""A tap as a process, for tests."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self


class Tap:
    """`coordlab tap`, on a free port of the loopback; ended by SIGTERM at the end of the block.

    Args:
      record: The history.
      upstream: Address of the service.
      options: What else is said on the command line.
    """

    def __init__(
        self, record: Path | str, upstream: str, *options: str, listen: str = "127.0.0.1:0"
    ) -> None:
        command = [sys.executable, "-m", "coord_sim.cli.main", "tap", "--listen", listen]
        command += ["--upstream", upstream, "--record", str(record), *options]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        words = dict(word.split("=", 1) for word in self.first_line.split()[1:])
        self.address = words.get("address", "")
        self.upstream = words.get("upstream", "")
        self.errors = ""

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def recorder(self) -> int:
        """Its second process."""
        pid = self.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(child)

    def end(self, number: int = signal.SIGTERM) -> int:
        """Ends it; returns the exit code, and keeps what it said."""
        self.process.send_signal(number)
        _, self.errors = self.process.communicate(timeout=60)
        return self.process.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.end()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
