"""A set of elements."""

from __future__ import annotations

from collections.abc import Hashable

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Hint, Illegal, Specification
from checker.specs.outcome import has_result


class Set(Specification):
    """A set: `add(element)`, `remove(element)`, `contains(element)` and `read` of the whole set.

    It is empty at the beginning. What `add` and `remove` returned says nothing. The result of `read` is
    a tuple or a set, in any order.
    """

    name = "set"
    functions = ("add", "remove", "contains", "read")

    def init(self) -> frozenset[Hashable]:
        """Empty."""
        return frozenset()

    def step(
        self, state: frozenset[Hashable], operation: Operation
    ) -> frozenset[Hashable] | Illegal:
        """See the class."""
        function, element, result = operation.function, operation.argument, operation.result
        if function == "add":
            return state | {element}
        if function == "remove":
            return state - {element}
        if result is UNKNOWN:
            return state
        if function == "contains":
            if bool(result) == (element in state):
                return state
            return Illegal(f"{show(element)} is {'' if element in state else 'not '}in the set")
        assert isinstance(result, tuple | frozenset)
        return state if frozenset(result) == state else Illegal(f"the set is {_text(state)}")

    def hints(self, operation: Operation) -> Hint:
        """Questions are pure; changes are possible always."""
        if operation.function in ("add", "remove"):
            return Hint.TOTAL
        return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE

    def malformed(self, operation: Operation) -> str | None:
        """A `read` returns elements, each once; `contains` a truth value."""
        function, result = operation.function, operation.result
        if not has_result(operation):
            return None
        if function == "read":
            if not isinstance(result, tuple | frozenset):
                return f"read of a set returns its elements, found {show(result)}"
            if len(frozenset(result)) != len(result):
                return f"read of a set returns an element once, found {show(result)}"
        if function == "contains" and not isinstance(result, bool):
            return f"contains returns true or false, found {show(result)}"
        return None

    def describe_state(self, state: frozenset[Hashable]) -> str:
        """`{1, 2}`."""
        return _text(state)


def _text(state: frozenset[Hashable]) -> str:
    return "{" + ", ".join(sorted(map(show, state))) + "}"
