"""Raw stubs: tasks with chosen incarnations, whose calls can be watched while they wait.

```python
wire = Wire(address)
a = Task(wire, 0, incarnation=1001)
register = a.register()                      # sent at once, without waiting
assert await register.pending()              # nothing for 0.3 s
outcome = await register.outcome()
a.keep_beating(every_s=0.5)
...
await wire.close()
```
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import grpc
import grpc.aio

from coord_sim.core.status import Code
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.conformance.outcome import Outcome, answered, failed

SERVICE = "xla.coordination.CoordinationService"
SETTLED_S = 0.3
"""A call without an answer for so long is pending (section 16 of the note)."""
ANSWER_WITHIN_S = 30.0


class StillPending(AssertionError):
    """A call was not answered in time."""


class Call:
    """A call on its way.

    Args:
      name: Of its method.
      outcome: Awaited at once, in the background.
      cancel: Gives the call up, if that is possible.

    Attributes:
      started: When it was made (`time.monotonic`, s).
      answered: When its outcome was known, or None.
    """

    def __init__(
        self, name: str, outcome: Awaitable[Outcome], cancel: Callable[[], object] | None = None
    ) -> None:
        self.name = name
        self.started = time.monotonic()
        self.answered: float | None = None
        self._cancel = cancel
        self._outcome = asyncio.ensure_future(outcome)
        self._outcome.add_done_callback(self._note)

    def _note(self, done: asyncio.Future[Outcome]) -> None:
        self.answered = time.monotonic()
        if not done.cancelled():
            done.exception()  # Seen: a call whose outcome nobody asks for is no error.

    @property
    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._outcome.done()

    async def pending(self, for_s: float = SETTLED_S) -> bool:
        """Whether there is no outcome yet after waiting for it that long."""
        await asyncio.wait([self._outcome], timeout=for_s)
        return not self._outcome.done()

    async def outcome(self, within_s: float = ANSWER_WITHIN_S) -> Outcome:
        """Waits for the outcome.

        Raises:
          StillPending: there is none within the given time.
        """
        await asyncio.wait([self._outcome], timeout=within_s)
        if not self._outcome.done():
            raise StillPending(f"{self.name} has no answer after {within_s} s")
        return self._outcome.result()

    def cancel(self) -> None:
        """Hangs up."""
        assert self._cancel is not None, "this call cannot be given up"
        self._cancel()


class Wire:
    """A connection to a service, shared by the tasks that use it.

    Attributes:
      service_incarnation: What requests carry; learned from the first registration that passes.
    """

    def __init__(self, address: str) -> None:
        self.service_incarnation = 0
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channel = grpc.aio.insecure_channel(address, options=options)
        self._stubs: dict[str, Any] = {}

    async def close(self) -> None:
        """Gives up all calls."""
        await self._channel.close()

    def call(self, method: str, request: Any, compression: grpc.Compression | None = None) -> Call:
        """Sends a request as it is."""
        stub = self._stubs.get(method)
        if stub is None:
            stub = self._stubs[method] = self._channel.unary_unary(
                f"/{SERVICE}/{method}",
                request_serializer=type(request).SerializeToString,
                response_deserializer=getattr(pb, f"{method}Response").FromString,
            )
        rpc = stub(request, compression=compression, wait_for_ready=True)
        return Call(method, self._end_of(rpc), rpc.cancel)

    async def _end_of(self, rpc: Any) -> Outcome:
        try:
            message = await rpc
        except grpc.aio.AioRpcError as error:
            return failed(error)
        except asyncio.CancelledError:
            if not rpc.cancelled():
                raise
            return Outcome(code=Code.CANCELLED, message="given up by the caller")
        if isinstance(message, pb.RegisterTaskResponse):
            self.service_incarnation = message.service_incarnation
        return answered(message)


class Task:
    """The raw client of one incarnation of one task.

    Every call is sent when the method is called, and returns a `Call`. Barriers are counted as jaxlib's
    client counts them (section 8 of the note) unless a counter is given.

    Args:
      wire: What the calls go through.
      number: Its id.
      incarnation: Random in a real job, chosen here.
    """

    def __init__(self, wire: Wire, number: int, incarnation: int) -> None:
        self.wire = wire
        self.number = number
        self.incarnation = incarnation
        self._counters: dict[str, int] = {}
        self._heart: asyncio.Task[None] | None = None

    def call(self, method: str, request: Any, **options: Any) -> Call:
        """Sends a request that says who is calling."""
        request.incarnations.CopyFrom(
            pb.Incarnations(
                task_incarnation=self.incarnation,
                service_incarnation=self.wire.service_incarnation,
            )
        )
        return self.wire.call(method, request, **options)

    # --- membership ----------------------------------------------------------------------------

    def register(self) -> Call:
        """RegisterTask."""
        request = pb.RegisterTaskRequest(source_task_id=self.number, incarnation=self.incarnation)
        return self.wire.call("RegisterTask", request)

    def heartbeat(self, incarnation: int | None = None) -> Call:
        """One Heartbeat, of another incarnation if given."""
        mine = self.incarnation if incarnation is None else incarnation
        request = pb.HeartbeatRequest(source_task_id=self.number, incarnation=mine)
        return self.call("Heartbeat", request)

    def keep_beating(self, every_s: float) -> None:
        """Sends heartbeats in the background, whatever comes back."""

        async def beat() -> None:
            while True:
                call = self.heartbeat()
                await asyncio.sleep(every_s)
                del call

        assert self._heart is None, "it beats already"
        self._heart = asyncio.create_task(beat())

    async def silence(self) -> float:
        """Stops the heartbeats after a last one.

        Returns:
          When the last one was answered (`time.monotonic`, s).
        """
        self.stop_beating()
        await self.heartbeat().outcome()
        return time.monotonic()

    def stop_beating(self) -> None:
        """Stops the heartbeats, without a last one."""
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    def poll(self) -> Call:
        """PollForError."""
        return self.call("PollForError", pb.PollForErrorRequest(source_task_id=self.number))

    def report(self, code: int, message: str) -> Call:
        """ReportErrorToService; never with code 0, which aborts the real service."""
        assert code != 0
        request = pb.ReportErrorToServiceRequest(
            source_task_id=self.number, error_code=code, error_message=message
        )
        return self.call("ReportErrorToService", request)

    def shutdown(self) -> Call:
        """ShutdownTask."""
        return self.call("ShutdownTask", pb.ShutdownTaskRequest(source_task_id=self.number))

    def watch(self, version: int = -1) -> Call:
        """WatchTasks; never with a version that was not told, which aborts the real service."""
        return self.call("WatchTasks", pb.WatchTasksRequest(version_number=version))

    def alive(self, tasks: Sequence[int]) -> Call:
        """GetAliveTasks."""
        request = pb.GetAliveTasksRequest(requesting_task_id=self.number, task_ids=tasks)
        return self.call("GetAliveTasks", request)

    # --- keys ----------------------------------------------------------------------------------

    def insert(self, key: str, value: bytes, *, overwrite: bool = False) -> Call:
        """InsertKeyValue."""
        entry = pb.KeyValueEntry(key=key, value=value)
        request = pb.InsertKeyValueRequest(kv=entry, allow_overwrite=overwrite)
        return self.call("InsertKeyValue", request)

    def get(self, key: str) -> Call:
        """GetKeyValue, which waits."""
        return self.call("GetKeyValue", pb.GetKeyValueRequest(key=key))

    def try_get(self, key: str) -> Call:
        """TryGetKeyValue."""
        return self.call("TryGetKeyValue", pb.TryGetKeyValueRequest(key=key))

    def increment(self, key: str, by: int) -> Call:
        """IncrementKeyValue."""
        request = pb.IncrementKeyValueRequest(key=key, increment=by)
        return self.call("IncrementKeyValue", request)

    def directory(self, key: str) -> Call:
        """GetKeyValueDir."""
        return self.call("GetKeyValueDir", pb.GetKeyValueDirRequest(directory_key=key))

    def delete(self, key: str, *, is_directory: bool = True) -> Call:
        """DeleteKeyValue."""
        request = pb.DeleteKeyValueRequest(key=key, is_directory=is_directory)
        return self.call("DeleteKeyValue", request)

    # --- barriers ------------------------------------------------------------------------------

    def barrier(
        self,
        barrier_id: str,
        *,
        timeout_s: float = 60.0,
        tasks: Sequence[int] = (),
        counter: int | None = None,
    ) -> Call:
        """Barrier."""
        if counter is None:
            counter = self._counters.get(barrier_id, -1) + 1
        request = pb.BarrierRequest(
            barrier_id=barrier_id,
            barrier_timeout_in_ms=round(timeout_s * 1000),
            task_ids=tasks,
            source_task_id=self.number,
            counter=counter,
        )
        call = self.call("Barrier", request)
        return Call("Barrier", self._counted(barrier_id, call), call.cancel)

    async def _counted(self, barrier_id: str, call: Call) -> Outcome:
        outcome = await call.outcome(within_s=3600.0)
        if outcome.ok:
            self._counters[barrier_id] = outcome.answer["counter"]
        elif outcome.barrier_error is not None:
            self._counters[barrier_id] = outcome.barrier_error.counter
        return outcome

    def cancel_barrier(self, barrier_id: str, *, counter: int = 0) -> Call:
        """CancelBarrier."""
        request = pb.CancelBarrierRequest(
            barrier_id=barrier_id, counter=counter, source_task_id=self.number
        )
        return self.call("CancelBarrier", request)
