"""The coordination service of a job, as a process that can be stopped, killed and started again."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from coord_sim.held_port import hold_port
from jax_bridge.errors import LaunchFailed
from jax_bridge.parent_death import be_killed_with_parent

READY_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 10.0


class ServiceProcess:
    """A service that runs, or may be started again at the address that it had.

    Args:
      name: For messages: `real`, `model, published`, ...
      command: Prints `ready address=HOST:PORT ...` first; takes `--port P`.
      log: The file for what it says.

    Attributes:
      address: Once it has been ready.
    """

    def __init__(self, name: str, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.log = log
        self.address = ""
        self._command = tuple(command)
        self._held_port: socket.socket | None = None
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its process is there."""
        return self._popen is not None and self._popen.poll() is None

    @property
    def ended_with(self) -> int | None:
        """The return code of a process that has ended by itself; None otherwise."""
        return None if self._popen is None else self._popen.poll()

    def start(self) -> None:
        """Starts it, unless it runs; `wait_until_ready` says when it serves."""
        if self.is_running:
            return
        port = self.address.rpartition(":")[2]
        with self.log.open("ab") as log:
            self._popen = subprocess.Popen(
                [*self._command, "--port", port] if port else self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=be_killed_with_parent,  # noqa: PLW1509 - the launcher has one thread
            )

    def wait_until_ready(self) -> None:
        """Waits until it serves.

        Raises:
          LaunchFailed: it did not come up.
        """
        assert self._popen is not None
        assert self._popen.stdout is not None
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        line = b""
        while not line.endswith(b"\n"):
            left_s = deadline_s - time.monotonic()
            ready, _, _ = select.select([self._popen.stdout], [], [], max(0.0, left_s))
            chunk = os.read(self._popen.stdout.fileno(), 4096) if ready else b""
            if not chunk:
                break
            line += chunk
        fields = dict(word.partition("=")[::2] for word in line.decode(errors="replace").split())
        if not line.startswith(b"ready ") or "address" not in fields:
            why = self.log.read_text(errors="replace").strip().split("\n")[-1]
            why = why or f"no sign of it after {READY_TIMEOUT_S:g} s"
            raise LaunchFailed(f"the {self.name} service did not come up: {why}")
        self.address = fields["address"]

    def kill(self) -> None:
        """Ends it by SIGKILL, if it runs."""
        if self._popen is not None:
            self._signal(signal.SIGKILL)
            self._popen.wait()
            self._forget()
            self._hold_port()

    def pause(self) -> None:
        """Stops it where it is."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ends it for good: in order, or else by SIGKILL."""
        if self._popen is not None:
            self._signal(signal.SIGCONT)
            self._signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(STOP_TIMEOUT_S)
            self.kill()
        if self._held_port is not None:
            self._held_port.close()
            self._held_port = None

    def _signal(self, number: signal.Signals) -> None:
        if self._popen is not None and self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._popen.pid, number)

    def _hold_port(self) -> None:
        """Keeps its port for its next start; if somebody else was quicker, that start tells."""
        port = self.address.rpartition(":")[2]
        if port and self._held_port is None:
            with contextlib.suppress(OSError):
                self._held_port = hold_port(int(port))

    def _forget(self) -> None:
        assert self._popen is not None
        if self._popen.stdout is not None:
            self._popen.stdout.close()
        self._popen = None


def model_service_command(
    processes: int,
    *,
    heartbeat_timeout_s: float,
    recoverable: bool,
    semantics: str,
    register_timeout_s: float | None = None,
    shutdown_timeout_s: float | None = None,
    state: Path | None = None,
) -> tuple[str, ...]:
    """The command that serves a job with our model.

    Args:
      processes: Of the job.
      heartbeat_timeout_s: In seconds, as all times.
      register_timeout_s: None: the default.
      shutdown_timeout_s: None: the default.
      recoverable: Whether tasks may die and come back.
      semantics: `shipped` or `published`.
      state: The file from which it goes on when it is started again.
    """
    command = [sys.executable, "-m", "coord_sim.cli.main", "serve"]
    command += ["--processes", str(processes), "--heartbeat-timeout", str(heartbeat_timeout_s)]
    command += ["--semantics", semantics]
    for name, value in (
        ("--register-timeout", register_timeout_s),
        ("--shutdown-timeout", shutdown_timeout_s),
        ("--state", state),
    ):
        if value is not None:
            command += [name, str(value)]
    return (*command, "--recoverable") if recoverable else tuple(command)


def real_service_command(
    processes: int,
    *,
    heartbeat_timeout_s: int,
    recoverable: bool,
    register_timeout_s: int | None = None,
    shutdown_timeout_s: int | None = None,
) -> tuple[str, ...]:
    """The command that serves a job with jaxlib's C++ service, which takes whole seconds."""
    command = [sys.executable, "-m", "jax_bridge.real_service", "--processes", str(processes)]
    command += ["--heartbeat-timeout", str(heartbeat_timeout_s)]
    for name, value in (
        ("--register-timeout", register_timeout_s),
        ("--shutdown-timeout", shutdown_timeout_s),
    ):
        if value is not None:
            command += [name, str(value)]
    return (*command, "--recoverable") if recoverable else tuple(command)
