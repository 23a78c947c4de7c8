"""A schedule: everything that determines a simulated run besides its program."""

from __future__ import annotations

from dataclasses import dataclass

from coord_sim.core.semantics import SEMANTICS
from coord_sim.errors import ScheduleError
from coord_sim.faults import Crash, Fault, Restart


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A run, as a value. Its `repr` is Python that can be pasted.

    Attributes:
      processes: Number of processes, numbered from 0.
      seed: Determines every random draw.
      faults: What goes wrong and when.
      semantics: Face of the service: `shipped`, `published` or `naive`.
      recoverable: Whether processes may die and come back.
      heartbeat_timeout_s: Of the service.
      client_heartbeat_timeout_s: Of the clients, which beat every half of it; the service's if None.
        Nothing checks that they agree, in reality either: with longer ones the living are declared dead.
      latency_min_s, latency_max_s: A message takes a time drawn evenly between these.
      loss: Probability that a packet is lost. Links are TCP-like: a lost packet is sent again after
        0.2 s, then 0.4 s and so on, so that loss shows as delay; what one process sends arrives in
        order, across its restarts too.
      limit_s: Virtual time at which the run ends in any case.
    """

    processes: int
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    semantics: str = "shipped"
    recoverable: bool = True
    heartbeat_timeout_s: float = 3.0
    client_heartbeat_timeout_s: float | None = None
    latency_min_s: float = 0.0002
    latency_max_s: float = 0.005
    loss: float = 0.0
    limit_s: float = 120.0

    def __post_init__(self) -> None:
        if self.processes < 1:
            raise ScheduleError(f"processes must be at least 1, found {self.processes}")
        if self.semantics not in SEMANTICS:
            raise ScheduleError(
                f"semantics must be one of {', '.join(SEMANTICS)}; found {self.semantics!r}"
            )
        if self.heartbeat_timeout_s <= 0 or self.limit_s <= 0:
            raise ScheduleError("heartbeat_timeout_s and limit_s must be positive")
        if not 0 <= self.latency_min_s <= self.latency_max_s:
            raise ScheduleError("latencies must satisfy 0 <= latency_min_s <= latency_max_s")
        if not 0 <= self.loss < 1:
            raise ScheduleError(f"loss is a probability below 1, found {self.loss}")
        for fault in self.faults:
            self._check(fault)

    def _check(self, fault: Fault) -> None:
        if not 0 <= fault.process < self.processes:
            raise ScheduleError(
                f"{fault} names process {fault.process}; processes are 0 to {self.processes - 1}"
            )
        if fault.at_s < 0:
            raise ScheduleError(f"{fault} is before the run begins")
        if isinstance(fault, Restart) and not any(
            isinstance(other, Crash) and other.process == fault.process and other.at_s <= fault.at_s
            for other in self.faults
        ):
            raise ScheduleError(
                f"{fault} restarts a process that no earlier crash has ended; add the crash"
            )
