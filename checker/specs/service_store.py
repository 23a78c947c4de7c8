"""The coordination service's key-value store: one key of it, and keys that directories join.

The store is one flat map from normalised keys to bytes. Operations on single keys are objects of their
own (`ServiceKey`) unless an operation on a directory joins them (`ServiceStore`).

Source: service-semantics.md, section 7, measured at jaxlib 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

from checker.history.keys import is_under, normalised
from checker.operations import UNKNOWN, Failed, Operation, show
from checker.specification import Guarded, Hint, Illegal, Specification
from checker.specs.outcome import has_result
from checker.specs.store_values import (
    argument_named,
    failed_with,
    number_in,
    show_value,
    value_bytes,
    wrapped,
)

SET, GET, TRY_GET = "key_value_set", "key_value_get", "key_value_try_get"
DIR_GET, DELETE, INCREMENT = "key_value_dir_get", "key_value_delete", "key_value_increment"

NO_NUMBER = "FAILED_PRECONDITION: Failed to parse value"
"""How the error of an increment begins that found no number. The code alone may have other reasons."""

_OBSERVED = {SET: "ALREADY_EXISTS", TRY_GET: "NOT_FOUND", INCREMENT: NO_NUMBER}
"""How errors begin that tell what the store held."""

_READS = frozenset({GET, TRY_GET, DIR_GET})

_State: TypeAlias = frozenset[tuple[str, bytes]]


class _Store(Specification):
    """What one key and several have in common."""

    def observes_failure(self, operation: Operation) -> bool:
        """Of the definite errors, those that tell what the store held."""
        beginning = _OBSERVED.get(operation.function)
        return beginning is not None and failed_with(operation.result, beginning)

    def malformed(self, operation: Operation) -> str | None:
        """Keys are strings, values are bytes, increments are integers."""
        function, argument, result = operation.function, operation.argument, operation.result
        if not isinstance(operation.key, str):
            return f"a key is a string, found {show(operation.key)}"
        if function == SET and value_bytes(argument_named(argument, "value")) is None:
            return f"{SET} takes a value, found {show(argument)}"
        if function == INCREMENT and not isinstance(argument_named(argument, "increment"), int):
            return f"{INCREMENT} takes an integer, found {show(argument)}"
        if not has_result(operation):
            return None
        if function in (GET, TRY_GET) and value_bytes(result) is None:
            return f"{function} returns a value, found {show(result)}"
        if function == INCREMENT and not isinstance(result, int):
            return f"{INCREMENT} returns an integer, found {show(result)}"
        if function == DIR_GET and _entries(result) is None:
            return f"{DIR_GET} returns pairs of a key and a value, found {show(result)}"
        return None


class ServiceKey(_Store):
    """One key: its value as bytes, or None while it is absent.

    A blocking get that returned found its value; one that did not says nothing. A set without
    `allow_overwrite` found no value, or failed with ALREADY_EXISTS and found one. An increment adds to a
    number that is stored as decimal text and must fit in 32 bits, with absent for 0; the sum has 64 bits
    and wraps.

    Args:
      initial: The value at the beginning.
    """

    name = "service-key"
    functions = (SET, GET, TRY_GET, DELETE, INCREMENT)

    def __init__(self, initial: bytes | None = None) -> None:
        self.initial = initial

    def init(self) -> bytes | None:
        """The initial value; absent by default."""
        return self.initial

    def partition(self, operation: Operation) -> Hashable:
        """The key as the store knows it."""
        assert isinstance(operation.key, str)
        return normalised(operation.key)

    def step(self, state: bytes | None, operation: Operation) -> bytes | Illegal | None:
        """See the class."""
        function, result = operation.function, operation.result
        if function in _READS:
            if result is UNKNOWN:
                return state
            found = None if isinstance(result, Failed) else value_bytes(result)
            return state if found == state else _because(state)
        if function == DELETE:
            return None
        if function == SET:
            if isinstance(result, Failed):
                return (
                    state if state is not None and not _overwrites(operation) else _because(state)
                )
            if state is not None and not _overwrites(operation):
                return _because(state)
            return value_bytes(argument_named(operation.argument, "value"))
        number = 0 if state is None else number_in(state)
        if isinstance(result, Failed):
            return state if number is None else _because(state)
        if number is None:
            return Illegal(f"the value is {show_value(state)}, which is no 32-bit number")
        total = wrapped(number + _increment(operation))
        return str(total).encode() if result in (UNKNOWN, total) else _because(state)

    def hints(self, operation: Operation) -> Hint:
        """Reads are pure, and so are failures; deletes and overwrites are blind."""
        if operation.function in _READS or isinstance(operation.result, Failed):
            return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE
        if operation.function == DELETE or (operation.function == SET and _overwrites(operation)):
            return Hint.TOTAL | Hint.BLIND
        return Hint.NOTHING

    def guarded(self, operation: Operation) -> Guarded | None:
        """All but increments: a number can be written in many ways."""
        function, result = operation.function, operation.result
        if function in _READS:
            if result is UNKNOWN:
                return Guarded("any")
            return Guarded("is", None if isinstance(result, Failed) else value_bytes(result))
        if function == DELETE:
            return Guarded("any", assigns=True, new=None)
        if function != SET:
            return None
        overwrites = _overwrites(operation)
        if isinstance(result, Failed):
            return None if overwrites else Guarded("is not", None)
        new = value_bytes(argument_named(operation.argument, "value"))
        return Guarded("any" if overwrites else "is", None, assigns=True, new=new)

    def guarded_all(
        self, operations: Sequence[Operation], counts: Sequence[int]
    ) -> Sequence[Guarded | None]:
        """Increments too, where only one of the values that the key can ever have is their number.

        Without increments of unknown outcome these values are known: what was set, and what increments
        returned.
        """
        del counts
        increments = [each for each in operations if each.function == INCREMENT]
        if any(each.is_open for each in increments):
            return [self.guarded(operation) for operation in operations]
        values: dict[int, set[Hashable]] = {}
        for value in self._possible(operations):
            number = 0 if value is None else number_in(value)
            if number is not None:
                values.setdefault(number, set()).add(value)
        return [
            _guarded_increment(operation, values)
            if operation.function == INCREMENT and isinstance(operation.result, int)
            else self.guarded(operation)
            for operation in operations
        ]

    def _possible(self, operations: Iterable[Operation]) -> Iterator[bytes | None]:
        yield self.initial
        yield None
        for operation in operations:
            if operation.function == SET:
                yield value_bytes(argument_named(operation.argument, "value"))
            elif operation.function == INCREMENT and isinstance(operation.result, int):
                yield str(operation.result).encode()

    def describe_state(self, state: bytes | None) -> str:
        """The value, or `absent`."""
        return show_value(state)


class ServiceStore(_Store):
    """All keys, as a set of those that are there with their values; empty at the beginning.

    Besides what `ServiceKey` says of each: a directory get returns all keys under the directory, at any
    depth, in the order of their bytes, and a delete removes the key and all under it. The root directory
    has no keys under it.
    """

    name = "service-store"
    functions = (SET, GET, TRY_GET, DIR_GET, DELETE, INCREMENT)

    def __init__(self) -> None:
        self._key = ServiceKey()

    def init(self) -> _State:
        """No key at all."""
        return frozenset()

    def partition(self, operation: Operation) -> None:
        """A directory may join any keys: it is all one object."""
        del operation

    def step(self, state: _State, operation: Operation) -> _State | Illegal:
        """See the class."""
        assert isinstance(operation.key, str)
        key = normalised(operation.key)
        if operation.function == DIR_GET:
            if operation.is_open:
                return state
            here = sorted((each for each in state if is_under(each[0], key)), key=_bytes_of_key)
            if _entries(operation.result) == here:
                return state
            return Illegal(f"under {key!r} there is {_text(here)}")
        if operation.function == DELETE:
            return frozenset(
                each for each in state if each[0] != key and not is_under(each[0], key)
            )
        before = next((value for name, value in state if name == key), None)
        after = self._key.step(before, operation)
        if isinstance(after, Illegal):
            return after
        if after == before:
            return state
        others = frozenset(each for each in state if each[0] != key)
        return others if after is None else others | {(key, after)}

    def hints(self, operation: Operation) -> Hint:
        """As for one key, but nothing is blind: the other keys stay."""
        if operation.function == DIR_GET:
            return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE
        return self._key.hints(operation) & ~Hint.BLIND

    def describe_state(self, state: _State) -> str:
        """`a = '1', a/b = '2'`."""
        return _text(sorted(state, key=_bytes_of_key))


def _guarded_increment(operation: Operation, values: Mapping[int, set[Hashable]]) -> Guarded | None:
    """An increment that returned, if at most one of `values` can have been there before."""
    result = operation.result
    assert isinstance(result, int)
    before = wrapped(result - _increment(operation))
    found: set[Hashable] = values.get(before, {_NEVER})
    if len(found) > 1:
        return None
    return Guarded("is", next(iter(found)), assigns=True, new=str(result).encode())


_NEVER = "no value of a key"


def _overwrites(operation: Operation) -> bool:
    return argument_named(operation.argument, "allow_overwrite") is True


def _increment(operation: Operation) -> int:
    increment = argument_named(operation.argument, "increment")
    assert isinstance(increment, int)
    return increment


def _because(state: bytes | None) -> Illegal:
    return Illegal("the key is absent" if state is None else f"the value is {show_value(state)}")


def _entries(result: Hashable) -> list[tuple[str, bytes]] | None:
    if not isinstance(result, tuple):
        return None
    entries = []
    for each in result:
        if not isinstance(each, tuple) or len(each) != 2 or not isinstance(each[0], str):
            return None
        value = value_bytes(each[1])
        if value is None:
            return None
        entries.append((each[0], value))
    return entries


def _bytes_of_key(entry: tuple[str, bytes]) -> bytes:
    return entry[0].encode("utf-8", "surrogatepass")


def _text(entries: list[tuple[str, bytes]]) -> str:
    return ", ".join(f"{key} = {show_value(value)}" for key, value in entries) or "nothing"
