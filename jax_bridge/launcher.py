"""Launches a job of real processes, kills and restarts some, and merges what they recorded."""

from __future__ import annotations

import contextlib
import os
import platform
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import IO

from checker.history import Crash, Event, Header, History, Leave, merge, read
from jax_bridge.conditions import Inside, Kill, Restart
from jax_bridge.errors import LaunchFailed
from jax_bridge.parent_death import end_with_parent

POLL_S = 0.01
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
NS_PER_S = 1_000_000_000
MARKER = ".coordlab-run"
"""Lies in the folder of a run, which may therefore be replaced by the next run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run.

    Attributes:
      script, arguments: The program; `{process}`, `{processes}` and `{address}` are filled in.
      processes: How many.
      service_command: Starts the service; its first line must be `ready address=HOST:PORT ...`.
      service: Its name, for the header.
      out: The history file. Beside it, `RUN` = OUT without `.jsonl` and with `.run` is the run's
        folder: output of the processes in `RUN/logs`, recordings in `RUN/parts` until merged.
      kills, restarts: What happens to whom.
      timeout_s: After this time whoever still runs is killed.
    """

    script: Path
    arguments: tuple[str, ...]
    processes: int
    service_command: tuple[str, ...]
    service: str
    out: Path
    kills: tuple[Kill, ...] = ()
    restarts: tuple[Restart, ...] = ()
    timeout_s: float = 120.0


@dataclass(frozen=True, slots=True)
class JobResult:
    """What came of a job.

    Attributes:
      history: Merged and saved.
      unplanned: One sentence for each process that ended badly by itself, with its log file.
      interrupted: Ctrl-C ended it.
    """

    history: History
    unplanned: tuple[str, ...]
    interrupted: bool


@dataclass(slots=True)
class _Running:
    process: int
    start: int
    popen: subprocess.Popen[bytes]
    held: Path
    log: Path
    kill: Kill | None
    seen_alive_ns: int = 0


@dataclass(slots=True)
class _Progress:
    say: Callable[[str], None]
    began_ns: int = field(default_factory=time.monotonic_ns)

    def __call__(self, sentence: str) -> None:
        elapsed_s = (time.monotonic_ns() - self.began_ns) / NS_PER_S
        self.say(f"{elapsed_s:6.1f} s  {sentence}")


def run_job(job: Job, say: Callable[[str], None] = lambda _: None) -> JobResult:
    """Runs a job to its end.

    Args:
      job: What to run.
      say: Told what happens, one line at a time.

    Raises:
      LaunchFailed: the script is missing, or the service did not come up.
    """
    if not job.script.is_file():
        raise LaunchFailed(f"{job.script}: there is no such script")
    return _Launcher(job, say).run()


