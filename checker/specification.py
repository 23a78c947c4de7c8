"""Specifications: what an object promises, as a small state machine.

A specification says how *one* sequential object behaves. Subclass `Specification` and write `init` and
`step`; all the rest is optional and buys speed or better words.

>>> class Counter(Specification):
...     def init(self):
...         return 0
...
...     def step(self, state, operation):
...         if operation.function == "add":
...             return state + operation.argument
...         if operation.result in (UNKNOWN, state):
...             return state
...         return Illegal(f"the counter is {state}")
>>> Counter().step(2, Operation("read", result=3))
Illegal(reason='the counter is 2')
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from typing import Any, NamedTuple

from checker.operations import UNKNOWN, Operation, show

__all__ = [
    "UNKNOWN",
    "Guarded",
    "Hint",
    "Illegal",
    "OneOf",
    "Operation",
    "SetSpecification",
    "Specification",
    "Transitions",
]


@dataclass(frozen=True, slots=True)
class Illegal:
    """What `step` returns if the operation cannot have happened in that state, and why."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class OneOf:
    """What `step` returns if the operation may lead to any of several states."""

    states: tuple[Hashable, ...]


class Hint(IntFlag):
    """What is known of an operation in every state; searches are faster for it, never different.

    `--paranoid` ignores hints.
    """

    NOTHING = 0
    PURE = 1
    """It never changes the state, wherever it is legal."""
    TOTAL = 2
    """It is legal in every state."""
    BLIND = 4
    """The state after it does not depend on the state before it (and it is `TOTAL`)."""


class Guarded(NamedTuple):
    """An operation as a guarded assignment: the form that compiled searches read.

    Attributes:
      guard: `any`, `is` or `is not`: the state is compared with `value`.
      value: Ignored for `any`.
      assigns: Whether the state becomes `new`; else it stays.
      new: The new state.
    """

    guard: str
    value: Hashable = None
    assigns: bool = False
    new: Hashable = None


class Transitions(NamedTuple):
    """All steps of an operation at once.

    Attributes:
      given: The next state, by state.
      otherwise: The next state in all others; `Illegal` if it is illegal there.
    """

    given: Mapping[Hashable, Hashable]
    otherwise: Hashable | Illegal


class Specification(ABC):
    """A sequential object. Instances have no state of their own."""

    name: str = "specification"
    """One word for people and the command line."""

    functions: tuple[str, ...] = ()
    """Functions that `step` knows; empty: any. Others are refused before the search begins."""

    @abstractmethod
    def init(self) -> Hashable:
        """The state at the beginning."""

    @abstractmethod
    def step(self, state: Any, operation: Any) -> Hashable | Illegal | OneOf:
        """The state after an operation.

        It must be a pure function, and states must be hashable. It is asked about states that never
        came to be. If `operation.result` is `UNKNOWN`, the operation took effect and nobody saw what it
        returned: any result will do.

        Returns:
          The next state, `OneOf` several, or `Illegal` with a reason if the operation cannot return
          `operation.result` in this state.
        """

    def partition(self, operation: Operation) -> Hashable | None:
        """Which of several independent objects an operation is about; None: all of them."""
        return operation.key

    def observes_failure(self, operation: Operation) -> bool:
        """Whether an operation that failed (`operation.result` is `Failed`) tells about the state.

        If not, which is the default, it is as if it had not been called. If so, `step` judges it.
        """
        del operation
        return False

    def hints(self, operation: Operation) -> Hint:
        """What is known of the operation in every state."""
        del operation
        return Hint.NOTHING

    def guarded(self, operation: Operation) -> Guarded | None:
        """The operation as a guarded assignment, or None if it is none."""
        del operation
        return None

    def guarded_all(
        self, operations: Sequence[Operation], counts: Sequence[int]
    ) -> Sequence[Guarded | None]:
        """All kinds of operations on one object as guarded assignments, where they are.

        Override it if the form depends on what else was called: an append is one if its value was read
        in one place only.

        Args:
          operations: The distinct ones.
          counts: How often each was called.
        """
        del counts
        return [self.guarded(operation) for operation in operations]

    def abstracted(self, operations: Sequence[Operation]) -> Specification:
        """A specification that judges these operations alike and has fewer states.

        Override it if states grow: all that no operation can have seen may be one. An order that is
        legal for it must be legal for this one; witnesses are replayed by this one.

        Args:
          operations: The distinct ones of one object.
        """
        del operations
        return self

    def transitions(self, operation: Operation) -> Transitions | None:
        """All steps of an operation, if they can be told at once: nobody needs to ask then."""
        del operation
        return None

    def malformed(self, operation: Operation) -> str | None:
        """What is wrong with an operation's arguments or result whatever the state, or None."""
        del operation
        return None

    def describe_state(self, state: Any) -> str:
        """A state in words that fit after "the state is"."""
        return show(state)


class SetSpecification(ABC):
    """An object on which several operations may take effect as one, at one instant.

    Source: Neiger, "Set-linearizability", PODC 1994.
    """

    name: str = "set specification"
    functions: tuple[str, ...] = ()
    group_max: int | None = None
    """Largest number of operations in a step, if there is one: the search is shorter for it."""

    @abstractmethod
    def init(self) -> Hashable:
        """The state at the beginning."""

    @abstractmethod
    def step(self, state: Any, group: Sequence[tuple[int, Any]]) -> Hashable | Illegal | OneOf:
        """The state after the operations of `group`, as `(process, operation)`, took effect at once.

        A group is never empty, and in the order of invocations.
        """

    def partition(self, operation: Operation) -> Hashable | None:
        """Which of several independent objects an operation is about; None: all of them."""
        return operation.key

    def observes_failure(self, operation: Operation) -> bool:
        """As in `Specification`."""
        del operation
        return False

    def malformed(self, operation: Operation) -> str | None:
        """As in `Specification`."""
        del operation
        return None

    def describe_state(self, state: Any) -> str:
        """A state in words that fit after "the state is"."""
        return show(state)
