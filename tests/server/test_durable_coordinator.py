"""`coordlab serve --state`: a coordinator that is killed and goes on, and its clients with it."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from checker import Valid, check, read
from checker.history import Invoke, Start
from coord_sim import client as blocking
from coord_sim.client.aio import DistributedRuntimeClient
from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskState
from coord_sim.core.records import BarrierRecord, JobRecord, KeyRecord, Record, TaskRecord
from coord_sim.core.semantics import PUBLISHED
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import BarrierError, Code, Status
from coord_sim.core.status import ServiceError as ServicePayload
from coord_sim.errors import ServiceError
from coord_sim.server.state_file import StateFile, UnusableState
from tests.ports import reserved_port

CONFIG = ServiceConfig(tasks=2, recoverable=True, semantics=PUBLISHED, durable=True)
STATUS = Status(
    code=Code.INTERNAL,
    message="byte \udcff",
    service_error=ServicePayload(reported=True, source_task=TaskId(1)),
    barrier_error=BarrierError("b", 3),
)
RECORDS: list[Record] = [
    KeyRecord("a", b"\0\xff"),
    TaskRecord(
        task=TaskId(1),
        state=TaskState.ERROR,
        incarnation=Incarnation(2**64 - 1),
        error=STATUS,
        has_left=True,
        past=(Incarnation(7),),
    ),
    BarrierRecord(
        key="b",
        id="b",
        counter=3,
        is_over=True,
        result=STATUS,
        initiator=None,
        timeout_ns=-5,
        participants=(TaskId(0), TaskId(1)),
        passed_by=((TaskId(0), Incarnation(8)),),
        passed_counter=2,
    ),
    JobRecord(version=9, anybody_polled=True, propagated=STATUS, rounds=4),
]


# --- the file --------------------------------------------------------------------------------------


def test_what_is_written_is_read_and_the_latest_counts(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", CONFIG)
    assert state.load() == []
    state.write([KeyRecord("a", b"old"), KeyRecord("gone", b"")])
    state.write([*RECORDS, KeyRecord("gone", None)])
    state.close()
    again = StateFile(tmp_path / "state", CONFIG)
    assert again.incarnation == state.incarnation
    assert sorted(again.load(), key=repr) == sorted(RECORDS, key=repr)
    again.close()


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (ServiceConfig(tasks=3, recoverable=True, semantics=PUBLISHED), "processes 2, not 3"),
        (ServiceConfig(tasks=2, semantics=PUBLISHED), "recoverable 1, not 0"),
        (ServiceConfig(tasks=2, recoverable=True), "semantics published, not shipped"),
    ],
)
def test_the_state_of_another_job_is_refused(
    tmp_path: Path, config: ServiceConfig, text: str
) -> None:
    StateFile(tmp_path / "state", CONFIG).close()
    with pytest.raises(UnusableState, match=text):
        StateFile(tmp_path / "state", config)


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_text("what was here before, and is longer than nothing at all")
    with pytest.raises(UnusableState, match="not a state file"):
        StateFile(path, CONFIG)
    assert path.read_text().startswith("what was here before")
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    with pytest.raises(UnusableState, match="not a state file"):
        StateFile(other, CONFIG)


def test_two_coordinators_cannot_have_one_state(tmp_path: Path) -> None:
    state = StateFile(tmp_path / "state", CONFIG)
    with pytest.raises(UnusableState, match="in use by another coordinator"):
        StateFile(tmp_path / "state", CONFIG)
    state.close()


# --- the command -----------------------------------------------------------------------------------


class Coordinator:
    """A `coordlab serve` that can be killed and started again."""

    def __init__(self, folder: Path, port: int, *options: str, tasks: int = 2) -> None:
        self._folder = folder
        self._tasks = tasks
        self._options = options
        self.address = f"127.0.0.1:{port}"
        self.incarnation = ""
        self.start()

    def start(self) -> None:
        command = [
            *(sys.executable, "-m", "coord_sim.cli.main", "serve", "--recoverable"),
            *("--processes", str(self._tasks), "--state", str(self._folder / "state")),
            *("--port", self.address.rpartition(":")[2], *self._options),
        ]
        with (self._folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        _, address, incarnation = self.process.stdout.readline().split()
        assert address == f"address={self.address}"
        assert incarnation == (self.incarnation or incarnation)
        self.incarnation = incarnation

    def kill(self) -> None:
        self.process.kill()
        self.end()

    def end(self) -> int:
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=60)


@pytest.fixture
def port() -> Iterator[int]:
    """Of a coordinator that is killed and comes back."""
    with reserved_port() as reserved:
        yield reserved


@pytest.fixture
def coordinator(tmp_path: Path, port: int) -> Iterator[Coordinator]:
    coordinator = Coordinator(tmp_path, port, "--semantics", "published")
    yield coordinator
    coordinator.process.terminate()
    assert coordinator.end() == 0


def test_a_killed_coordinator_goes_on_and_our_clients_with_it(coordinator: Coordinator) -> None:
    async def run() -> None:
        clients = [
            DistributedRuntimeClient(
                coordinator.address, task, heartbeat_timeout=20, outage_timeout=120
            )
            for task in (0, 1)
        ]
        a, b = clients
        await asyncio.gather(a.connect(), b.connect())
        for number in range(20):
            await a.key_value_set(f"k/{number}", str(number))
        await a.key_value_increment("n", 41)
        await asyncio.gather(*(each.wait_at_barrier("b", 60_000) for each in clients))
        get = asyncio.ensure_future(b.blocking_key_value_get("later", 120_000))
        barrier = asyncio.ensure_future(b.wait_at_barrier("b", 120_000))
        alive = asyncio.ensure_future(b.get_live_nodes([0, 1]))
        await b.key_value_try_get("k/1")
        coordinator.kill()
        with pytest.raises(ServiceError) as lost:
            await alive
        assert lost.value.status.code is Code.UNAVAILABLE
        await asyncio.to_thread(coordinator.start)
        assert len(await a.key_value_dir_get("k")) == 20
        assert await a.key_value_increment("n", 1) == 42
        await a.key_value_set("later", "now")
        assert await get == "now"
        await a.wait_at_barrier("b", 60_000)
        await barrier
        told = await asyncio.gather(*(each.get_live_nodes([0, 1]) for each in clients))
        assert told[0] == told[1] == {each.task: each.incarnation for each in clients}
        await asyncio.gather(a.shutdown(), b.shutdown())
        for client in clients:
            await client.close()

    asyncio.run(run())


def test_no_acknowledged_key_is_lost_however_often_it_is_killed(coordinator: Coordinator) -> None:
    async def run() -> None:
        a, b = (
            DistributedRuntimeClient(
                coordinator.address, task, heartbeat_timeout=60, outage_timeout=120
            )
            for task in (0, 1)
        )
        await asyncio.gather(a.connect(), b.connect())
        acknowledged = 0

        async def write() -> None:
            nonlocal acknowledged
            while True:
                number = acknowledged + 1
                try:
                    await a.key_value_set("count", str(number), allow_overwrite=True)
                except ServiceError as error:  # Whether it had an effect is not known.
                    assert error.status.code is Code.UNAVAILABLE  # noqa: PT017
                    continue
                acknowledged = number

        writer = asyncio.ensure_future(write())
        for _ in range(3):
            seen = acknowledged
            async with asyncio.timeout(60):
                while acknowledged < seen + 30:  # noqa: ASYNC110 - the writer has no event for it
                    await asyncio.sleep(0.005)
            coordinator.kill()
            await asyncio.to_thread(coordinator.start)
            at_least = acknowledged
            assert int(await b.key_value_try_get("count")) >= at_least
        writer.cancel()
        await asyncio.gather(writer, return_exceptions=True)
        for client in (a, b):
            await client.close()

    asyncio.run(run())


IDLE_CLIENT = """
import sys, time
from jaxlib import _jax
client = _jax.get_distributed_runtime_client(
    sys.argv[1], 0, init_timeout=60, heartbeat_timeout=40, use_compression=True)
