"""The definition of linearizability in executable form: the judge of checkers.

A history is linearizable if there is an order of its operations such that

* every operation that returned is in it; one of unknown outcome may be left out; one that failed is left
  out, unless its failure tells about the state;
* an operation that returned before another one was called comes before it;
* the specification can take the operations one after the other, from its initial state.

For a set specification the order is one of groups: operations of a group take effect as one, so none of
them may have returned before another one of the same group was called.

All orders are tried (Wing and Gong, 1993), except that what can follow depends only on which operations
are done and on the state (Lowe, 2017). Slow, and only for small histories; nothing here is clever,
because everything clever is compared with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations

from checker.operations import Failed, Operation, Operations
from checker.specification import Illegal, OneOf, SetSpecification, Specification


def linearizable(operations: Operations, spec: Specification | SetSpecification) -> bool:
    """Whether some order of the operations satisfies the definition above."""
    called, returned = _positions(operations)
    objects: dict[Hashable, list[int]] = {}
    for index in range(len(operations)):
        operation = operations.at(index)
        if isinstance(operation.result, Failed) and not spec.observes_failure(operation):
            continue
        objects.setdefault(spec.partition(operation), []).append(index)
    return all(_Search(operations, spec, called, returned, each).run() for each in objects.values())


class _Search:
    """The orders of the operations on one object."""

    def __init__(
        self,
        operations: Operations,
        spec: Specification | SetSpecification,
        called: Sequence[int],
        returned: Sequence[int | None],
        indices: Sequence[int],
    ) -> None:
        self._operations = operations
        self._spec = spec
        self._called = called
        self._returned = returned
        self._indices = indices
        self._tried: set[tuple[frozenset[int], Hashable]] = set()

    def run(self) -> bool:
        return self._completes(frozenset(), self._spec.init())

    def _completes(self, done: frozenset[int], state: Hashable) -> bool:
        """Whether an order that begins with `done`, and is in `state` then, can be completed."""
        waiting = [index for index in self._indices if index not in done]
        if all(self._returned[index] is None for index in waiting):
            return True
        if (done, state) in self._tried:
            return False
        self._tried.add((done, state))
        for group in self._groups(waiting):
            for after in self._states_after(state, group):
                if self._completes(done | set(group), after):
                    return True
        return False

    def _groups(self, waiting: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The operations, or groups of them, that may be next."""
        first = [
            index for index in waiting if not any(self._precedes(other, index) for other in waiting)
        ]
        largest = 1
        if isinstance(self._spec, SetSpecification):
            largest = min(len(first), self._spec.group_max or len(first))
        for size in range(1, largest + 1):
            yield from combinations(first, size)

    def _precedes(self, one: int, other: int) -> bool:
        returned = self._returned[one]
        return returned is not None and returned < self._called[other]

    def _states_after(self, state: Hashable, group: tuple[int, ...]) -> tuple[Hashable, ...]:
        at: list[tuple[int, Operation]] = [
            (self._operations.process[index], self._operations.at(index)) for index in group
        ]
        if isinstance(self._spec, SetSpecification):
            after = self._spec.step(state, at)
        else:
            [(_, operation)] = at
            after = self._spec.step(state, operation)
        if isinstance(after, Illegal):
            return ()
        return after.states if isinstance(after, OneOf) else (after,)


def _positions(operations: Operations) -> tuple[list[int], list[int | None]]:
    """Where, among all events, each operation was called, and where it returned."""
    called = [0] * len(operations)
    returned: list[int | None] = [None] * len(operations)
    for position, event in enumerate(operations.events):
        if event >= 0:
            called[event] = position
        else:
            returned[~event] = position
    return called, returned
