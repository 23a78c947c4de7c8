"""A lock without an owner."""

from __future__ import annotations

from checker.operations import Operation
from checker.specification import Guarded, Illegal, Specification

FREE, HELD = "free", "held"


class Mutex(Specification):
    """A lock: `acquire` and `release`, by anybody. It is free at the beginning."""

    name = "mutex"
    functions = ("acquire", "release")

    def init(self) -> str:
        """Free."""
        return FREE

    def step(self, state: str, operation: Operation) -> str | Illegal:
        """Turns about."""
        before, after = _turn(operation)
        return after if state == before else Illegal(f"the lock is {state}")

    def guarded(self, operation: Operation) -> Guarded:
        """Both are compare-and-set."""
        before, after = _turn(operation)
        return Guarded("is", before, assigns=True, new=after)

    def describe_state(self, state: str) -> str:
        """`free` or `held`."""
        return state


def _turn(operation: Operation) -> tuple[str, str]:
    return (FREE, HELD) if operation.function == "acquire" else (HELD, FREE)
