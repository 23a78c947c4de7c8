"""What collectives carry, and what they make of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""A float, an int, or a tuple of values; anything for those that only move it."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What the members of a collective do together; all must do the same.

    Attributes:
      name: `psum`, `all_gather`, `broadcast_one_to_all` or `sync`.
      source: The process whose value is broadcast; None for the others.
    """

    name: str
    source: int | None = None

    def __str__(self) -> str:
        return self.name if self.source is None else f"{self.name} from {self.source}"

    def result(self, value_by_process: Mapping[int, Value]) -> Value:
        """The result, from the values in ascending order of processes: the same bits on every member."""
        values = [value_by_process[process] for process in sorted(value_by_process)]
        match self.name:
            case "psum":
                return total(values)
            case "all_gather":
                return tuple(values)
            case "broadcast_one_to_all":
                assert self.source is not None
                return value_by_process[self.source]
            case _:
                return None


def total(values: Iterable[Value]) -> Value:
    """The sum, element by element for tuples, from the first to the last."""
    first, *others = values
    for value in others:
        first = _add(first, value)
    return first


def _add(left: Value, right: Value) -> Value:
    if isinstance(left, tuple):
        return tuple(_add(one, other) for one, other in zip(left, right, strict=True))
    return left + right


def nothing_like(value: Value) -> Value:
    """What is in a buffer that nobody has written to."""
    if isinstance(value, tuple):
        return tuple(nothing_like(element) for element in value)
    return type(value)() if isinstance(value, int | float | str | bytes) else None
