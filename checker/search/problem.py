"""Splits a history into independent objects, each a small problem for the searches.

Operations that say nothing are left out: those that failed (unless the specification observes failures)
and those of unknown outcome that are pure, which could always be taken not to have happened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from checker.errors import MalformedHistory
from checker.operations import Failed, Operation, Operations
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
      hints: Per kind.
      counts: By kind, how many operations there are.
    """

    part: list[int]
    keys: list[Hashable]
    hints: list[Hint]
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

    def first(self, events: int) -> Problem:
        """The problem that the first events are."""
        return Problem(self.part, self.key, self.numbers, self.events[:events], self.kind)

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
    part: list[int] = []
    hints: list[Hint] = []
    known = frozenset(spec.functions)
    counts = Counter(operations.kind)
    for number, kind in enumerate(operations.kinds):
        if not counts[number]:
            # A recorder meets each operation first with its result unknown.
            part.append(LEFT_OUT)
            hints.append(Hint.NOTHING)
            continue
        if known and kind.function not in known:
            _refuse(
                operations,
                number,
                f"specification '{spec.name}' knows no operation {kind.function!r:.80}; it knows "
                f"{', '.join(spec.functions)}",
            )
        problem = spec.malformed(kind)
        if problem is not None:
            _refuse(operations, number, f"{kind!s:.200}: {problem}")
        failed = isinstance(kind.result, Failed) and not spec.observes_failure(kind)
        hint = Hint.NOTHING
        if not failed and isinstance(spec, Specification):
            hint = spec.hints(kind)
        hints.append(hint)
        if failed or (kind.is_open and hint & Hint.PURE):
            part.append(LEFT_OUT)
        else:
            part.append(keys.setdefault(spec.partition(kind), len(keys)))
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
    return Kinds(part, list(keys), hints, counts)


def _refuse(operations: Operations, kind: int, problem: str) -> None:
    index = operations.kind.index(kind)
    line = operations.line[index] or None
    raise MalformedHistory(problem, path=operations.source or None, line=line)


def split(operations: Operations, kinds: Kinds, only: int | None = None) -> list[Problem]:
    """One problem per object, in the order of their first invocations.

    Args:
      operations: The history.
      kinds: What its kinds mean.
      only: The one object that is wanted, or None for all.
    """
    part, kind = kinds.part, operations.kind
    local = [0] * len(operations)
    numbers: list[list[int]] = [[] for _ in kinds.keys]
    events: list[list[int]] = [[] for _ in kinds.keys]
    local_kind: list[list[int]] = [[] for _ in kinds.keys]
    for event in operations.events:
        index = event if event >= 0 else ~event
        where = part[kind[index]]
        if where == LEFT_OUT or (only is not None and where != only):
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
