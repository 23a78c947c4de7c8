"""Our Python client against our server; against jaxlib's service it is in the conformance catalogue."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from coord_sim import client as blocking
from coord_sim.client.aio import DistributedRuntimeClient
from coord_sim.core.identifiers import seconds
from coord_sim.core.messages import TaskState
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import Code
from coord_sim.errors import ServiceError
from coord_sim.server.grpc_server import CoordinationServer

Body = Callable[[list[DistributedRuntimeClient]], Coroutine[Any, Any, None]]


def job(body: Body, *, tasks: int = 2, connect: bool = True, **config: Any) -> None:
    """Runs `body` with a client for each task of a job of its own."""

    async def run() -> None:
        settings = {"recoverable": True, "heartbeat_timeout_ns": seconds(60), **config}
        server = CoordinationServer(ServiceConfig(tasks=tasks, **settings))
        port = server.bind("127.0.0.1", 0)
        await server.start()
        clients = [
            DistributedRuntimeClient(f"127.0.0.1:{port}", task, use_compression=bool(task))
            for task in range(tasks)
        ]
        try:
            async with asyncio.timeout(60):
                if connect:
                    await asyncio.gather(*(client.connect() for client in clients))
                await body(clients)
        finally:
            for client in clients:
                await client.close()
            await server.stop()

    asyncio.run(run())


async def fails(work: Awaitable[Any], code: Code, text: str | None = None) -> ServiceError:
    with pytest.raises(ServiceError, match=text) as caught:
        await work
    assert caught.value.status.code is code
    return caught.value


def test_keys() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        a, b = clients
        waiting = asyncio.ensure_future(b.blocking_key_value_get("x/1", 30_000))
        await a.key_value_set("x/1", "one")
        assert await waiting == "one"
        await fails(b.key_value_set("x/1", "two"), Code.ALREADY_EXISTS)
        await b.key_value_set("x/1", "two", allow_overwrite=True)
        await b.key_value_set_bytes("x/2", b"\xff" * 100_000)
        assert await a.key_value_try_get("x/1") == "two"
        assert await a.key_value_try_get_bytes("x/2") == b"\xff" * 100_000
        assert await a.key_value_dir_get_bytes("x") == [("x/1", b"two"), ("x/2", b"\xff" * 100_000)]
        assert await a.key_value_increment("n", 5) == 5
        assert await b.key_value_increment("n", -8) == -3
        await a.key_value_delete("x")
        assert await a.key_value_dir_get("x") == []
        await fails(a.key_value_try_get("x/1"), Code.NOT_FOUND, "Config key x/1 not found")

    job(body)


@pytest.mark.parametrize("timeout_ms", [200, 0, -1])
def test_a_get_waits_no_longer_than_it_is_told(timeout_ms: int) -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        text = rf"timed out with key: none and duration: {timeout_ms}ms"
        get = clients[0].blocking_key_value_get("none", timeout_ms)
        await fails(get, Code.DEADLINE_EXCEEDED, text)

    job(body, tasks=1)


def test_barriers_count_and_errors_keep_the_count() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        a, b = clients
        for _ in range(3):
            await asyncio.gather(*(each.wait_at_barrier("b", 30_000) for each in clients))
        await fails(a.wait_at_barrier("b", 1), Code.DEADLINE_EXCEEDED, "1/2")
        await fails(b.wait_at_barrier("b", 1), Code.DEADLINE_EXCEEDED, "1/2")
        await asyncio.gather(*(each.wait_at_barrier("b", 30_000) for each in clients))
        await a.wait_at_barrier("mine", 1000, [0])
        waiting = asyncio.ensure_future(a.wait_at_barrier("c", 30_000))
        await asyncio.sleep(0)
        await fails(a.wait_at_barrier("c", 30_000), Code.FAILED_PRECONDITION, "already ongoing")
        while not waiting.done():
            try:
                await b.cancel_barrier("c")
            except ServiceError:
                break
            await asyncio.sleep(0.01)
        with pytest.raises(ServiceError):
            await waiting

    job(body)


def test_the_live_set_is_the_same_for_all() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        told = await asyncio.gather(*(each.get_live_nodes([0, 1]) for each in clients))
        assert told[0] == told[1] == {each.task: each.incarnation for each in clients}
        await fails(clients[0].get_live_nodes([1]), Code.INVALID_ARGUMENT)

    job(body)


def test_a_job_may_be_left_once_and_joined_again_in_the_same_incarnation() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        (a,) = clients
        waiting = asyncio.ensure_future(a.blocking_key_value_get("none", 30_000))
        await asyncio.sleep(0)
        await a.shutdown()
        await fails(waiting, Code.CANCELLED)
        await a.shutdown()
        await a.connect()
        assert await a.get_live_nodes([0]) == {0: a.incarnation}
        await fails(a.blocking_key_value_get("none", 100), Code.CANCELLED)
        await fails(a.connect(), Code.FAILED_PRECONDITION)

    job(body, tasks=1)


def test_before_it_is_connected_a_client_is_refused_for_good() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        error = await fails(clients[0].key_value_try_get("k"), Code.INTERNAL, "wrong service")
        assert error.status.wrong_service is not None
        await fails(clients[0].key_value_set("k", "v"), Code.INTERNAL, "wrong service")

    job(body, tasks=1, connect=False)


def test_an_error_of_the_job_ends_every_client_and_every_call() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        a, b = clients
        waiting = asyncio.ensure_future(a.blocking_key_value_get("none", 30_000))
        await b.report_error(9, "boom")
        await fails(waiting, Code.FAILED_PRECONDITION, "boom")
        await fails(a.key_value_try_get("k"), Code.FAILED_PRECONDITION, "boom")

    job(body, recoverable=False)


def test_tasks_can_be_watched() -> None:
    async def body(clients: list[DistributedRuntimeClient]) -> None:
        a, b = clients
        now = await a.watch_tasks()
        waiting = asyncio.ensure_future(a.watch_tasks(now.version))
        await b.shutdown()
        then = await waiting
        assert then.version > now.version
        assert [task.state for task in then.tasks] == [TaskState.CONNECTED, TaskState.DISCONNECTED]

    job(body)


def test_a_client_is_told_that_nobody_serves() -> None:
    async def run() -> None:
        told: list[ServiceError] = []
        client = DistributedRuntimeClient("127.0.0.1:9", 0, init_timeout=-4.0, on_fatal=told.append)
        error = await fails(client.connect(), Code.DEADLINE_EXCEEDED)
        assert told == [error]
        await client.close()

    asyncio.run(run())


def test_the_blocking_client_serves_many_threads() -> None:
    async def body(_: list[DistributedRuntimeClient]) -> None:
        address = _[0]._address
        results: dict[int, dict[int, int]] = {}

        def act(task: int) -> None:
            with blocking.DistributedRuntimeClient(address, task) as client:
                client.connect()
                client.key_value_set(f"k/{task}", str(task))
                assert client.blocking_key_value_get(f"k/{1 - task}", 30_000) == str(1 - task)
                client.wait_at_barrier("b", 30_000)
                assert client.key_value_dir_get("k") == [("k/0", "0"), ("k/1", "1")]
                with pytest.raises(ServiceError, match="NOT_FOUND"):
                    client.key_value_try_get("none")
                results[task] = client.get_live_nodes([0, 1])
            with pytest.raises(RuntimeError, match="closed"):
                client.connect()

        threads = [threading.Thread(target=act, args=(task,)) for task in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        assert results[0] == results[1]

    job(body, connect=False)


def test_the_blocking_client_has_jaxlibs_method_names() -> None:
    names = set(dir(blocking.DistributedRuntimeClient))
    assert names >= {
        "blocking_key_value_get",
        "blocking_key_value_get_bytes",
        "connect",
        "get_live_nodes",
        "key_value_delete",
        "key_value_dir_get",
        "key_value_dir_get_bytes",
        "key_value_increment",
        "key_value_set",
        "key_value_set_bytes",
        "key_value_try_get",
        "key_value_try_get_bytes",
        "shutdown",
        "wait_at_barrier",
    }


@pytest.mark.jax
def test_no_method_of_jaxlibs_client_is_missing() -> None:
    from jaxlib import _jax

    theirs = {name for name in dir(_jax.DistributedRuntimeClient) if not name.startswith("_")}
    assert theirs <= set(dir(blocking.DistributedRuntimeClient))
