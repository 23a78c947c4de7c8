"""Launches a job of real processes, breaks it as planned, and merges what the processes recorded."""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import json
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import IO, Final

from checker.history import Crash as CrashEvent
from checker.history import Event, Header, History, Leave
from checker.history import Fault as FaultEvent
from coord_sim.faults import Crash, Fault, Pause, Restart
from coord_sim.moments import SERVICE, When
from coord_sim.sim import KILLED
from coord_sim.sim.injection import described
from coord_sim.sim.run import CRASHED, LEFT, NEVER_STARTED, RAISED, RUNNING, End, LogLine
from coord_sim.undisturbed import undisturbed
from jax_bridge import guardian
from jax_bridge.conditions import Inside
from jax_bridge.errors import LaunchFailed, RunBroken, ServiceDied
from jax_bridge.fatal import fatal_words
from jax_bridge.job import Job, JobResult
from jax_bridge.network import NETWORK_FAULTS, Network
from jax_bridge.parts import merged
from jax_bridge.programs.main import ProgramStart
from jax_bridge.services import ServiceProcess
from jax_bridge.starting import ForkServer, ScriptStart, Started
from jax_bridge.watching import Recording

POLL_S: Final = 0.01
NS_PER_S: Final = 1_000_000_000
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
MARKER: Final = ".coordlab-run"
"""Lies in the folder of a run, which may therefore be replaced by the next run."""


