"""Carries out faults, at their times and when their conditions hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checker.history import Fault as FaultEvent
from coord_sim.core.identifiers import seconds
from coord_sim.errors import ScheduleError
from coord_sim.faults import (
    Crash,
    Degrade,
    Fault,
    Partition,
    Pause,
    Refuse,
    Reset,
    Restart,
    Skew,
    Slow,
)
from coord_sim.moments import SERVICE, When

if TYPE_CHECKING:
    from coord_sim.sim.simulation import Simulation


class Injector:
    """The faults of one run.

    Attributes:
      restarts_to_come: Restarts that will come for certain.
      record: What was done so far.
    """

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._counts: dict[tuple[str, int, str], int] = {}
        self._waiting: list[tuple[When, Fault]] = []
        self._missed: list[Fault] = []
        self.restarts_to_come = 0
        self.record: list[FaultEvent] = []

    def add(self, fault: Fault) -> None:
        """Plans a fault: for its time (now, if that is over), or its condition."""
        if isinstance(fault, Degrade) and fault.bytes_per_s:
            raise ScheduleError(
                f"{fault}: bytes_per_s is for real processes; messages have no size"
            )
        self._missed.append(fault)
        if isinstance(fault.at_s, When):
            self._waiting.append((fault.at_s, fault))
        else:
            self._plan(fault, seconds(fault.at_s))

    def happened(self, kind: str, process: int, operation: str) -> None:
        """Counts something that conditions name; those that hold now let their faults come."""
        key = (kind, process, operation)
        self._counts[key] = count = self._counts.get(key, 0) + 1
        if not self._waiting:
            return
        for entry in list(self._waiting):
            when, fault = entry
            if (when.kind, when.process, when.operation, when.count) == (*key, count):
                self._waiting.remove(entry)
                self._plan(fault, self._simulation.queue.now_ns + seconds(when.plus_s))

    def _plan(self, fault: Fault, time_ns: int) -> None:
        if isinstance(fault, Restart) and fault.process != SERVICE:
            self.restarts_to_come += 1
        self._simulation.queue.at(time_ns, self._carry_out, fault)

    def missed(self) -> tuple[Fault, ...]:
        """The faults that have not happened."""
        return tuple(self._missed)

    def _carry_out(self, fault: Fault) -> None:
        simulation = self._simulation
        now_ns = simulation.queue.now_ns
        self._missed.remove(fault)
        lasts_s = getattr(fault, "for_s", None)
        self.record.append(
            FaultEvent(
                time_ns=now_ns,
                name=described(fault),
                until_ns=None if lasts_s is None else now_ns + seconds(lasts_s),
            )
        )
        match fault:
            case Crash():
                simulation.crash(fault.process)
            case Restart():
                if fault.process != SERVICE:
                    self.restarts_to_come -= 1
                simulation.restart(fault.process)
            case Pause():
                simulation.pause(fault.process, seconds(fault.for_s))
            case Slow():
                simulation.slow_down(fault)
            case Skew():
                simulation.skew(fault.process, seconds(fault.offset_s), fault.drift)
            case Degrade():
                simulation.network.degrade(fault)
            case Partition():
                simulation.network.partition(fault)
            case Reset():
                simulation.reset(fault.process)
            case Refuse():
                simulation.network.refuse(fault)


def described(fault: Fault) -> str:
    """A fault in a few words."""

    def who(member: int | str | None) -> str:
        if member is None:
            return "all processes"
        return "the service" if member == SERVICE else f"process {member}"

    match fault:
        case Crash():
            return f"crash of {who(fault.process)}"
        case Restart():
            return f"restart of {who(fault.process)}"
        case Pause():
            return f"pause of {who(fault.process)} for {fault.for_s:g} s"
        case Slow():
            more = f" and {fault.delay_s:g} s a message" if fault.delay_s else ""
            return f"slowness of {who(fault.process)}: {fault.factor:g} times{more}"
        case Skew():
            return f"clock of {who(fault.process)}: {fault.offset_s:+g} s, drift {fault.drift:+g}"
        case Degrade():
            wrong = [
                f"{name} {getattr(fault, name):g}"
                for name in ("delay_s", "jitter_s", "loss", "duplicate", "reorder", "bytes_per_s")
                if getattr(fault, name)
            ]
            raw = " (raw)" if fault.raw else ""
            return f"bad network of {who(fault.process)}: {', '.join(wrong) or 'nothing'}{raw}"
        case Partition():
            sides = [
                ", ".join(who(member) for member in side) or "everybody else"
                for side in (fault.side, fault.other)
            ]
            return f"partition: {sides[0]} {'to' if fault.one_way else 'from'} {sides[1]}"
        case Reset():
            return f"reset of the connection of {who(fault.process)}"
        case Refuse():
            return f"refusal of connections of {who(fault.process)}"
