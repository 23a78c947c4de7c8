"""Hunting: random scenarios on real processes, a judge, and what is wrong made small and kept.

`drawing` draws a case from a seed, `trying` runs it on real processes, `judging` prepares what came of
it for the judge, `reducing` makes the case small, `keeping` writes the files, `workers` are the
processes that do all this several at a time, and `hunting` is the loop around them. Who judges is an
argument.
"""

from jax_bridge.hunt.drawing import draw_case
from jax_bridge.hunt.hunting import Hunt, Hunter, Sighting
from jax_bridge.hunt.judging import Judge, Judgement
from jax_bridge.hunt.reducing import Reduced
from jax_bridge.hunt.trying import Trial, Where, try_case

__all__ = [
    "Hunt",
    "Hunter",
    "Judge",
    "Judgement",
    "Reduced",
    "Sighting",
    "Trial",
    "Where",
    "draw_case",
    "try_case",
]