@dataclass(slots=True)
class _Running:
    """A start of a process, while it runs.

    Attributes:
      process, start: Whose and the how manieth, from 0.
      started: The process itself.
      held: The file that says that it stands where it is to be killed.
      kill: The fault that kills it there, if one does.
      log: Its output.
      recording: What it records.
      seen_alive_ns: When it was last seen.
      pauses: How many faults hold it still.
    """

    process: int
    start: int
    started: Started
    held: Path
    kill: Crash | None
    log: Path
    recording: Recording
    seen_alive_ns: int
    pauses: int = 0


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
      LaunchFailed: the script is missing, the history cannot be written there, or the service did not
        come up.
    """
    if job.script is not None and not job.script.is_file():
        raise LaunchFailed(f"{job.script}: there is no such script")
    if not job.out.name or job.out.is_dir():
        raise LaunchFailed(f"{job.out} is a folder; the history needs a file")
    return _Launcher(job, say).run()


class _Launcher:
    def __init__(self, job: Job, say: Callable[[str], None]) -> None:
        self.job = job
        self.say = _Progress(say)
        self._folder = run_folder(job.out)
        self._parts = self._folder / "parts"
        self._logs = self._folder / "logs"
        self._mark = uuid.uuid4().hex
        self._guardian: subprocess.Popen[bytes] | None = None
        self._lock: IO[bytes] | None = None
        self._broken: RunBroken | None = None
        self._services: list[ServiceProcess] = []
        self._pauses_of_service = 0
        self._lives_of_service = 0
        self._network: Network | None = None
        self._fork_server: ForkServer | None = None
        self._running: dict[int, _Running] = {}
        self._starts = [0] * job.processes
        self._ends: dict[int, End] = {}
        self._last_ends: tuple[End, ...] = ()
        self._end_s = 0.0
        self._log: tuple[LogLine, ...] = ()
        self._reached: dict[str, int] = {}
        self._client_timeouts_s: dict[int, int] = {}
        self._events: list[Event] = []
        self._fault_events: list[FaultEvent] = []
        self._unplanned: list[str] = []
        self._open_files: list[IO[bytes]] = []
        self._missed: list[Fault] = []
        self._waiting: list[tuple[When, Fault]] = []
        self._counts: Counter[tuple[str, int, str]] = Counter()
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._planned = 0
        self._starts_to_come = 0
        self._places = {place.process: place for place in job.places}

    def run(self) -> JobResult:
        self._make_folder()
        finished = interrupted = False
        try:
            self._set_up()
            self._plan()
            finished = self._watch()
        except RunBroken as broken:
            self._broken = broken
            self._unplanned.append(str(broken))
            what = str(broken).partition(";")[0]
            self._fault_events.append(FaultEvent(time_ns=time.monotonic_ns(), name=what))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            history = self._finish(interrupted=interrupted)
        self._unplanned += [never_reached(fault) for fault in self._missed]
        return JobResult(
            history=history,
            is_saved=self._is_anything_started,
            unplanned=tuple(self._unplanned),
            interrupted=interrupted,
            broken=self._broken,
            finished=finished,
            ends=self._last_ends,
            log=self._log,
            reached=self._reached,
            client_timeouts_s=self._client_timeouts_s,
            missed=tuple(self._missed),
            unmet=tuple(fault for _, fault in self._waiting),
            end_s=self._end_s,
        )

    @property
    def _is_anything_started(self) -> bool:
        return any(self._starts)

    def _finish(self, *, interrupted: bool) -> History:
        """Ends what runs and merges; an interrupt that comes now changes nothing any more."""
        cause = "interrupted" if interrupted else "ended by the launcher"
        history: History | None = None
        while history is None:
            with contextlib.suppress(KeyboardInterrupt), undisturbed(*_INTERRUPTS):
                if interrupted:
                    self.say("interrupted: ending all processes")
                if not self._last_ends:
                    self._end_s = (time.monotonic_ns() - self.say.began_ns) / NS_PER_S
                    self._last_ends = tuple(self._end_of(p) for p in range(self.job.processes))
                self._end_all(cause)
                if self._fork_server is not None:
                    self._fork_server.stop()
                for service in self._services:
                    service.stop()
                if self._network is not None:
                    self._network.stop()
                for file in self._open_files:
                    file.close()
                self._end_guardian()
                self._read_what_was_said()
                try:
                    history = self._merge()
                finally:
                    if self._lock is not None:
                        self._lock.close()
        return history

    def _make_folder(self) -> None:
        """Makes the run's folder; one that is there is removed only if it is a finished run's."""
        out = self.job.out
        if out.exists() and not out.is_file():
            raise LaunchFailed(f"{out} is no regular file; the history needs one")
        marker = self._folder / MARKER
        if self._folder.exists() or self._folder.is_symlink():
            if self._folder.is_symlink() or not marker.is_file():
                raise LaunchFailed(f"{self._folder} is in the way and not of a run; move it away")
            with marker.open("rb") as lock:
                if not _is_locked(lock):
                    raise LaunchFailed(
                        f"another run is writing to {self._folder}; name another file"
                    )
            if any(self._parts.glob("*.jsonl")):
                raise LaunchFailed(
                    f"{self._parts} holds recordings of a run that was not merged; move it away"
                )
            shutil.rmtree(self._folder)
        for folder in (self._parts, self._logs):
            folder.mkdir(parents=True)
        self._lock = marker.open("wb")
        _is_locked(self._lock)

    # --- the beginning -------------------------------------------------------------------------

    def _set_up(self) -> None:
        """Starts all that processes need, at the same time."""
        job = self.job
        os.environ[guardian.MARK] = self._mark  # All that is started from here on inherits it.
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", guardian.__file__, self._mark],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for number in range(job.services):
            name = "service" if number == 0 else f"service-{number}"
            log = self._logs / f"{name}.log"
            words = {"{service}": str(number), "{folder}": str(self._folder)}
            command = _filled_in(job.service_command, words)
            self._services.append(ServiceProcess(job.service, command, log))
            self._services[-1].start()
        if job.program is not None:
            self._fork_server = ForkServer(self._logs / "fork-server.log")
        for service in self._services:
            service.wait_until_ready()
            self.say(f"{job.service} service at {service.address}")
        if self._fork_server is not None:
            self._fork_server.wait_until_ready()
        if any(isinstance(fault, NETWORK_FAULTS) for fault in job.faults):
            upstreams = [self._service_of(process).address for process in range(job.processes)]
            self._network = Network(upstreams, self._open_log("relay").fileno())
        if job.service_in is not None and job.start_s(job.service_in) != 0:
            self._services[
                0
            ].kill()  # It comes with its process; until then it has only an address.

    def _service_of(self, process: int) -> ServiceProcess:
        place = self._places.get(process)
        return self._services[0 if place is None else place.service]

    def _plan(self) -> None:
        self.say.began_ns = time.monotonic_ns()
        for fault in self.job.faults:
            self._missed.append(fault)
            if isinstance(fault.at_s, When):
                self._waiting.append((fault.at_s, fault))
            else:
                self._plan_fault(fault, self.say.began_ns + round(fault.at_s * NS_PER_S))
        for process in range(self.job.processes):
            start_s = self.job.start_s(process)
            if start_s is not None:
                self._plan_start(process, self.say.began_ns + round(start_s * NS_PER_S))

    def _at(self, due_ns: int, action: Callable[[], None]) -> None:
        """Plans something; what is due at the same time comes in the order of plans."""
        self._planned += 1
        heapq.heappush(self._due, (due_ns, self._planned, action))

    def _plan_start(self, process: int, due_ns: int) -> None:
        self._starts_to_come += 1

        def start() -> None:
            self._starts_to_come -= 1
            if process not in self._running:
                self._start(process)

        self._at(due_ns, start)

    def _plan_fault(self, fault: Fault, due_ns: int) -> None:
        if isinstance(fault, Restart) and fault.process != SERVICE:
            assert isinstance(fault.process, int)
            self._at(due_ns, lambda: self._note(fault))
            self._plan_start(fault.process, due_ns)
        else:
            self._at(due_ns, lambda: self._carry_out(fault))

    # --- processes -----------------------------------------------------------------------------

    def _start(self, process: int) -> None:
        if process == self.job.service_in:
            self._services[0].start()
        start = self._starts[process]
        self._starts[process] += 1
        self._ends.pop(process, None)
        name = f"process-{process}-{start}"
        held = self._parts / f"{name}.held"
        kill = self._kill_of(process)
        hold = None
        if kill is not None:
            assert isinstance(kill.at_s, When)
            gone = self._counts["inside", process, kill.at_s.operation]
            hold = Inside(kill.at_s.operation, kill.at_s.count - gone)
        log = self._logs / f"{name}.log"
        starter = self._fork if self.job.program is not None else self._run_script
        started = starter(process, start, name, held, hold)
        recording = Recording(process, self._parts / f"{name}.jsonl")
        self._running[process] = _Running(
            process, start, started, held, kill, log, recording, time.monotonic_ns()
        )
        self.say(f"process {process} started (pid {started.pid})" + (", again" if start else ""))

    def _kill_of(self, process: int) -> Crash | None:
        """The kill inside an operation of this process that comes next, if there is one."""
        for when, fault in self._waiting:
            if isinstance(fault, Crash) and fault.process == process and not when.plus_s:
                if when.kind == "inside" and when.process == process:
                    if when.count > self._counts["inside", process, when.operation]:
                        return fault
        return None

    def _address_for(self, process: int) -> str:
        if self._network is not None:
            return self._network.addresses[process]
        return self._service_of(process).address

    def _run_script(
        self, process: int, _start: int, name: str, held: Path, hold: Inside | None
    ) -> Started:
        job = self.job
        command = [sys.executable, "-m", "jax_bridge.process_main"]
        command += ["--part", str(self._parts / f"{name}.jsonl"), "--held", str(held)]
        command += ["--said", str(self._parts / f"{name}.said")]
        command += ["--process", str(process), "--processes", str(job.processes)]
        if hold is not None:
            command += ["--hold-operation", hold.operation, "--hold-count", str(hold.count)]
        values = {
            "{process}": str(process),
            "{processes}": str(job.processes),
            "{address}": self._address_for(process),
        }
        arguments = _filled_in(job.arguments, values)
        environment = {"JAX_PLATFORMS": "cpu", **os.environ, **job.environment(process)}
        # Process 0 of a JAX job starts a service of its own; let that one idle on a spare port.
        environment["JAX_COORDINATOR_BIND_ADDRESS"] = "127.0.0.1:0"
        environment["PYTHONUNBUFFERED"] = "1"
        return ScriptStart(
            [*command, str(job.script), *arguments], environment, self._open_log(name)
        )

    def _fork(
        self, process: int, start: int, name: str, held: Path, hold: Inside | None
    ) -> Started:
        job, program = self.job, self.job.program
        assert program is not None
        assert self._fork_server is not None
        place = self._places.get(process)
        return self._fork_server.start(
            ProgramStart(
                program=program.name,
                arguments=dict(program.arguments),
                seed=program.seed,
                process=process,
                lifetime=start,
                processes=max(job.processes, program.tasks),
                task=process if place is None else place.task,
                tasks=program.tasks,
                address=self._address_for(process),
                heartbeat_timeout_s=program.heartbeat_timeout_s,
                init_timeout_s=program.init_timeout_s,
                shutdown_timeout_s=program.shutdown_timeout_s,
                began_ns=self.say.began_ns,
                part=str(self._parts / f"{name}.jsonl"),
                said=str(self._parts / f"{name}.said"),
                log=str(self._logs / f"{name}.log"),
                disk=str(self._parts / f"process-{process}.disk"),
                held=str(held),
                hold_operation="" if hold is None else hold.operation,
                hold_count=0 if hold is None else hold.count,
            )
        )

    def _open_log(self, name: str) -> IO[bytes]:
        log = open(self._logs / f"{name}.log", "wb")  # noqa: SIM115 - closed when the job ends
        self._open_files.append(log)
        return log

    # --- watching ------------------------------------------------------------------------------

    def _watch(self) -> bool:
        """Until everybody has ended (True), or time is up."""
        deadline_ns = self.say.began_ns + round(self.job.timeout_s * NS_PER_S)
        while True:
            now_ns = time.monotonic_ns()
            while self._due and self._due[0][0] <= now_ns:
                heapq.heappop(self._due)[2]()
            for running in list(self._running.values()):
                self._look_after(running)
            self._look_after_the_rest()
            if not self._running and not self._starts_to_come:
                return True
            if now_ns > deadline_ns:
                running_now = ", ".join(f"process {p}" for p in sorted(self._running))
                self._unplanned.append(
                    f"not over after {self.job.timeout_s:g} s: "
                    f"{running_now or 'somebody was still to start'}; see {self._logs}"
                )
                return False
            next_ns = self._due[0][0] if self._due else now_ns + NS_PER_S
            time.sleep(min(POLL_S, max(0.0, (next_ns - time.monotonic_ns()) / NS_PER_S)))

    def _look_after_the_rest(self) -> None:
        """What a run needs besides its processes must be there.

        Raises:
          RunBroken: it is not.
        """
        for service in self._services:
            code = service.ended_with
            if code is not None:
                raise ServiceDied(
                    f"the {service.name} service died ({_end_of(code)}); see {service.log}"
                )
        if self._network is not None and not self._network.is_running:
            raise RunBroken(f"the relay has died; see {self._logs / 'relay.log'}")
        if self._fork_server is not None and not self._fork_server.is_running:
            raise RunBroken(
                f"what starts the processes has died; see {self._logs / 'fork-server.log'}"
            )

    def _look_after(self, running: _Running) -> None:
        code = running.started.poll()
        if self._waiting:
            for kind, process, operation in running.recording.news():
                self._happened(kind, process, operation)
        if code is not None:
            self._reaped(running, code, running.seen_alive_ns, None)
            return
        running.seen_alive_ns = time.monotonic_ns()
        kill = running.kill
        if kill is not None and running.held.exists():
            assert isinstance(kill.at_s, When)
            self._waiting.remove((kill.at_s, kill))
            running.kill = None
            self._carry_out(kill)

    def _happened(self, kind: str, process: int, operation: str) -> None:
        """Counts something that conditions name; those that hold now let their faults come."""
        key = (kind, process, operation)
        self._counts[key] += 1
        running = self._running.get(process)
        for entry in list(self._waiting):
            when, fault = entry
            if (when.kind, when.process, when.operation, when.count) != (*key, self._counts[key]):
                continue
            if running is not None and running.kill is fault:
                continue  # It will say that it stands there.
            self._waiting.remove(entry)
            self._plan_fault(fault, time.monotonic_ns() + round(when.plus_s * NS_PER_S))

    def _reaped(self, running: _Running, code: int, since_ns: int, killed: str | None) -> None:
        """A process has ended: by itself, or killed as the words say."""
        process = running.process
        del self._running[process]
        _signal(running, signal.SIGKILL)  # Children that it left behind, if any.
        time_ns = time.monotonic_ns()
        at_s = (time_ns - self.say.began_ns) / NS_PER_S
        if killed is None and code == 0:
            self._events.append(Leave(time_ns=time_ns, process=process, lifetime=running.start))
            self._ends[process] = End(process, LEFT, at_s=at_s)
            self.say(f"process {process} ended")
        else:
            cause = killed
            if cause is None:
                cause = self._cause_of(running, code)
                self._unplanned.append(
                    f"process {process} died by itself ({cause}); see {running.log}"
                )
                self.say(f"process {process} died by itself: {cause}")
            self._events.append(
                CrashEvent(
                    time_ns=time_ns,
                    process=process,
                    lifetime=running.start,
                    since_ns=since_ns,
                    cause=cause,
                )
            )
            self._ends[process] = End(process, CRASHED, cause, at_s=at_s)
        if process == self.job.service_in:
            self._services[0].kill()
        if killed is not None or code != 0:
            self._happened("crash", process, "")

    def _cause_of(self, running: _Running, code: int) -> str:
        for line in self._said_by(running.process, running.start):
            if "raised" in line:
                return f"{RAISED}{line['raised']}"
        words = fatal_words(running.log) if code == -signal.SIGABRT else ""
        return f"{_end_of(code)}: {words}" if words else _end_of(code)

    def _end_of(self, process: int) -> End:
        running = self._running.get(process)
        if running is None:
            return self._ends.get(process, End(process, NEVER_STARTED))
        for _ in running.recording.news():
            pass
        return End(process, RUNNING, waits_for=running.recording.open_call() or "its sleep")

    def _end_guardian(self) -> None:
        """Lets it end what processes have left behind, in sessions of their own."""
        if self._guardian is not None:
            assert self._guardian.stdin is not None
            self._guardian.stdin.close()
            self._guardian.wait()
            os.environ.pop(guardian.MARK, None)
            self._guardian = None

    def _end_all(self, cause: str) -> None:
        """Kills who still runs. What is left at the limit of a program has no end in its history."""
        for running in list(self._running.values()):
            since_ns = time.monotonic_ns()
            _signal(running, signal.SIGKILL)
            code = running.started.wait()
            if code != -signal.SIGKILL:
                self._reaped(running, code, running.seen_alive_ns, None)
            elif self.job.program is None:
                self._reaped(running, code, since_ns, cause)
            else:
                del self._running[running.process]

    # --- faults --------------------------------------------------------------------------------

    def _note(self, fault: Fault) -> None:
        """Keeps that a fault has come."""
        self._missed.remove(fault)
        now_ns = time.monotonic_ns()
        lasts_s = getattr(fault, "for_s", None)
        until_ns = None if lasts_s is None else now_ns + round(lasts_s * NS_PER_S)
        event = FaultEvent(time_ns=now_ns, name=described(fault), until_ns=until_ns)
        self._fault_events.append(event)

    def _carry_out(self, fault: Fault) -> None:
        self._note(fault)
        if not isinstance(fault, Crash) or fault.process == SERVICE:
            self.say(described(fault))
        match fault:
            case Crash() if fault.process == SERVICE:
                self._services[0].kill()
                self._pauses_of_service = 0
                self._lives_of_service += 1
            case Crash():
                assert isinstance(fault.process, int)
                running = self._running.get(fault.process)
                if running is not None:
                    self._kill(running, _where(fault))
            case Restart():
                self._services[0].start()
            case Pause() if fault.process == SERVICE:
                self._pause_service(fault.for_s)
            case Pause():
                assert isinstance(fault.process, int)
                self._pause(fault.process, fault.for_s)
            case _:
                assert self._network is not None
                end = self._network.begin(fault)
                if end is not None:
                    until_ns = time.monotonic_ns() + round(fault.for_s * NS_PER_S)  # type: ignore[union-attr]
                    self._at(until_ns, end)

    def _kill(self, running: _Running, where: str) -> None:
        since_ns = time.monotonic_ns()
        _signal(running, signal.SIGKILL)
        code = running.started.wait()
        for kind, process, operation in running.recording.news():
            self._happened(kind, process, operation)
        if code != -signal.SIGKILL:
            self._reaped(running, code, running.seen_alive_ns, None)
            return  # It had ended by itself, a moment ago.
        self.say(f"process {running.process} killed {where}")
        self._reaped(running, code, since_ns, f"{KILLED}: SIGKILL {where}")

    def _pause(self, process: int, for_s: float) -> None:
        running = self._running.get(process)
        if running is None:
            return
        running.pauses += 1
        _signal(running, signal.SIGSTOP)

        def go_on() -> None:
            running.pauses -= 1
            if not running.pauses and self._running.get(process) is running:
                _signal(running, signal.SIGCONT)
                self.say(f"process {process} goes on")

        self._at(time.monotonic_ns() + round(for_s * NS_PER_S), go_on)

    def _pause_service(self, for_s: float) -> None:
        self._pauses_of_service += 1
        self._services[0].pause()
        life = self._lives_of_service

        def go_on() -> None:
            if life != self._lives_of_service:
                return  # Of a service that is no more.
            self._pauses_of_service -= 1
            if not self._pauses_of_service:
                self._services[0].go_on()
                self.say("the service goes on")

        self._at(time.monotonic_ns() + round(for_s * NS_PER_S), go_on)

    # --- what was recorded ---------------------------------------------------------------------

    def _said_by(self, process: int, start: int) -> list[dict[str, str]]:
        path = self._parts / f"process-{process}-{start}.said"
        if not path.exists():
            return []
        whole = path.read_text(errors="replace").rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def _read_what_was_said(self) -> None:
        log: list[LogLine] = []
        reached: Counter[str] = Counter()
        for process, starts in enumerate(self._starts):
            for start in range(starts):
                for line in self._said_by(process, start):
                    if "log" in line:
                        time_s = (int(line["time_ns"]) - self.say.began_ns) / NS_PER_S
                        log.append(LogLine(time_s, process, start, line["log"]))
                    elif "reached" in line:
                        reached[line["reached"]] += 1
                    elif "heartbeat_timeout_s" in line:
                        timeout_s = int(line["heartbeat_timeout_s"])
                        longest_s = max(timeout_s, self._client_timeouts_s.get(process, 0))
                        self._client_timeouts_s[process] = longest_s
        self._log = tuple(sorted(log, key=lambda line: line.time_s))
        self._reached = dict(sorted(reached.items()))

    def _merge(self) -> History:
        """Merges the parts of all starts and what was seen from outside; saves it if anybody started."""
        job = self.job
        details: dict[str, object] = {
            "service": job.service,
            "python": platform.python_version(),
            "jaxlib": _version("jaxlib"),
            "zero_monotonic_ns": self.say.began_ns,
            **job.settings,
        }
        if job.script is not None:
            details |= {"script": job.script.name, "arguments": list(job.arguments)}
        if job.program is not None:
            details |= {"program": job.program.name, "arguments": dict(job.program.arguments)}
            details["faults"] = [str(fault) for fault in job.faults]
        tasks = 0 if job.program is None else job.program.tasks
        participants = tuple(range(max(job.processes, tasks)))
        history = merged(
            Header(source="processes", participants=participants, details=details),
            {
                process: [
                    self._parts / f"process-{process}-{start}.jsonl" for start in range(count)
                ]
                for process, count in enumerate(self._starts)
            },
            self._events,
            tuple(self._fault_events),
            began_ns=self.say.began_ns,
        )
        if self._is_anything_started:
            try:
                history.save(job.out)
            except OSError as error:
                raise LaunchFailed(
                    f"{job.out}: {error.strerror or error}; the recordings are kept in {self._parts}: "
                    f"coordlab merge {shlex.quote(str(self._folder))} --out FILE"
                ) from None
        shutil.rmtree(self._parts)
        return history


def run_folder(out: Path) -> Path:
    """The folder of a run beside its history."""
    return out.with_name(out.name.removesuffix(".jsonl") + ".run")


def fault_in_words(fault: Fault) -> str:
    """A fault and when it was to come, for messages."""
    return f"the planned {described(fault)} ({_where(fault)})"


def never_reached(fault: Fault) -> str:
    """That a fault did not happen."""
    return f"{fault_in_words(fault)} was never reached"


def _where(fault: Fault) -> str:
    if not isinstance(fault.at_s, When):
        return f"at {fault.at_s:g} s"
    when = fault.at_s
    if (
        when.kind == "inside"
        and not when.plus_s
        and when.process == getattr(fault, "process", None)
    ):
        return f"inside {when.operation} #{when.count}"
    return str(when)


def _filled_in(words: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The words with placeholders replaced."""
    filled = []
    for word in words:
        for placeholder, value in values.items():
            word = word.replace(placeholder, value)
        filled.append(word)
    return filled


def _is_locked(file: IO[bytes]) -> bool:
    """Locks a file until it is closed; False if somebody else has it locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _signal(running: _Running, number: signal.Signals) -> None:
    """Signals a process and its children; it may have ended a moment ago."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.started.pid, number)


def _end_of(code: int) -> str:
    """How a process ended, from its return code."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
