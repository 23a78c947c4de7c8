"""The independent judge of witnesses: replays an order by the plain specification.

It knows nothing of searches, rules, hints or words. What it asks of an order is the definition of
linearizability (Herlihy and Wing, 1990), and of set-linearizability (Neiger, 1994), and no more.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from checker.errors import WitnessError
from checker.linearization import ObjectOrder
from checker.operations import Failed, Operations
from checker.specification import Illegal, OneOf, SetSpecification, Specification


def verify(
    operations: Operations,
    spec: Specification | SetSpecification,
    orders: Sequence[ObjectOrder],
) -> None:
    """Checks a witness.

    Args:
      operations: The history.
      spec: What it is said to satisfy.
      orders: An order for each object.

    Raises:
      WitnessError: saying which rule the order breaks, and where.

    Complexity: linear; one `step` per operation.
    """
    position: dict[int, int] = {}
    for order in orders:
        for place, group in enumerate(order.groups):
            for index in group:
                if index in position:
                    raise WitnessError(f"operation {index} is in the order twice")
                position[index] = place
    _check_complete(operations, spec, position)
    invoked, responded = _moments(operations)
    for order in orders:
        _check_real_time(order, invoked, responded)
        _check_legal(operations, spec, order)


def _check_complete(
    operations: Operations, spec: Specification | SetSpecification, position: dict[int, int]
) -> None:
    for index in range(len(operations)):
        operation = operations.at(index)
        if isinstance(operation.result, Failed):
            must, may = spec.observes_failure(operation), spec.observes_failure(operation)
        else:
            must, may = not operation.is_open, True
        if must and index not in position:
            raise WitnessError(f"operation {index}, {operation}, is missing")
        if index in position and not may:
            raise WitnessError(f"operation {index}, {operation}, failed and yet is in the order")


def _moments(operations: Operations) -> tuple[list[int], list[int]]:
    invoked = [0] * len(operations)
    responded = [len(operations.events)] * len(operations)
    for moment, event in enumerate(operations.events):
        if event >= 0:
            invoked[event] = moment
        else:
            responded[~event] = moment
    return invoked, responded


def _check_real_time(order: ObjectOrder, invoked: list[int], responded: list[int]) -> None:
    """An operation that ended before another began comes before it: all groups have an instant."""
    latest_invocation, latest = -1, -1
    for group in order.groups:
        for index in group:
            if invoked[index] > latest_invocation:
                latest_invocation, latest = invoked[index], index
        for index in group:
            if responded[index] < latest_invocation:
                raise WitnessError(
                    f"operation {index} ended before operation {latest} began, and is after it"
                )


def _check_legal(
    operations: Operations, spec: Specification | SetSpecification, order: ObjectOrder
) -> None:
    states: set[Hashable] = {spec.init()}
    for group in order.groups:
        for index in group:
            if spec.partition(operations.at(index)) != order.key:
                raise WitnessError(f"operation {index} is not one on object {order.key!r}")
        following: set[Hashable] = set()
        for state in states:
            if isinstance(spec, SetSpecification):
                members = [(operations.process[i], operations.at(i)) for i in sorted(group)]
                outcome = spec.step(state, members)
            elif len(group) == 1:
                outcome = spec.step(state, operations.at(group[0]))
            else:
                raise WitnessError(f"operations {group} act as one, which '{spec.name}' forbids")
            if isinstance(outcome, OneOf):
                following.update(outcome.states)
            elif not isinstance(outcome, Illegal):
                following.add(outcome)
        if not following:
            raise WitnessError(f"operations {group} are illegal where the order has them")
        states = following
