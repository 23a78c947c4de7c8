"""A key-value store of strings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Guarded, Hint, Illegal, Specification
from checker.specs.outcome import has_result


class Kv(Specification):
    """A store: `get`, `put(value)` and `append(value)` of one key each.

    The key is `Operation.key`: keys are objects of their own. A value is a string, at the beginning
    the empty one.
    """

    name = "kv"
    functions = ("get", "put", "append")

    def init(self) -> str:
        """Empty."""
        return ""

    def step(self, state: str, operation: Operation) -> str | Illegal:
        """See the class."""
        if operation.function == "get":
            if operation.result is UNKNOWN or operation.result == state:
                return state
            return Illegal(f"the value is {show(state)}")
        assert isinstance(operation.argument, str)
        return operation.argument if operation.function == "put" else state + operation.argument

    def hints(self, operation: Operation) -> Hint:
        """Gets are pure, puts are blind; it is always possible to append."""
        if operation.function == "get":
            return Hint.PURE | Hint.TOTAL if operation.is_open else Hint.PURE
        if operation.function == "put":
            return Hint.TOTAL | Hint.BLIND
        return Hint.TOTAL if operation.argument else Hint.TOTAL | Hint.PURE

    def guarded(self, operation: Operation) -> Guarded | None:
        """Gets and puts, and appends of nothing, are guarded assignments."""
        if operation.function == "get":
            return Guarded("any") if operation.is_open else Guarded("is", operation.result)
        if operation.function == "put":
            return Guarded("any", assigns=True, new=operation.argument)
        return None if operation.argument else Guarded("any")

    def guarded_all(
        self, operations: Sequence[Operation], counts: Sequence[int]
    ) -> Sequence[Guarded | None]:
        """Appends too, where the values that were read tell the place of each.

        An append whose value occurs nowhere in what was read leads to a value that nobody read. One
        whose value occurs in one place only, and once, must have happened there: what was read is put
        together of such pieces in one way only.
        """
        pieces = _Pieces(operations, counts)
        return [
            pieces.guarded(operation)
            if operation.function == "append" and operation.argument
            else self.guarded(operation)
            for operation in operations
        ]

    def malformed(self, operation: Operation) -> str | None:
        """Values are strings."""
        if operation.function == "get":
            if not has_result(operation) or isinstance(operation.result, str):
                return None
            return f"get returns a string, found {show(operation.result)}"
        if not isinstance(operation.argument, str):
            return f"{operation.function} takes a string, found {show(operation.argument)}"
        return None


_UNREAD = ("a value that nobody read",)
"""The state after an append that no get has seen. No string, so that no guard tests it."""

_READ_MAX = 64
"""So many values of one key that do not continue one another are looked at, and no more."""


class _Pieces:
    """The places of appended values in the values that were read."""

    def __init__(self, operations: Sequence[Operation], counts: Sequence[int]) -> None:
        read = {
            operation.result
            for operation in operations
            if operation.function == "get" and isinstance(operation.result, str)
        }
        self._longest: list[str] = []
        for value in sorted(read, key=len, reverse=True):
            if len(self._longest) <= _READ_MAX:
                if not any(longer.startswith(value) for longer in self._longest):
                    self._longest.append(value)
        self._puts = {
            operation.argument
            for operation in operations
            if operation.function == "put" and isinstance(operation.argument, str)
        }
        times: dict[str, int] = {}
        for operation, count in zip(operations, counts, strict=True):
            if operation.function == "append" and isinstance(operation.argument, str):
                if operation.argument:
                    times[operation.argument] = times.get(operation.argument, 0) + count
        self._place: dict[str, set[str]] = {value: set() for value in times}
        self._is_clear = (
            len(self._longest) <= _READ_MAX
            and all(count == 1 for count in times.values())
            and all(self._fits(value) for value in self._longest)
        )

    def guarded(self, operation: Operation) -> Guarded | None:
        value = operation.argument
        assert isinstance(value, str)
        places = self._place[value]
        if not self._is_clear or len(places) > 1 or any(value in put for put in self._puts):
            return None
        if not places:
            return Guarded("any", assigns=True, new=_UNREAD)
        [before] = places
        return Guarded("is", before, assigns=True, new=before + value)

    def _fits(self, read: str) -> bool:
        """Finds the pieces of a value; whether they make it up, in one way only."""
        spans = []
        for value, places in self._place.items():
            start = read.find(value)
            if start < 0:
                continue
            if read.find(value, start + 1) >= 0:
                return False
            places.add(read[:start])
            spans.append((start, start + len(value)))
        spans.sort()
        if any(end != start for (_, end), (start, _) in pairwise(spans)):
            return False
        begin, end = (spans[0][0], spans[-1][1]) if spans else (len(read), len(read))
        boundaries = {end for _, end in spans}
        return (
            end == len(read)
            and (begin == 0 or read[:begin] in self._puts)
            and not any(len(put) in boundaries and read.startswith(put) for put in self._puts)
        )
