"""Several registers that transactions read and write at one instant."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import TypeAlias

from checker.operations import Operation, show
from checker.specification import Hint, Illegal, Specification
from checker.specs.outcome import has_result

READS = ("read", "r")
WRITES = ("write", "w")

_State: TypeAlias = frozenset[tuple[Hashable, Hashable]]
_Access: TypeAlias = tuple[Hashable, Hashable, Hashable]


class MultiRegister(Specification):
    """Registers under keys: `txn` with a tuple of `("read", key, None)` and `("write", key, value)`.

    `r` and `w` are short for `read` and `write`. The result is the same tuple with what was read. A
    transaction's reads see its own earlier writes.

    The state is the set of `(key, value)` of all registers that differ from their initial value.

    Args:
      initial: The value of every register at the beginning.
    """

    name = "multi-register"
    functions = ("txn",)

    def __init__(self, initial: Hashable = 0) -> None:
        self.initial = initial

    def init(self) -> _State:
        """All registers have their initial value."""
        return frozenset()

    def step(self, state: _State, operation: Operation) -> _State | Illegal:
        """See the class."""
        values = dict(state)
        changed = False
        for access, key, value in _accesses(operation):
            if access in WRITES:
                changed = True
                values[key] = value
            elif not operation.is_open and values.get(key, self.initial) != value:
                return Illegal(f"{_name(key)} is {show(values.get(key, self.initial))}")
        if not changed:
            return state
        return frozenset(item for item in values.items() if item[1] != self.initial)

    def hints(self, operation: Operation) -> Hint:
        """Transactions without writes are pure; those without known reads are total."""
        hint = Hint.NOTHING
        accesses = [access for access, _, _ in _accesses(operation)]
        if all(access in READS for access in accesses):
            hint |= Hint.PURE
        if operation.is_open or all(access in WRITES for access in accesses):
            hint |= Hint.TOTAL
        return hint

    def malformed(self, operation: Operation) -> str | None:
        """The argument is a tuple of triples, and the result the same but for what was read."""
        asked = _triples(operation.argument)
        if asked is None:
            shape = "[read key nil] and [write key value]"
            return f"txn takes a list of {shape}, found {show(operation.argument)}"
        for access, _, _ in asked:
            if access not in READS and access not in WRITES:
                return f"a transaction reads and writes, found {show(access)}"
        if not has_result(operation):
            return None
        answered = _triples(operation.result)
        if answered is None or [_fixed(each) for each in asked] != [
            _fixed(each) for each in answered
        ]:
            return (
                "the result of a txn is its argument with what was read, "
                f"found {show(operation.result)} for {show(operation.argument)}"
            )
        return None

    def describe_state(self, state: _State) -> str:
        """`x = 1, y = 2, others 0`."""
        return describe(state, self.initial)


def describe(state: _State, initial: Hashable) -> str:
    """Registers by key, then what the others are."""
    named = sorted(f"{_name(key)} = {show(value)}" for key, value in state)
    return ", ".join([*named, f"{'all others' if named else 'all'} {show(initial)}"])


def _accesses(operation: Operation) -> Iterator[_Access]:
    done = operation.argument if operation.is_open else operation.result
    assert isinstance(done, tuple)
    yield from done


def _triples(value: Hashable) -> tuple[_Access, ...] | None:
    if not isinstance(value, tuple):
        return None
    if any(not isinstance(each, tuple) or len(each) != 3 for each in value):
        return None
    return value


def _fixed(access: _Access) -> tuple[Hashable, ...]:
    """What of an access an answer cannot change."""
    function, key, value = access
    return (function, key) if function in READS else (function, key, value)


def _name(key: Hashable) -> str:
    return str(key) if isinstance(key, str) else show(key)
