"""The server over real sockets: raw gRPC callers, jaxlib's C++ client, and the command."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
import pytest

from checker import Valid, check, read
from checker.history import Info
from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import SHIPPED
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import BarrierError, Code, ServiceError, Status, WrongService
from coord_sim.recording.file import RecordingFile
from coord_sim.server.grpc_server import CoordinationServer
from coord_sim.server.listening import PortUnavailable
from coord_sim.wire import server_methods as wire
from coord_sim.wire._generated import coordination_service_pb2 as pb

T = TypeVar("T")
Incarnations = pb.Incarnations
PAYLOAD = "type.googleapis.com/tensorflow."


class Caller:
    """A raw client of one task."""

    def __init__(self, channel: grpc.aio.Channel, service: int = 0, incarnation: int = 0) -> None:
        self._channel = channel
        self.who = Incarnations(task_incarnation=incarnation, service_incarnation=service)

    async def __call__(self, method: str, request: Any, **options: Any) -> Any:
        if hasattr(request, "incarnations"):
            request.incarnations.CopyFrom(self.who)
        response_type = getattr(pb, f"{method}Response")
        call = self._channel.unary_unary(
            f"/{wire.SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response_type.FromString,
        )
        return await call(request, timeout=20, **options)


def payloads(error: grpc.aio.AioRpcError) -> dict[str, bytes]:
    for key, value in error.trailing_metadata() or ():
        if key == wire.STATUS_PAYLOADS_KEY:
            assert isinstance(value, bytes)
            return dict(pb.StatusPayloads.FromString(value).payloads)
    return {}


def serving(
    body: Callable[[CoordinationServer, Caller], Coroutine[Any, Any, T]],
    *,
    tasks: int = 1,
    host: str = "127.0.0.1",
    recording: RecordingFile | None = None,
) -> T:
    """Runs `body` against a server of its own, with task 0 (and all others) registered."""

    async def run() -> T:
        config = ServiceConfig(tasks=tasks, recoverable=True, heartbeat_timeout_ns=seconds(60))
        server = CoordinationServer(config)
        port = server.bind(host, 0)
        await server.start(recording)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            caller = Caller(channel)
            answers = await asyncio.gather(
                *(
                    caller(
                        "RegisterTask",
                        pb.RegisterTaskRequest(incarnation=100 + task, source_task_id=task),
                    )
                    for task in range(tasks)
                )
            )
            services = {answer.service_incarnation for answer in answers}
            assert services == {server.incarnation}
            caller.who.CopyFrom(
                Incarnations(task_incarnation=100, service_incarnation=server.incarnation)
            )
            try:
                return await body(server, caller)
            finally:
                await server.stop()

    return asyncio.run(run())


async def arrived(server: CoordinationServer, calls: int) -> None:
    """Waits until that many calls wait in the server."""
    async with asyncio.timeout(20):
        while len(server._waiting) < calls:  # noqa: ASYNC110 - the server has no event for it
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_calls_are_answered_over_ipv4_and_ipv6(host: str) -> None:
    async def body(server: CoordinationServer, caller: Caller) -> None:
        await caller("Heartbeat", pb.HeartbeatRequest(incarnation=100, source_task_id=0))
        entry = pb.KeyValueEntry(key="a//b", value=b"\xff")
        await caller("InsertKeyValue", pb.InsertKeyValueRequest(kv=entry))
        got = await caller("GetKeyValue", pb.GetKeyValueRequest(key="a/b/"))
        assert (got.kv.key, got.kv.value) == ("a/b/", b"\xff")
        await caller("DeleteKeyValue", pb.DeleteKeyValueRequest(key="a"))
        alive = await caller(
            "GetAliveTasks", pb.GetAliveTasksRequest(requesting_task_id=0, task_ids=[0, 7])
        )
        assert (list(alive.alive_task_ids), list(alive.incarnations)) == ([0], [100])
        watched = await caller("WatchTasks", pb.WatchTasksRequest(version_number=-1))
        (task,) = watched.task_state
        assert (task.incarnation, task.state) == (100, pb.TaskState.CONNECTED)
        await caller("ShutdownTask", pb.ShutdownTaskRequest(source_task_id=0))

    serving(body, host=host)


def test_errors_carry_the_payloads_that_clients_look_for() -> None:
    async def body(server: CoordinationServer, caller: Caller) -> None:
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await caller("TryGetKeyValue", pb.TryGetKeyValueRequest(key="//none"))
        assert missing.value.code() is grpc.StatusCode.NOT_FOUND
        assert missing.value.details() == "Config key //none not found."
        assert payloads(missing.value) == {f"{PAYLOAD}CoordinationServiceError": b""}
        caller.who.service_incarnation += 1
        with pytest.raises(grpc.aio.AioRpcError) as wrong:
            await caller("TryGetKeyValue", pb.TryGetKeyValueRequest(key="k"))
        told = payloads(wrong.value)[f"{PAYLOAD}ServiceMismatchError"]
        mismatch = pb.ServiceMismatchError.FromString(told)
        assert mismatch.service_incarnation == server.incarnation

    serving(body)


def test_a_status_is_written_as_the_real_service_writes_it() -> None:
    status = Status(
        code=Code.INTERNAL,
        message="é" * 3000,
        service_error=ServiceError(reported=True, source_task=None),
        barrier_error=BarrierError("b", 3),
        wrong_service=WrongService(5),  # type: ignore[arg-type]
    )
    written = dict(pb.StatusPayloads.FromString(wire.status_payloads(status)).payloads)
    error = pb.CoordinationServiceError.FromString(written[f"{PAYLOAD}CoordinationServiceError"])
    barrier = pb.BarrierError.FromString(written[f"{PAYLOAD}BarrierError"])
    assert error.is_reported_error
    assert (barrier.barrier_id, barrier.counter) == ("b", 3)
    message = wire.status_message(status)
    assert message.endswith(" ... [truncated]")
    assert len(message.removesuffix(" ... [truncated]").encode()) <= wire.MESSAGE_BYTES_MAX


def test_messages_beyond_grpcs_usual_limit_pass_both_ways_compressed_or_not() -> None:
    value = bytes(40_000_000)

    async def body(server: CoordinationServer, caller: Caller) -> None:
        entry = pb.KeyValueEntry(key="big", value=value)
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            request = pb.InsertKeyValueRequest(kv=entry, allow_overwrite=True)
            await caller("InsertKeyValue", request, compression=compression)
        got = await caller("TryGetKeyValue", pb.TryGetKeyValueRequest(key="big"))
        assert got.kv.value == value

    serving(body)


@pytest.mark.parametrize("size", [20_000, 13_000_000])
def test_an_error_that_is_too_long_for_a_header_harms_nobody_else(size: int) -> None:
    """A barrier's id is in the payload of its errors, and a payload is in a header."""

    async def body(server: CoordinationServer, caller: Caller) -> None:
        request = pb.BarrierRequest(barrier_id="b" * size, barrier_timeout_in_ms=1)
        late = asyncio.ensure_future(caller("Barrier", request))
        ticking = asyncio.ensure_future(
            caller("Barrier", pb.BarrierRequest(barrier_id="short", barrier_timeout_in_ms=1500))
        )
        for call in (late, ticking):
            with pytest.raises(grpc.aio.AioRpcError):
                await call
        assert "short" in str(ticking.exception())

    serving(body, tasks=2)


