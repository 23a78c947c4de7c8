"""All interleavings within bounds of the very same core."""

from coord_sim.explore import names
from coord_sim.explore.bounds import PROGRAMS, Bounds
from coord_sim.explore.holes import HOLES
from coord_sim.explore.judge import Judge, Unjudged
from coord_sim.explore.search import STATES_MAX, Exploration, Finding, explore

__all__ = [
    "HOLES",
    "PROGRAMS",
    "STATES_MAX",
    "Bounds",
    "Exploration",
    "Finding",
    "Judge",
    "Unjudged",
    "explore",
    "names",
]
