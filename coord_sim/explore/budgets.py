"""What may still be done, packed into one number each: all that bounds limit is here and nowhere else.

A budget has one field per process for its calls and for its crashes, and fields for all together. Each
has a guard bit above it, which stays 0 as long as nothing is overdrawn: a purchase is a subtraction and
a mask. Distinct budgets are numbered, and so are prices and what they make of a budget memoised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coord_sim.explore.bounds import Bounds


class Price(NamedTuple):
    """What a move costs. `caller` and `crashed` are processes, or None."""

    caller: int | None = None
    crashed: int | None = None
    restarts: int = 0
    suspicions: int = 0
    retries: int = 0


class Budgets:
    """The budgets of one exploration, by number."""

    def __init__(self, bounds: Bounds) -> None:
        self._count = bounds.processes
        in_all = bounds.crashes * bounds.processes
        if bounds.crashes_in_all is not None:
            in_all = min(in_all, bounds.crashes_in_all)
        # The sum of what processes may do is a limit only if it is less than that.
        self._sum_counts = in_all < bounds.crashes * bounds.processes
        fields = [
            *[bounds.calls] * bounds.processes,
            *[bounds.crashes] * bounds.processes,
            in_all if self._sum_counts else 0,
            bounds.restarts,
            bounds.suspicions,
            bounds.retries,
        ]
        self._width = max(fields).bit_length() + 1
        self._guards = self._packed([1 << (self._width - 1)] * len(fields))
        self._values: list[int] = []
        self._numbers: dict[int, int] = {}
        self._costs: dict[Price, int] = {}
        self.initial = self._number(self._packed(fields))

    def __len__(self) -> int:
        return len(self._values)

    def without(self, budget: int, price: Price) -> int | None:
        """What is left, or None if it is not enough."""
        cost = self._costs.get(price)
        if cost is None:
            cost = self._costs[price] = self._cost(price)
        left = self._values[budget] - cost
        return None if left < 0 or left & self._guards else self._number(left)

    def renamed(self, budget: int, processes: Sequence[int]) -> int:
        """The same under other numbers of processes."""
        fields = self._fields(self._values[budget])
        renamed = list(fields)
        for old, new in enumerate(processes):
            renamed[new] = fields[old]
            renamed[self._count + new] = fields[self._count + old]
        return self._number(self._packed(renamed))

    def _cost(self, price: Price) -> int:
        fields = [0] * (2 * self._count + 4)
        if price.caller is not None:
            fields[price.caller] = 1
        if price.crashed is not None:
            fields[self._count + price.crashed] = 1
            fields[2 * self._count] = int(self._sum_counts)
        fields[-3:] = [price.restarts, price.suspicions, price.retries]
        return self._packed(fields)

    def _packed(self, fields: Sequence[int]) -> int:
        return sum(value << (self._width * place) for place, value in enumerate(fields))

    def _fields(self, value: int) -> list[int]:
        mask = (1 << self._width) - 1
        return [value >> (self._width * place) & mask for place in range(2 * self._count + 4)]

    def _number(self, value: int) -> int:
        number = self._numbers.setdefault(value, len(self._values))
        if number == len(self._values):
            self._values.append(value)
        return number
