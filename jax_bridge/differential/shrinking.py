"""Makes a difference small: the simplest case in which real processes depart from the simulator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coord_sim.sim.case import Case
from coord_sim.sim.shrinking import Budget, shrink
from jax_bridge.differential.arms import Arm, run_arm
from jax_bridge.differential.comparison import Verdict
from jax_bridge.scenario_runs import obstacles

_CANDIDATES_MAX: Final = 100_000
"""What is refused without being run costs nothing."""


@dataclass(frozen=True, slots=True)
class RealBudget:
    """What shrinking may cost.

    Attributes:
      runs: Of real processes.
      time_s: Seconds.
    """

    runs: int = 12
    time_s: float = 300.0


@dataclass(frozen=True, slots=True)
class SmallArm:
    """What came of shrinking.

    Attributes:
      arm: The simplest one that differs.
      runs: How many were run on real processes.
      seen_again: Whether the case that was given differed once more; if not, nothing was tried.
    """

    arm: Arm
    runs: int
    seen_again: bool


def shrink_arm(arm: Arm, folder: Path, verdict: Verdict, budget: RealBudget) -> SmallArm:
    """Shrinks a case whose run differs from the simulator's.

    A candidate must differ at the same level. It keeps its seed, as each run costs seconds.

    Args:
      arm: One that differs.
      folder: For the histories of the tries.
      verdict: Judges histories.
      budget: What it may cost.
    """
    if budget.runs < 1:
        return SmallArm(arm, 0, seen_again=False)
    search = _Search(arm, folder, verdict, budget)
    try:
        shrink(
            arm.case,
            search.differs,
            Budget(_CANDIDATES_MAX, budget.time_s, is_stopped=lambda: search.runs >= budget.runs),
        )
    except ValueError:  # It was not seen again.
        return SmallArm(arm, search.runs, seen_again=False)
    return SmallArm(search.smallest, search.runs, seen_again=True)


class _Search:
    def __init__(self, arm: Arm, folder: Path, verdict: Verdict, budget: RealBudget) -> None:
        self.smallest = arm
        self.runs = 0
        self._folder = folder
        self._verdict = verdict
        self._limit = budget
        self._level = arm.comparison.level
        self._seed = arm.case.schedule.seed

    def differs(self, case: Case) -> bool:
        """Runs a case, unless it costs too much."""
        if case.schedule.seed != self._seed or self.runs >= self._limit.runs:
            return False
        if any(obstacles(case.schedule, self.smallest.service)):
            return False
        folder = self._folder / f"try-{self.runs}"
        self.runs += 1
        arm = run_arm(case, self.smallest.service, folder, self._verdict)
        if arm.comparison.is_same or arm.comparison.level != self._level:
            return False
        self.smallest = arm
        return True
