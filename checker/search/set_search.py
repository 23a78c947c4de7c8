"""Set-linearizability: operations may take effect as one, at one instant.

The search is the frontier of `checker/search/frontier.py` with a step taken by a *group* of open
operations, and without pruning rules: a configuration is a state and the open operations that have taken
effect. When an operation responds, groups act one after the other until it has.

Source: Neiger, "Set-linearizability", PODC 1994; Castañeda, Rajsbaum and Raynal, "Unifying Concurrent
Objects and Distributed Tasks: Interval-Linearizability", JACM 2018.

Complexity: exponential in the operations that are open at once; `SetSpecification.group_max` helps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from itertools import combinations
from typing import TypeAlias

from checker.anomaly import Anomaly
from checker.errors import SpecificationError
from checker.linearization import Contradiction, Linearization, ObjectOrder, PossibleState
from checker.operations import Operations
from checker.search.budget import Budget, BudgetSpentError
from checker.search.explanation import KIND, summary_of
from checker.search.problem import Kinds, Problem, split
from checker.search.steps import Successors, first_state, said, successors_of
from checker.specification import SetSpecification
from checker.verdict import Invalid, Unknown, Valid, Verdict

SEARCH_NAME = "set frontier"

EXPLAINING_S = 1.0
"""What takes longer to find out about a contradiction is not told."""

Groups: TypeAlias = "tuple[Groups, tuple[int, ...]] | None"
"""Groups that acted, latest first: `(earlier, group)`."""


def check_set(
    operations: Operations, spec: SetSpecification, kinds: Kinds, budget: Budget
) -> Verdict:
    """Decides whether operations are set-linearizable; see `check_operations`."""
    orders: list[ObjectOrder] = []
    unknown: Unknown | None = None
    for problem in split(operations, kinds):
        frontier = _SetFrontier(operations, spec, problem, budget)
        try:
            failing = frontier.run()
        except BudgetSpentError as error:
            events = len(problem.events)
            unknown = unknown or Unknown(str(error), frontier.events_done, events, SEARCH_NAME)
            continue
        if failing is not None:
            return Invalid(frontier.anomaly(failing), SEARCH_NAME)
        orders.append(ObjectOrder(problem.key, frontier.groups()))
    if unknown is not None:
        return unknown
    found = tuple(orders)
    return Valid(Linearization(operations, spec, lambda: found), SEARCH_NAME)


class _SetFrontier:
    def __init__(
        self, operations: Operations, spec: SetSpecification, problem: Problem, budget: Budget
    ) -> None:
        self.events_done = 0
        self._operations = operations
        self._spec = spec
        self._problem = problem
        self._budget = budget
        self._open: list[int] = []
        self._steps: dict[tuple[Hashable, tuple[int, ...]], Successors] = {}
        self._possible: dict[tuple[Hashable, frozenset[int]], Groups] = {
            (first_state(spec), frozenset()): None
        }

    def run(self) -> int | None:
        """Runs all events; returns the operation whose response has no explanation, or None."""
        for position, event in enumerate(self._problem.events):
            self.events_done = position
            if event >= 0:
                self._open.append(event)
            elif not self._respond(~event):
                return ~event
        self.events_done = len(self._problem.events)
        return None

    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups that led to one of the configurations, in order, in numbers of the history."""
        path = next(iter(self._possible.values()))
        groups = []
        while path is not None:
            path, group = path
            groups.append(tuple(self._problem.numbers[operation] for operation in group))
        return tuple(reversed(groups))

    def anomaly(self, failing: int) -> Anomaly:
        """Why nothing explains the response of an operation."""
        number = self._problem.numbers[failing]
        states = dict.fromkeys(self._spec.describe_state(state) for state in self._all_states())
        evidence = Contradiction(
            operations=self._operations,
            spec=self._spec,
            key=self._problem.key,
            failing=number,
            possible=tuple(PossibleState(state=words) for words in states),
            possible_count=len(states),
            prefix=self.groups(),
        )
        return Anomaly(
            kind=KIND,
            summary=summary_of(evidence),
            details=(f"Just before its response the state was {', or '.join(states)}.",)
            if states
            else (),
            processes=(self._operations.process[number],),
            operations=(number,),
            from_ns=self._operations.invoked_ns[number],
            to_ns=self._operations.ended_ns[number],
            evidence=evidence,
        )

    def _all_states(self) -> list[Hashable]:
        """Every state that groups of open operations can lead to now; none if that takes too long."""
        budget = Budget(timeout_s=EXPLAINING_S)
        found = dict(self._possible)
        waiting = list(found)
        try:
            for state, done in waiting:
                for group in self._groups(done):
                    budget.spend(len(found))
                    for following in self._step(state, group):
                        made = (following, done.union(group))
                        if made not in found:
                            found[made] = None
                            waiting.append(made)
        except BudgetSpentError:
            return []
        return list(dict.fromkeys(state for state, _ in found))

    def _respond(self, target: int) -> bool:
        reached: dict[tuple[Hashable, frozenset[int]], Groups] = {}
        waiting = list(self._possible.items())
        seen = set(self._possible)
        for (state, done), path in waiting:
            if target in done:
                reached.setdefault((state, done - {target}), path)
                continue
            for group in self._groups(done):
                self._budget.tick(len(seen) + len(self._steps))
                for following in self._step(state, group):
                    self._budget.spend(len(seen))
                    made = (following, done.union(group))
                    if made not in seen:
                        seen.add(made)
                        waiting.append((made, (path, group)))
        if not reached:
            return False
        self._possible = reached
        self._open.remove(target)
        return True

    def _groups(self, done: frozenset[int]) -> Iterator[tuple[int, ...]]:
        idle = [operation for operation in self._open if operation not in done]
        largest = len(idle) if self._spec.group_max is None else self._spec.group_max
        for size in range(1, min(largest, len(idle)) + 1):
            yield from combinations(idle, size)

    def _step(self, state: Hashable, group: tuple[int, ...]) -> Successors:
        known = self._steps.get((state, group))
        if known is not None:
            return known
        numbers = [self._problem.numbers[operation] for operation in group]
        members = [(self._operations.process[n], self._operations.at(n)) for n in numbers]
        try:
            successors = successors_of(self._spec.step(state, members))
        except Exception as error:
            raise SpecificationError(
                f"step() of specification '{self._spec.name}' failed for a group of {len(group)} in "
                f"state {state!r:.200}: {said(error)}"
            ) from error
        self._steps[state, group] = successors
        return successors
