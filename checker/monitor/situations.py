"""The frontiers of `checker.search`, kept for as long as a system runs.

They forget what only a finished history needs: the paths from which orders are told, and the indexes of
values that are gone.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from checker.monitor.kinds import LiveKinds
from checker.search.budget import Budget
from checker.search.counting import CountingFrontier, Effort
from checker.search.frontier import Frontier

_KEEP: Final = (64, 8, 1)
"""What is kept per situation when there are too many, less and less."""


class PatientBudget(Budget):
    """A budget that is used again and again."""

    def renew(self) -> None:
        """Gives back all steps; the deadline stays."""
        self.steps = 0
        self._next_look = 0

    def limit(self, timeout_s: float | None) -> None:
        """Sets a deadline so many seconds from now, or none."""
        self.timeout_s = timeout_s
        self.deadline = None if timeout_s is None else time.monotonic() + timeout_s


class Situation(NamedTuple):
    """A configuration in terms of operations."""

    state: Hashable
    satisfied: frozenset[int]
    spent: frozenset[int]


class LongFrontier(Frontier):
    """A `Frontier` without end."""

    dropped = False

    def __init__(self, kinds: LiveKinds, budget: Budget) -> None:
        super().__init__(kinds.table, kinds.hints, budget)

    def ahead(self) -> Frontier:
        """A copy, to look ahead from."""
        return self.copy()

    def forget(self) -> None:
        """Drops the paths."""
        self.configurations = [(*configuration[:3], None) for configuration in self.configurations]

    def weaken(self) -> bool:
        """There is no way to keep less."""
        return False

    def resume(
        self, opened: Mapping[int, tuple[int, int]], situations: Iterator[Situation]
    ) -> None:
        """Goes on from the situations of another frontier.

        Args:
          opened: By operation that is open or of unknown outcome, its kind and when it responds.
          situations: What is possible.
        """
        for operation, (kind, responds) in opened.items():
            self.invoke(operation, kind, responds)
        self.configurations = [
            (state, self._mask(satisfied), self._mask(spent), None)
            for state, satisfied, spent in situations
        ]

    def _mask(self, operations: frozenset[int]) -> int:
        return sum(self._bit_of[operation] for operation in operations)


class LongCounting(CountingFrontier):
    """A `CountingFrontier` without end, which joins situations rather than fail."""

    def __init__(self, kinds: LiveKinds, budget: Budget) -> None:
        super().__init__(kinds.words, budget)
        self._weaker = iter(_KEEP)

    def ahead(self) -> CountingFrontier:
        """A copy, to look ahead from."""
        other = self.copy()
        other.entries = [copy.copy(entry) for entry in self.entries]
        return other

    def forget(self) -> None:
        """Drops the paths, and indexes of values that no open operation has."""
        for entry in self.entries:
            entry.path = None
        for index in (
            self._is_pure, self._not_pure, self._is_effect, self._not_effect, self._writes
        ):  # fmt: skip
            for value in [value for value, mask in index.items() if not mask]:
                del index[value]

    def weaken(self) -> bool:
        """Keeps less from now on: what contradicts is certain still. False if there is no less."""
        keep = next(self._weaker, None)
        if keep is None:
            return False
        self._effort = Effort(joins=True, keep=keep)
        return True

    def situations(self) -> Iterator[Situation]:
        """What is possible. Of a class of operations, the earliest count as used."""
        for entry in self.entries:
            spent = {op for bit, (op, _) in self._open.items() if entry.spent & bit}
            satisfied = {op for bit, (op, _) in self._open.items() if entry.satisfied & bit}
            for klass, count in entry.counts.items():
                spent.update(self._called[klass][:count])
            yield Situation(entry.state, frozenset(satisfied), frozenset(spent))


Long: TypeAlias = LongFrontier | LongCounting
