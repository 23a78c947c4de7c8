"""How a process of a job is started: a script by a new interpreter, or a program by a fork."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Protocol

from jax_bridge.errors import LaunchFailed, RunBroken
from jax_bridge.parent_death import be_killed_with_parent
from jax_bridge.programs.main import ProgramStart


class Started(Protocol):
    """A process that was started, in a process group of its own."""

    @property
    def pid(self) -> int:
        """Its number."""

    def poll(self) -> int | None:
        """Its return code as in `subprocess`, or None while it runs."""

    def wait(self) -> int:
        """Waits for its end; the return code."""


class ScriptStart:
    """A script in an interpreter of its own, with the recorder installed.

    Args:
      command: All of it.
      environment: All of it.
      log: Takes its output.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], log: IO[bytes]
    ) -> None:
        self._popen = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
            preexec_fn=be_killed_with_parent,  # noqa: PLW1509 - the launcher has one thread
        )
        self.pid = self._popen.pid

    def poll(self) -> int | None:
        """The return code, or None while it runs."""
        return self._popen.poll()

    def wait(self) -> int:
        """Waits for its end; the return code."""
        return self._popen.wait()


class ForkServer:
    """Starts programs of the simulator; `jax_bridge.fork_server` is the process that does it.

    Args:
      errors: The file for what it says itself.
    """

    def __init__(self, errors: Path) -> None:
        environment = dict(os.environ)
        environment["PYTHONUNBUFFERED"] = "1"
        with errors.open("ab") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "jax_bridge.fork_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=be_killed_with_parent,  # noqa: PLW1509 - the launcher has one thread
            )
        self._errors = errors
        self._pending = b""
        self._is_dead = False
        self._statuses: dict[int, int] = {}
        self._lines: list[dict[str, int]] = []

    def wait_until_ready(self) -> None:
        """Waits until it can fork.

        Raises:
          LaunchFailed: it did not come up.
        """
        assert self._popen.stdout is not None
        if self._popen.stdout.readline() != b"ready\n":
            raise LaunchFailed(f"the processes cannot be started; see {self._errors}")
        os.set_blocking(self._popen.stdout.fileno(), False)

    def start(self, what: ProgramStart) -> Fork:
        """Forks a process that runs a program."""
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(json.dumps(asdict(what)).encode() + b"\n")
            self._popen.stdin.flush()
        except OSError:
            self._is_dead = True
        while not self._lines and not self._is_dead:
            self._read(wait=True)
        if not self._lines:
            raise RunBroken(f"what starts the processes has died; see {self._errors}")
        return Fork(self, self._lines.pop(0)["pid"])

    @property
    def is_running(self) -> bool:
        """Whether it is there."""
        return not self._is_dead

    def status_of(self, pid: int, *, wait: bool) -> int | None:
        """The return code of a fork, or None while it runs. Without the server, all are killed."""
        self._read(wait=False)
        while wait and pid not in self._statuses and not self._is_dead:
            self._read(wait=True)
        return self._statuses.get(pid, -signal.SIGKILL if self._is_dead else None)

    def stop(self) -> None:
        """Ends it, and with it all forks that still run."""
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _read(self, *, wait: bool) -> None:
        assert self._popen.stdout is not None
        descriptor = self._popen.stdout.fileno()
        if wait:
            select.select([descriptor], [], [])
        try:
            chunk = os.read(descriptor, 65536)
        except BlockingIOError:
            return
        if not chunk:
            self._is_dead = True
            return
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            told = json.loads(line)
            if "status" in told:
                self._statuses[told["pid"]] = told["status"]
            else:
                self._statuses.pop(told["pid"], None)  # Of a former process of that number.
                self._lines.append(told)


class Fork:
    """A process that the fork server has started."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server = server
        self.pid = pid

    def poll(self) -> int | None:
        """The return code, or None while it runs."""
        return self._server.status_of(self.pid, wait=False)

    def wait(self) -> int:
        """Waits for its end; the return code."""
        code = self._server.status_of(self.pid, wait=True)
        assert code is not None
        return code
