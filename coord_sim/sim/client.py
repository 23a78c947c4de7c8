"""The coordination client, as a simulated program sees it: jaxlib's methods as coroutines."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Final, Protocol, TypeVar

from coord_sim.core.identifiers import NS_PER_MS, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Barrier,
    BarrierPassed,
    Caller,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.status import Code, Status
from coord_sim.errors import ServiceError
from coord_sim.sim.live_devices import LiveSet
from coord_sim.sim.waiting import Wait

LEAVING: Final = Status(
    code=Code.CANCELLED, message="The client is shutting down.", service_error=None
)
"""What a call that waits gets when its client has left, and one that would wait after that."""

AnswerT = TypeVar("AnswerT", bound=Answer)


class Calls(Protocol):
    """What the client needs of the process that it lives in."""

    def call(self, request: Request, timeout_ns: int | None = None) -> Wait[Answer]:
        """Sends a request and records it as an operation."""

    def enter_barrier(self, barrier_id: str) -> int | Status:
        """The counter to send, or why this client may not wait at the barrier now."""

    def leave_barrier(self, barrier_id: str, answer: Answer) -> None:
        """Takes the counter from an answer."""

    def live_set(self, answer: AliveTasks) -> LiveSet:
        """The answer as a mapping, one for all who got it."""

    @property
    def shutdown_timeout_ns(self) -> int:
        """How long to wait for the answer when leaving."""

    def die(self, reason: Status) -> Wait[None]:
        """The client ends the process; what is returned never happens."""

    def left(self) -> None:
        """The process has left the job: its client neither beats, polls nor waits any more."""


class Client:
    """The methods of jaxlib's `DistributedRuntimeClient`, as coroutines.

    All raise `ServiceError` if the service answers with an error, or none could be reached.
    """

    def __init__(
        self, task: TaskId, everybody: tuple[TaskId, ...], caller: Caller, calls: Calls
    ) -> None:
        self._task = task
        self._everybody = everybody
        self._caller = caller
        self._calls = calls
        self._asked_to_leave = self._has_left = False

    async def get_live_nodes(self, nodes: Sequence[int]) -> LiveSet:
        """Enters the `live_processes` barrier; returns process -> incarnation. Never times out."""
        if nodes is self._everybody:
            tasks = self._everybody  # One list for all: large jobs compare it by identity.
        else:
            tasks = tuple(TaskId(node) for node in nodes)
            if tasks == self._everybody:
                tasks = self._everybody
        request = GetAliveTasks(caller=self._caller, task=self._task, tasks=tasks)
        answer = await self._calls.call(request)
        if not isinstance(answer, AliveTasks):
            raise _refusal(answer)
        return self._calls.live_set(answer)

    async def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Stores a value."""
        _check(key, str, "key")
        _check(value, str, "value")
        request = InsertKeyValue(
            caller=self._caller, key=key, value=value.encode(), allow_overwrite=allow_overwrite
        )
        answer = await self._calls.call(request)
        if isinstance(answer, Status):
            raise ServiceError(answer)

    async def key_value_set_bytes(
        self, key: str, value: bytes, allow_overwrite: bool = False
    ) -> None:
        """Stores a value."""
        _check(key, str, "key")
        _check(value, bytes, "value")
        request = InsertKeyValue(
            caller=self._caller, key=key, value=value, allow_overwrite=allow_overwrite
        )
        await self._call(request)

    async def blocking_key_value_get(self, key: str, timeout_in_ms: int | None = None) -> str:
        """Waits for a value."""
        return (await self.blocking_key_value_get_bytes(key, timeout_in_ms)).decode()

    async def blocking_key_value_get_bytes(
        self, key: str, timeout_in_ms: int | None = None
    ) -> bytes:
        """Waits for a value. Fails with CANCELLED once the process has left."""
        _check(key, str, "key")
        _check(timeout_in_ms, int | None, "timeout_in_ms")
        if self._has_left:
            raise ServiceError(LEAVING)
        timeout_ns = None if timeout_in_ms is None else timeout_in_ms * NS_PER_MS
        request = GetKeyValue(caller=self._caller, key=key)
        return (await self._ask(request, KeyValue, timeout_ns)).value

    async def key_value_try_get(self, key: str) -> str:
        """Reads a value; `ServiceError` with NOT_FOUND if there is none."""
        return (await self.key_value_try_get_bytes(key)).decode()

    async def key_value_try_get_bytes(self, key: str) -> bytes:
        """Reads a value; `ServiceError` with NOT_FOUND if there is none."""
        _check(key, str, "key")
        return (await self._ask(TryGetKeyValue(caller=self._caller, key=key), KeyValue)).value

    async def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys under a directory, with their values, in order."""
        return [(name, value.decode()) for name, value in await self.key_value_dir_get_bytes(key)]

    async def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """All keys under a directory, with their values, in order."""
        _check(key, str, "key")
        request = GetKeyValueDir(caller=self._caller, directory=key)
        return list((await self._ask(request, KeyValueDirectory)).entries)

    async def key_value_delete(self, key: str) -> None:
        """Removes a key and everything under it."""
        _check(key, str, "key")
        await self._call(DeleteKeyValue(caller=self._caller, key=key))

    async def key_value_increment(self, key: str, by: int = 1) -> int:
        """Adds to a counter; returns what it is now."""
        _check(key, str, "key")
        _check(by, int, "by")
        request = IncrementKeyValue(caller=self._caller, key=key, increment=by)
        return int((await self._ask(request, KeyValue)).value)

    async def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> None:
        """Waits until all have come, or the first one's time-out is over."""
        _check(barrier_id, str, "barrier_id")
        _check(timeout_in_ms, int, "timeout_in_ms")
        if self._has_left:
            raise ServiceError(LEAVING)
        counter = self._calls.enter_barrier(barrier_id)
        if isinstance(counter, Status):
            raise ServiceError(counter)
        request = Barrier(
            caller=self._caller,
            task=self._task,
            barrier_id=barrier_id,
            counter=counter,
            timeout_ms=timeout_in_ms,
            tasks=() if process_ids is None else tuple(TaskId(p) for p in process_ids),
        )
        answer = await self._calls.call(request)
        self._calls.leave_barrier(barrier_id, answer)
        _expect(answer, BarrierPassed)

    async def report_error(self, code: int, message: str) -> None:
        """Says that this process has failed (jaxlib 0.11 and later)."""
        _check(code, int, "code")
        _check(message, str, "message")
        request = ReportErrorToService(
            caller=self._caller, task=self._task, code=code, message=message
        )
        await self._call(request)

    async def watch_tasks(self, version: int) -> TasksWatched:
        """Waits until the states of the tasks have a version above `version`; negative: now."""
        _check(version, int, "version")
        return await self._ask(WatchTasks(caller=self._caller, version=version), TasksWatched)

    async def shutdown(self) -> None:
        """Leaves the job. A refusal ends the process, as in jaxlib; the second time nothing is sent.

        Until the answer comes, heartbeats go on, and what waits goes on waiting
        (`xla/pjrt/distributed/coordination/coordination_service_agent.cc`, `Shutdown`).
        """
        if self._asked_to_leave:
            return
        self._asked_to_leave = True
        request = ShutdownTask(caller=self._caller, task=self._task)
        answer = await self._calls.call(request, self._calls.shutdown_timeout_ns)
        if isinstance(answer, Status):
            await self._calls.die(answer)
        self._has_left = True
        self._calls.left()

    async def _call(self, request: Request) -> Answer:
        answer = await self._calls.call(request)
        if isinstance(answer, Status):
            raise ServiceError(answer)
        return answer

    async def _ask(
        self, request: Request, kind: type[AnswerT], timeout_ns: int | None = None
    ) -> AnswerT:
        return _expect(await self._calls.call(request, timeout_ns), kind)


def _check(value: object, kind: type | UnionType, name: str) -> None:
    """As jaxlib's binding does."""
    if not isinstance(value, kind):
        expected = getattr(kind, "__name__", kind)
        raise TypeError(f"{name} must be {expected}, found {value!r:.80}")


def _expect(answer: Answer, kind: type[AnswerT]) -> AnswerT:
    if not isinstance(answer, kind):
        raise _refusal(answer)
    return answer


def _refusal(answer: Answer) -> ServiceError:
    assert isinstance(answer, Status), "the service answers a request with its kind, or an error"
    return ServiceError(answer)
