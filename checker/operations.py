"""Histories of any object as columns: what a linearizability checker reads.

An *operation* is a call with its response. The same (function, key, argument, result) occurs again and
again in a history, so each distinct one is kept once, as a `Operation`, and the history itself is a
handful of integers per operation. Readers and recorders write these columns directly; no object per
event is ever made.

>>> recorder = Recorder()
>>> write = recorder.invoke(0, "write", 3)
>>> read = recorder.invoke(1, "read")
>>> recorder.ok(read, 3)
>>> recorder.info(write)  # timed out: it may have happened
>>> history = recorder.operations()
>>> len(history), history.at(read).result
(2, 3)
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, final

_INTEGER_MAX: Final = 2**63 - 1

OPEN_NS: Final = -1
"""`ended_ns` of an operation that never ended, as far as the history tells."""


@final
class Unknown:
    """The type of `UNKNOWN`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __reduce__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()
"""The result of an operation whose outcome nobody saw: it may have had its effect, or not."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of an operation that ended with a definite error: it had no effect."""

    error: Hashable = None


class Operation(NamedTuple):
    """What was called, and what came back. All of it is hashable.

    Attributes:
      function: The name of what was called, e.g. `read`.
      key: The object of several like ones that it was called on (a key of a store), or None.
      argument: What was given, or None; several arguments are a tuple.
      result: What came back (None if nothing), `UNKNOWN`, or `Failed`.
    """

    function: str
    key: Hashable = None
    argument: Hashable = None
    result: Hashable = UNKNOWN

    @property
    def is_open(self) -> bool:
        """Whether its outcome is unknown."""
        return self.result is UNKNOWN

    def __str__(self) -> str:
        inside = ", ".join(show(value) for value in (self.key, self.argument) if value is not None)
        call = f"{self.function}({inside})"
        if self.result is UNKNOWN:
            return f"{call} -> ?"
        if isinstance(self.result, Failed):
            return f"{call} failed" + (
                "" if self.result.error is None else f": {self.result.error}"
            )
        if self.result is None and self.argument is not None:
            return call
        return f"{call} -> {show(self.result)}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that was done to the system or befell it: a kill, a partition, a restart.

    Attributes:
      lane: Whose it is: `nemesis`, or a process (`process 2`).
      name: In a word or a few.
      time_ns: When it was, or began.
      until_ns: When it ended; None if it has no length, or its end is not known.
      position: Number of events of operations before it.
    """

    lane: str
    name: str
    time_ns: int
    until_ns: int | None = None
    position: int = 0


@final
@dataclass(frozen=True, slots=True, eq=False)
class Operations:
    """A history as columns.

    Operations are numbered in the order of their invocations. About 40 bytes each.

    Attributes:
      events: int32. An invocation of operation `i` is `i`, its response `~i`, in the order of real
        time. Equal times are concurrent: invocations come first. An operation of unknown outcome has no
        response here, even if the history tells when its caller gave up.
      kind: int32 per operation: index in `kinds`.
      process: int64 per operation: who called.
      invoked_ns: int64 per operation: when; merely ascending numbers if `clock` is `abstract`.
      ended_ns: int64 per operation: when the caller had its response or gave up; `OPEN_NS` if it never
        did.
      line: int64 per operation: line of the file that has the invocation, from 1; 0 if there is none.
      kinds: The distinct operations.
      uncertainty_ns: Largest error of a time: `events` are ordered so that operations overlap wherever
        they may have. 0 for exact clocks.
      faults: What befell the system, in order of time.
      clock: `abstract`, `monotonic`, `wall` or `virtual`.
      source: A file's name, or a word for where the history comes from.
      notes: What the reader had to leave out or guess, in sentences.
    """

    events: array[int]
    kind: array[int]
    process: array[int]
    invoked_ns: array[int]
    ended_ns: array[int]
    line: array[int]
    kinds: Sequence[Operation]
    uncertainty_ns: int = 0
    faults: Sequence[Fault] = ()
    clock: str = "abstract"
    source: str = ""
    notes: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.kind)

    def at(self, index: int) -> Operation:
        """The operation with a number."""
        return self.kinds[self.kind[index]]

    def place(self, index: int) -> str:
        """Where an operation stands, for messages: `run.edn:12`, or `operation 7`."""
        if self.line[index]:
            return (
                f"{self.source}:{self.line[index]}" if self.source else f"line {self.line[index]}"
            )
        return f"operation {index}"


class Recorder:
    """Writes a history down while it happens, or while it is read from a file.

    Any thread may call it as long as calls do not overlap. Values may be any JSON-like data: lists
    become tuples, mappings `FrozenMap`s.

    Args:
      clock: What the times are: `abstract` if none are given (their order alone counts).
      source: A word for where the history comes from.
    """

    def __init__(self, *, clock: str = "abstract", source: str = "") -> None:
        self._clock = clock
        self._source = source
        self._events = array("i")
        self._kind = array("i")
        self._process = array("q")
        self._invoked_ns = array("q")
        self._ended_ns = array("q")
        self._line = array("q")
        self._kinds: list[Operation] = []
        self._kind_of: dict[Operation, int] = {}
        self._faults: list[Fault] = []
        self._tick = 0
        self.notes: list[str] = []

    def __len__(self) -> int:
        return len(self._kind)

    def invoke(
        self,
        process: int,
        function: str,
        argument: object = None,
        *,
        key: object = None,
        time_ns: int | None = None,
        line: int = 0,
    ) -> int:
        """Records a call; returns the operation's number."""
        index = len(self._kind)
        kind = Operation(function, frozen(key), frozen(argument))
        hash(kind)
        if not isinstance(process, int) or not -_INTEGER_MAX <= process <= _INTEGER_MAX:
            raise ValueError(f"a process is a 64-bit number, found {process!r:.80}")
        invoked_ns = self._time(time_ns)
        self._kind.append(self._intern(kind))
        self._process.append(process)
        self._invoked_ns.append(invoked_ns)
        self._ended_ns.append(OPEN_NS)
        self._line.append(line)
        self._events.append(index)
        return index

    def ok(self, index: int, result: object = None, *, time_ns: int | None = None) -> None:
        """Records that a call returned."""
        self._close(index, frozen(result), time_ns)
        self._events.append(~index)

    def fail(self, index: int, error: object = None, *, time_ns: int | None = None) -> None:
        """Records that a call ended with a definite error: it surely had no effect."""
        self._close(index, Failed(frozen(error)), time_ns)
        self._events.append(~index)

    def info(self, index: int, error: object = None, *, time_ns: int | None = None) -> None:  # noqa: ARG002 - callers should say why, and readers of the code see it
        """Records that the outcome of a call will not be known."""
        self._ended_ns[index] = self._time(time_ns)

    def fault(self, lane: str, name: str, *, time_ns: int | None = None) -> None:
        """Records what was done to the system."""
        self._faults.append(Fault(lane, name, self._time(time_ns), None, len(self._events)))

    def operations(self) -> Operations:
        """The history so far. Later calls of the recorder do not change it."""
        return Operations(
            events=self._events[:],
            kind=self._kind[:],
            process=self._process[:],
            invoked_ns=self._invoked_ns[:],
            ended_ns=self._ended_ns[:],
            line=self._line[:],
            kinds=tuple(self._kinds),
            faults=tuple(self._faults),
            clock=self._clock,
            source=self._source,
            notes=tuple(self.notes),
        )

    def _intern(self, kind: Operation) -> int:
        code = self._kind_of.get(kind)
        if code is None:
            code = self._kind_of[kind] = len(self._kinds)
            self._kinds.append(kind)
        return code

    def _close(self, index: int, result: Hashable, time_ns: int | None) -> None:
        if not 0 <= index < len(self._kind):
            raise ValueError(f"there is no operation {index}; invoke() returns the number")
        if self._ended_ns[index] != OPEN_NS:
            raise ValueError(f"operation {index} has ended already; a call ends once")
        called = self._kinds[self._kind[index]]
        self._kind[index] = self._intern(
            Operation(called.function, called.key, called.argument, result)
        )
        self._ended_ns[index] = self._time(time_ns)

    def _time(self, time_ns: int | None) -> int:
        if time_ns is None:
            self._tick += 1
            return self._tick
        if not 0 <= time_ns <= _INTEGER_MAX:
            raise ValueError(f"times are from 0 to {_INTEGER_MAX} ns, found {time_ns}")
        return time_ns