def test_stopping_leaves_no_client_hanging() -> None:
    async def body(server: CoordinationServer, caller: Caller) -> list[grpc.StatusCode]:
        waiting = [
            asyncio.ensure_future(caller("GetKeyValue", pb.GetKeyValueRequest(key="never"))),
            asyncio.ensure_future(caller("PollForError", pb.PollForErrorRequest())),
            asyncio.ensure_future(caller("WatchTasks", pb.WatchTasksRequest(version_number=2))),
        ]
        await arrived(server, len(waiting))
        await server.stop()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        return [end.code() for end in ends if isinstance(end, grpc.aio.AioRpcError)]

    assert serving(body) == [grpc.StatusCode.UNAVAILABLE] * 3


def test_a_call_that_is_given_up_harms_nobody() -> None:
    async def body(server: CoordinationServer, caller: Caller) -> None:
        call = asyncio.ensure_future(caller("GetKeyValue", pb.GetKeyValueRequest(key="k")))
        await arrived(server, 1)
        call.cancel()
        entry = pb.KeyValueEntry(key="k", value=b"v")
        await caller("InsertKeyValue", pb.InsertKeyValueRequest(kv=entry))
        got = await caller("GetKeyValue", pb.GetKeyValueRequest(key="k"))
        assert got.kv.value == b"v"

    serving(body)


def test_an_unknown_method_is_unimplemented_and_rubbish_is_refused() -> None:
    async def body(server: CoordinationServer, caller: Caller) -> None:
        strange: Any = caller._channel.unary_unary(f"/{wire.SERVICE}/NoSuchMethod")
        with pytest.raises(grpc.aio.AioRpcError) as unknown:
            await strange(b"", timeout=20)
        assert unknown.value.code() is grpc.StatusCode.UNIMPLEMENTED
        rubbish: Any = caller._channel.unary_unary(f"/{wire.SERVICE}/Heartbeat")
        with pytest.raises(grpc.aio.AioRpcError):
            await rubbish(b"\xff\xff\xff\xff", timeout=20)
        await caller("Heartbeat", pb.HeartbeatRequest(incarnation=100))

    serving(body)


def test_a_port_in_use_is_not_shared() -> None:
    async def body(server: CoordinationServer, caller: Caller) -> None:
        other = CoordinationServer(ServiceConfig(tasks=1))
        port = other.bind("127.0.0.1", 0)
        await other.start()
        third = CoordinationServer(ServiceConfig(tasks=1))
        with pytest.raises(PortUnavailable, match="port 0 for a free one"):
            third.bind("127.0.0.1", port)
        await other.stop()

    serving(body)


