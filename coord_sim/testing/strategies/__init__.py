"""Hypothesis strategies: fault plans, schedules, programs and histories.

All of them shrink towards what is easy to read: fewer faults, fewer processes, fewer steps, early and
round times, the seed 0.
"""

from coord_sim.testing.requirements import require_hypothesis

require_hypothesis(__name__)

from coord_sim.testing.strategies.faults import faults, incidents, schedules  # noqa: E402
from coord_sim.testing.strategies.histories import histories, operations  # noqa: E402
from coord_sim.testing.strategies.programs import programs, steps  # noqa: E402

__all__ = [
    "faults",
    "histories",
    "incidents",
    "operations",
    "programs",
    "schedules",
    "steps",
]
