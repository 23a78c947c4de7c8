"""Whether the simulator could have given what real processes saw."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from checker.history import History
from coord_sim.sim import Run
from coord_sim.sim.case import Case
from coord_sim.sim.entropy import Entropy
from jax_bridge.differential.known import KnownDifference, explanation_of
from jax_bridge.differential.outcome import (
    LEVELS,
    Difference,
    Outcome,
    differences,
    outcome_of,
)
from jax_bridge.differential.variations import (
    Timing,
    Variation,
    changed,
    draw_variation,
    vary,
)

VARIATIONS: Final = 200
"""How many timings are tried before two runs are said to differ."""

_FRESH: Final = 0.4
"""How often a timing is drawn from nothing; else the nearest one is changed."""

Verdict: TypeAlias = Callable[[History], str]
"""The checker's word about a history."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A real run beside the simulated run that is nearest to it.

    Attributes:
      simulated: The nearest run.
      tried: How many timings were tried.
      differences: What the nearest run does not share and nothing explains, in the order of time.
      explained: What it does not share for a known reason.
      verdicts: The judge's words about the real run and about the nearest one.
    """

    simulated: Run
    tried: int
    differences: tuple[Difference, ...]
    explained: tuple[tuple[Difference, KnownDifference], ...]
    verdicts: tuple[str, str]

    @property
    def is_same(self) -> bool:
        """Whether all that differs is explained; then the verdicts may differ for the same reason."""
        if self.differences:
            return False
        return bool(self.explained) or self.verdicts[0] == self.verdicts[1]

    @property
    def level(self) -> str:
        """The coarsest level at which they differ; `verdict` if they differ in that alone."""
        levels = {each.level for each in self.differences}
        return next((level for level in LEVELS if level in levels), "verdict")


def compare(case: Case, run: Run, verdict: Verdict, *, variations: int = VARIATIONS) -> Comparison:
    """Looks for a timing with which the simulator shows what a real run showed.

    Timings are drawn around those of the real run, and the nearest one so far is changed in one thing at
    a time. The search is the same for the same run.

    Args:
      case: What was run.
      run: What came of it on real processes.
      verdict: Judges histories: runs with the same facts must get the same word.
      variations: How many timings to try.
    """
    timing = Timing(case, run)
    found = outcome_of(run)
    word = verdict(run.history)
    stream = Entropy(0).stream("differential")
    schedule = case.schedule
    draw = partial(draw_variation, stream, len(schedule.faults), schedule.task_count)
    variation = draw()
    nearest = _look(timing, variation, found)
    for tried in range(1, variations + 1):
        if tried > 1:
            is_fresh = stream.chance(_FRESH)
            variation = draw() if is_fresh else changed(stream, nearest.variation)
            look = _look(timing, variation, found)
            if look.weight <= nearest.weight:
                nearest = look
        if nearest.variation is variation and not nearest.differences:
            if verdict(nearest.simulated.history) == word:
                return _comparison(nearest, tried, (word, word))
    return _comparison(nearest, variations, (word, verdict(nearest.simulated.history)))


@dataclass(frozen=True, slots=True)
class _Look:
    """A simulated run beside the real one, without verdicts."""

    variation: Variation
    simulated: Run
    differences: tuple[Difference, ...]
    explained: tuple[tuple[Difference, KnownDifference], ...]
    weight: tuple[int, ...]


def _look(timing: Timing, variation: Variation, found: Outcome) -> _Look:
    simulated = vary(timing, variation)
    expected = outcome_of(simulated)
    unexplained, explained = [], []
    for difference in differences(found, expected):
        known = explanation_of(difference, found, expected)
        if known is None:
            unexplained.append(difference)
        else:
            explained.append((difference, known))
    weight = tuple(sum(each.level == level for each in unexplained) for level in LEVELS)
    return _Look(variation, simulated, tuple(unexplained), tuple(explained), weight)


def _comparison(nearest: _Look, tried: int, verdicts: tuple[str, str]) -> Comparison:
    return Comparison(nearest.simulated, tried, nearest.differences, nearest.explained, verdicts)
