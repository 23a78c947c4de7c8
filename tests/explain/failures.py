"""Jobs of real jaxlib processes that fail, each in its own way, and what their logs must be taken for.

`python -m tests.explain.failures FOLDER [NAME ...]` runs them and leaves their logs in the folder;
`python -m tests.explain.failures --save [NAME ...]` keeps them under `tests/data/logs`, for the
tests that start no process.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Self

from tests.ports import reserved_port

MEMBER = Path(__file__).with_name("member.py")
KEPT = Path(__file__).parents[1] / "data" / "logs"
DEADLINE_S = 240.0
POLL_S = 0.05
AT_A_TIME = 8


@dataclass(slots=True)
class Job:
    """The processes of one failing job, with a log for each start."""

    folder: Path
    processes: int
    address: str
    settings: tuple[str, ...] = ()
    verbose: bool = False
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(
        self, process: int, *steps: str, name: str = "", address: str = "", of: int = 0
    ) -> str:
        """Starts a process; returns the name of the start."""
        name = name or f"process-{process}-0"
        command = [sys.executable, str(MEMBER), "--address", address or self.address]
        command += ["--process", str(process), "--processes", str(of or self.processes)]
        with open(self.folder / f"{name}.log", "wb") as log:
            self.running[name] = subprocess.Popen(
                [*command, *self.settings, *steps],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                env=self._environment(),
            )
        return name

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if "_proxy" not in name.lower()}
        # JAX sets 1: programs show warnings and worse, unless somebody asks for more.
        level = "0" if self.verbose else "1"
        return {
            **kept,
            "PYTHONUNBUFFERED": "1",
            "TF_CPP_MIN_LOG_LEVEL": level,
            "JAX_PLATFORMS": "cpu",
        }

    def start_all(self, *steps: str) -> None:
        """Starts all; the service is process 0's."""
        for process in range(self.processes):
            self.start(process, *(["serve"] if process == 0 else []), *steps)

    def await_text(self, text: str, *names: str) -> None:
        """Waits until the logs (default: of all) hold a text."""
        wanted = names or tuple(self.running)
        deadline = time.monotonic() + DEADLINE_S
        while any(text not in self.log(name) for name in wanted):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.folder}: {text!r} is not in the logs of {wanted}")
            time.sleep(POLL_S)

    def tell(self, name: str) -> None:
        """Lets the processes go on that await this file."""
        (self.folder / name).touch()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def signal(self, process: int, number: signal.Signals) -> None:
        self.running[f"process-{process}-0"].send_signal(number)

    def await_end(self, *names: str) -> None:
        """Waits until processes (default: all) have ended."""
        deadline = time.monotonic() + DEADLINE_S
        for name in names or tuple(self.running):
            self.running[name].wait(max(0.1, deadline - time.monotonic()))

    def end(self) -> None:
        for popen in self.running.values():
            if popen.poll() is None:
                popen.kill()
            popen.wait()


def killed_peer(job: Job) -> None:
    job.start_all("connect", "wait")
    job.await_text("connected")
    job.signal(2, signal.SIGKILL)
    job.await_end()


def killed_leader(job: Job) -> None:
    job.start_all("connect", "wait")
    job.await_text("connected")
    job.signal(0, signal.SIGKILL)
    job.await_end()


def killed_service(job: Job) -> None:
    job.start(0, "serve", "say:serving", "wait", name="service")
    job.await_text("serving")
    for process in range(job.processes):
        job.start(process, "connect", "wait")
    job.await_text("connected", *(f"process-{p}-0" for p in range(job.processes)))
    job.running["service"].kill()
    job.await_end()


def missing_task(job: Job) -> None:
    for process in range(job.processes - 1):
        job.start(process, *(["serve"] if process == 0 else []), "connect", "wait")
    job.await_end()


def missing_task_noticed_by_the_service(job: Job) -> None:
    """Those who come are loaded before the service is there, as it does not wait for long."""
    for process in range(1, job.processes - 1):
        job.start(process, "load", "await:served", "connect", "wait")
    job.await_text("loaded")
    job.start(0, "serve-brief", "say:serving", "connect", "wait")
    job.await_text("serving", "process-0-0")
    job.tell("served")
    job.await_end()


def wrong_id(job: Job) -> None:
    job.start(0, "serve", "connect", "wait")
    job.start(7, "connect", "wait", of=8)
    job.await_end("process-7-0")


