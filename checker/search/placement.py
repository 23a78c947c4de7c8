"""From the visible uses that a search found to an order of all operations.

A search only says which operations it used with an effect that counts, in order. All others were
satisfied for free or hidden. This replays the history once and gives each a place: where it first was
legal and changed nothing, or just before a blind operation that hides it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from checker.search.frontier import Use
from checker.search.problem import Hints, Problem
from checker.search.words import Steps
from checker.specification import Hint


class Placement:
    """Replays one problem.

    Args:
      problem: The object's history.
      steps: The specification.
      hints: Per kind.
      visible: Local numbers of the operations used, in order, each with which of its successors was
      taken.

    Attributes:
      order: Local numbers of all operations placed, in order.
      state: The state after them.
    """

    def __init__(
        self, problem: Problem, steps: Steps, hints: Hints, visible: Sequence[Use]
    ) -> None:
        self.order: list[int] = []
        self._problem = problem
        self._steps = steps
        self._hints = hints
        self._visible = visible
        self._is_visible = frozenset(operation for operation, _ in visible)
        self._next = 0
        self.state: Hashable = steps.init()
        self._waiting: dict[int, int] = {}
        """Open operations without a place and not to be used visibly, with their kinds."""
        self._placed: set[int] = set()
        self._responded = problem.responses()

    def run(self, events_max: int | None = None) -> bool:
        """Replays up to so many events; False if an operation that responds finds no place."""
        events = self._problem.events
        for event in events if events_max is None else events[:events_max]:
            if event >= 0:
                if event not in self._is_visible and self._responded[event] < len(events):
                    self._waiting[event] = self._problem.kind[event]
                    self._place_free((event,))
                continue
            operation = ~event
            while operation not in self._placed:
                if self._next == len(self._visible):
                    return False
                self._use(*self._visible[self._next])
                self._next += 1
        return True

    def _use(self, operation: int, choice: int) -> None:
        kind = self._problem.kind[operation]
        following = self._steps.next(kind, self.state)[choice]
        if self._hints[kind] & Hint.BLIND:
            for other, other_kind in list(self._waiting.items()):
                if self._hints[other_kind] & Hint.TOTAL:
                    self._settle(other)
        self._settle(operation)
        self.state = following
        self._place_free(tuple(self._waiting))

    def _place_free(self, candidates: Sequence[int]) -> None:
        for operation in candidates:
            if self.state in self._steps.next(self._waiting[operation], self.state):
                self._settle(operation)

    def _settle(self, operation: int) -> None:
        self._waiting.pop(operation, None)
        self._placed.add(operation)
        self.order.append(operation)
