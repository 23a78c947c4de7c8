"""What stands between a client and a service: a gRPC proxy that misbehaves on demand, and a TCP relay.

With these, a scenario that needs a bad service is run against the real one and the model alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.conformance.outcome import PAYLOAD_PREFIX, STATUS_PAYLOADS_KEY

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


@dataclass(frozen=True, slots=True)
class Refuse:
    """The next call fails, without reaching the service."""

    code: grpc.StatusCode
    service_error: bool = False


@dataclass(frozen=True, slots=True)
class Delay:
    """The next call's answer is late."""

    by_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    """A request that came through."""

    method: str
    request: bytes
    time_s: float


class Interposer:
    """Passes all calls on to a service, except those it was told to spoil.

    Args:
      target: Address of the service.

    Attributes:
      seen: All requests so far.
    """

    def __init__(self, target: str) -> None:
        self.seen: list[Seen] = []
        self._rules: dict[str, deque[Refuse | Delay]] = {}
        self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        self._server = grpc.aio.server(options=_OPTIONS)
        self._server.add_generic_rpc_handlers((_Every(self),))

    async def start(self) -> str:
        """Begins to serve.

        Returns:
          HOST:PORT.
        """
        port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def stop(self) -> None:
        """Breaks all connections."""
        await self._server.stop(None)
        await self._channel.close()

    def spoil(self, method: str, rules: Iterable[Refuse | Delay]) -> None:
        """The next calls of a method are spoilt, one by each rule; later ones pass."""
        self._rules.setdefault(method, deque()).extend(rules)

    def requests(self, method: str) -> list[Seen]:
        """The requests of a method so far."""
        return [each for each in self.seen if each.method == method]

    async def serve(
        self, path: str, request: bytes, context: grpc.aio.ServicerContext[Any, Any]
    ) -> bytes:
        """Handles one call."""
        method = path.rpartition("/")[2]
        self.seen.append(Seen(method, request, time.monotonic()))
        rules = self._rules.get(method)
        rule = rules.popleft() if rules else None
        if isinstance(rule, Refuse):
            metadata: tuple[tuple[str, bytes], ...] = ()
            if rule.service_error:
                payloads = {f"{PAYLOAD_PREFIX}CoordinationServiceError": b""}
                written = pb.StatusPayloads(payloads=payloads).SerializeToString()
                metadata = ((STATUS_PAYLOADS_KEY, written),)
            await context.abort(rule.code, "refused on the way", trailing_metadata=metadata)
        try:
            stub: Any = self._channel.unary_unary(path)
            answer: bytes = await stub(request)
        except grpc.aio.AioRpcError as error:
            metadata = tuple(
                (key, value)
                for key, value in error.trailing_metadata() or ()
                if key == STATUS_PAYLOADS_KEY and isinstance(value, bytes)
            )
            await context.abort(error.code(), error.details() or "", trailing_metadata=metadata)
        if isinstance(rule, Delay):
            await asyncio.sleep(rule.by_s)
        return answer


class _Every(grpc.GenericRpcHandler):
    """Handles every method with bytes."""

    def __init__(self, interposer: Interposer) -> None:
        self._interposer = interposer

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any]:
        path = handler_call_details.method

        async def behaviour(request: bytes, context: Any) -> bytes:
            return await self._interposer.serve(path, request, context)

        handler: Any = behaviour
        return grpc.unary_unary_rpc_method_handler(handler)


class Relay:
    """Passes bytes on, and counts them.

    Args:
      target: Address of the service.

    Attributes:
      sent: Bytes from the client.
      received: Bytes to the client.
    """

    def __init__(self, target: str) -> None:
        self.sent = 0
        self.received = 0
        self._target = target.rpartition(":")

    async def start(self) -> str:
        """Begins to listen.

        Returns:
          HOST:PORT.
        """
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stops to listen."""
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self._target
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        upwards = asyncio.create_task(self._pass_on(reader, to_writer, "sent"))
        await self._pass_on(to_reader, writer, "received")
        await upwards

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counter: str
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                setattr(self, counter, getattr(self, counter) + len(chunk))
                writer.write(chunk)
                await writer.drain()
        writer.close()
