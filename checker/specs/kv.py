"""A key-value store of strings."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Sequence
from itertools import accumulate, pairwise

from checker.operations import UNKNOWN, Operation, show
from checker.specification import Guarded, Hint, Illegal, Specification, Transitions
from checker.specs.outcome import has_result


class Kv(Specification):
    """A store: `get`, `put(value)` and `append(value)` of one key each.

    The key is `Operation.key`: keys are objects of their own. A value is a string, at the beginning
    the empty one.
    """

    name = "kv"
    functions = ("get", "put", "append")

    def init(self) -> Hashable:
        """Empty."""
        return ""

    def step(self, state: Hashable, operation: Operation) -> Hashable | Illegal:
        """See the class."""
        if operation.function == "get":
            if operation.result is UNKNOWN or operation.result == state:
                return state
            return Illegal(f"the value is {show(state)}")
        assert isinstance(operation.argument, str)
        return operation.argument if operation.function == "put" else f"{state}{operation.argument}"

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
        reads = _Reads(operations)
        if not reads.can_be_searched:
            return super().guarded_all(operations, counts)
        pieces = _Pieces(reads, operations, counts)
        return [
            pieces.guarded(operation)
            if operation.function == "append" and operation.argument
            else self.guarded(operation)
            for operation in operations
        ]

    def abstracted(self, operations: Sequence[Operation]) -> Specification:
        """All values that no get has seen the beginning of are one."""
        reads = _Reads(operations)
        return _ReadKv(reads) if reads.can_be_searched else self

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


class _Reads:
    """What the gets of one key returned.

    Attributes:
      longest: The values that begin no other one.
      can_be_searched: Whether none of them holds what stands between them here.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        read = {
            operation.result
            for operation in operations
            if operation.function == "get" and isinstance(operation.result, str)
        }
        self._sorted = sorted(read)
        # In sorted order, what a value begins comes right after it.
        self.longest = [
            value
            for value, following in pairwise([*self._sorted, ""])
            if not following.startswith(value)
        ]
        self._text = _BETWEEN.join(self.longest)
        self._places: dict[str, list[str]] = {}
        self.can_be_searched = self._text.count(_BETWEEN) == max(0, len(self.longest) - 1)
        self._starts = list(
            accumulate((len(value) + len(_BETWEEN) for value in self.longest[:-1]), initial=0)
        )

    def is_seen(self, value: str) -> bool:
        """Whether a get returned the value, or one that it begins."""
        place = bisect_left(self._sorted, value)
        return place < len(self._sorted) and self._sorted[place].startswith(value)

    def places(self, value: str) -> list[str]:
        """What comes before each occurrence of a value in the longest ones."""
        known = self._places.get(value)
        if known is not None:
            return known
        found: list[str] = []
        self._places[value] = found
        if _BETWEEN in value:
            return found
        place = self._text.find(value)
        while place >= 0:
            start = self._starts[bisect_right(self._starts, place) - 1]
            found.append(self._text[start:place])
            place = self._text.find(value, place + 1)
        return found


_BETWEEN = "\0"
"""Stands between values that are searched together."""


class _ReadKv(Kv):
    """A `Kv` in which all values that do not begin one that was read are one."""

    def __init__(self, reads: _Reads) -> None:
        self._reads = reads

    def init(self) -> Hashable:
        return self._seen("")

    def step(self, state: Hashable, operation: Operation) -> Hashable | Illegal:
        if operation.function == "put":
            assert isinstance(operation.argument, str)
            return self._seen(operation.argument)
        if operation.function == "append":
            assert isinstance(operation.argument, str)
            return self._seen(state + operation.argument) if isinstance(state, str) else state
        if operation.result is UNKNOWN or operation.result == state:
            return state
        return Illegal(f"the value is {self.describe_state(state)}")

    def transitions(self, operation: Operation) -> Transitions | None:
        value = operation.argument
        if operation.function == "get" and not operation.is_open:
            return Transitions({operation.result: operation.result}, _ILLEGAL)
        if operation.function == "put" and isinstance(value, str):
            return Transitions({}, self._seen(value))
        if operation.function == "append" and isinstance(value, str) and value:
            given: dict[Hashable, Hashable] = {
                before: before + value for before in self._reads.places(value)
            }
            return Transitions(given, _UNREAD)
        return None

    def hints(self, operation: Operation) -> Hint:
        hint = super().hints(operation)
        value = operation.argument
        if operation.function == "append" and isinstance(value, str) and value:
            if not self._reads.places(value):
                hint |= Hint.BLIND
        return hint

    def describe_state(self, state: Hashable) -> str:
        return show(state) if isinstance(state, str) else str(_UNREAD[0])

    def _seen(self, value: str) -> Hashable:
        return value if self._reads.is_seen(value) else _UNREAD


_ILLEGAL = Illegal()


class _Pieces:
    """The places of appended values in the values that were read."""

    def __init__(
        self, reads: _Reads, operations: Sequence[Operation], counts: Sequence[int]
    ) -> None:
        self._reads = reads
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
        self._values = times
        self._place: dict[str, set[str]] = {value: set() for value in times}
        self._is_clear = all(count == 1 for count in times.values()) and all(
            self._fits(value) for value in self._reads.longest
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
