"""What a specification answers, asked once per distinct operation and state."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import TypeAlias

from checker.errors import SpecificationError
from checker.operations import Operation
from checker.specification import Illegal, OneOf, SetSpecification, Specification

Successors: TypeAlias = tuple[Hashable, ...]
"""The states that an operation may lead to; empty if it is illegal."""


HELD_BYTES_MAX = 64 << 20
"""When states that take so much memory are remembered, all are forgotten."""


class StepTable:
    """`Specification.step`, remembered.

    Attributes:
      rows: Per kind of operation, the successors by state, as far as asked.
    """

    def __init__(self, spec: Specification, kinds: Sequence[Operation]) -> None:
        self.spec = spec
        self.kinds = kinds
        self._held_bytes = 0
        self.rows: defaultdict[int, dict[Hashable, Successors]] = defaultdict(dict)

    def init(self) -> Hashable:
        """The first state.

        Raises:
          SpecificationError: `init` raised, or its state cannot be hashed.
        """
        return first_state(self.spec)

    def ask(self, kind: int, state: Hashable) -> Successors:
        """Asks `step`, and remembers.

        Raises:
          SpecificationError: it raised, or a state cannot be hashed.
        """
        operation = self.kinds[kind]
        try:
            successors = successors_of(self.spec.step(state, operation))
        except Exception as error:
            raise SpecificationError(
                f"step() of specification '{self.spec.name}' failed for {operation!s:.200} in state "
                f"{state!r:.200}: {said(error)}; it must accept every state that operations can "
                "lead to, and return a state that can be hashed"
            ) from error
        self._held_bytes += sys.getsizeof(state)
        if self._held_bytes > HELD_BYTES_MAX:
            # States that grow, like those of a set, rarely come again.
            self.rows.clear()
            self._held_bytes = 0
        self.rows[kind][state] = successors
        return successors

    def next(self, kind: int, state: Hashable) -> Successors:
        """The states after an operation of a kind in a state."""
        row = self.rows[kind]
        known = row.get(state)
        return self.ask(kind, state) if known is None else known

    def describe(self, state: Hashable) -> str:
        """A state in words."""
        return self.spec.describe_state(state)

    def why_illegal(self, kind: int, state: Hashable) -> str:
        """The specification's own reason, or one in our words."""
        return reason_illegal(self.spec, self.kinds[kind], state)


def first_state(spec: Specification | SetSpecification) -> Hashable:
    """The state at the beginning.

    Raises:
      SpecificationError: `init` raised, or its state cannot be hashed.
    """
    try:
        state = spec.init()
        hash(state)
    except Exception as error:
        raise SpecificationError(
            f"init() of specification '{spec.name}' failed: {said(error)}"
        ) from error
    return state


def successors_of(outcome: Hashable | Illegal | OneOf) -> Successors:
    """What a step returned, as states.

    Raises:
      TypeError: a state cannot be hashed.
    """
    successors: Successors
    if outcome is Illegal or outcome is OneOf:
        raise TypeError("it returned a class; call it: Illegal(), OneOf((...))")
    if isinstance(outcome, Illegal):
        successors = ()
    elif isinstance(outcome, OneOf):
        successors = tuple(dict.fromkeys(outcome.states))
    else:
        successors = (outcome,)
    for successor in successors:
        hash(successor)
    return successors


def reason_illegal(spec: Specification, operation: Operation, state: Hashable) -> str:
    """Why an operation is illegal in a state, in the specification's words if it has some."""
    outcome = spec.step(state, operation)
    if isinstance(outcome, Illegal) and outcome.reason:
        return outcome.reason
    return f"the state is {spec.describe_state(state)}"


def said(error: Exception) -> str:
    """An exception in a few words."""
    return f"{type(error).__name__}: {error!s:.300}" if str(error) else type(error).__name__
