"""One seed, many independent streams of randomness.

Each concern draws from a stream of its own name, so that drawing more in one does not change another.
Only `random()` and `getrandbits()` are used: their output is the same on every supported Python.
"""

from __future__ import annotations

import random

from coord_sim.core.identifiers import INCARNATION_BITS, Incarnation


class Entropy:
    """Named streams of one seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def stream(self, name: str) -> Stream:
        """The stream of that name, from its beginning."""
        return Stream(random.Random(f"coordlab/{self._seed}/{name}"))  # noqa: S311 - simulation


class Stream:
    """Draws that are reproducible across Python versions."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self._source.random() < probability

    def between(self, low: float, high: float) -> float:
        """A number drawn evenly from `[low, high)`."""
        return low + (high - low) * self._source.random()

    def below(self, count: int) -> int:
        """A whole number from 0 to `count - 1`."""
        return min(int(self._source.random() * count), count - 1)

    def incarnation(self) -> Incarnation:
        """A fresh incarnation; never 0, which means none."""
        return Incarnation(self._source.getrandbits(INCARNATION_BITS) or 1)
