"""Drives the core by gRPC and asyncio: feeds requests and time, carries out effects, decides nothing."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from coord_sim.core.effects import Effect, Reply, StateChanged
from coord_sim.core.identifiers import INCARNATION_BITS, NS_PER_S, CallId, Incarnation
from coord_sim.core.messages import Answer
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Status
from coord_sim.server import wire
from coord_sim.server.recorder import ServerRecorder

_log = logging.getLogger(__name__)

_OPTIONS = (
    # The real service lifts gRPC's limit of 4 MB both ways (design note, section 1.1).
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Else a port that is in use would be shared silently, and clients split between two services.
    ("grpc.so_reuseport", 0),
)
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_STOP_GRACE_S = 1.0


class PortUnavailable(OSError):
    """The address cannot be bound."""


class CoordinationServer:
    """One service on one address.

    Args:
      config: Of the service.
    """

    def __init__(self, config: ServiceConfig) -> None:
        incarnation = int.from_bytes(os.urandom(INCARNATION_BITS // 8), "little")
        self._core = CoordinationService(config, Incarnation(incarnation), time.monotonic_ns())
        self._recorder: ServerRecorder | None = None
        self._server: grpc.aio.Server | None = None
        self._waiting: dict[CallId, asyncio.Future[Answer]] = {}
        self._calls = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopping = False

    @property
    def incarnation(self) -> int:
        """The service's own random number."""
        return self._core.incarnation

    def bind(self, host: str, port: int) -> int:
        """Takes an address.

        Args:
          host: Name or address to bind; IPv6 with or without brackets.
          port: 0 picks a free one.

        Returns:
          The port that is bound.

        Raises:
          PortUnavailable: the address is in use or not this host's.
        """
        bare = host.strip("[]")
        address = f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"
        self._server = grpc.aio.server(options=_OPTIONS)
        handlers = {method.name: self._handler(method) for method in wire.METHODS}
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(wire.SERVICE, handlers),)
        )
        try:
            bound = self._server.add_insecure_port(address)
        except RuntimeError:
            bound = 0
        if bound == 0:
            raise PortUnavailable(
                f"cannot bind {address}: the port is in use, or the host is not this machine's; "
                "choose another, or port 0 for a free one"
            )
        return bound

    async def start(self, recorder: ServerRecorder | None = None) -> None:
        """Begins to serve on the address that was bound.

        Args:
          recorder: Told of every request and reply, if given.
        """
        assert self._server is not None, "bind() comes first"
        self._recorder = recorder
        await self._server.start()
        self._arm()

    async def stop(self) -> None:
        """Answers all waiting calls with UNAVAILABLE and closes; no client is left hanging."""
        if self._timer is not None:
            self._timer.cancel()
        self._stopping = True
        self._carry_out(self._core.stop())
        if self._server is not None:
            await self._server.stop(_STOP_GRACE_S)
        if self._recorder is not None:
            self._recorder.close()

    def _handler(self, method: wire.Method) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.unary_unary_rpc_method_handler(
            self._behaviour(method),
            request_deserializer=method.request_type.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _behaviour(self, method: wire.Method) -> Callable[[Any, Any], Awaitable[Any]]:
        async def serve(message: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            call = CallId(self._calls)
            self._calls += 1
            reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._waiting[call] = reply
            request = method.to_core(message)
            if self._recorder is not None:
                self._recorder.request(call, request)
            self._carry_out(self._core.handle(call, request, time.monotonic_ns()))
            if self._stopping:
                self._carry_out(self._core.stop())  # It would wait for nothing.
            try:
                answer = await reply
            except asyncio.CancelledError:
                self._core.hang_up(call)
                if self._recorder is not None:
                    self._recorder.hang_up(call)
                raise
            finally:
                self._waiting.pop(call, None)
            if isinstance(answer, Status):
                payloads = wire.status_payloads(answer)
                metadata = ((wire.STATUS_PAYLOADS_KEY, payloads),) if payloads else ()
                await context.abort(
                    _CODES[answer.code], wire.status_message(answer), trailing_metadata=metadata
                )
            return method.to_wire(answer)

        return serve

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, StateChanged):
                _log.info(
                    "task %d (incarnation %d) is %s%s",
                    effect.task,
                    effect.incarnation,
                    effect.state.name,
                    "" if effect.reason is None else f": {effect.reason}",
                )
            if not isinstance(effect, Reply):
                continue
            waiting = self._waiting.pop(effect.call, None)
            if waiting is not None and not waiting.done():
                if self._recorder is not None:
                    self._recorder.reply(effect.call, effect.answer)
                waiting.set_result(effect.answer)

    def _arm(self) -> None:
        delay_s = (self._core.next_deadline_ns() - time.monotonic_ns()) / NS_PER_S
        self._timer = asyncio.get_running_loop().call_later(max(delay_s, 0.0), self._wake)

    def _wake(self) -> None:
        self._carry_out(self._core.advance(time.monotonic_ns()))
        self._arm()
