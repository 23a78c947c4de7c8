"""A register: one value that is read, written, and compared and set."""

from __future__ import annotations

from collections.abc import Hashable

from checker.operations import UNKNOWN, Failed, Operation, show
from checker.specification import Guarded, Hint, Illegal, Specification


class Register(Specification):
    """A register: `read`, `write(value)`, and `cas((old, new))`.

    A `cas` that returned anything but False found `old` and wrote `new`; one that returned False found
    something else. What `write` returned says nothing.

    Args:
      initial: The value at the beginning.
    """

    name = "register"
    functions = ("read", "write", "cas")

    def __init__(self, initial: Hashable = None) -> None:
        self.initial = initial

    def init(self) -> Hashable:
        """The initial value."""
        return self.initial

    def step(self, state: Hashable, operation: Operation) -> Hashable | Illegal:
        """See the class."""
        function, argument, result = operation.function, operation.argument, operation.result
        if function == "read":
            if result is UNKNOWN or result == state:
                return state
            return Illegal(f"the register is {show(state)}")
        if function == "write":
            return argument
        old, new = pair(argument)
        if did_not_find(result):
            return state if state != old else Illegal(f"the register is {show(state)}")
        return new if state == old else Illegal(f"the register is {show(state)}")

    def hints(self, operation: Operation) -> Hint:
        """Reads and failed `cas` are pure; writes are blind."""
        if operation.function == "read":
            return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE
        if operation.function == "write":
            return Hint.TOTAL | Hint.BLIND
        old, new = pair(operation.argument)
        return Hint.PURE if did_not_find(operation.result) or old == new else Hint.NOTHING

    def guarded(self, operation: Operation) -> Guarded:
        """All of a register is guarded assignments."""
        if operation.function == "read":
            return Guarded("any") if operation.is_open else Guarded("is", operation.result)
        if operation.function == "write":
            return Guarded("any", assigns=True, new=operation.argument)
        old, new = pair(operation.argument)
        if did_not_find(operation.result):
            return Guarded("is not", old)
        return Guarded("is", old, assigns=True, new=new)

    def malformed(self, operation: Operation) -> str | None:
        """A `cas` needs two values."""
        argument = operation.argument
        if operation.function == "cas" and not (isinstance(argument, tuple) and len(argument) == 2):
            return f"cas takes a pair of the old and the new value, found {show(argument)}"
        return None


class CasRegister(Register):
    """A compare-and-set register.

    Args:
      initial: The value at the beginning.
      failures_observed: Whether a `cas` that failed with a definite error found something else than
        `old`. If not, its error may have had any reason, and it is as if it had not been called.
    """

    name = "cas-register"

    def __init__(self, initial: Hashable = None, *, failures_observed: bool = False) -> None:
        super().__init__(initial)
        self.failures_observed = failures_observed

    def observes_failure(self, operation: Operation) -> bool:
        """See `failures_observed`."""
        return self.failures_observed and operation.function == "cas"


def pair(argument: Hashable) -> tuple[Hashable, Hashable]:
    """The two values of a `cas`; `malformed` has made sure of them."""
    assert isinstance(argument, tuple)
    old, new = argument
    return old, new


def did_not_find(result: Hashable) -> bool:
    """Whether a `cas` found another value than it looked for."""
    return result is False or isinstance(result, Failed)
