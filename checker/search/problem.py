"""Splits a history into independent objects, each a small problem for the searches.

Operations that say nothing are left out: those that failed (unless the specification observes failures)
and those of unknown outcome that are pure, which could always be taken not to have happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeAlias

from checker.errors import MalformedHistory
from checker.operations import UNKNOWN, Failed, Operations
from checker.specification import Hint, SetSpecification, Specification

NEVER: Final = 1 << 60
"""Position of a response that never came."""

LEFT_OUT: Final = -1

Hints: TypeAlias = Sequence[Hint] | Mapping[int, Hint]
"""By kind."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """What each kind of operation of a history means to a specification.

    Attributes:
      part: Per kind, the number of its object, or `LEFT_OUT`.
      keys: The objects.
      counts: By kind, how many operations there are.
    """

    part: list[int]
    keys: list[Hashable]
    counts: Counter[int]


@dataclass(frozen=True, slots=True)
class Problem:
    """The operations on one object.

    Attributes:
      part: Number of the object.
      key: The object.
      numbers: By local number, the operation's number in the history. Ascending.
      events: Invocations and responses as in `Operations.events`, in local numbers.
      kind: By local number, the kind of the operation in the history.
    """

    part: int
    key: Hashable
    numbers: Sequence[int]
    events: Sequence[int]
    kind: Sequence[int]

    def responses(self) -> list[int]:
        """By local number, the position of the response in `events`, or `NEVER`."""
        responded = [NEVER] * len(self.numbers)
        for position, event in enumerate(self.events):
            if event < 0:
                responded[~event] = position
        return responded


def classify(operations: Operations, spec: Specification | SetSpecification) -> Kinds:
    """Judges every kind of operation.

    Raises:
      MalformedHistory: an operation that the specification does not know, or whose arguments cannot be.
    """
    keys: dict[Hashable, int] = {}
    part = [LEFT_OUT] * len(operations.kinds)
    known = frozenset(spec.functions)
    counts = Counter(operations.kind)
    malformed, partition = spec.malformed, spec.partition
    # Kinds that do not occur are left out: a recorder meets each with its result unknown first.
    for number in counts:
        kind = operations.kinds[number]
        function, _, _, result = kind
        if known and function not in known:
            _refuse(
                operations,
                number,
                f"specification '{spec.name}' knows no operation {function!r:.80}; it knows "
                f"{', '.join(spec.functions)}",
            )
        problem = malformed(kind)
        if problem is not None:
            _refuse(operations, number, f"{kind!s:.200}: {problem:.300}")
        if result is UNKNOWN:
            if isinstance(spec, Specification) and spec.hints(kind) & Hint.PURE:
                continue
        elif isinstance(result, Failed) and not spec.observes_failure(kind):
            continue
        part[number] = keys.setdefault(partition(kind), len(keys))
    if None in keys and len(keys) > 1:
        mixed = next(
            number
            for number, kind in enumerate(operations.kinds)
            if part[number] != LEFT_OUT and spec.partition(kind) is None
        )
        _refuse(
            operations,
            mixed,
            f"{operations.kinds[mixed]!s:.200} names no object, while others do; a specification must "
            "partition all operations or none",
        )
    return Kinds(part, list(keys), counts)


def _refuse(operations: Operations, kind: int, problem: str) -> NoReturn:
    index = operations.kind.index(kind)
    line = operations.line[index] or None
    raise MalformedHistory(problem, path=operations.source or None, line=line)


def split(
    operations: Operations, kinds: Kinds, only: Collection[int] | None = None
) -> list[Problem]:
    """One problem per object, in the order of their first invocations.

    Args:
      operations: The history.
      kinds: What its kinds mean.
      only: The objects that are wanted, or None for all.
    """
    kind = operations.kind
    part = kinds.part
    if only is not None:
        if not only:
            return []
        part = [where if where in only else LEFT_OUT for where in part]
    local = [0] * len(operations)
    numbers: list[list[int]] = [[] for _ in kinds.keys]
    events: list[list[int]] = [[] for _ in kinds.keys]
    local_kind: list[list[int]] = [[] for _ in kinds.keys]
    for event in operations.events:
        index = event if event >= 0 else ~event
        where = part[kind[index]]
        if where == LEFT_OUT:
            continue
        if event >= 0:
            local[index] = len(numbers[where])
            numbers[where].append(index)
            local_kind[where].append(kind[index])
            events[where].append(local[index])
        else:
            events[where].append(~local[index])
    columns = zip(range(len(kinds.keys)), kinds.keys, numbers, events, local_kind, strict=True)
    problems = [Problem(*row) for row in columns]
    return sorted((p for p in problems if p.numbers), key=lambda p: p.numbers[0])
