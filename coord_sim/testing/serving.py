"""What the fixture `coordination_server` gives: real servers, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from checker.history import History, read
from coord_sim.errors import CoordSimError
from coord_sim.held_port import hold_port
from coord_sim.scenarios.problems import nearest

PROCESSES: Final = 2
"""How many processes a server expects if a test does not say."""

_START_S: Final = 60.0
_STOP_S: Final = 10.0

# The server ends when its standard input does, so that none outlives a test run that was killed.
_SERVE: Final = (
    "import os, sys, threading; "
    "threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start(); "
    "from coord_sim.cli.main import main; sys.exit(main())"
)

_OPTIONS: Final = {
    "semantics": "--semantics",
    "heartbeat_timeout_s": "--heartbeat-timeout",
    "register_timeout_s": "--register-timeout",
    "shutdown_timeout_s": "--shutdown-timeout",
}
_SETTINGS: Final = ("processes", "recoverable", "durable", *_OPTIONS)


class ServerError(CoordSimError):
    """A server did not start."""


class RunningServer:
    """A coordination service on a free port of this host, as a process.

    The port is its own until `end`, whether or not it runs.

    Attributes:
      address: `HOST:PORT`, for `jax.distributed.initialize` or a client.
      incarnation: The service's random number; another one after each start that is not durable.
      processes: How many it expects.
    """

    def __init__(self, folder: Path, options: list[str], *, processes: int) -> None:
        self.processes = processes
        self._port = hold_port()  # So that nobody has it when the server comes back.
        self.address = f"127.0.0.1:{self._port.getsockname()[1]}"
        self.incarnation = 0
        self._folder = folder
        self._options = options
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._start()
        except BaseException:
            self._port.close()
            raise

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def history_path(self) -> Path:
        """The file that it writes since its latest start."""
        return self._folder / f"history{self._starts}.jsonl"

    def history(self) -> History:
        """What it saw since its latest start, also after its end."""
        return read(self.history_path)

    def kill(self) -> None:
        """Kills it, by SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._gone(self._process)

    def pause(self) -> None:
        """Lets it stand still, by SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets it go on."""
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """Lets it end: calls that wait are answered."""
        if self._process is None or not self.is_running:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._gone(self._process)

    def end(self) -> None:
        """Lets it end for good: somebody else may have its port."""
        self.stop()
        self._port.close()

    def restart(self) -> None:
        """Starts it again at the same address, after it has ended: anew, or durable, where it was.

        Raises:
          ServerError: it runs still, or cannot start.
        """
        if self.is_running:
            raise ServerError("the server runs; stop or kill it first")
        self._start()

    def keep(self, folder: Path) -> Iterator[str]:
        """Copies what the server wrote."""
        folder.mkdir(exist_ok=True)
        for path in sorted(self._folder.glob("*")):
            if path.suffix in (".jsonl", ".txt"):
                shutil.copy(path, folder / path.name)
        state = "runs" if self.is_running else "has ended"
        yield f"server {self.address} {state}: {folder.name}/{self.history_path.name}"

    def _start(self) -> None:
        self._starts += 1
        command = [sys.executable, "-c", _SERVE, "serve", *self._options, "--verbose"]
        command += ["--port", self.address.rpartition(":")[2], "--record", str(self.history_path)]
        with (self._folder / f"log{self._starts}.txt").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        line = self._first_line(self._process)
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if not line.startswith("ready") or "address" not in words:
            self.kill()
            told = (self._folder / f"log{self._starts}.txt").read_text("utf-8", "replace")
            raise ServerError(f"the server did not start: {told.strip() or 'it said nothing'}")
        self.address = words["address"]
        self.incarnation = int(words["incarnation"])

    @staticmethod
    def _first_line(process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        late = threading.Timer(_START_S, process.kill)
        late.start()
        try:
            return process.stdout.readline().decode("utf-8", "replace")
        finally:
            late.cancel()
            late.join()

    def _signal(self, number: int) -> None:
        if self._process is not None and self.is_running:
            os.kill(self._process.pid, number)

    @staticmethod
    def _gone(process: subprocess.Popen[bytes]) -> None:
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


class ServerFactory:
    """The fixture `coordination_server`: call it to start a server; all end with the test.

    Args:
      folder: For what they write.
      settings: What a test does not say itself.
    """

    seed: int | None = None

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self._folder = folder
        self._settings = dict(settings)
        self._servers: list[RunningServer] = []

    def __call__(self, **settings: Any) -> RunningServer:
        """Starts a server.

        Args:
          settings: `processes` (2 if left out), `recoverable` (True), `durable` (False: a restarted
            server has forgotten everything), `semantics` (`shipped`), `heartbeat_timeout_s`,
            `register_timeout_s`, `shutdown_timeout_s`.

        Raises:
          ServerError: it did not start.
          TypeError: there is no such setting.
        """
        settings = {"processes": PROCESSES, "recoverable": True, **self._settings, **settings}
        for name in settings:
            if name not in _SETTINGS:
                raise TypeError(f"a server has no setting {name!r}{nearest(name, _SETTINGS)}")
        folder = self._folder / f"server{len(self._servers)}"
        folder.mkdir()
        options = ["--processes", str(settings["processes"])]
        if settings["recoverable"]:
            options.append("--recoverable")
        if settings.get("durable"):
            options += ["--state", str(folder / "state")]
        for name, option in _OPTIONS.items():
            if name in settings:
                options += [option, str(settings[name])]
        server = RunningServer(folder, options, processes=settings["processes"])
        self._servers.append(server)
        return server

    def keep(self, folder: Path) -> Iterator[str]:
        """Copies what the servers wrote."""
        for number, server in enumerate(self._servers):
            yield from server.keep(folder / f"server{number}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for server in self._servers:
            server.end()