client.connect()
client.key_value_set("k", "v")
print("connected", flush=True)
sys.stdin.readline()
print(client.key_value_try_get("k"), flush=True)
client.shutdown()
"""


@pytest.mark.jax
def test_jaxlibs_client_lives_through_a_restart_under_a_supervisor(
    tmp_path: Path, port: int
) -> None:
    """The outage lasts over a heartbeat (every 20 s), which waits at the port that is held."""
    coordinator = Coordinator(tmp_path, port, "--supervise", "--heartbeat-timeout", "120", tasks=1)
    client = subprocess.Popen(
        [sys.executable, "-c", IDLE_CLIENT, coordinator.address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "connected\n"
    supervisor = coordinator.process.pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    # The next heartbeat is sent 20 s after the connection, and fails if it is not answered within 20 s
    # more: both are far from the outage's beginning and end, as a busy machine may be late with those.
    time.sleep(8.0)
    os.kill(supervisor, signal.SIGSTOP)  # So that the outage lasts at least so long.
    os.kill(int(children[0]), signal.SIGKILL)
    time.sleep(14.0)
    os.kill(supervisor, signal.SIGCONT)
    log = tmp_path / "log"
    deadline_s = time.monotonic() + 60
    while "starts again" not in log.read_text():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    time.sleep(3.0)  # A client that was to end would, a second after the heartbeat failed.
    output, errors = client.communicate("\n", timeout=60)
    assert (client.returncode, output) == (0, "v\n"), errors
    coordinator.process.terminate()
    assert coordinator.end() == 0


def test_a_recording_goes_on_with_the_coordinator(tmp_path: Path, port: int) -> None:
    """Clients do not register again, so the second recording must know who is in the job."""
    record = tmp_path / "run.jsonl"
    options = ("--supervise", "--semantics", "published", "--record", str(record))
    coordinator = Coordinator(tmp_path, port, *options, tasks=1)
    with blocking.DistributedRuntimeClient(coordinator.address, 0, outage_timeout=60) as client:
        client.connect()
        client.get_live_nodes([0])
        supervisor = coordinator.process.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        assert client.watch_tasks(-1).tasks[0].incarnation == client.incarnation
        client.get_live_nodes([0])
    coordinator.process.terminate()
    assert coordinator.end() == 0
    for path in (record, tmp_path / "run-2.jsonl"):
        history = read(path)
        (start,) = (event for event in history.events if isinstance(event, Start))
        assert start.incarnation == client.incarnation
        assert isinstance(check(history), Valid)


def test_a_job_that_is_gone_on_with_by_hand_keeps_its_first_recording(
    tmp_path: Path, port: int
) -> None:
    record = tmp_path / "run.jsonl"
    coordinator = Coordinator(tmp_path, port, "--record", str(record), tasks=1)
    with blocking.DistributedRuntimeClient(coordinator.address, 0, outage_timeout=120) as client:
        client.connect()
        for key in ("first", "second", "third"):
            client.watch_tasks(-1)  # It may be repeated, if the connection is found broken.
            client.key_value_set(key, key)
            coordinator.kill()
            coordinator.start()
    coordinator.process.terminate()
    assert coordinator.end() == 0
    for number, key in (("", "first"), ("-2", "second"), ("-3", "third")):
        calls = [e for e in read(tmp_path / f"run{number}.jsonl").events if isinstance(e, Invoke)]
        assert [e.arguments["key"] for e in calls if e.operation == "key_value_set"] == [key]
    assert f"goes on; what is seen from now on is in {tmp_path}/run-4.jsonl" in (
        (tmp_path / "log").read_text()
    )


def test_a_client_may_leave_while_the_coordinator_is_down(coordinator: Coordinator) -> None:
    async def run() -> None:
        a, b = (
            DistributedRuntimeClient(
                coordinator.address, task, heartbeat_timeout=60, outage_timeout=120
            )
            for task in (0, 1)
        )
        await asyncio.gather(a.connect(), b.connect())
        coordinator.kill()
        leaving = asyncio.ensure_future(a.shutdown())
        await asyncio.to_thread(coordinator.start)
        await leaving
        states = [task.state for task in (await b.watch_tasks()).tasks]
        assert states == [TaskState.DISCONNECTED, TaskState.CONNECTED]
        for client in (a, b):
            await client.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_seen", [True, False])
def test_an_outage_that_lasts_too_long_ends_our_client(
    coordinator: Coordinator, is_seen: bool
) -> None:
    """Two short ones before are not one long one, whether or not the clients see them."""

    async def run() -> None:
        a, b = clients = [
            DistributedRuntimeClient(
                coordinator.address, task, heartbeat_timeout=100, outage_timeout=1
            )
            for task in (0, 1)
        ]
        await asyncio.gather(a.connect(), b.connect())
        for _ in range(2):
            coordinator.kill()
            if is_seen:
                await asyncio.to_thread(coordinator.start)
            else:
                # The clients' loop stands still until it is back, so that their next heartbeats are
                # answered, and due in 50 s again. When it is back once more it dismisses their polls.
                coordinator.start()
                await asyncio.gather(*(client.watch_tasks() for client in clients))
        coordinator.kill()
        began_s = time.monotonic()
        with pytest.raises(ServiceError, match="UNAVAILABLE"):
            await a.blocking_key_value_get("none", 60_000)
        assert time.monotonic() - began_s < 20
        for client in clients:
            await client.close()
        await asyncio.to_thread(coordinator.start)

    asyncio.run(run())


def test_a_supervised_coordinator_that_is_told_to_end_does(tmp_path: Path, port: int) -> None:
    coordinator = Coordinator(tmp_path, port, "--supervise", tasks=1)
    coordinator.process.send_signal(signal.SIGINT)
    assert coordinator.end() == 0
    assert "starts again" not in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--supervise"], "--supervise needs --state"),
        (["--state", "/nowhere/state"], "there is no such folder"),
        (["--state", ""], "a state file needs a name"),
        (["--state", "a", "--record", "./a-wal"], "would overwrite the state"),
        (["--host", ""], "0.0.0.0 or :: is every interface"),
        (["--processes", "99999999"], "at most 100000 processes"),
        (["--mtls-cert-file", "cert.pem"], "missing: key, CA"),
        (["--metrics", "70000"], "a port is a number from 0 to 65535"),
        (["--watch"], "--watch needs a terminal"),
    ],
)
def test_bad_options_are_told_in_one_line(options: list[str], text: str) -> None:
    command = [sys.executable, "-m", "coord_sim.cli.main", "serve", "--processes", "1", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert text in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
