"""Depth-first search without pruning rules: slow and independent, for `--paranoid` and tests.

Orders are tried in the order of real time: the next operation is any whose invocation comes before the
first response of an operation not yet taken (Wing and Gong, 1993). Situations seen before are not tried
again (Lowe, 2017): a situation is the set of operations taken and the state.

Complexity: exponential; memory O(situations seen), each with a set of operations as a bit mask.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeAlias

from checker.search.budget import Budget
from checker.search.problem import NEVER, Problem
from checker.search.words import Steps

Use: TypeAlias = tuple[int, Hashable]
"""An operation, and the state after it."""


def search_depth_first(
    problem: Problem, steps: Steps, budget: Budget
) -> tuple[list[int] | None, int]:
    """Looks for a legal order of all operations that responded.

    Returns:
      The order, or None if there is none; and the number of events of the longest attempt.

    Raises:
      BudgetSpentError: see `Budget`.
    """
    responded = problem.responses()
    by_response = sorted(
        (i for i in range(len(responded)) if responded[i] != NEVER), key=responded.__getitem__
    )
    if not by_response:
        return [], len(problem.events)
    moves = _Moves(problem, steps, responded)
    state = steps.init()
    seen = {(0, state)}
    stack = [(0, 0, moves.from_(0, state, responded[by_response[0]]))]
    order: list[int] = []
    longest = responded[by_response[0]]
    while stack:
        taken, owed, candidates = stack[-1]
        for operation, following in candidates:
            situation = (taken | 1 << operation, following)
            if situation in seen:
                continue
            budget.spend(len(seen))
            seen.add(situation)
            while owed < len(by_response) and situation[0] >> by_response[owed] & 1:
                owed += 1
            order.append(operation)
            if owed == len(by_response):
                return order, len(problem.events)
            limit = responded[by_response[owed]]
            longest = max(longest, limit)
            stack.append((situation[0], owed, moves.from_(*situation, limit)))
            break
        else:
            stack.pop()
            if order:
                order.pop()
    return None, longest


class _Moves:
    def __init__(self, problem: Problem, steps: Steps, responded: list[int]) -> None:
        self._kind = problem.kind
        self._steps = steps
        self._invoked = [0] * len(responded)
        for position, event in enumerate(problem.events):
            if event >= 0:
                self._invoked[event] = position

    def from_(self, taken: int, state: Hashable, limit: int) -> Iterator[Use]:
        """Operations not taken that were invoked before `limit`, the first response still owed."""
        first = (~taken & (taken + 1)).bit_length() - 1
        for operation in range(first, len(self._invoked)):
            if self._invoked[operation] > limit:
                return
            if not taken >> operation & 1:
                for following in self._steps.next(self._kind[operation], state):
                    yield operation, following
