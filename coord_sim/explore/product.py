"""What an edge does to the rest of a whole state: to what the judge knows, and to the budget.

Everything here is a table from small numbers to small numbers that is filled as it is used, so that the
inner loop of the search looks up, and computes only what it meets for the first time.
"""

from __future__ import annotations

from typing import TypeAlias

from checker.history import Event
from coord_sim.explore.budgets import Budgets, Price
from coord_sim.explore.graph import Edge, Permutation
from coord_sim.explore.happenings import Happening, events_of
from coord_sim.explore.judge import Judge

Table: TypeAlias = dict[int, int]

BITS = 21
MASK = (1 << BITS) - 1
"""A whole state is three numbers of so many bits: protocol, judge, budget."""

IMPOSSIBLE = -1
"""Instead of the next number: the budget is not enough, or the judge finds no explanation."""


class Way:
    """An edge, prepared. One of `judged` and `both` is used.

    Attributes:
      target: The protocol's state, shifted to its place.
      spends: From budget to budget, renamed if there is one way to rename.
      judged: From judge to judge, likewise.
      least: If there are several ways to rename: from judge and budget, both as they are before it, to
        the least of the renamed ones.
    """

    __slots__ = ("edge", "is_fault", "judged", "least", "spends", "target")

    def __init__(self, edge: Edge, spends: Table, judged: Table, least: Table | None) -> None:
        self.edge = edge
        self.target = edge.target << 2 * BITS
        self.is_fault = edge.is_fault
        self.spends = spends
        self.judged = judged
        self.least = least


class Tables:
    """The tables of one search."""

    def __init__(self, judge: Judge, budgets: Budgets) -> None:
        self._judge = judge
        self._budgets = budgets
        self._spends: dict[tuple[Price, Permutation | None], Table] = {}
        self._judged: dict[tuple[tuple[Happening, ...], Permutation | None], Table] = {}
        self._least: dict[tuple[Permutation, ...], Table] = {}
        self._events: dict[tuple[Happening, ...], tuple[Event, ...]] = {}
        self._after: dict[tuple[tuple[Happening, ...], int], int] = {}
        self._renamed_judged: dict[tuple[int, Permutation], int] = {}
        self._renamed_budgets: dict[tuple[int, Permutation], int] = {}

    def way(self, edge: Edge) -> Way:
        """Prepares an edge."""
        several = len(edge.renamings) > 1
        renaming = None if several else edge.renamings[0]
        return Way(
            edge,
            self._spends.setdefault((edge.price, renaming), {}),
            self._judged.setdefault((edge.happenings, renaming), {}),
            self._least.setdefault(edge.renamings, {}) if several else None,
        )

    def spend(self, way: Way, budget: int) -> int:
        """Fills in `way.spends[budget]`."""
        left = self._budgets.without(budget, way.edge.price)
        if left is None:
            left = IMPOSSIBLE
        elif way.least is None:
            left = self._renamed_budget(left, way.edge.renamings[0])
        way.spends[budget] = left
        return left

    def judge(self, way: Way, judged: int) -> int:
        """Fills in `way.judged[judged]`."""
        after = self.after(judged, way.edge.happenings)
        if after != IMPOSSIBLE and way.least is None:
            after = self._renamed_judge(after, way.edge.renamings[0])
        way.judged[judged] = after
        return after

    def after(self, judged: int, happenings: tuple[Happening, ...]) -> int:
        """What the judge makes of more happenings, or `IMPOSSIBLE`."""
        if not happenings:
            return judged
        known = self._after.get((happenings, judged))
        if known is None:
            events = self._events.get(happenings)
            if events is None:
                events = self._events[happenings] = events_of(happenings)
            after = self._judge.after(judged, events)
            known = IMPOSSIBLE if after is None else after
            self._after[happenings, judged] = known
        return known

    def rename(self, way: Way, both: int) -> int:
        """Fills in `way.least[both]`."""
        assert way.least is not None
        least = min(self.renamed(both, renaming) for renaming in way.edge.renamings)
        way.least[both] = least
        return least

    def renamed(self, both: int, renaming: Permutation) -> int:
        """Judge and budget, shifted as in a whole state, under other numbers of processes."""
        judged = self._renamed_judge(both >> BITS, renaming)
        return judged << BITS | self._renamed_budget(both & MASK, renaming)

    def _renamed_judge(self, judged: int, renaming: Permutation) -> int:
        known = self._renamed_judged.get((judged, renaming))
        if known is None:
            known = self._judge.renamed(judged, renaming)
            self._renamed_judged[judged, renaming] = known
        return known

    def _renamed_budget(self, budget: int, renaming: Permutation) -> int:
        known = self._renamed_budgets.get((budget, renaming))
        if known is None:
            known = self._budgets.renamed(budget, renaming)
            self._renamed_budgets[budget, renaming] = known
        return known
