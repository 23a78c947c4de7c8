"""One seed, many independent streams of randomness.

Each concern draws from a stream of its own name, so that drawing more in one does not change another.
Only `random()` and `getrandbits()` are used: their output is the same on every supported Python.

What is drawn can be kept on a `Tape`, and be played back: then a run no longer depends on how the seed
is turned into draws, and survives changes of the code.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Final

from coord_sim.core.identifiers import INCARNATION_BITS, Incarnation

INCARNATIONS: Final = "/incarnation"
"""Ends the name of what a tape keeps of the incarnations that a stream drew."""


class Tape:
    """The draws of a run, by stream, in the order in which each stream gave them.

    Attributes:
      draws: Numbers from `[0, 1)`, and incarnations (whole numbers).
    """

    def __init__(self, draws: Mapping[str, list[float]] | None = None) -> None:
        self.draws: dict[str, list[float]] = {} if draws is None else dict(draws)
        self._is_played = draws is not None
        self._left: dict[str, int] = {}

    @property
    def is_used(self) -> bool:
        """Whether a run has recorded on it, or played it."""
        return bool(self._left) or (bool(self.draws) and not self._is_played)

    def departure(self) -> str | None:
        """Where a run that played the tape asked for more than it holds, or less; None if nowhere."""
        for name, more in self._left.items():
            if more < 0:
                return f"stream {name!r} asked for more than the {len(self.draws[name])} draws it holds"
        if self._is_played:
            for name, draws in self.draws.items():
                left = self._left.get(name, len(draws))
                if left:
                    return f"{left} of the {len(draws)} draws of stream {name!r} were not asked for"
        return None

    def hold(self, name: str, draw: Callable[[], float]) -> Callable[[], float]:
        """A function that gives what is on the tape and then, or while recording, draws."""
        kept = self.draws.setdefault(name, [])
        if not self._is_played:

            def record() -> float:
                value = draw()
                kept.append(value)
                return value

            return record
        coming = iter(kept)
        left = self._left
        left[name] = len(kept)

        def play() -> float:
            value = next(coming, None)
            left[name] -= 1
            return draw() if value is None else value

        return play


class Entropy:
    """Named streams of one seed.

    Args:
      seed: The seed.
      tape: Records what is drawn, or is played.
    """

    def __init__(self, seed: int, tape: Tape | None = None) -> None:
        if tape is not None and tape.is_used:
            raise ValueError("a tape holds one run: take a fresh one, or load it again")
        self._seed = seed
        self._tape = tape

    def stream(self, name: str) -> Stream:
        """The stream of that name, from its beginning."""
        source = random.Random(f"coordlab/{self._seed}/{name}")  # noqa: S311 - simulation
        if self._tape is None:
            return Stream(source.random, source.getrandbits)
        hold = self._tape.hold
        bits = hold(f"{name}{INCARNATIONS}", lambda: source.getrandbits(INCARNATION_BITS))
        return Stream(hold(name, source.random), lambda _bits: int(bits()))


class Stream:
    """Draws that are reproducible across Python versions.

    Attributes:
      random: Gives the next number from `[0, 1)`.
    """

    __slots__ = ("_getrandbits", "random")

    def __init__(self, random: Callable[[], float], getrandbits: Callable[[int], int]) -> None:
        self.random = random
        self._getrandbits = getrandbits

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return self.random() < probability

    def between(self, low: float, high: float) -> float:
        """A number drawn evenly from `[low, high)`."""
        return low + (high - low) * self.random()

    def below(self, count: int) -> int:
        """A whole number from 0 to `count - 1`."""
        return min(int(self.random() * count), count - 1)

    def order(self, count: int) -> tuple[int, ...]:
        """The whole numbers from 0 to `count - 1`, in any order."""
        left = list(range(count))
        return tuple(left.pop(self.below(len(left))) for _ in range(count))

    def incarnation(self) -> Incarnation:
        """A fresh incarnation; never 0, which means none."""
        return Incarnation(self._getrandbits(INCARNATION_BITS) or 1)