def test_the_server_records_what_it_sees(tmp_path: Path) -> None:
    path = tmp_path / "server.jsonl"

    async def body(server: CoordinationServer, caller: Caller) -> None:
        await caller("GetAliveTasks", pb.GetAliveTasksRequest(task_ids=[0]))
        entry = pb.KeyValueEntry(key="k", value=b"v")
        await caller("InsertKeyValue", pb.InsertKeyValueRequest(kv=entry))
        with pytest.raises(grpc.aio.AioRpcError):
            await caller("InsertKeyValue", pb.InsertKeyValueRequest(kv=entry))

    serving(body, recording=RecordingFile(path))
    history = read(path)
    kinds = [type(event).__name__ for event in history.events]
    registered = ["Invoke", "Ok", "Start"]
    assert kinds == [*registered, "Invoke", "Ok", "Invoke", "Ok", "Invoke", "Fail"]
    assert isinstance(check(history), Valid)


def test_a_call_that_was_given_up_does_not_spoil_the_recording(tmp_path: Path) -> None:
    path = tmp_path / "server.jsonl"

    async def body(server: CoordinationServer, caller: Caller) -> None:
        request = pb.GetAliveTasksRequest(requesting_task_id=0, task_ids=[0, 1])
        call = asyncio.ensure_future(caller("GetAliveTasks", request))
        await arrived(server, 1)
        call.cancel()
        async with asyncio.timeout(20):
            while server._waiting:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.001)
        again = asyncio.ensure_future(caller("GetAliveTasks", request))
        await arrived(server, 1)
        caller.who.task_incarnation = 101
        await caller(
            "GetAliveTasks", pb.GetAliveTasksRequest(requesting_task_id=1, task_ids=[0, 1])
        )
        await again

    serving(body, tasks=2, recording=RecordingFile(path))
    history = read(path)
    assert [e.code for e in history.events if isinstance(e, Info)] == ["CANCELLED"]
    assert isinstance(check(history), Valid)


def test_a_disk_that_is_full_ends_the_recording_and_not_the_service() -> None:
    async def body(server: CoordinationServer, caller: Caller) -> None:
        for _ in range(3):
            await caller("GetAliveTasks", pb.GetAliveTasksRequest(task_ids=[0]))

    serving(body, recording=RecordingFile("/dev/full"))


# --- the command -----------------------------------------------------------------------------------


@contextlib.contextmanager
def serve(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A server, which does not outlive a test that fails."""
    command = [sys.executable, "-m", "coord_sim.cli.main", "serve", *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            yield server
        finally:
            server.kill()


def test_serve_announces_its_port_in_one_line_and_sigterm_ends_it_cleanly() -> None:
    with serve("--processes", "2", "--port", "0") as server:
        assert server.stdout is not None
        word, address, incarnation = server.stdout.readline().split()
        assert word == "ready"
        assert address.startswith("address=127.0.0.1:")
        assert int(incarnation.removeprefix("incarnation=")) > 0
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=30) == 0


def test_serve_says_when_the_port_is_in_use_and_keeps_an_old_recording(tmp_path: Path) -> None:
    with serve("--processes", "2") as server:
        assert server.stdout is not None
        port = server.stdout.readline().split()[1].rpartition(":")[2]
        kept = tmp_path / "kept.jsonl"
        kept.write_text("what was recorded before")
        with serve("--processes", "2", "--port", port, "--record", str(kept)) as other:
            _, problem = other.communicate(timeout=60)
            assert other.returncode == 2
            (line,) = problem.splitlines()
            assert line.startswith(f"coordlab: error: cannot bind 127.0.0.1:{port}")
            assert kept.read_text() == "what was recorded before"
        server.terminate()


@pytest.mark.jax
def test_jaxlibs_own_client_talks_to_the_server() -> None:
    """Two C++ clients in threads of one process: keys, a round, and leaving."""
    from jaxlib import _jax

    with serve("--processes", "2", "--recoverable") as server:
        assert server.stdout is not None
        address = server.stdout.readline().split()[1].partition("=")[2]
        clients = [
            _jax.get_distributed_runtime_client(
                address, task, init_timeout=60, use_compression=True
            )
            for task in range(2)
        ]
        told: dict[int, dict[int, int]] = {}

        def act(task: int) -> None:
            client = clients[task]
            client.connect()
            client.key_value_set(f"k/{task}", str(task))
            assert client.blocking_key_value_get(f"k/{1 - task}", 60_000) == str(1 - task)
            with pytest.raises(Exception, match="NOT_FOUND"):
                client.key_value_try_get("none")
            told[task] = client.get_live_nodes([0, 1])
            client.shutdown()

        threads = [threading.Thread(target=act, args=(task,)) for task in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=120)
        assert told[0] == told[1]
        assert set(told[0]) == {0, 1}
        server.terminate()


def test_the_face_of_the_server_is_as_shipped_unless_told_otherwise() -> None:
    assert ServiceConfig(tasks=1).semantics is SHIPPED
