"""Splits the operations of a history into those on each of several objects."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

from checker.operations import Operation, Operations


@dataclass(frozen=True, slots=True)
class Part:
    """The operations on one object.

    Attributes:
      operations: Numbered from 0, in the same order as in the whole history.
      numbers: Their numbers in the whole history.
    """

    operations: Operations
    numbers: Sequence[int]


def split(operations: Operations, object_of: Sequence[int], objects: int) -> list[Part]:
    """The operations on each object.

    Args:
      operations: All of them.
      object_of: By number of the operation, the number of its object; -1 if it is on none of them.
      objects: How many there are.

    Complexity: linear.
    """
    numbers: list[list[int]] = [[] for _ in range(objects)]
    local = [0] * len(operations)
    for index, number in enumerate(object_of):
        if number >= 0:
            local[index] = len(numbers[number])
            numbers[number].append(index)
    events = [array("i") for _ in range(objects)]
    for event in operations.events:
        index = event if event >= 0 else ~event
        if object_of[index] >= 0:
            number = local[index] if event >= 0 else ~local[index]
            events[object_of[index]].append(number)
    return [
        Part(_part(operations, of, moments), of)
        for of, moments in zip(numbers, events, strict=True)
    ]


def _part(operations: Operations, numbers: Sequence[int], events: array[int]) -> Operations:
    codes: dict[int, int] = {}
    kind = array("i", (codes.setdefault(operations.kind[each], len(codes)) for each in numbers))
    kinds: list[Operation] = [operations.kinds[code] for code in codes]
    return Operations(
        events=events,
        kind=kind,
        process=array("q", (operations.process[each] for each in numbers)),
        invoked_ns=array("q", (operations.invoked_ns[each] for each in numbers)),
        ended_ns=array("q", (operations.ended_ns[each] for each in numbers)),
        line=array("q", (operations.line[each] for each in numbers)),
        kinds=kinds,
        uncertainty_ns=operations.uncertainty_ns,
        clock=operations.clock,
        source=operations.source,
    )
