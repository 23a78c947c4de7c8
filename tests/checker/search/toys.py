"""Specifications for tests alone: several next states, and several operations as one."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from typing import Any

from checker.operations import UNKNOWN, Operation, Operations, Recorder
from checker.specification import Illegal, OneOf, SetSpecification, Specification


class Bag(Specification):
    """`put` a value, `take` any; nobody knows which one a `take` of unknown outcome took."""

    name = "bag"

    def init(self) -> tuple[int, ...]:
        return ()

    def step(
        self, state: tuple[int, ...], operation: Operation
    ) -> tuple[int, ...] | Illegal | OneOf:
        if operation.function == "put":
            assert isinstance(operation.argument, int)
            return tuple(sorted((*state, operation.argument)))
        if operation.result is UNKNOWN:
            return OneOf(tuple(_without(state, value) for value in set(state)) or (state,))
        if operation.result in state:
            return _without(state, operation.result)
        return Illegal(f"the bag holds {state}")


class LossyRegister(Specification):
    """A register whose writes may be lost."""

    name = "lossy register"

    def init(self) -> int:
        return 0

    def step(self, state: int, operation: Operation) -> int | Illegal | OneOf:
        if operation.function == "write":
            assert isinstance(operation.argument, int)
            return OneOf((state, operation.argument))
        return state if operation.result in (UNKNOWN, state) else Illegal(f"it is {state}")


class Exchanger(SetSpecification):
    """Two calls that meet have each other's value; one that meets nobody has its own back."""

    name = "exchanger"
    group_max = 2

    def init(self) -> None:
        return None

    def step(self, state: None, group: Sequence[tuple[int, Operation]]) -> Illegal | None:
        del state
        values = [operation.argument for _, operation in group]
        for (_, operation), expected in zip(group, reversed(values), strict=True):
            if operation.result not in (UNKNOWN, expected):
                return Illegal("nobody came with that")
        return None


class WriteSnapshot(SetSpecification):
    """Each call writes a value and returns all that is there then, of its own group as well.

    Source: Neiger, "Set-linearizability", PODC 1994: the immediate snapshot.
    """

    name = "write-snapshot"

    def init(self) -> frozenset[int]:
        return frozenset()

    def step(
        self, state: frozenset[int], group: Sequence[tuple[int, Operation]]
    ) -> frozenset[int] | Illegal:
        after = state | {operation.argument for _, operation in group}
        if all(operation.result in (UNKNOWN, after) for _, operation in group):
            return after  # type: ignore[return-value]
        return Illegal("others are there")


def _without(state: tuple[int, ...], value: Any) -> tuple[int, ...]:
    place = state.index(value)
    return state[:place] + state[place + 1 :]


CALLS: dict[str, Sequence[tuple[str, Sequence[int | None], Sequence[Hashable]]]] = {
    "bag": (("put", (0, 1, 2), (None,)), ("take", (None,), (0, 1, 2))),
    "lossy register": (("write", (0, 1, 2), (None,)), ("read", (None,), (0, 1, 2))),
    "exchanger": (("exchange", (0, 1, 2), (0, 1, 2)),),
    "write-snapshot": (
        ("write_snapshot", (0,), [frozenset(each) for each in ((0,), (0, 1), (0, 1, 2))]),
        ("write_snapshot", (1,), [frozenset(each) for each in ((1,), (0, 1), (0, 1, 2))]),
        ("write_snapshot", (2,), [frozenset(each) for each in ((2,), (0, 2), (0, 1, 2))]),
    ),
}
"""By specification: functions, their arguments, their results."""


def drawn(rng: random.Random, name: str, operations: int) -> Operations:
    """A history of calls and results that are drawn independently of each other."""
    recorder = Recorder()
    is_open: list[tuple[int, Sequence[Hashable]]] = []
    while len(recorder) < operations or is_open:
        if len(recorder) < operations and (not is_open or rng.random() < 0.55):
            function, arguments, results = rng.choice(CALLS[name])
            index = recorder.invoke(len(recorder), function, rng.choice(arguments))
            is_open.append((index, results))
            continue
        index, results = is_open.pop(rng.randrange(len(is_open)))
        if rng.random() < 0.2:
            recorder.info(index)
        else:
            recorder.ok(index, rng.choice(results))
    return recorder.operations()
