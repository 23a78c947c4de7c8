"""A number that is counted up and down."""

from __future__ import annotations

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Hint, Illegal, Specification


class Counter(Specification):
    """A counter: `add(delta)`, `inc`, `dec` and `read`. What the first three returned says nothing.

    Args:
      initial: The value at the beginning.
    """

    name = "counter"
    functions = ("add", "inc", "dec", "read")

    def __init__(self, initial: int = 0) -> None:
        self.initial = initial

    def init(self) -> int:
        """The initial value."""
        return self.initial

    def step(self, state: int, operation: Operation) -> int | Illegal:
        """See the class."""
        if operation.function != "read":
            return state + _delta(operation)
        if operation.result is UNKNOWN or operation.result == state:
            return state
        return Illegal(f"the counter is {state}")

    def hints(self, operation: Operation) -> Hint:
        """Reads are pure; additions are possible always."""
        if operation.function == "read":
            return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE
        return Hint.TOTAL | (Hint.NOTHING if _delta(operation) else Hint.PURE)

    def malformed(self, operation: Operation) -> str | None:
        """An `add` needs a number."""
        if operation.function == "add" and not isinstance(operation.argument, int | float):
            return f"add takes a number, found {show(operation.argument)}"
        return None


def _delta(operation: Operation) -> int:
    if operation.function == "add":
        assert isinstance(operation.argument, int | float)
        return operation.argument  # type: ignore[return-value]  # fractions add up as well
    return 1 if operation.function == "inc" else -1
