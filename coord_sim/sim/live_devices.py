"""A model of `jax.experimental.multihost_utils.live_devices`, with processes for devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from coord_sim.errors import ProcessFailureError

if TYPE_CHECKING:
    from coord_sim.sim.client import Client


class LiveSet(Mapping[int, int]):
    """An answer of `live_processes`: process -> incarnation. Shared by all who were given it.

    Attributes:
      processes: The processes, ascending.
      incarnation_by_process: The same as a dict, for recordings.
    """

    __slots__ = ("_compared", "incarnation_by_process", "processes")

    def __init__(self, incarnation_by_process: Mapping[int, int]) -> None:
        self.incarnation_by_process = incarnation_by_process
        self.processes = tuple(sorted(incarnation_by_process))
        self._compared: tuple[LiveSet, tuple[int, ...]] | None = None

    def failed_by(self, later: LiveSet) -> tuple[int, ...]:
        """The processes that are missing in a later answer, or have another incarnation there."""
        compared = self._compared
        if compared is None or compared[0] is not later:  # The members of a block ask the same.
            mine, theirs = self.incarnation_by_process, later.incarnation_by_process
            failed = () if mine == theirs else self._failed_by(theirs)
            compared = self._compared = (later, failed)
        return compared[1]

    def _failed_by(self, theirs: Mapping[int, int]) -> tuple[int, ...]:
        mine = self.incarnation_by_process
        return tuple(process for process in self.processes if theirs.get(process) != mine[process])

    def __getitem__(self, process: int) -> int:
        return self.incarnation_by_process[process]

    def __iter__(self) -> Iterator[int]:
        return iter(self.processes)

    def __len__(self) -> int:
        return len(self.processes)

    def __contains__(self, process: object) -> bool:
        return process in self.incarnation_by_process

    def __repr__(self) -> str:
        return f"LiveSet({dict(self)})"


class BlockRecorder(Protocol):
    """Records blocks."""

    def enter_block(self, block: int, live: LiveSet) -> None:
        """A block was entered."""

    def exit_block(self, block: int, outcome: str, failed: tuple[int, ...], message: str) -> None:
        """A block was left."""


class Blocks:
    """What the blocks of one process share, as JAX's one `live_devices` object does.

    Attributes:
      live: The latest answer.
      count: Blocks entered so far.
    """

    __slots__ = ("count", "live")

    def __init__(self) -> None:
        self.live: LiveSet | None = None
        self.count = 0


class LiveDevices:
    """A block over the live processes of a set.

    The live set on entry is the last answer this process got; only if it has none it asks. On exit it
    always asks: so the exit call of one block is the entry of the next, one program point. Processes of
    the entry's set that are missing on exit, or have another incarnation, failed: then it raises
    `ProcessFailureError`, chained to what the body raised. What the body raised is raised again if
    nobody failed.

    Source: jax 0.10.2 and 0.12, `multihost_utils._LiveDevices.__call__`.
    """

    def __init__(
        self, client: Client, recorder: BlockRecorder, blocks: Blocks, processes: Sequence[int]
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._blocks = blocks
        self._processes = processes
        self._block = -1

    async def __aenter__(self) -> tuple[int, ...]:
        blocks = self._blocks
        live = await self.entry()
        self._block = blocks.count
        blocks.count += 1
        self._recorder.enter_block(self._block, live)
        return live.processes

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
        failed = self.failed(before, after)
        message = "" if raised is None else f"{type(raised).__name__}: {raised}"
        outcome = "failed" if failed else "completed" if raised is None else "raised"
        self._recorder.exit_block(self._block, outcome, failed, message)
        if failed:
            raise ProcessFailureError(failed) from raised
        return False

    async def entry(self) -> LiveSet:
        """The live set on entry."""
        blocks = self._blocks
        if blocks.live is None:
            blocks.live = await self._client.get_live_nodes(self._processes)
        return blocks.live

    def failed(self, before: LiveSet, after: LiveSet) -> tuple[int, ...]:
        """Who failed between the two answers."""
        return before.failed_by(after)
