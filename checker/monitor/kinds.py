"""Kinds of operations that come and go, with the steps of the specification for each.

A history without an end has no end of different values. A kind has a number while an operation of it is
in a frontier; kinds of which there is none are kept for a while, and then their numbers go to others.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from checker.operations import Operation
from checker.search.steps import StepTable, Successors
from checker.search.words import WordSteps
from checker.specification import Guarded, Hint, Specification

IDLE_MAX: Final = 1024
"""So many kinds are kept that nobody uses."""

ANSWERS_MAX: Final = 200_000
"""Answers of `step` that are remembered, for all kinds together; then all are forgotten."""

_NOTHING: Final = Operation("")


class _Table(StepTable):
    def __init__(self, spec: Specification, kinds: list[Operation], answers_max: int) -> None:
        super().__init__(spec, kinds)
        self._answers = 0
        self._answers_max = answers_max

    def ask(self, kind: int, state: Hashable) -> Successors:
        self._answers += 1
        if self._answers > self._answers_max:
            self._answers = 1
            self.rows.clear()
        return super().ask(kind, state)


class LiveKinds:
    """Numbers for the kinds in use.

    Args:
      spec: The specification.
      idle_max: Kinds kept that nobody uses.
      answers_max: Answers of `step` kept.

    Attributes:
      table: Its steps, by the number of a kind.
      words: The kinds that are guarded assignments, as steps.
      hints: By the number of a kind.
    """

    def __init__(
        self, spec: Specification, *, idle_max: int = IDLE_MAX, answers_max: int = ANSWERS_MAX
    ) -> None:
        self._spec = spec
        self._kinds: list[Operation] = []
        self._numbers: dict[Operation, int] = {}
        self._uses: list[int] = []
        self._idle: dict[int, None] = {}
        self._idle_max = idle_max
        self._free: list[int] = []
        self.table = _Table(spec, self._kinds, answers_max)
        self.words = WordSteps(spec, self._kinds, {})
        self.hints: dict[int, Hint] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, operation: Operation) -> int:
        """The number of a kind, which is its own until `release`."""
        number = self._numbers.get(operation)
        if number is None:
            number = self._add(operation)
        elif not self._uses[number]:
            del self._idle[number]
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """Says that one operation of a kind is gone."""
        self._uses[number] -= 1
        if not self._uses[number]:
            self._idle[number] = None
            if len(self._idle) > self._idle_max:
                self._drop(next(iter(self._idle)))

    def is_guarded(self, number: int) -> bool:
        """Whether a kind is a guarded assignment, whatever else is called."""
        return number in self.words.words

    def _add(self, operation: Operation) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number = len(self._kinds)
            self._kinds.append(_NOTHING)
            self._uses.append(0)
        self._kinds[number] = operation
        self._numbers[operation] = number
        self.hints[number] = self._spec.hints(operation)
        word: Guarded | None = self._spec.guarded(operation)
        if word is not None:
            self.words.words[number] = word
        return number

    def _drop(self, number: int) -> None:
        del self._idle[number], self._numbers[self._kinds[number]], self.hints[number]
        self._kinds[number] = _NOTHING
        self.table.rows.pop(number, None)
        self.words.words.pop(number, None)
        self._free.append(number)
