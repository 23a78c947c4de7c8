"""A log that grows at its end."""

from __future__ import annotations

from collections.abc import Hashable

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Hint, Illegal, Specification
from checker.specs.outcome import has_result


class AppendLog(Specification):
    """A log: `append(value)`, and `read` (or `r`) of all values, in order.

    It is empty at the beginning. What `append` returned says nothing.
    """

    name = "append-log"
    functions = ("append", "read", "r")

    def init(self) -> tuple[Hashable, ...]:
        """Empty."""
        return ()

    def step(
        self, state: tuple[Hashable, ...], operation: Operation
    ) -> tuple[Hashable, ...] | Illegal:
        """See the class."""
        if operation.function == "append":
            return (*state, operation.argument)
        if operation.result is UNKNOWN or (operation.result or ()) == state:
            return state
        return Illegal(f"the log is {show(state)}")

    def hints(self, operation: Operation) -> Hint:
        """Reads are pure; it is always possible to append."""
        if operation.function == "append":
            return Hint.TOTAL
        return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE

    def malformed(self, operation: Operation) -> str | None:
        """A `read` returns values in order; nil stands for none."""
        result = operation.result
        if operation.function == "append" or not has_result(operation) or result is None:
            return None
        if not isinstance(result, tuple):
            return (
                f"{operation.function} of a log returns its values in order, found {show(result)}"
            )
        return None
