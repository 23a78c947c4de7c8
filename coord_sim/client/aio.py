"""The asyncio client: drives the core's client machine by gRPC.

It differs from jaxlib's client where a Python program wants it to: a fatal error ends the client and not
the process, and with `outage_timeout` it lives through a coordinator that is killed and restarted.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from coord_sim.core.client import CoordinationClient
from coord_sim.core.effects import ClientEffect, Connected, Fatal, Send
from coord_sim.core.identifiers import (
    INCARNATION_BITS,
    NS_PER_S,
    CallId,
    Incarnation,
    TaskId,
    seconds,
)
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Barrier,
    Caller,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    Heartbeat,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.status import Code, Status
from coord_sim.errors import ServiceError
from coord_sim.tls import PeerFiles, TlsError, TlsRelay, speaks_tls
from coord_sim.wire.client_methods import client_method, read_status
from coord_sim.wire.server_methods import SERVICE, STATUS_PAYLOADS_KEY

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A restarted coordinator is found again within a second.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Its name misleads: what one attempt may take, TLS included. One that fails sooner is not delayed.
    ("grpc.min_reconnect_backoff_ms", 5000),
)
_GRACE_S = 5.0
"""What the real client adds to the time-outs of its registration and of its leaving."""
_OUTAGE_PAUSE_S = 0.2
_TLS_PROBE_PAUSE_S = 0.2
_SAFE_TO_REPEAT = GetKeyValue | TryGetKeyValue | GetKeyValueDir | WatchTasks | Barrier
"""Calls that change nothing, or nothing twice. A repeated write could undo somebody else's."""
_ENDED_BY_SHUTDOWN = GetKeyValue | Barrier

_A = TypeVar("_A", bound=Answer)


