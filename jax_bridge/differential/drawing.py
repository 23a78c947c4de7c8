"""Cases drawn from a seed, of what real processes can do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from coord_sim.faults import Fault
from coord_sim.moments import When
from coord_sim.schedule import Schedule
from coord_sim.sim import Stream
from coord_sim.sim.case import Case
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.nemesis import draw_schedule

KINDS: Final = ("crash", "host crash", "pause", "partition", "reset", "service pause")
"""The kinds of faults that signals and a relay can do, on any service."""

_FAULTS_FROM_S: Final = 1.0
"""Real processes need a while until they connect; what hits them before is no matter of the protocol."""

_FAULTS_UNTIL_S: Final = 5.0
_QUIET_S: Final = 12.0
"""So long after the last fault a run ends in any case."""

_RECOVERABLE: Final = 0.7

_PROGRAMS: Final[Mapping[str, Callable[[Stream], dict[str, object]]]] = {
    "training_loop": lambda _: {"steps": 5, "step_s": 0.4},
    "block_traffic": lambda _: {"steps": 4},
    "store_traffic": lambda _: {"steps": 4},
    "barrier_traffic": lambda _: {"steps": 5},
    "nested_sets": lambda _: {"steps": 5},
    "lockstep": lambda stream: {"steps": 8, "step_s": 0.4, "timeout_s": 2.0 + stream.below(5)},
}


def draw_case(seed: int) -> Case:
    """A job of two to four processes, with a program and faults; lasts some 20 s at most."""
    stream = Entropy(seed).stream("differential/case")
    program = tuple(_PROGRAMS)[stream.below(len(_PROGRAMS))]
    base = Schedule(
        processes=2 + stream.below(3),
        recoverable=stream.chance(_RECOVERABLE),
        heartbeat_timeout_s=float(2 + stream.below(2)),
        shutdown_timeout_s=5.0,
        limit_s=1.0,
    )
    drawn = draw_schedule(seed, base, until_s=_FAULTS_UNTIL_S, kinds=KINDS)
    assert drawn.quiet_from_s is not None
    faults = tuple(map(_later, drawn.faults))
    over_s = [each.at_s + getattr(each, "for_s", 0.0) for each in faults]  # type: ignore[operator]
    quiet_from_s = max([drawn.quiet_from_s + _FAULTS_FROM_S, *over_s])  # Sums of floats differ.
    schedule = replace(
        drawn,
        faults=faults,
        death_order=(),  # Real services have their own.
        quiet_from_s=quiet_from_s,
        limit_s=quiet_from_s + _QUIET_S,
    )
    return Case(program, schedule, _PROGRAMS[program](stream))


def _later(fault: Fault) -> Fault:
    assert not isinstance(fault.at_s, When), "drawn faults come at times"
    return replace(fault, at_s=round(fault.at_s + _FAULTS_FROM_S, 3))
