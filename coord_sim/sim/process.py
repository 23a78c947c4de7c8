"""What a simulated program sees: a small API that mirrors JAX and jaxlib's client.

A program is an async function of a `Process`. It may await only what the process offers; the simulator
drives the coroutine itself, without an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from coord_sim.core.identifiers import seconds
from coord_sim.sim.client import Client
from coord_sim.sim.disk import Disk
from coord_sim.sim.entropy import Stream
from coord_sim.sim.live_devices import BlockRecorder, Blocks, LiveDevices
from coord_sim.sim.waiting import Wait

if TYPE_CHECKING:
    from coord_sim.sim.data_plane import Devices

T = TypeVar("T")


class Host(BlockRecorder, Protocol):
    """What a process needs of the simulator."""

    def sleep(self, delay_ns: int) -> Wait[None]:
        """Lets time pass on the process's own clock."""

    def clock_ns(self) -> int:
        """The process's wall clock."""

    def log(self, text: str) -> None:
        """Keeps a line."""

    def reach(self, condition: str) -> None:
        """Counts a condition that was reached."""

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Wait[T]:
        """Runs a coroutine beside the program."""

    def devices(self) -> Devices:
        """The data plane, as this process sees it."""


class Process:
    """A simulated process, as its program sees it.

    Attributes:
      number: From 0.
      participants: All process numbers of the job.
      lifetime: 0 for the first start, 1 for the next one, ...
      client: The coordination client, connected.
      disk: Durable state: what was synced is there after a restart.
      volatile: State that a crash loses.
      random: A stream of the seed for this start of this process.
    """

    def __init__(
        self,
        number: int,
        participants: Sequence[int],
        lifetime: int,
        *,
        client: Client,
        disk: Disk,
        random: Stream,
        host: Host,
        blocks: type[LiveDevices],
    ) -> None:
        self.number = number
        self.participants = participants
        self.lifetime = lifetime
        self.client = client
        self.disk = disk
        self.volatile: dict[str, Any] = {}
        self.random = random
        self._host = host
        self._blocks = Blocks()
        self._kind_of_block = blocks

    @property
    def devices(self) -> Devices:
        """The data plane: collectives with other processes."""
        return self._host.devices()

    def sleep(self, time_s: float) -> Awaitable[None]:
        """Lets virtual time pass, in seconds of the process's own clock."""
        return self._host.sleep(seconds(time_s))

    def clock_s(self) -> float:
        """What the process's wall clock shows, in seconds: virtual time, but for skew and drift."""
        return self._host.clock_ns() / 1e9

    def log(self, text: str) -> None:
        """Writes a line to the log of the run."""
        self._host.log(text)

    def sometimes(self, condition: str) -> None:
        """Counts that a condition was reached: proof that a campaign came to the interesting state."""
        self._host.reach(condition)

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Awaitable[T]:
        """Runs a coroutine of this process beside its program; await the result to wait for its end.

        An exception in it is raised where it is awaited; it ends the process if nobody awaits it. What
        still runs when the program returns is dropped.
        """
        return self._host.start(coroutine)

    def live_devices(self, processes: Sequence[int] | None = None) -> LiveDevices:
        """A block over the live ones of `processes`, all if left out: see `LiveDevices`.

        Raises:
          ValueError: there are none, or this process is not among them.
        """
        chosen = self.participants if processes is None else tuple(processes)
        if not chosen:
            raise ValueError("live_devices needs at least one process")
        if self.number in self.participants and self.number not in chosen:
            raise ValueError(f"process {self.number} is not among {chosen}")
        return self._kind_of_block(self.client, self._host, self._blocks, chosen)


Program: TypeAlias = Callable[[Process], Awaitable[None]]