def two_jobs(job: Job) -> None:
    """A second, larger job whose processes reach the service of the first."""
    job.start_all("connect", "wait")
    job.await_text("connected")
    job.settings = (*job.settings, *IMPATIENT)
    job.start(1, "connect", "wait", name="other-job-1-0", of=4)
    job.await_end()


def restarted_task(job: Job) -> None:
    job.start_all("connect", "wait")
    job.await_text("connected")
    job.signal(1, signal.SIGKILL)
    job.settings = (*job.settings, *IMPATIENT)
    job.start(1, "connect", "wait", name="process-1-1")
    job.await_end()


def barrier_times_out(job: Job) -> None:
    """The late one does something else until the others have given up."""
    job.start(0, "serve", "connect", "barrier:epoch:12", "leave")
    job.start(1, "connect", "barrier:epoch:12", "leave")
    job.start(2, "connect", "say:busy", "await:given-up", "leave")
    job.await_text("Barrier timed out", "process-0-0", "process-1-0")
    job.tell("given-up")
    job.await_end()


def barrier_names_drift(job: Job) -> None:
    """The service goes with process 0, which therefore gives up last."""
    job.start(0, "serve", "connect", "barrier:sync_3:15", "leave")
    job.start(1, "connect", "barrier:sync_4:5", "leave")
    job.await_end()


def barrier_used_again(job: Job) -> None:
    """Times out for the early one, which uses the id again before the late one comes."""
    job.start(0, "serve", "connect", "try-barrier:a:1", "say:again", "barrier:a:60")
    job.start(1, "connect", "sleep:4", "barrier:a:60")
    job.await_end()


def shutdown_barrier_fails(job: Job) -> None:
    job.start(0, "serve", "connect", "leave")
    job.start(1, "connect", "leave")
    job.start(2, "connect", "say:one more evaluation", "wait")
    job.await_end("process-0-0", "process-1-0")


def rank_raises(job: Job) -> None:
    """A rank that raises waits in the exit barrier for the others."""
    job.start(0, "serve", "connect", "barrier:step:60", "leave")
    job.start(1, "connect", "raise:the shapes do not fit")
    job.start(2, "connect", "barrier:step:60", "leave")
    job.await_end()


def stalled_peer(job: Job) -> None:
    job.start_all("connect", "wait")
    job.await_text("connected")
    job.signal(1, signal.SIGSTOP)
    job.await_end("process-0-0", "process-2-0")
    job.signal(1, signal.SIGCONT)
    job.await_end()


def stalled_service(job: Job) -> None:
    job.start(0, "serve", "say:serving", "wait", name="service")
    job.await_text("serving")
    for process in range(job.processes):
        job.start(process, "connect", "wait")
    job.await_text("connected", *(f"process-{p}-0" for p in range(job.processes)))
    job.running["service"].send_signal(signal.SIGSTOP)
    job.await_end(*(f"process-{p}-0" for p in range(job.processes)))
    job.running["service"].send_signal(signal.SIGCONT)


def address_in_use(job: Job) -> None:
    with socket.socket() as tenant:
        tenant.bind(("127.0.0.1", 0))
        tenant.listen()
        address = f"127.0.0.1:{tenant.getsockname()[1]}"
        job.start(0, "serve", "connect", address=address)
        job.await_end()


def refused_port(job: Job) -> None:
    job.start(1, "connect")
    job.await_end()


def blackhole_port(job: Job) -> None:
    """A listening socket that never answers, as behind a firewall that lets the first packet in."""
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen()
        job.start(1, "connect", address=f"127.0.0.1:{hole.getsockname()[1]}")
        job.await_end()


def unknown_host(job: Job) -> None:
    job.start(1, "connect", address="coordinator.invalid:8476")
    job.await_end()


def single_reset(job: Job) -> None:
    """The connection of one process is reset, once, and healed at once."""
    with _Relay(job.address) as relay:
        job.start(0, "serve", "connect", "wait")
        job.start(1, "connect", "wait")
        job.start(2, "connect", "wait", address=relay.address)
        job.await_text("connected")
        relay.reset()
        job.await_end()


def leader_leaves_first(job: Job) -> None:
    """All work is done; process 0 ends without the shutdown barrier."""
    job.start(0, "serve", "connect", "say:training finished", "sleep:1", "exit:0")
    job.start(1, "connect", "say:training finished", "wait")
    job.start(2, "connect", "say:training finished", "wait")
    job.await_end()


def key_set_twice(job: Job) -> None:
    job.start(0, "serve", "connect", "set:a", "set:a")
    job.await_end()


