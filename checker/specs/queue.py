"""A queue: first in, first out."""

from __future__ import annotations

from collections.abc import Hashable

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Hint, Illegal, Specification


class Queue(Specification):
    """A queue: `enqueue(value)`, and `dequeue`, which returns a value, or None if there is none.

    It is empty at the beginning. The state is the values, the next one to leave first.
    """

    name = "queue"
    functions = ("enqueue", "dequeue")

    def init(self) -> tuple[Hashable, ...]:
        """Empty."""
        return ()

    def step(
        self, state: tuple[Hashable, ...], operation: Operation
    ) -> tuple[Hashable, ...] | Illegal:
        """See the class."""
        if operation.function == "enqueue":
            return (*state, operation.argument)
        if operation.result is UNKNOWN:
            return state[1:]
        if not state:
            return state if operation.result is None else Illegal("the queue is empty")
        if operation.result == state[0]:
            return state[1:]
        return Illegal(f"the first in the queue is {show(state[0])}")

    def hints(self, operation: Operation) -> Hint:
        """It is always possible to put in, and pure to find nothing."""
        return hints_of_container(operation, "enqueue")

    def malformed(self, operation: Operation) -> str | None:
        """None means that there is nothing, so it cannot be put in."""
        return malformed_in_container(operation, "enqueue")


def hints_of_container(operation: Operation, put: str) -> Hint:
    """What is known of an operation that puts in, or takes out a value or None."""
    if operation.function == put or operation.is_open:
        return Hint.TOTAL
    return Hint.PURE if operation.result is None else Hint.NOTHING


def malformed_in_container(operation: Operation, put: str) -> str | None:
    """What is wrong with a call that puts in."""
    if operation.function == put and operation.argument is None:
        return f"{put} takes a value, and nil stands for none"
    return None
