"""What faults real processes can suffer, by signals and by a relay between each and its service."""

from __future__ import annotations

from coord_sim.faults import Degrade, Fault, Partition, Skew, Slow
from coord_sim.moments import SERVICE, Member


def not_for_processes(fault: Fault, processes: int) -> str | None:
    """Why a fault cannot be done to real processes; None if it can.

    Args:
      fault: Any.
      processes: How many the job has.
    """
    match fault:
        case Slow() | Skew():
            return f"{type(fault).__name__.lower()} cannot be done to real processes"
        case Degrade(raw=True):
            return "messages are not lost, doubled or reordered (raw) between real processes"
        case Degrade() if fault.duplicate or fault.reorder:
            return (
                "between real processes TCP puts right what comes twice (duplicate) or out of order "
                "(reorder); of that a delay is seen at most: use delay_s and jitter_s"
            )
        case Partition():
            side, other = sides_of(fault, processes)
            if SERVICE not in side | other:
                return (
                    "what passes between processes themselves cannot be cut; a partition of real "
                    "processes has the service on one side"
                )
    return None


def sides_of(fault: Partition, processes: int) -> tuple[set[Member], set[Member]]:
    """Both sides of a partition; the other one is everybody else if it is not said."""
    side = set(fault.side)
    return side, set(fault.other) or {*range(processes), SERVICE} - side
