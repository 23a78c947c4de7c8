"""Drives the core by gRPC and asyncio: feeds requests and time, carries out effects, decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import google.protobuf.message

from coord_sim.core.effects import BarrierEnded, Effect, Remember, Reply, RoundEnded, StateChanged
from coord_sim.core.identifiers import INCARNATION_BITS, NS_PER_S, CallId, Incarnation
from coord_sim.core.messages import AliveTasks, Answer, TaskState
from coord_sim.core.records import Record
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Code, Status
from coord_sim.core.survey import Survey
from coord_sim.recording.file import RecordingFile
from coord_sim.recording.service_recorder import ServiceRecorder
from coord_sim.server.grpc_connection import GrpcConnection, Rpc, connection_of
from coord_sim.server.http2 import Stream
from coord_sim.server.listening import BACKLOG, listen
from coord_sim.server.recorder import server_recorder
from coord_sim.server.state_file import StateFile
from coord_sim.server.tls_acceptor import TlsAcceptor
from coord_sim.tls import CurrentContext, PeerFiles
from coord_sim.wire import server_methods as wire

_log = logging.getLogger(__name__)

_STOP_GRACE_S = 1.0


class CoordinationServer:
    """One service on one address.

    Args:
      config: Of the service.
      state: Where it remembers what must outlive it, and what it goes on from; else it begins anew.
      tls: Certificates; else plain text.
      with_reports: Offer ReportErrorToService, which jaxlib 0.10 has not.
    """

    def __init__(
        self,
        config: ServiceConfig,
        *,
        state: StateFile | None = None,
        tls: PeerFiles | None = None,
        with_reports: bool = True,
    ) -> None:
        now_ns = time.monotonic_ns()
        if state is None:
            incarnation = int.from_bytes(os.urandom(INCARNATION_BITS // 8), "little")
            self._core = CoordinationService(config, Incarnation(incarnation), now_ns)
        else:
            self._core = CoordinationService.restore(
                config, state.incarnation, state.load(), now_ns
            )
        self.answers: Counter[tuple[str, Code]] = Counter()
        """Calls answered so far, by method and code."""
        self.failed: asyncio.Event = asyncio.Event()
        """Set when the server cannot go on: it could not remember what it would have acknowledged."""
        self._state = state
        self._tls = tls
        self._config = config
        self._recorder: ServiceRecorder | None = None
        self._sockets: list[socket.socket] = []
        self._listeners: list[asyncio.Server] = []
        self._connections: set[GrpcConnection] = set()
        self._all_closed = asyncio.Event()
        self._waiting: dict[CallId, tuple[Stream, wire.Method]] = {}
        self._calls = 0
        self._latest: tuple[AliveTasks | None, bytes] = (None, b"")
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopping = False
        self._unwritten: list[Record] = []
        self._held: list[Reply] = []
        self._tls_context: CurrentContext | None = None
        self._acceptors: set[TlsAcceptor] = set()
        self._rpcs: dict[bytes, Rpc] = {
            f"/{wire.SERVICE}/{method.name}".encode(): self._rpc(method)
            for method in wire.METHODS
            if with_reports or method.name != "ReportErrorToService"
        }

    @property
    def incarnation(self) -> int:
        """The service's own random number."""
        return self._core.incarnation

    @property
    def connections(self) -> int:
        """Clients that are connected now."""
        return len(self._connections)

    def survey(self) -> Survey:
        """What the service looks like now."""
        return self._core.survey(time.monotonic_ns())

    def add_rpcs(self, rpcs: Mapping[bytes, Rpc]) -> None:
        """Serves other methods too, by path; before `start`."""
        self._rpcs.update(rpcs)

    # --- life ----------------------------------------------------------------------------------

    def bind(self, host: str, port: int) -> int:
        """Takes an address.

        Args:
          host: Name or address to bind; IPv6 with or without brackets.
          port: 0 picks a free one.

        Returns:
          The port that is bound.

        Raises:
          PortUnavailable: the address is in use or not this host's.
          TlsError: the certificates cannot be used.
        """
        sockets = listen(host, port)
        try:
            self.adopt(sockets)
        finally:
            for each in sockets:
                each.close()
        return int(self._sockets[0].getsockname()[1])

    def adopt(self, sockets: Sequence[socket.socket]) -> None:
        """Takes sockets that listen already, instead of `bind`.

        Raises:
          TlsError: the certificates cannot be used.
        """
        if self._tls is not None:
            self._tls_context = CurrentContext(self._tls, ssl.PROTOCOL_TLS_SERVER)
        self._sockets = [each.dup() for each in sockets]

    async def start(self, recording: RecordingFile | None = None) -> None:
        """Begins to serve on the address that was bound.

        Args:
          recording: Takes every request and reply, if given; closed by `stop`.
        """
        assert self._sockets, "bind() comes first"
        if recording is not None:
            self._recorder = server_recorder(recording, self._config, self._core.incarnation)
            now_ns = time.monotonic_ns()
            for task in self.survey().tasks:
                if task.state is TaskState.CONNECTED:
                    self._recorder.resume(task.task, task.incarnation, now_ns)
        loop = asyncio.get_running_loop()
        accept: Callable[[], asyncio.BaseProtocol]
        accept = self._connection if self._tls is None else self._acceptor
        self._listeners = [
            await loop.create_server(accept, sock=each, backlog=BACKLOG) for each in self._sockets
        ]
        self._arm()

    async def stop(self) -> None:
        """Answers all waiting calls with UNAVAILABLE and closes; no client is left hanging."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for listener in self._listeners:
            listener.close()
        for each in self._sockets:
            each.close()
        self._release()
        self._carry_out(self._core.stop())
        for connection in list(self._connections):
            connection.go_away()
        if self._connections:
            self._all_closed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), _STOP_GRACE_S)
        for connection in list(self._connections):
            if connection.transport is not None:
                connection.transport.abort()
        for acceptor in list(self._acceptors):
            acceptor.abort()
        if self._recorder is not None:
            self._recorder.close(time.monotonic_ns())
        if self._state is not None:
            self._state.close()

    def _connection(self) -> GrpcConnection:
        return GrpcConnection(
            self._rpcs,
            on_cancel=self._hang_up,
            on_open=self._connections.add,
            on_close=self._closed,
        )

    def _acceptor(self) -> TlsAcceptor:
        assert self._tls is not None
        assert self._tls_context is not None
        return TlsAcceptor(
            self._tls_context(),
            self._tls.uri_prefix,
            self._connection,
            on_open=self._acceptors.add,
            on_close=self._acceptors.discard,
        )

    def _closed(self, connection: GrpcConnection) -> None:
        self._connections.discard(connection)
        if not self._connections:
            self._all_closed.set()

    # --- calls ---------------------------------------------------------------------------------

    def _rpc(self, method: wire.Method) -> Rpc:
        parse = method.request_type.FromString

        def serve(stream: Stream, message: bytes) -> None:
            try:
                request = method.to_core(parse(message))
            except google.protobuf.message.DecodeError:
                self._fail(stream, method, Code.INTERNAL, "the request is not the method's message")
                return
            call = CallId(self._calls)
            self._calls += 1
            self._waiting[call] = (stream, method)
            stream.call = call
            now_ns = time.monotonic_ns()
            if self._recorder is not None:
                self._recorder.request(call, request, now_ns)
            self._carry_out(self._core.handle(call, request, now_ns))

        return Rpc(serve)

    def _hang_up(self, stream: Stream) -> None:
        call = stream.call
        if self._waiting.pop(call, None) is not None:
            self._core.hang_up(call)
            if self._recorder is not None:
                self._recorder.hang_up(call, time.monotonic_ns())

    def _fail(self, stream: Stream, method: wire.Method, code: Code, message: str) -> None:
        self.answers[method.name, code] += 1
        connection_of(stream).fail(stream, code, message)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                if self._unwritten or self._held:
                    self._held.append(effect)
                else:
                    self._answer(effect)
            elif isinstance(effect, Remember):
                if not self._unwritten:
                    # One transaction for all that this turn of the loop brings.
                    asyncio.get_running_loop().call_soon(self._release)
                self._unwritten.append(effect.record)
            else:
                _tell(effect)

    def _release(self) -> None:
        """Writes what must be remembered, then sends the replies that waited for that."""
        if self.failed.is_set():
            return
        if self._unwritten and self._state is not None:
            try:
                self._state.write(self._unwritten)
            except OSError as error:
                _log.error("the state cannot be written, so the service ends: %s", error)
                self._held.clear()
                self.failed.set()
                return
        self._unwritten = []
        held, self._held = self._held, []
        for reply in held:
            self._answer(reply)

    def _answer(self, reply: Reply) -> None:
        waiting = self._waiting.pop(reply.call, None)
        if waiting is None:
            return
        stream, method = waiting
        answer: Answer = reply.answer
        if self._recorder is not None:
            self._recorder.reply(reply.call, answer, time.monotonic_ns())
        connection = connection_of(stream)
        if isinstance(answer, Status):
            self.answers[method.name, answer.code] += 1
            connection.fail(
                stream, answer.code, wire.status_message(answer), wire.status_payloads(answer)
            )
        else:
            self.answers[method.name, Code.OK] += 1
            connection.reply(stream, self._encoded(method, answer))

    def _encoded(self, method: wire.Method, answer: Answer) -> bytes:
        if not isinstance(answer, AliveTasks):
            return bytes(method.to_wire(answer).SerializeToString())
        if answer is not self._latest[0]:  # All callers of one round get one object.
            self._latest = (answer, method.to_wire(answer).SerializeToString())
        return self._latest[1]

    # --- time ----------------------------------------------------------------------------------

    def _arm(self) -> None:
        delay_s = (self._core.next_deadline_ns() - time.monotonic_ns()) / NS_PER_S
        self._timer = asyncio.get_running_loop().call_later(max(delay_s, 0.0), self._wake)

    def _wake(self) -> None:
        try:
            self._carry_out(self._core.advance(time.monotonic_ns()))
        finally:
            self._arm()  # Whatever went wrong with one reply, the service's clock goes on.


def _tell(effect: StateChanged | RoundEnded | BarrierEnded) -> None:
    """Logs what happened, with its numbers as fields of the record."""
    match effect:
        case StateChanged(task, incarnation, state, reason):
            _log.info(
                "task %d (incarnation %d) is %s%s",
                task,
                incarnation,
                state.name,
                "" if reason is None else f": {reason}",
                extra={
                    "event": "state",
                    "task": task,
                    "incarnation": incarnation,
                    "state": state.name,
                    "code": None if reason is None else reason.code.name,
                },
            )
        case RoundEnded(number, tasks, answer):
            _log.info(
                "round %d over tasks %s: %s",
                number,
                sorted(tasks),
                ", ".join(f"{task} (incarnation {inc})" for task, inc in answer.alive) or "nobody",
                extra={
                    "event": "round",
                    "round": number,
                    "tasks": sorted(tasks),
                    "live": dict(answer.alive),
                },
            )
        case BarrierEnded(barrier_id, counter, result):
            _log.info(
                "barrier %s::%d %s",
                barrier_id,
                counter,
                "passed" if result is None else f"failed: {result}",
                extra={
                    "event": "barrier",
                    "barrier": barrier_id,
                    "counter": counter,
                    "code": "OK" if result is None else result.code.name,
                },
            )