def key_never_set(job: Job) -> None:
    job.start(0, "serve", "connect", "get:checkpoint/7:1")
    job.await_end()


def full_disk(job: Job) -> None:
    job.start(0, "serve", "connect", "barrier:step:60", "leave")
    job.start(1, "connect", "full")
    job.await_end()


def all_is_well(job: Job) -> None:
    job.start_all("connect", "barrier:epoch:60", "leave")
    job.await_end()


def jax_initialized_twice(job: Job) -> None:
    job.start(0, "jax", "jax-again")
    job.await_end()


def jax_initialized_late(job: Job) -> None:
    job.start(0, "compute", "jax")
    job.await_end()


def jax_without_preemption_service(job: Job) -> None:
    job.start(0, "no-preemption-service", "jax", "preemption")
    job.await_end()


def jax_wrong_process_id(job: Job) -> None:
    job.start(5, "jax")
    job.await_end()


def jax_without_address(job: Job) -> None:
    job.start(0, "jax-without-address")
    job.await_end()


def jax_behind_proxies(job: Job) -> None:
    job.start(0, "proxy", "jax", "compute")
    job.await_end()


def jax_preempted(job: Job) -> None:
    for process in range(job.processes):
        job.start(process, "jax", "compute", "preemption")
    job.await_text("stepping")
    job.signal(1, signal.SIGTERM)
    job.await_end()


def jax_rank_raises(job: Job) -> None:
    job.start(0, "jax", "compute", "sync:step")
    job.start(1, "jax", "compute", "raise:the shapes do not fit")
    job.await_end()


def jax_collective_loses_a_peer(job: Job) -> None:
    job.start(0, "jax", "psum", "say:summed", "sleep:2", "psum")
    job.start(1, "jax", "psum", "say:summed", "exit:1")
    job.await_end()


@dataclass(frozen=True, slots=True)
class Failure:
    """One way to fail.

    Attributes:
      run: Makes it happen.
      processes: Of the job.
      cause: What must be ranked first, or None if nothing is wrong.
      culprits: The processes that the first cause must name.
      settings: For every member.
      verbose: Whether the C++ libraries say all that they can.
      is_quick: Whether it is run by the tests, too; the others run when logs are recorded.
    """

    run: Callable[[Job], None]
    processes: int
    cause: str | None
    culprits: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()
    verbose: bool = False
    is_quick: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__.replace("_", "-") + ("-verbose" if self.verbose else "")


IMPATIENT = ("--init", "2")
PATIENT = ("--shutdown", "60")
"""Who is at the end waits for the others there, however slow they are."""

FAILURES = (
    Failure(killed_peer, 3, "silent-death", (2,), is_quick=True),
    Failure(killed_leader, 3, "leader-lost", (0,), is_quick=True),
    Failure(killed_service, 3, "leader-lost"),
    Failure(killed_peer, 3, "silent-death", (2,), verbose=True),
    Failure(missing_task, 3, "never-seen", (2,), IMPATIENT),
    Failure(missing_task_noticed_by_the_service, 3, "never-seen", (2,), is_quick=True),
    Failure(wrong_id, 2, "two-jobs", (7,), is_quick=True),
    Failure(two_jobs, 2, "restart-into-session", (1,), ("--heartbeat", "20")),
    Failure(restarted_task, 3, "restart-into-session", (1,), ("--heartbeat", "60"), is_quick=True),
    Failure(barrier_times_out, 3, "barrier-timeout", (2,), PATIENT, is_quick=True),
    Failure(barrier_names_drift, 2, "barrier-drift", (0, 1), PATIENT, is_quick=True),
    Failure(barrier_used_again, 2, "barrier-instance", (0, 1)),
    Failure(shutdown_barrier_fails, 3, "late-leaver", (2,), ("--shutdown", "12"), is_quick=True),
    Failure(rank_raises, 3, "program-raised", (1,), is_quick=True),
    Failure(stalled_peer, 3, "stall", (1,), is_quick=True),
    Failure(stalled_service, 3, "service-stalled", is_quick=True),
    Failure(address_in_use, 1, "address-in-use", (0,), is_quick=True),
    # What clients print is the same in these three cases: "Deadline Exceeded".
    Failure(refused_port, 2, "service-not-reached", (1,), IMPATIENT),
    Failure(blackhole_port, 2, "service-not-reached", (1,), IMPATIENT, is_quick=True),
    Failure(unknown_host, 2, "service-not-reached", (1,), IMPATIENT),
    Failure(single_reset, 3, "connection-lost", (2,), is_quick=True),
    Failure(leader_leaves_first, 3, "leader-left", (0,)),
    Failure(key_set_twice, 1, "key-exists", (0,), is_quick=True),
    Failure(key_never_set, 1, "key-timeout", (0,)),
    Failure(full_disk, 2, "disk-full", (1,)),
    Failure(all_is_well, 3, None, settings=PATIENT, is_quick=True),
    Failure(all_is_well, 3, None, settings=PATIENT, verbose=True),
    Failure(jax_initialized_twice, 1, "initialized-twice", (0,)),
    Failure(jax_initialized_late, 1, "initialized-late", (0,)),
    Failure(jax_without_preemption_service, 1, "preemption-service-off", (0,)),
    Failure(jax_wrong_process_id, 1, "process-id-invalid", (5,)),
    Failure(jax_without_address, 1, "address-missing", (0,)),
    Failure(jax_behind_proxies, 1, "proxy-in-the-way", (0,), IMPATIENT),
    Failure(jax_preempted, 2, "preempted", (1,), ("--heartbeat", "20")),
    Failure(jax_rank_raises, 2, "program-raised", (1,), ("--heartbeat", "20")),
    Failure(jax_collective_loses_a_peer, 2, "silent-death", (1,), ("--heartbeat", "6")),
)


