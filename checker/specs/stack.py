"""A stack: last in, first out."""

from __future__ import annotations

from collections.abc import Hashable

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Hint, Illegal, Specification
from checker.specs.queue import hints_of_container, malformed_in_container


class Stack(Specification):
    """A stack: `push(value)`, and `pop`, which returns a value, or None if there is none.

    It is empty at the beginning. The state is the values, the next one to leave last.
    """

    name = "stack"
    functions = ("push", "pop")

    def init(self) -> tuple[Hashable, ...]:
        """Empty."""
        return ()

    def step(
        self, state: tuple[Hashable, ...], operation: Operation
    ) -> tuple[Hashable, ...] | Illegal:
        """See the class."""
        if operation.function == "push":
            return (*state, operation.argument)
        if operation.result is UNKNOWN:
            return state[:-1]
        if not state:
            return state if operation.result is None else Illegal("the stack is empty")
        if operation.result == state[-1]:
            return state[:-1]
        return Illegal(f"the top of the stack is {show(state[-1])}")

    def hints(self, operation: Operation) -> Hint:
        """It is always possible to put in, and pure to find nothing."""
        return hints_of_container(operation, "push")

    def malformed(self, operation: Operation) -> str | None:
        """None means that there is nothing, so it cannot be put in."""
        return malformed_in_container(operation, "push")
