"""What a campaign tries: one case for each seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coord_sim.schedule import Schedule
from coord_sim.sim.case import Case
from coord_sim.sim.nemesis import draw_schedule


@dataclass(frozen=True, slots=True)
class Plan:
    """Draws a case from each seed.

    Attributes:
      program: As in `Case`.
      base: What all schedules have in common.
      arguments: Of the program.
      stalls: Whether members may stand still for longer than the heartbeat time-out.
      kinds: Kinds of faults to choose from; all if None.
      until_s: Faults begin before this moment.
    """

    program: str
    base: Schedule
    arguments: Mapping[str, Any] = field(default_factory=dict)
    stalls: bool = True
    kinds: tuple[str, ...] | None = None
    until_s: float = 6.0

    def case(self, seed: int) -> Case:
        """The case of a seed.

        Raises:
          ScheduleError: there is no such kind of fault.
        """
        schedule = draw_schedule(
            seed, self.base, until_s=self.until_s, stalls=self.stalls, kinds=self.kinds
        )
        return Case(self.program, schedule, self.arguments)
