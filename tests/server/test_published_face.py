"""What jaxlib's client sees of the published face: refusals that it takes for the service's own."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import grpc.aio
import pytest

from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import PUBLISHED
from coord_sim.core.service import ServiceConfig
from coord_sim.server.grpc_server import CoordinationServer
from coord_sim.wire import server_methods as wire
from coord_sim.wire._generated import coordination_service_pb2 as pb

pytestmark = pytest.mark.jax

CLIENT = """
import sys
from jaxlib import _jax
client = _jax.get_distributed_runtime_client(
    sys.argv[1], 0, init_timeout=60, heartbeat_timeout=int(sys.argv[2]), use_compression=True)
client.connect()
print("connected", flush=True)
for line in sys.stdin:
    try:
        print("value", eval(line), flush=True)
    except Exception as error:
        print(str(error).partition(":")[0], flush=True)
"""


class Client:
    """jaxlib's client of task 0, in a process that evaluates what it is told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def read(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def ask(self, expression: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{expression}\n".encode())
        return await self.read()

    async def end(self) -> tuple[int, str]:
        """Exit code and standard error, once it has ended itself: what it is told goes on till then."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        _, errors = await asyncio.gather(self.process.stdout.read(), self.process.stderr.read())
        return await self.process.wait(), errors.decode()


Body = Callable[[CoordinationServer, Client, Callable[[int], Coroutine[Any, Any, None]]], Any]


def job(body: Body, *, dismisses_polls: bool = False, heartbeat_timeout_s: int = 100) -> None:
    """Runs `body` with jaxlib's client as task 0, and a way to let task 0 restart as somebody else.

    The client's heartbeats are half of `heartbeat_timeout_s` apart.
    """

    async def run() -> None:
        config = ServiceConfig(
            tasks=1,
            recoverable=True,
            heartbeat_timeout_ns=seconds(heartbeat_timeout_s),
            semantics=PUBLISHED,
            dismisses_polls=dismisses_polls,
        )
        server = CoordinationServer(config)
        address = f"127.0.0.1:{server.bind('127.0.0.1', 0)}"
        await server.start()
        client = Client(
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", CLIENT, address, str(heartbeat_timeout_s)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        async with asyncio.timeout(90), grpc.aio.insecure_channel(address) as channel:
            register = channel.unary_unary(
                f"/{wire.SERVICE}/RegisterTask",
                request_serializer=pb.RegisterTaskRequest.SerializeToString,
                response_deserializer=pb.RegisterTaskResponse.FromString,
            )

            async def restart(incarnation: int) -> None:
                await register(pb.RegisterTaskRequest(incarnation=incarnation))

            try:
                assert await client.read() == "connected"
                await body(server, client, restart)
            finally:
                await server.stop()
                if client.process.returncode is None:
                    client.process.kill()
                    await client.process.communicate()

    asyncio.run(run())


def test_a_client_whose_task_restarted_is_told_by_its_poll_and_ends_itself() -> None:
    async def body(_: CoordinationServer, client: Client, restart: Any) -> None:
        await restart(7)
        code, errors = await client.end()
        assert code == -signal.SIGABRT
        assert "Task 0 has restarted as incarnation 7" in errors

    job(body)


def test_without_a_poll_it_is_refused_and_ends_itself_at_its_next_heartbeat() -> None:
    async def body(server: CoordinationServer, client: Client, restart: Any) -> None:
        assert await client.ask("client.key_value_set('k', 'v')") == "value None"
        await restart(7)
        refused = [
            "client.key_value_set('l', 'v')",
            "client.key_value_try_get('k')",
            "client.wait_at_barrier('b', 1000)",
            "client.get_live_nodes([0])",
        ]
        assert [await client.ask(each) for each in refused] == ["FAILED_PRECONDITION"] * 4
        code, errors = await client.end()
        assert code == -signal.SIGABRT
        assert "is not in the job" in errors
        (task,) = server.survey().tasks
        assert (task.incarnation, server.survey().keys) == (7, 1)

    # All that is asked must be asked before the next heartbeat.
    job(body, dismisses_polls=True, heartbeat_timeout_s=30)


def test_a_client_that_left_does_not_come_back_in_the_same_incarnation() -> None:
    async def body(_: CoordinationServer, client: Client, restart: Any) -> None:
        assert await client.ask("client.shutdown()") in ("value None", "value True")
        assert client.process.stdin is not None
        client.process.stdin.write(b"client.connect()\n")
        code, errors = await client.end()
        assert code == -signal.SIGABRT
        assert "is not in the job" in errors

    job(body)