class DistributedRuntimeClient:
    """A client of one task. Its methods are those of jaxlib's class of this name.

    All of them raise `coord_sim.errors.ServiceError`, whose `status` has code, message and payloads;
    the first one to open a connection may raise `coord_sim.tls.TlsError`.

    Args:
      address: `host:port`, `[v6]:port`, or whatever gRPC resolves.
      node_id: The task's number.
      init_timeout: Seconds to try to register (5 s more, as jaxlib does).
      heartbeat_timeout: Seconds; a heartbeat is sent every half of it.
      shutdown_timeout: Seconds to wait for the others when leaving (5 s more).
      use_compression: Compress requests with gzip.
      outage_timeout: Seconds without a service that the client lives through. While it lasts, calls that
        may safely be repeated wait, and are repeated; the others raise UNAVAILABLE, and whether they had
        an effect is not known. 0: as jaxlib, a broken connection is fatal.
      mtls_cert_file: PEM certificate chain of this client; with key and CA it speaks TLS.
      mtls_key_file: Its private key.
      mtls_ca_file: Certificates that may have signed the server's.
      mtls_peer_uri_prefix: If given, a URI of the server's certificate must begin with it, and its host
        name is not looked at. Ends in `/`.
      incarnation: Drawn at random unless given.
      on_fatal: Called once when the client ends by an error; by default nothing, and every later call
        raises that error.
    """

    def __init__(
        self,
        address: str,
        node_id: int,
        *,
        init_timeout: float = 300.0,
        heartbeat_timeout: float = 100.0,
        shutdown_timeout: float = 300.0,
        use_compression: bool = False,
        outage_timeout: float = 0.0,
        mtls_cert_file: str = "",
        mtls_key_file: str = "",
        mtls_ca_file: str = "",
        mtls_peer_uri_prefix: str = "",
        incarnation: int | None = None,
        on_fatal: Callable[[ServiceError], None] | None = None,
    ) -> None:
        if heartbeat_timeout <= 0:
            raise ValueError(f"heartbeat_timeout must be positive, found {heartbeat_timeout}")
        self.task = TaskId(node_id)
        drawn = int.from_bytes(os.urandom(INCARNATION_BITS // 8), "little")
        self.incarnation = Incarnation(drawn if incarnation is None else incarnation)
        self._address = address
        self._init_timeout = init_timeout
        self._heartbeat_timeout = heartbeat_timeout
        self._shutdown_timeout = shutdown_timeout
        self._outage_timeout = outage_timeout
        self._compression = grpc.Compression.Gzip if use_compression else None
        self._files = PeerFiles.given(
            mtls_cert_file, mtls_key_file, mtls_ca_file, mtls_peer_uri_prefix
        )
        self._on_fatal = on_fatal
        self._channel: grpc.aio.Channel | None = None
        self._relay: TlsRelay | None = None
        self._opening = asyncio.Lock()
        self._stubs: dict[str, Any] = {}
        self._calls = 0
        self._machine = self._new_machine()
        self._former: Caller | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Future[None] | None = None
        self._fatal: ServiceError | None = None
        self._is_shut_down = False
        self._own: set[asyncio.Task[None]] = set()
        self._in_flight: dict[Any, Request] = {}
        self._cut_short: set[Any] = set()

    # --- life ----------------------------------------------------------------------------------

    async def connect(self) -> None:
        """Registers the task, which waits until all tasks of the job have registered."""
        if self._connecting is not None:
            raise _local(Code.FAILED_PRECONDITION, "the client is connected, or about to be")
        await self._open_channel()
        self._connecting = asyncio.get_running_loop().create_future()
        if self._files is None:
            self._start(self._look_for_tls())
        if self._outage_timeout > 0:
            self._start(self._look_for_outages())
        self._carry_out(self._machine.connect(time.monotonic_ns()))
        await self._connecting

    async def shutdown(self) -> None:
        """Leaves the job. Nothing happens if the client is not connected."""
        if self._machine.caller is None or self._fatal is not None:
            return
        request = ShutdownTask(caller=self._machine.caller, task=self.task)
        self._is_shut_down = True
        self._machine.leave()
        for call, waiting in list(self._in_flight.items()):
            if isinstance(waiting, _ENDED_BY_SHUTDOWN):
                self._cut(call)
        for task in self._own:
            task.cancel()
        await self._send_shutdown(request)
        self._former = self._machine.caller
        self._machine = self._new_machine()  # It may connect again, in the same incarnation.
        self._connecting = None

    async def _send_shutdown(self, request: ShutdownTask) -> None:
        give_up_s = time.monotonic() + self._outage_timeout
        is_repeated = False
        while True:
            try:
                await self._send(request, timeout_s=self._shutdown_timeout + _GRACE_S)
            except ServiceError as error:
                if _is_lost(error.status) and time.monotonic() < give_up_s:
                    is_repeated = True
                    await asyncio.sleep(_OUTAGE_PAUSE_S)
                    continue
                if is_repeated and error.status.code is Code.FAILED_PRECONDITION:
                    return  # The lost call had been served.
                self._fail(error)
                raise
            return

    async def close(self) -> None:
        """Ends all calls and the connection, without a word to the service."""
        self._machine.leave()
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self._in_flight):
            self._cut(call)
        own = list(self._own)
        for task in own:
            task.cancel()
        await asyncio.gather(*own, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
        if self._relay is not None:
            await self._relay.stop()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ServiceError):
            await self.shutdown()
        await self.close()

    # --- key-value store -----------------------------------------------------------------------

    async def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Stores a text; ALREADY_EXISTS if the key has a value and may not be overwritten."""
        await self.key_value_set_bytes(key, value.encode(), allow_overwrite)

    async def key_value_set_bytes(
        self, key: str, value: bytes, allow_overwrite: bool = False
    ) -> None:
        """Stores bytes."""
        await self._ask(
            InsertKeyValue(
                caller=self._caller, key=key, value=value, allow_overwrite=allow_overwrite
            )
        )

    async def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Waits for a text; DEADLINE_EXCEEDED after `timeout_in_ms`."""
        return (await self.blocking_key_value_get_bytes(key, timeout_in_ms)).decode()

    async def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Waits for bytes."""
        late = _local(
            Code.DEADLINE_EXCEEDED,
            f"GetKeyValue() timed out with key: {key} and duration: {timeout_in_ms}ms",
        )
        if self._is_shut_down:
            raise _local(Code.CANCELLED, "the client has shut down")
        if timeout_in_ms <= 0:
            raise late
        request = GetKeyValue(caller=self._caller, key=key)
        try:
            answer = await self._ask(request, timeout_s=timeout_in_ms / 1000)
        except ServiceError as error:
            if error.status.code is Code.DEADLINE_EXCEEDED and error.status.service_error is None:
                raise late from None
            raise
        return _expect(KeyValue, answer).value

    async def key_value_try_get(self, key: str) -> str:
        """The text of a key; NOT_FOUND if it has no value."""
        return (await self.key_value_try_get_bytes(key)).decode()

    async def key_value_try_get_bytes(self, key: str) -> bytes:
        """The bytes of a key."""
        answer = await self._ask(TryGetKeyValue(caller=self._caller, key=key))
        return _expect(KeyValue, answer).value

    async def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys under a directory, with their texts, ascending."""
        return [(each, value.decode()) for each, value in await self.key_value_dir_get_bytes(key)]

    async def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """All keys under a directory, with their bytes, ascending."""
        answer = await self._ask(GetKeyValueDir(caller=self._caller, directory=key))
        return list(_expect(KeyValueDirectory, answer).entries)

    async def key_value_increment(self, key: str, increment: int) -> int:
        """Adds to a number that is stored as text; the sum."""
        request = IncrementKeyValue(caller=self._caller, key=key, increment=increment)
        return int(_expect(KeyValue, await self._ask(request)).value)

    async def key_value_delete(self, key: str) -> None:
        """Removes a key and all keys under it."""
        await self._ask(DeleteKeyValue(caller=self._caller, key=key))

    # --- barriers, rounds, errors --------------------------------------------------------------

    async def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Iterable[int] | None = None
    ) -> None:
        """Waits for the other participants: `process_ids`, or all tasks."""
        if self._is_shut_down:
            raise _local(Code.CANCELLED, "the client has shut down")
        counter = self._machine.enter_barrier(barrier_id)
        if isinstance(counter, Status):
            raise ServiceError(counter)
        answer: Answer | None = None
        try:
            answer = await self._ask(
                Barrier(
                    caller=self._caller,
                    barrier_id=barrier_id,
                    timeout_ms=timeout_in_ms,
                    tasks=_tasks(process_ids or ()),
                    task=self.task,
                    counter=counter,
                )
            )
        except ServiceError as error:
            answer = error.status
            raise
        finally:
            self._machine.leave_barrier(barrier_id, answer)

    async def cancel_barrier(self, barrier_id: str) -> None:
        """Ends the first use of a barrier for all who wait; jaxlib has no Python name for it."""
        await self._ask(
            CancelBarrier(caller=self._caller, barrier_id=barrier_id, counter=0, task=self.task)
        )

    async def get_live_nodes(self, process_ids: Iterable[int]) -> dict[int, int]:
        """The `live_processes` barrier: which of the processes are alive, with their incarnations."""
        request = GetAliveTasks(caller=self._caller, task=self.task, tasks=_tasks(process_ids))
        return dict(_expect(AliveTasks, await self._ask(request)).alive)

    async def report_error(self, code: int, message: str) -> None:
        """Puts this task in error, which without recoverability ends the job (jaxlib 0.11 on)."""
        await self._ask(
            ReportErrorToService(caller=self._caller, task=self.task, code=code, message=message)
        )

    async def watch_tasks(self, version: int = -1) -> TasksWatched:
        """States and incarnations of all tasks, once their version differs from `version`."""
        answer = await self._ask(WatchTasks(caller=self._caller, version=version))
        return _expect(TasksWatched, answer)

    # --- calls ---------------------------------------------------------------------------------

    @property
    def _caller(self) -> Caller:
        # Before it is connected the real client sends 0 too, which the service refuses; after it has
        # shut down it goes on naming the service that it left.
        return self._machine.caller or self._former or Caller(self.incarnation, Incarnation(0))

    async def _ask(self, request: Request, timeout_s: float | None = None) -> Answer:
        """Sends a request of the program, again if it was lost in an outage and may be repeated."""
        give_up_s = math.inf if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = None if timeout_s is None else max(give_up_s - time.monotonic(), 0.0)
            try:
                return await self._send(request, timeout_s=left_s)
            except ServiceError as error:
                is_safe = isinstance(request, _SAFE_TO_REPEAT)
                is_over = self._outage_timeout == 0 or self._fatal is not None
                if is_over or not is_safe or not _is_lost(error.status):
                    raise
            await asyncio.sleep(_OUTAGE_PAUSE_S)

    async def _send(self, request: Request, timeout_s: float | None = None) -> Answer:
        if self._fatal is not None:
            raise self._fatal
        answer = await self._exchange(request, timeout_s)
        if isinstance(answer, Status):
            error = ServiceError(answer)
            if self._machine.is_fatal(answer):
                self._fail(error)
            raise error
        return answer

    async def _exchange(self, request: Request, timeout_s: float | None) -> Answer:
        """One attempt of one RPC."""
        method = client_method(request)
        stub = await self._stub(method.name, method.response_type)
        # Heartbeats must not wait for a connection: they tell how long an outage lasts.
        waits = self._outage_timeout > 0 and not isinstance(request, Heartbeat)
        waits = waits or isinstance(request, RegisterTask)
        call = stub(
            method.to_wire(request),
            timeout=timeout_s,
            wait_for_ready=waits,
            compression=self._compression,
        )
        self._in_flight[call] = request
        try:
            return method.to_core(await call)
        except grpc.aio.AioRpcError as error:
            payloads = b""
            for key, value in error.trailing_metadata() or ():
                if key == STATUS_PAYLOADS_KEY and isinstance(value, bytes):
                    payloads = value
            return read_status(error.code().value[0], error.details() or "", payloads)
        except asyncio.CancelledError:
            if call not in self._cut_short:
                raise
            if self._fatal is not None:
                raise self._fatal from None
            return Status(
                code=Code.CANCELLED, message="the client has shut down", service_error=None
            )
        finally:
            del self._in_flight[call]
            self._cut_short.discard(call)

    async def _stub(self, name: str, response_type: Any) -> Any:
        stub = self._stubs.get(name)
        if stub is None:
            channel = await self._open_channel()
            stub = self._stubs[name] = channel.unary_unary(
                f"/{SERVICE}/{name}",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response_type.FromString,
            )
        return stub

    async def _open_channel(self) -> grpc.aio.Channel:
        async with self._opening:
            if self._channel is None:
                target = self._address
                if self._files is not None:
                    self._relay = TlsRelay(self._address, self._files, self._refused)
                    target = await self._relay.start()
                self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
            return self._channel

    def _refused(self, error: TlsError) -> None:
        """One side refuses the other: no attempt will go better."""
        self._fail(_local(Code.UNAUTHENTICATED, str(error)))

    def _cut(self, call: Any) -> None:
        self._cut_short.add(call)
        call.cancel()

    # --- the machine ---------------------------------------------------------------------------

    def _new_machine(self) -> CoordinationClient:
        def new_call() -> CallId:
            self._calls += 1
            return CallId(self._calls)

        return CoordinationClient(
            self.task,
            self.incarnation,
            heartbeat_timeout_ns=seconds(self._heartbeat_timeout),
            init_timeout_ns=seconds(self._init_timeout),
            new_call=new_call,
            outage_ns=seconds(self._outage_timeout),
        )

    def _carry_out(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(call, request):
                    self._start(self._send_own(call, request))
                case Connected():
                    if self._connecting is not None and not self._connecting.done():
                        self._connecting.set_result(None)
                case Fatal(reason):
                    self._fail(ServiceError(reason))
                    return
        self._arm()

    async def _send_own(self, call: CallId, request: Request) -> None:
        timeout_s = None
        if isinstance(request, Heartbeat):
            timeout_s = self._heartbeat_timeout / 2
        elif isinstance(request, RegisterTask):
            timeout_s = self._init_timeout + _GRACE_S
        try:
            answer = await self._exchange(request, timeout_s)
        except ServiceError:
            return  # The client has ended, and its program was told.
        self._carry_out(self._machine.receive(call, answer, time.monotonic_ns()))

    async def _look_for_tls(self) -> None:
        """Ends a client without certificates whose server wants them: that server tells it nothing."""
        channel = await self._open_channel()
        state = grpc.ChannelConnectivity.IDLE
        while state is not grpc.ChannelConnectivity.READY and self._fatal is None:
            await asyncio.sleep(_TLS_PROBE_PAUSE_S)
            state = channel.get_state()
            has_failed = state is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            if has_failed and await speaks_tls(self._address):
                self._refused(
                    TlsError(
                        f"the server at {self._address} wants TLS: give certificate, key and CA files"
                    )
                )

    async def _look_for_outages(self) -> None:
        """Has every change of the connection looked into at once.

        No call may be under way that would tell of a loss: a restarted coordinator dismisses error
        polls, and heartbeats may be minutes apart.
        """
        channel = await self._open_channel()
        while True:
            await channel.wait_for_state_change(channel.get_state())
            self._carry_out(self._machine.doubt(time.monotonic_ns()))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._own.add(task)
        task.add_done_callback(self._own.discard)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ns = self._machine.next_deadline_ns()
        if deadline_ns is not None:
            delay_s = max(deadline_ns - time.monotonic_ns(), 0) / NS_PER_S
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._wake)

    def _wake(self) -> None:
        self._carry_out(self._machine.advance(time.monotonic_ns()))

    def _fail(self, error: ServiceError) -> None:
        """The client ends: every call of the program fails, now and later, with this error."""
        if self._fatal is not None:
            return
        self._fatal = error
        self._machine.leave()
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self._in_flight):
            self._cut(call)
        if self._connecting is not None and not self._connecting.done():
            self._connecting.set_exception(error)
        if self._on_fatal is not None:
            self._on_fatal(error)


def _tasks(process_ids: Iterable[int]) -> tuple[TaskId, ...]:
    return tuple(map(TaskId, process_ids))


def _is_lost(status: Status) -> bool:
    """Whether a call may or may not have reached the service."""
    return status.code is Code.UNAVAILABLE and status.service_error is None


def _expect(kind: type[_A], answer: Answer) -> _A:
    if not isinstance(answer, kind):
        raise _local(Code.INTERNAL, f"{kind.__name__} expected, found {answer!r}")
    return answer


def _local(code: Code, message: str) -> ServiceError:
    """An error that never was on the wire."""
    return ServiceError(Status(code=code, message=message, service_error=None))
