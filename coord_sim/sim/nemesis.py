"""Draws faults from a seed."""

from __future__ import annotations

from coord_sim.faults import Crash, Fault, Restart
from coord_sim.sim.entropy import Entropy

_CRASHES_MAX = 3
_RESTART_SOON = 0.6
"""How often a process comes back before its death can have been noticed."""


def draw_faults(
    seed: int, processes: int, *, until_s: float, heartbeat_timeout_s: float
) -> tuple[Fault, ...]:
    """One to three crashes at random moments, most with a restart, soon or after the time-out.

    Args:
      seed: Determines the draw.
      processes: Who may be hit; the same process may be hit again.
      until_s: Crashes come before this moment.
      heartbeat_timeout_s: Restarts come up to twice as late.
    """
    stream = Entropy(seed).stream("nemesis")
    faults: list[Fault] = []
    down_until: dict[int, float] = {}
    for _ in range(1 + stream.below(_CRASHES_MAX)):
        process = stream.below(processes)
        at_s = round(stream.between(0.5, until_s), 3)
        if stream.chance(_RESTART_SOON):
            delay_s = stream.between(0.01, heartbeat_timeout_s / 2)
        else:
            delay_s = stream.between(heartbeat_timeout_s, 2 * heartbeat_timeout_s)
        stays_down = stream.chance(0.2)
        if at_s <= down_until.get(process, 0.0):
            continue  # It is down then, or its next restart is still to come.
        faults.append(Crash(process, at_s))
        if stays_down:
            down_until[process] = float("inf")
            continue
        back_s = round(at_s + delay_s, 3)
        down_until[process] = back_s
        faults.append(Restart(process, back_s))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))
