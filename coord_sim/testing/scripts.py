"""Programs as data: what a process does, step by step. Their `repr` is Python that can be pasted.

>>> from coord_sim.schedule import Schedule
>>> from coord_sim.sim import simulate
>>> script = Script(((Write("k", "v"), Round()),))
>>> simulate(script, Schedule(processes=2)).finished
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coord_sim.errors import CoordSimError, ProcessFailureError, ProgramError, ServiceError
from coord_sim.sim import LiveSet, Process


@dataclass(frozen=True, slots=True)
class Sleep:
    """Works by itself, for so long."""

    time_s: float

    async def __call__(self, process: Process) -> None:
        """Does it."""
        await process.sleep(self.time_s)


@dataclass(frozen=True, slots=True)
class Write:
    """Sets a key."""

    key: str
    value: str
    allow_overwrite: bool = True

    async def __call__(self, process: Process) -> None:
        """Does it."""
        await process.client.key_value_set(self.key, self.value, self.allow_overwrite)


@dataclass(frozen=True, slots=True)
class Read:
    """Reads a key, and does not wait for it."""

    key: str

    async def __call__(self, process: Process) -> str:
        """Does it; returns the value."""
        return await process.client.key_value_try_get(self.key)


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Waits for a key."""

    key: str
    timeout_ms: int = 1000

    async def __call__(self, process: Process) -> str:
        """Does it; returns the value."""
        return await process.client.blocking_key_value_get(self.key, self.timeout_ms)


@dataclass(frozen=True, slots=True)
class Increment:
    """Adds to a counter."""

    key: str
    by: int = 1

    async def __call__(self, process: Process) -> int:
        """Does it; returns the sum."""
        return await process.client.key_value_increment(self.key, self.by)


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes a key."""

    key: str

    async def __call__(self, process: Process) -> None:
        """Does it."""
        await process.client.key_value_delete(self.key)


@dataclass(frozen=True, slots=True)
class Barrier:
    """Waits at a named barrier."""

    barrier_id: str
    timeout_ms: int = 2000

    async def __call__(self, process: Process) -> None:
        """Does it."""
        await process.client.wait_at_barrier(self.barrier_id, self.timeout_ms)


@dataclass(frozen=True, slots=True)
class Round:
    """Takes part in a round of `live_processes`, over all processes."""

    async def __call__(self, process: Process) -> LiveSet:
        """Does it; returns the live set."""
        return await process.client.get_live_nodes(process.participants)


@dataclass(frozen=True, slots=True)
class Block:
    """A `live_devices` block with some work in it."""

    work_s: float = 0.0

    async def __call__(self, process: Process) -> tuple[int, ...]:
        """Does it; returns the processes that were live on entry."""
        async with process.live_devices() as live:
            await process.sleep(self.work_s)
        return live


Step: TypeAlias = Sleep | Write | Read | WaitFor | Increment | Delete | Barrier | Round | Block
"""An async function of a process that raises what the service says: `ServiceError` and the like."""

TOLERATED: tuple[type[CoordSimError], ...] = (ServiceError, ProcessFailureError)
"""What a step may raise without its process having failed."""


@dataclass(frozen=True, slots=True)
class Script:
    """A program: each process does one of the lists of steps, and leaves.

    An error of the service ends a step and not the program. A process that is started again begins its
    list anew.

    Attributes:
      lists: Process `p` does number `p`, modulo how many there are.
    """

    lists: tuple[tuple[Step, ...], ...]

    def __post_init__(self) -> None:
        if not self.lists:
            raise ProgramError("a script has at least one list of steps")

    async def __call__(self, process: Process) -> None:
        """Runs it."""
        for step in self.lists[process.number % len(self.lists)]:
            try:
                await step(process)
            except TOLERATED:
                process.sometimes("step failed")
        await process.client.shutdown()