class _Launcher:
    def __init__(self, job: Job, say: Callable[[str], None]) -> None:
        self.job = job
        self.say = _Progress(say)
        self._folder = run_folder(job.out)
        self._parts = self._folder / "parts"
        self._logs = self._folder / "logs"
        self._service: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._running: dict[int, _Running] = {}
        self._starts = [0] * job.processes
        self._events: list[Event] = []
        self._kills = list(job.kills)
        self._restarts = list(job.restarts)
        self._due_restarts: list[tuple[int, int]] = []
        self._unplanned: list[str] = []
        self._open_files: list[IO[bytes]] = []

    def run(self) -> JobResult:
        self._make_folder()
        interrupted = False
        try:
            self._start_service()
            for process in range(self.job.processes):
                self._start(process)
            self._watch()
        except KeyboardInterrupt:
            interrupted = True
            self.say("interrupted: ending all processes")
        finally:
            history = self._finish("interrupted" if interrupted else "ended by the launcher")
        for kill in self._kills:
            self._unplanned.append(f"the planned kill {kill} was never reached")
        return JobResult(history, tuple(self._unplanned), interrupted)

    def _finish(self, cause: str) -> History:
        """Ends what runs and merges; an interrupt that comes now changes nothing any more."""
        history: History | None = None
        while history is None:
            with contextlib.suppress(KeyboardInterrupt), _undisturbed():
                self._end_all(cause)
                self._stop_service()
                for file in self._open_files:
                    file.close()
                history = self._merge()
        return history

    def _make_folder(self) -> None:
        """Makes the run's folder; one that is there is removed only if it is a finished run's."""
        if self.job.out.is_dir():
            raise LaunchFailed(f"{self.job.out} is a folder; the history needs a file")
        marker = self._folder / MARKER
        if self._folder.exists():
            if not marker.is_file():
                raise LaunchFailed(f"{self._folder} is in the way and not of a run; move it away")
            if any(self._parts.glob("*.jsonl")):
                raise LaunchFailed(
                    f"{self._parts} holds recordings of a run that was not merged; move it away"
                )
            shutil.rmtree(self._folder)
        for folder in (self._parts, self._logs):
            folder.mkdir(parents=True)
        marker.touch()

    # --- the service ---------------------------------------------------------------------------

    def _start_service(self) -> None:
        log = self._open_log("service")
        self._service = subprocess.Popen(
            self.job.service_command,
            stdout=subprocess.PIPE,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - the launcher has one thread
        )
        assert self._service.stdout is not None
        ready, _, _ = select.select([self._service.stdout], [], [], READY_TIMEOUT_S)
        line = self._service.stdout.readline().decode(errors="replace") if ready else ""
        fields = dict(word.partition("=")[::2] for word in line.split()[1:])
        if not line.startswith("ready ") or "address" not in fields:
            why = (self._logs / "service.log").read_text(errors="replace").strip().split("\n")[-1]
            why = why or f"no sign of it after {READY_TIMEOUT_S:g} s"
            raise LaunchFailed(f"the {self.job.service} service did not come up: {why}")
        self._address = fields["address"]
        self.say(f"{self.job.service} service at {self._address}")

    def _stop_service(self) -> None:
        if self._service is None:
            return
        self._service.terminate()
        try:
            self._service.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._service.kill()
            self._service.wait()
        if self._service.stdout is not None:
            self._service.stdout.close()

    # --- processes -----------------------------------------------------------------------------

    def _start(self, process: int) -> None:
        start = self._starts[process]
        self._starts[process] += 1
        name = f"process-{process}-{start}"
        held = self._parts / f"{name}.held"
        kill = next((kill for kill in self._kills if kill.process == process), None)
        command = [sys.executable, "-m", "jax_bridge.process_main"]
        command += ["--part", str(self._parts / f"{name}.jsonl"), "--held", str(held)]
        command += ["--process", str(process), "--processes", str(self.job.processes)]
        if kill is not None and isinstance(kill.when, Inside):
            command += ["--hold-operation", kill.when.operation]
            command += ["--hold-count", str(kill.when.count)]
        command += [str(self.job.script), *self._filled_in(process)]
        log = self._open_log(name)
        popen = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=self._environment(),
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 - the launcher has one thread
        )
        self._running[process] = _Running(
            process, start, popen, held, self._logs / f"{name}.log", kill, time.monotonic_ns()
        )
        self.say(f"process {process} started (pid {popen.pid})" + (", again" if start else ""))

    def _filled_in(self, process: int) -> list[str]:
        values = {
            "{process}": str(process),
            "{processes}": str(self.job.processes),
            "{address}": self._address,
        }
        filled = []
        for argument in self.job.arguments:
            for placeholder, value in values.items():
                argument = argument.replace(placeholder, value)
            filled.append(argument)
        return filled

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        # Process 0 of a JAX job starts a service of its own; let that one idle on a spare port.
        environment["JAX_COORDINATOR_BIND_ADDRESS"] = "127.0.0.1:0"
        environment.setdefault("JAX_PLATFORMS", "cpu")
        environment["PYTHONUNBUFFERED"] = "1"
        return environment

    def _open_log(self, name: str) -> IO[bytes]:
        log = open(self._logs / f"{name}.log", "wb")  # noqa: SIM115 - closed when the job ends
        self._open_files.append(log)
        return log

    # --- watching ------------------------------------------------------------------------------

    def _watch(self) -> None:
        deadline_ns = time.monotonic_ns() + round(self.job.timeout_s * NS_PER_S)
        while self._running or self._due_restarts:
            now_ns = time.monotonic_ns()
            if now_ns > deadline_ns:
                self._unplanned.append(
                    f"still running after {self.job.timeout_s:g} s: process "
                    f"{', '.join(str(p) for p in sorted(self._running))}; see {self._logs}"
                )
                return
            assert self._service is not None
            if self._service.poll() is not None:
                self._unplanned.append(
                    f"the {self.job.service} service died ({_end_of(self._service.returncode)}); "
                    f"see {self._logs / 'service.log'}"
                )
                return
            for running in list(self._running.values()):
                self._look_after(running, now_ns)
            for due_ns, process in list(self._due_restarts):
                if now_ns >= due_ns:
                    self._due_restarts.remove((due_ns, process))
                    self._start(process)
            time.sleep(POLL_S)

    def _look_after(self, running: _Running, now_ns: int) -> None:
        if running.popen.poll() is not None:
            self._reaped(running, running.seen_alive_ns, None)
            return
        running.seen_alive_ns = now_ns
        kill = running.kill
        if kill is None:
            return
        if isinstance(kill.when, Inside):
            if running.held.exists():
                self._kill(running, f"inside {kill.when.operation} #{kill.when.count}")
        elif now_ns - self.say.began_ns >= kill.when * NS_PER_S:
            self._kill(running, f"at {kill.when:g} s")

    def _kill(self, running: _Running, where: str) -> None:
        kill = running.kill
        assert kill is not None
        self._kills.remove(kill)
        since_ns = time.monotonic_ns()
        os.killpg(running.popen.pid, signal.SIGKILL)
        running.popen.wait()
        self.say(f"process {running.process} killed {where}")
        self._reaped(running, since_ns, f"SIGKILL {where}")
        restart = next((r for r in self._restarts if r.process == running.process), None)
        if restart is not None:
            self._restarts.remove(restart)
            due_ns = time.monotonic_ns() + round(restart.after_s * NS_PER_S)
            self._due_restarts.append((due_ns, running.process))

    def _reaped(self, running: _Running, since_ns: int, cause: str | None) -> None:
        del self._running[running.process]
        with contextlib.suppress(ProcessLookupError):  # Children that it left behind, if any.
            os.killpg(running.popen.pid, signal.SIGKILL)
        time_ns = time.monotonic_ns()
        process, lifetime, code = running.process, running.start, running.popen.returncode
        if cause is None and code == 0:
            self._events.append(Leave(time_ns=time_ns, process=process, lifetime=lifetime))
            self.say(f"process {process} ended")
            return
        if cause is None:
            cause = _end_of(code)
            self._unplanned.append(f"process {process} died by itself ({cause}); see {running.log}")
            self.say(f"process {process} died by itself: {cause}")
        self._events.append(
            Crash(
                time_ns=time_ns, process=process, lifetime=lifetime, since_ns=since_ns, cause=cause
            )
        )

    def _end_all(self, cause: str) -> None:
        for running in list(self._running.values()):
            since_ns = time.monotonic_ns()
            os.killpg(running.popen.pid, signal.SIGKILL)
            running.popen.wait()
            self._reaped(running, since_ns, cause)

    # --- the history ---------------------------------------------------------------------------

    def _merge(self) -> History:
        """Merges the parts of all starts and what the launcher saw, and saves the history.

        A start of a process may connect more than once, each time as another incarnation: its part
        numbers these from 0, and the history numbers the lifetimes of a process throughout.
        """
        participants = tuple(range(self.job.processes))
        details: dict[str, object] = {
            "service": self.job.service,
            "script": self.job.script.name,
            "arguments": list(self.job.arguments),
            "python": platform.python_version(),
            "jaxlib": _version("jaxlib"),
        }
        header = Header(source="processes", participants=participants, details=details)
        parts = []
        last_lifetime: dict[tuple[int, int], int] = {}
        for process in participants:
            lifetimes = 0
            for start in range(self._starts[process]):
                part = self._part(process, start, header)
                events = [replace(e, lifetime=lifetimes + e.lifetime) for e in part.events]
                parts.append(History(header, events, part.notes))
                lifetimes += 1 + max((event.lifetime for event in part.events), default=0)
                last_lifetime[process, start] = lifetimes - 1
        seen = [replace(e, lifetime=last_lifetime[e.process, e.lifetime]) for e in self._events]
        history = merge([*parts, History(header, seen)], header)
        if any(self._starts):
            history.save(self.job.out)
        shutil.rmtree(self._parts)
        return history

    def _part(self, process: int, start: int, header: Header) -> History:
        path = self._parts / f"process-{process}-{start}.jsonl"
        # A process that was killed before it wrote its header has nothing to tell.
        if not path.exists() or not path.read_bytes().count(b"\n"):
            return History(header, [])
        return read(path)