class _Relay:
    """Passes bytes on to a service, until told to reset the connections that it has."""

    def __init__(self, upstream: str) -> None:
        host, _, port = upstream.partition(":")
        self._upstream = (host, int(port))
        self._sockets: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Shut down first: a thread that waits in accept() would keep a closed socket listening.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.reset()

    def reset(self) -> None:
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                one.shutdown(socket.SHUT_RD)  # Wakes the thread that reads from it.
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                inner, _ = self._listener.accept()
                try:
                    outer = socket.create_connection(self._upstream)
                except OSError:
                    inner.close()
                    continue
                self._sockets += [inner, outer]
                for source, sink in ((inner, outer), (outer, inner)):
                    threading.Thread(target=_pass_on, args=(source, sink), daemon=True).start()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


def record(failure: Failure, folder: Path) -> Path:
    """Runs one job; returns the folder with its logs."""
    into = folder / failure.name
    into.mkdir(parents=True)
    with reserved_port() as port:
        job = Job(into, failure.processes, f"127.0.0.1:{port}", failure.settings, failure.verbose)
        try:
            failure.run(job)
        finally:
            job.end()
    return into


def record_all(failures: Sequence[Failure], folder: Path) -> dict[str, BaseException]:
    """Runs jobs, several at a time as they mostly wait; returns what went wrong with which."""
    problems: dict[str, BaseException] = {}
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        for failure, done in [(f, pool.submit(record, f, folder)) for f in failures]:
            error = done.exception()
            if error is not None:
                problems[failure.name] = error
    return problems


def save(failures: Sequence[Failure]) -> Path:
    """Keeps the logs of these failures, by the jaxlib that is installed, for the fast tests."""
    kept = KEPT / f"jaxlib-{metadata.version('jaxlib')}"
    with tempfile.TemporaryDirectory() as scratch:
        problems = record_all(failures, Path(scratch))
        if problems:
            raise SystemExit(f"nothing is saved, as these jobs did not fail as meant: {problems}")
        for failure in failures:
            shutil.rmtree(kept / failure.name, ignore_errors=True)
        shutil.copytree(scratch, kept, dirs_exist_ok=True)
    for log in kept.rglob("*.log"):
        text = log.read_text(encoding="utf-8", errors="surrogateescape")
        for found, told in ((str(MEMBER.parent), "/job"), (sys.prefix, "/python")):
            text = text.replace(found, told)
        log.write_text(text, encoding="utf-8", errors="surrogateescape")
    return kept


def main() -> None:
    chosen = [f for f in FAILURES if not sys.argv[2:] or f.name in sys.argv[2:]]
    if sys.argv[1:2] == ["--save"]:
        print(f"saved in {save(chosen)}")
        return
    began = time.monotonic()
    for name, error in record_all(chosen, Path(sys.argv[1])).items():
        print(f"{name}: {error!r}", file=sys.stderr)
    print(f"{len(chosen)} jobs in {time.monotonic() - began:.1f} s, logs in {sys.argv[1]}")


if __name__ == "__main__":
    main()