def from_intervals(
    rows: Sequence[tuple[int, Operation]],
    intervals: Sequence[tuple[int, int | None]],
    *,
    lines: Sequence[int] | None = None,
    faults: Sequence[Fault] = (),
    clock: str = "monotonic",
    source: str = "",
    uncertainty_ns: int = 0,
    notes: Sequence[str] = (),
) -> Operations:
    """Columns from operations that are known as intervals, in any order.

    Args:
      rows: `(process, operation)` for each.
      intervals: `(invoked_ns, ended_ns)` for each, already widened by errors of the clock; `ended_ns`
        None if it never ended. An operation whose result is `UNKNOWN` has no response among the events
        whatever its interval.
      lines: Lines of the file, or None.
      faults: As in `Operations`, like all that follow.
      clock: As there.
      source: As there.
      uncertainty_ns: As there.
      notes: As there.
    """
    order = sorted(range(len(rows)), key=lambda row: intervals[row][0])
    kinds: dict[Operation, int] = {}
    kind, process = array("i"), array("q")
    invoked_ns, ended_ns, line = array("q"), array("q"), array("q")
    moments: list[tuple[int, int, int]] = []
    for index, row in enumerate(order):
        who, operation = rows[row]
        begin, end = intervals[row]
        kind.append(kinds.setdefault(operation, len(kinds)))
        process.append(who)
        invoked_ns.append(begin)
        ended_ns.append(OPEN_NS if end is None else end)
        line.append(lines[row] if lines is not None else 0)
        moments.append((begin, 0, index))
        if end is not None and operation.result is not UNKNOWN:
            moments.append((end, 1, ~index))
    moments.sort(key=lambda moment: moment[:2])
    return Operations(
        events=array("i", (event for _, _, event in moments)),
        kind=kind,
        process=process,
        invoked_ns=invoked_ns,
        ended_ns=ended_ns,
        line=line,
        kinds=tuple(kinds),
        uncertainty_ns=uncertainty_ns,
        faults=tuple(faults),
        clock=clock,
        source=source,
        notes=tuple(notes),
    )