def run_folder(out: Path) -> Path:
    """The folder of a run beside its history."""
    return out.with_name(out.name.removesuffix(".jsonl") + ".run")


def _end_of(code: int) -> str:
    """How a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _die_with_parent() -> None:
    """Asks Linux to kill this process when the launcher dies, by SIGKILL even."""
    end_with_parent(signal.SIGKILL)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Lets nothing interrupt: a second Ctrl-C must not cost the history that the first one kept."""
    blocked = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, blocked)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def model_service_command(
    processes: int, *, heartbeat_timeout_s: float, recoverable: bool, semantics: str
) -> tuple[str, ...]:
    """The command that serves a job with our model."""
    command = [sys.executable, "-m", "coord_sim.cli.main", "serve"]
    command += ["--processes", str(processes), "--heartbeat-timeout", str(heartbeat_timeout_s)]
    command += ["--semantics", semantics]
    return (*command, "--recoverable") if recoverable else tuple(command)


def real_service_command(
    processes: int, *, heartbeat_timeout_s: int, recoverable: bool
) -> tuple[str, ...]:
    """The command that serves a job with jaxlib's C++ service, which takes whole seconds."""
    command = [sys.executable, "-m", "jax_bridge.real_service", "--processes", str(processes)]
    command += ["--heartbeat-timeout", str(heartbeat_timeout_s)]
    return (*command, "--recoverable") if recoverable else tuple(command)
