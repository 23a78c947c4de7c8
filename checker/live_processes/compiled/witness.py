"""The witness of a verdict that the compiled check gave: found by plain Python when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from checker.live_processes.witness import PlacedAnswer, PlacedFailure, Witness


class DeferredWitness(Witness):
    """A witness that is found on demand.

    Args:
      find: Finds it; takes as long as checking in plain Python.
      noun: What it places: `round` or `answer`.
    """

    def __init__(self, find: Callable[[], Witness], noun: str) -> None:
        self.noun = noun
        self._find = find

    @cached_property
    def _found(self) -> Witness:
        return self._find()

    @property
    def answers(self) -> tuple[PlacedAnswer, ...]:
        """Every round, or every answer, with its instant."""
        return self._found.answers

    @property
    def failures(self) -> tuple[PlacedFailure, ...]:
        """The failures that were moved, or that nobody recorded."""
        return self._found.failures

    def explain(self) -> str:
        """One line on the answers, then one per shifted failure."""
        return self._found.explain()