@final
@dataclass(frozen=True, slots=True)
class FrozenMap:
    """A mapping that can be hashed. Two are equal if they map the same, in whatever order."""

    items: tuple[tuple[Hashable, Hashable], ...]

    def get(self, name: Hashable, default: Hashable = None) -> Hashable:
        """The value under a name."""
        for key, value in self.items:
            if key == name:
                return value
        return default

    def __str__(self) -> str:
        return "{" + ", ".join(f"{show(key)}: {show(value)}" for key, value in self.items) + "}"


def frozen(value: object) -> Hashable:
    """JSON-like data as something hashable: lists as tuples, mappings as `FrozenMap`, sets frozen.

    Raises:
      TypeError: for anything else that cannot be hashed.
      ValueError: for NaN.
    """
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - that is what NaN is
        raise ValueError("NaN equals nothing, so that nobody could read it back")
    if value is None or isinstance(value, str | int | float | bytes | bool):
        return value
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(frozen(item) for item in value)
    if isinstance(value, Mapping):
        items = [(frozen(key), frozen(item)) for key, item in value.items()]
        return FrozenMap(tuple(sorted(items, key=lambda item: (str(type(item[0])), str(item[0])))))
    if isinstance(value, set | frozenset):
        return frozenset(frozen(item) for item in value)
    hash(value)
    return value


def show(value: object) -> str:
    """A value as people write it."""
    if isinstance(value, tuple):
        return "[" + " ".join(show(item) for item in value) + "]"
    if isinstance(value, FrozenMap):
        return str(value)
    return "nil" if value is None else repr(value)
