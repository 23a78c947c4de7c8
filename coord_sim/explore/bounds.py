"""What an exploration is limited to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from coord_sim.errors import ScheduleError
from coord_sim.explore.requests import Operation

PROCESSES_MAX = 6
"""More have no end, and more permutations than states."""
LIMIT_MAX = 100
"""More calls, crashes or restarts than any exploration ends with."""

PROGRAMS: Mapping[str, tuple[Operation, ...]] = MappingProxyType(
    {
        "live": (Operation.LIVE,),
        "blocks": (Operation.LIVE,),
        "store": (Operation.LIVE, Operation.SET),
        "leave": (Operation.LIVE, Operation.SHUTDOWN),
        "mixed": (Operation.LIVE, Operation.SET, Operation.SHUTDOWN),
    }
)
"""What a process may do next, whenever it is not waiting for an answer; it tries all orders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits, and what is explored within them.

    Attributes:
      processes: Number of processes, all with the same program.
      calls: Of each process, over all its starts (a shutdown does not count).
      crashes: Of each process, over all its starts.
      crashes_in_all: Of all processes together; no further limit if None.
      restarts: Of all processes together.
      suspicions: How often a process that runs may be declared dead: a stall longer than the time-out.
      retries: How many registrations may be sent twice, because a connection broke.
      program: A name of `PROGRAMS`. In `blocks` every call leaves a `live_devices` block and enters the
        next one.
      reduced: Explore invocation and arrival of a request as one step, and reply and response; else
        every message travels on its own.
      symmetric: Explore one of the states that differ only by the names of processes.
    """

    processes: int = 3
    calls: int = 2
    crashes: int = 1
    crashes_in_all: int | None = None
    restarts: int = 1
    suspicions: int = 0
    retries: int = 0
    program: str = "live"
    reduced: bool = True
    symmetric: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.processes <= PROCESSES_MAX:
            raise ScheduleError(
                f"an exploration has 1 to {PROCESSES_MAX} processes, found {self.processes}"
            )
        if self.program not in PROGRAMS:
            raise ScheduleError(
                f"the program is one of {', '.join(PROGRAMS)}; found {self.program!r}"
            )
        for name in ("calls", "crashes", "restarts", "suspicions", "retries"):
            if not 0 <= getattr(self, name) <= LIMIT_MAX:
                raise ScheduleError(
                    f"{name} must be from 0 to {LIMIT_MAX}, found {getattr(self, name)}"
                )
        if self.crashes_in_all is not None and not 0 <= self.crashes_in_all <= LIMIT_MAX:
            raise ScheduleError(
                f"crashes_in_all must be from 0 to {LIMIT_MAX}, found {self.crashes_in_all}"
            )
