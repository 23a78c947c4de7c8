"""A schedule: everything that determines a simulated run besides its program."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Final

from coord_sim.core.semantics import SEMANTICS
from coord_sim.errors import ScheduleError
from coord_sim.faults import Crash, Degrade, Fault, Partition, Refuse, Reset, Restart, Skew, Slow
from coord_sim.moments import KINDS, OPERATIONS, SERVICE, Member, Moment, When
from coord_sim.mutants import find

SECONDS_MIN: Final = 1e-6
SECONDS_MAX: Final = 1e9
"""Times beyond these, thirty years, are mistakes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a process is put that is not simply task `process` of the one service.

    Attributes:
      process: Its number in the history.
      task: The task that it says it is.
      service: Which service it calls, from 0.
    """

    process: int
    task: int
    service: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A run, as a value. Its `repr` is Python that can be pasted.

    Attributes:
      processes: Number of processes, numbered from 0.
      seed: Determines every random draw.
      faults: What goes wrong and when.
      semantics: Face of the service: `shipped`, `published` or `naive`.
      mutant: Name of a known-wrong variant of service, client or data plane (`coord_sim.mutants`); empty
        for none.
      recoverable: Whether processes may die and come back.
      durable: Whether the service goes on where it was when it is restarted.
      service_in: The process that runs the service, as process 0 does in JAX by default: the service
        dies with it. None: it runs by itself.
      starts_s: When each process starts first; None: never. All at 0 if empty.
      hosts: Processes that share a host, for correlated failures. Each on its own host if empty.
      tasks: How many tasks each service expects; `processes` if None.
      services: How many services there are; faults of `SERVICE` hit number 0.
      places: Processes that are not the task of their number on service 0: strangers, duplicates.
      heartbeat_timeout_s: Of the service.
      client_heartbeat_timeout_s: Of the clients, which beat every half of it; the service's if None.
        Nothing checks that they agree, in reality either: with longer ones the living are declared dead.
      init_timeout_s: How long a client tries to register (and 5 s more); `limit_s` if None.
      register_timeout_s: How long the service waits for the last to register, from the first.
      shutdown_timeout_s: The same for leaving, without recoverability.
      death_order: Which of several tasks that are found dead in one tick are declared so first. The real
        service has them in the order of a hash table, which differs between its processes, and with the
        shipped semantics a round may tell. Those that are not named come last, ascending.
      abort_collectives: Whether a process that learns of a death cancels the collectives with the dead.
      latency_min_s, latency_max_s: A message takes a time drawn evenly between these.
      loss: Probability that a packet is lost. Links are TCP-like: a lost packet is sent again after
        0.2 s, then 0.4 s and so on, so that loss shows as delay; what one process sends over one
        connection arrives in order.
      quiet_from_s: From here on nothing new goes wrong, and everybody who lives must get on; None: there
        is no such phase.
      limit_s: Virtual time at which the run ends in any case.
    """

    processes: int
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    semantics: str = "shipped"
    mutant: str = ""
    recoverable: bool = True
    durable: bool = False
    service_in: int | None = None
    starts_s: tuple[float | None, ...] = ()
    hosts: tuple[tuple[int, ...], ...] = ()
    tasks: int | None = None
    services: int = 1
    places: tuple[Place, ...] = ()
    heartbeat_timeout_s: float = 3.0
    client_heartbeat_timeout_s: float | None = None
    init_timeout_s: float | None = None
    register_timeout_s: float = 3600.0
    shutdown_timeout_s: float = 300.0
    death_order: tuple[int, ...] = ()
    abort_collectives: bool = True
    latency_min_s: float = 0.0002
    latency_max_s: float = 0.005
    loss: float = 0.0
    quiet_from_s: float | None = None
    limit_s: float = 120.0

    def __post_init__(self) -> None:
        self._check_types()
        if self.processes < 1:
            raise ScheduleError(f"processes must be at least 1, found {self.processes}")
        if self.semantics not in SEMANTICS:
            raise ScheduleError(
                f"semantics must be one of {', '.join(SEMANTICS)}; found {self.semantics!r}"
            )
        if self.mutant:
            try:
                find(self.mutant)
            except LookupError as error:
                raise ScheduleError(str(error)) from None
        self._check_times()
        self._check_members()
        for fault in self.faults:
            self.check(fault)
            if isinstance(fault, Restart):
                self._check_restart(fault)

    def __repr__(self) -> str:
        told = [
            f"{field.name}={value!r}"
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"Schedule({', '.join(told)})"

    @property
    def task_count(self) -> int:
        """How many tasks each service expects."""
        return self.processes if self.tasks is None else self.tasks

    def start_s(self, process: int) -> float | None:
        """When a process starts first; None: never."""
        return self.starts_s[process] if process < len(self.starts_s) else 0.0

    def _check_types(self) -> None:
        for name, kinds in _TYPES.items():
            value = getattr(self, name)
            if type(value) not in kinds:
                told = " or ".join(kind.__name__ for kind in kinds)
                raise ScheduleError(f"{name} must be {told}, found {value!r:.80}")
        for name, kind in (("faults", Fault), ("places", Place), ("hosts", tuple)):
            for element in getattr(self, name):
                if not isinstance(element, kind):
                    raise ScheduleError(f"{name} holds {element!r:.80}, which is none")

    def _check_times(self) -> None:
        positive = (
            "heartbeat_timeout_s",
            "client_heartbeat_timeout_s",
            "init_timeout_s",
            "register_timeout_s",
            "limit_s",
        )
        for name in positive:
            value = getattr(self, name)
            if value is not None and not SECONDS_MIN <= value <= SECONDS_MAX:
                raise ScheduleError(
                    f"{name} must be positive and finite (from {SECONDS_MIN:g} to {SECONDS_MAX:g} s), "
                    f"found {value}"
                )
        if not 0 <= self.shutdown_timeout_s < math.inf:
            raise ScheduleError("shutdown_timeout_s must be at least 0 and finite")
        if not 0 <= self.latency_min_s <= self.latency_max_s < math.inf:
            raise ScheduleError("latencies must satisfy 0 <= latency_min_s <= latency_max_s")
        if not 0 <= self.loss < 1:
            raise ScheduleError(f"loss is a probability below 1, found {self.loss}")
        if len(self.starts_s) > self.processes:
            raise ScheduleError(
                f"starts_s has {len(self.starts_s)} times for {self.processes} processes"
            )
        for start_s in self.starts_s:
            if start_s is not None and not 0 <= start_s < math.inf:
                raise ScheduleError(
                    f"a process starts at 0 s or later, found {start_s} in starts_s"
                )
        if self.quiet_from_s is not None:
            self._check_quiet(self.quiet_from_s)

    def _check_quiet(self, quiet_from_s: float) -> None:
        for fault in self.faults:
            ends_s = fault.at_s
            if isinstance(ends_s, When):
                raise ScheduleError(
                    f"{fault} comes at a moment that the run decides; a schedule with quiet_from_s "
                    "needs times"
                )
            if not isinstance(fault, Crash | Restart | Skew | Reset):
                ends_s += fault.for_s
            if ends_s > quiet_from_s:
                raise ScheduleError(f"{fault} reaches into the quiet phase from {quiet_from_s:g} s")

    def _check_members(self) -> None:
        if self.services < 1:
            raise ScheduleError(f"services must be at least 1, found {self.services}")
        if self.tasks is not None and self.tasks < 1:
            raise ScheduleError(f"tasks must be at least 1, found {self.tasks}")
        if self.service_in is not None:
            self._check_process("service_in", self.service_in)
        for host in self.hosts:
            for process in host:
                self._check_process("hosts", process)
        for task in self.death_order:
            if type(task) is not int or not 0 <= task < self.task_count:
                raise ScheduleError(
                    f"death_order names task {task!r:.80}; tasks are 0 to {self.task_count - 1}"
                )
        if len(set(self.death_order)) < len(self.death_order):
            raise ScheduleError("death_order names a task twice")
        placed = [process for host in self.hosts for process in host]
        if len(set(placed)) < len(placed):
            raise ScheduleError("hosts: a process is on one host")
        for place in self.places:
            self._check_process("places", place.process)
            if not 0 <= place.service < self.services:
                raise ScheduleError(
                    f"{place} names service {place.service}; services are 0 to {self.services - 1}"
                )

    def _check_process(self, where: str, process: Member) -> None:
        if not isinstance(process, int) or not 0 <= process < self.processes:
            raise ScheduleError(
                f"{where} names process {process}; processes are 0 to {self.processes - 1}"
            )

    def check(self, fault: Fault) -> None:
        """Checks a fault by itself: whether a restart has anything to restart is up to the run.

        Raises:
          ScheduleError: it cannot be.
        """
        for member in members_of(fault):
            if member == SERVICE and not isinstance(fault, Reset | Degrade | Refuse):
                continue
            self._check_process(str(fault), member)
        if not _is_number(fault.at_s) and not isinstance(fault.at_s, When):
            raise ScheduleError(f"{fault} comes at no time and on no condition")
        self._check_moment(fault, fault.at_s)
        for name in ("for_s", "delay_s", "jitter_s", "bytes_per_s"):
            value = getattr(fault, name, 0.0)
            if not _is_number(value) or not 0 <= value <= SECONDS_MAX:
                raise ScheduleError(f"{fault}: {name} must be at least 0 and finite")
        if isinstance(fault, Degrade):
            for name in ("loss", "duplicate", "reorder"):
                if not 0 <= getattr(fault, name) <= 1:
                    raise ScheduleError(f"{fault}: {name} is a probability")
            if fault.loss == 1 and not fault.raw:
                raise ScheduleError(f"{fault}: loss is below 1; a partition lets nothing through")
        if isinstance(fault, Slow) and not 1 <= fault.factor < math.inf:
            raise ScheduleError(f"{fault}: factor must be at least 1 and finite")
        if isinstance(fault, Skew) and not (
            -0.5 <= fault.drift <= 1 and math.isfinite(fault.offset_s)
        ):
            raise ScheduleError(f"{fault}: drift is from -0.5 to 1, and offset_s finite")
        if isinstance(fault, Partition) and not fault.side:
            raise ScheduleError(f"{fault} has nobody on its side")

    def _check_moment(self, fault: Fault, moment: Moment) -> None:
        if isinstance(moment, When):
            if moment.kind not in KINDS or moment.count < 1 or not 0 <= moment.plus_s < math.inf:
                raise ScheduleError(f"{fault} has a condition that never holds")
            if moment.kind != "crash" and moment.operation not in OPERATIONS:
                near = difflib.get_close_matches(moment.operation, OPERATIONS, 1)
                meant = f"; did you mean {near[0]!r}?" if near else ""
                raise ScheduleError(f"{fault}: no operation is called {moment.operation!r}{meant}")
            self._check_process(str(fault), moment.process)
        elif not 0 <= moment < math.inf:
            raise ScheduleError(f"{fault} is before the run begins")
        elif moment > self.limit_s:
            raise ScheduleError(f"{fault} is after the end of the run, at {self.limit_s:g} s")

    def _check_restart(self, fault: Restart) -> None:
        if isinstance(fault.at_s, When):
            return
        for other in self.faults:
            if isinstance(other, Crash) and other.process == fault.process:
                if isinstance(other.at_s, When) or other.at_s <= fault.at_s:
                    return
        if fault.process == SERVICE and self.service_in is not None:
            return  # It may have ended with its process.
        raise ScheduleError(
            f"{fault} restarts a process that no earlier crash has ended; add the crash"
        )


_NUMBER: Final = (int, float)
_MAYBE_NUMBER: Final = (int, float, type(None))
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "processes": (int,),
    "seed": (int,),
    "faults": (tuple,),
    "semantics": (str,),
    "mutant": (str,),
    "recoverable": (bool,),
    "durable": (bool,),
    "service_in": (int, type(None)),
    "starts_s": (tuple,),
    "hosts": (tuple,),
    "tasks": (int, type(None)),
    "services": (int,),
    "places": (tuple,),
    "heartbeat_timeout_s": _NUMBER,
    "client_heartbeat_timeout_s": _MAYBE_NUMBER,
    "init_timeout_s": _MAYBE_NUMBER,
    "register_timeout_s": _NUMBER,
    "shutdown_timeout_s": _NUMBER,
    "death_order": (tuple,),
    "abort_collectives": (bool,),
    "latency_min_s": _NUMBER,
    "latency_max_s": _NUMBER,
    "loss": _NUMBER,
    "quiet_from_s": _MAYBE_NUMBER,
    "limit_s": _NUMBER,
}


def _is_number(value: object) -> bool:
    return type(value) in _NUMBER


def members_of(fault: Fault) -> Iterator[Member]:
    """Whom a fault names."""
    if isinstance(fault, Partition):
        yield from fault.side
        yield from fault.other
    elif fault.process is not None:
        yield fault.process
