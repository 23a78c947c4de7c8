"""What a simulated program sees: a small API that mirrors JAX and jaxlib's client.

A program is an async function of a `Process`. It may await only what the process offers; the simulator
drives the coroutine itself, without an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from types import TracebackType
from typing import Generic, Protocol, TypeAlias, TypeVar

from coord_sim.core.identifiers import TaskId, seconds
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Caller,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    InsertKeyValue,
    KeyValue,
    Request,
    ShutdownTask,
    TryGetKeyValue,
)
from coord_sim.core.status import Status
from coord_sim.errors import ProcessFailureError, ServiceError
from coord_sim.sim.entropy import Stream

T = TypeVar("T")


class Wait(Generic[T]):
    """Something that will happen; programs await it."""

    __slots__ = ("_resume", "_value", "done")

    def __init__(self) -> None:
        self.done = False
        self._value: T | None = None
        self._resume: Callable[[], None] | None = None

    def happen(self, value: T) -> None:
        """Lets it happen and resumes the program that waits."""
        self.done = True
        self._value = value
        if self._resume is not None:
            self._resume()

    def then(self, resume: Callable[[], None]) -> None:
        """Says how to resume the program that waits."""
        self._resume = resume

    def __await__(self) -> Generator[Wait[T], None, T]:
        if not self.done:
            yield self
        return self._value  # type: ignore[return-value]  # set by `happen`


class Host(Protocol):
    """What a process needs of the simulator."""

    def call(self, request: Request) -> Wait[Answer]:
        """Sends a request and records it as an operation."""

    def sleep(self, delay_ns: int) -> Wait[None]:
        """Lets virtual time pass."""

    def enter_block(self, block: int, live: dict[int, int]) -> None:
        """Records that a block was entered."""

    def exit_block(self, block: int, outcome: str, failed: tuple[int, ...], message: str) -> None:
        """Records that a block was left."""


class Client:
    """The methods of jaxlib's `DistributedRuntimeClient`, as coroutines."""

    def __init__(self, process: int, caller: Caller, host: Host) -> None:
        self._process = TaskId(process)
        self._caller = caller
        self._host = host

    async def get_live_nodes(self, nodes: Sequence[int]) -> dict[int, int]:
        """Enters the `live_processes` barrier; returns process -> incarnation."""
        request = GetAliveTasks(
            caller=self._caller,
            task=self._process,
            tasks=tuple(TaskId(node) for node in nodes),
        )
        answer = await self._call(request)
        assert isinstance(answer, AliveTasks)
        return dict(answer.alive)

    async def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Stores a value."""
        await self._call(
            InsertKeyValue(
                caller=self._caller,
                key=key,
                value=value.encode(),
                allow_overwrite=allow_overwrite,
            )
        )

    async def blocking_key_value_get(self, key: str) -> str:
        """Waits for a value."""
        answer = await self._call(GetKeyValue(caller=self._caller, key=key))
        assert isinstance(answer, KeyValue)
        return answer.value.decode()

    async def key_value_try_get(self, key: str) -> str:
        """Reads a value; `ServiceError` with NOT_FOUND if there is none."""
        answer = await self._call(TryGetKeyValue(caller=self._caller, key=key))
        assert isinstance(answer, KeyValue)
        return answer.value.decode()

    async def key_value_delete(self, key: str) -> None:
        """Removes a key and everything under it."""
        await self._call(DeleteKeyValue(caller=self._caller, key=key))

    async def shutdown(self) -> None:
        """Leaves the job."""
        await self._call(ShutdownTask(caller=self._caller, task=self._process))

    async def _call(self, request: Request) -> Answer:
        answer = await self._host.call(request)
        if isinstance(answer, Status):
            raise ServiceError(answer)
        return answer


class Process:
    """A simulated process, as its program sees it.

    Attributes:
      number: From 0.
      participants: All process numbers of the job.
      client: The coordination client, connected.
      random: A stream of the seed for this start of this process.
    """

    def __init__(
        self, number: int, participants: Sequence[int], client: Client, host: Host, random: Stream
    ) -> None:
        self.number = number
        self.participants = tuple(participants)
        self.client = client
        self.random = random
        self._host = host
        self._blocks = _Blocks()

    def sleep(self, time_s: float) -> Awaitable[None]:
        """Lets virtual time pass, in seconds."""
        return self._host.sleep(seconds(time_s))

    def live_devices(self, processes: Sequence[int] | None = None) -> LiveDevices:
        """A block over the live ones of `processes`, all if left out: see `LiveDevices`."""
        chosen = self.participants if processes is None else tuple(processes)
        return LiveDevices(self.client, self._host, self._blocks, chosen)


class _Blocks:
    """What the blocks of one process share, as JAX's one `live_devices` object does."""

    def __init__(self) -> None:
        self.live: dict[int, int] | None = None
        self.count = 0


class LiveDevices:
    """A model of `jax.experimental.multihost_utils.live_devices`, with processes for devices.

    The live set on entry is the last answer this process got; only if it has none it asks. On exit it
    always asks: so the exit call of one block is the entry of the next. Processes of the entry's set
    that are missing on exit, or have another incarnation, failed.

    Source: jax 0.10.2 and 0.12, `multihost_utils._LiveDevices.__call__`.
    """

    def __init__(
        self, client: Client, host: Host, blocks: _Blocks, processes: Sequence[int]
    ) -> None:
        self._client = client
        self._host = host
        self._blocks = blocks
        self._processes = processes
        self._block = -1

    async def __aenter__(self) -> tuple[int, ...]:
        blocks = self._blocks
        if blocks.live is None:
            blocks.live = await self._client.get_live_nodes(self._processes)
        self._block = blocks.count
        blocks.count += 1
        self._host.enter_block(self._block, blocks.live)
        return tuple(sorted(blocks.live))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        raised: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if raised is not None and not isinstance(raised, Exception):
            return False  # The process is being torn down: it makes no more calls.
        before = self._blocks.live
        assert before is not None
        self._blocks.live = after = await self._client.get_live_nodes(self._processes)
        failed = tuple(sorted(p for p, inc in before.items() if after.get(p) != inc))
        message = "" if raised is None else f"{type(raised).__name__}: {raised}"
        outcome = "failed" if failed else "completed" if raised is None else "raised"
        self._host.exit_block(self._block, outcome, failed, message)
        if failed:
            raise ProcessFailureError(failed) from raised
        return False


Program: TypeAlias = Callable[[Process], Awaitable[None]]
