"""Calls and responses as columns, for formats whose lines are in the order of real time.

It knows which process waits for what, and refuses what no history can have. A crashed call stays open:
nobody may act as that process again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from checker.errors import MalformedHistory
from checker.history.fields import INTEGER_MAX, shown
from checker.operations import OPEN_NS, UNKNOWN, Failed, Fault, Operation, Operations, show

_NAME_LENGTH_MAX = 80
_CALL_MAX: Final = 2**31 - 1
_MISSING = object()


class Calls:
    """Takes the events of a history one after the other.

    Errors are `MalformedHistory` without a path; who reads the file adds it.
    """

    def __init__(self) -> None:
        self._events = array("i")
        self._kind = array("i")
        self._process = array("q")
        self._invoked = array("q")
        self._ended = array("q")
        self._line = array("q")
        self._codes: dict[tuple[int, Hashable], int] = {}
        self._kinds: list[Operation] = []
        self._called: dict[tuple[str, Hashable, Hashable], int] = {}
        """Number of each distinct call; with the result it is the operation's kind."""
        self._calls: list[tuple[str, Hashable, Hashable]] = []
        self._open: dict[int, tuple[int, int, str]] = {}
        """What each process waits for: operation, number of the call, function."""
        self._crashed: dict[int, tuple[int, int, int]] = {}
        """Processes that may not act again: operation, number of the call, line."""
        self._ticks = 0
        self._times = array("q")
        self._faults: list[tuple[str, str, int, int, int]] = []
        """Lane, name, tick of the beginning, tick of the end or 0, position."""
        self._begun: dict[tuple[str, str], int] = {}
        self.notes: list[str] = []

    def event(  # noqa: PLR0917 - keywords would cost a tenth of the time of reading a history
        self,
        process: int,
        type_: str,
        function: str,
        value: Hashable,
        key: Hashable,
        line: int,
        time_ns: int | None = None,
        error: Hashable = None,
    ) -> None:
        """An event of a caller: `invoke`, `ok`, `fail`, or anything else for an unknown outcome."""
        if type_ == "invoke":
            self.invoke(process, function, value, key, line, time_ns)
        elif type_ == "ok":
            self.ok(process, function, value, line, time_ns)
        elif type_ == "fail":
            self.fail(process, function, error, line, time_ns)
        else:
            self.info(process, function, line, time_ns)

    def invoke(  # noqa: PLR0917 - as above
        self,
        process: int,
        function: str,
        argument: Hashable,
        key: Hashable,
        line: int,
        time_ns: int | None = None,
    ) -> None:
        """A process calls."""
        if process in self._open:
            index = self._open[process][0]
            raise _malformed(
                f"process {process} calls {function} while its call of line {self._line[index]} is "
                "open; a process has one call at a time: give each caller its own number",
                line,
                "process",
            )
        if process in self._crashed:
            at = self._crashed[process][2]
            raise _malformed(
                f"process {process} crashed (:info in line {at}) and calls again; a process of "
                "unknown outcome goes on under a new number (Jepsen adds the concurrency)",
                line,
                "process",
            )
        self._tick(time_ns)
        called = (function, key, argument)
        call = self._called.get(called)
        if call is None:
            call = self._called[called] = len(self._calls)
            self._calls.append(called)
        index = len(self._kind)
        self._open[process] = (index, call, function)
        self._kind.append(-1)
        self._process.append(process)
        self._invoked.append(self._ticks)
        self._ended.append(OPEN_NS)
        self._line.append(line)
        self._events.append(index)

    def ok(
        self, process: int, function: str, result: Hashable, line: int, time_ns: int | None = None
    ) -> None:
        """A call returns."""
        index, call = self._end(process, function, line, time_ns)
        code = self._codes.get((call, result))
        self._kind[index] = self._new_kind(call, result) if code is None else code
        self._events.append(~index)

    def fail(
        self, process: int, function: str, error: Hashable, line: int, time_ns: int | None = None
    ) -> None:
        """A call ends with a definite error."""
        index, call = self._end(process, function, line, time_ns)
        result = Failed(error)
        code = self._codes.get((call, result))
        self._kind[index] = self._new_kind(call, result) if code is None else code
        self._events.append(~index)

    def info(self, process: int, function: str, line: int, time_ns: int | None = None) -> None:
        """A call ends and nobody knows its outcome; the process is never seen again."""
        index, call = self._end(process, function, line, time_ns)
        self._crashed[process] = (index, call, line)

    def fault(self, lane: str, name: str, value: Hashable, time_ns: int | None = None) -> None:
        """Something befalls the system. Jepsen writes two lines for each: the begin and the end."""
        self._tick(time_ns)
        begun = self._begun.pop((lane, name), None)
        if begun is not None:
            lane, text, begin, _, position = self._faults[begun]
            self._faults[begun] = (lane, text, begin, self._ticks, position)
            return
        text = name
        if value is not None:
            text += f" {value if isinstance(value, str) else show(value)}"
        if len(text) > _NAME_LENGTH_MAX:
            text = text[: _NAME_LENGTH_MAX - 1] + "…"
        self._begun[lane, name] = len(self._faults)
        self._faults.append((lane, text, self._ticks, 0, len(self._events)))

    def operations(self, *, source: str, independent: bool | None) -> Operations:
        """The history as columns.

        Args:
          source: The file.
          independent: Whether values are pairs of key and value; None: find out.
        """
        for index, call, *_ in (*self._open.values(), *self._crashed.values()):
            code = self._codes.get((call, UNKNOWN))
            self._kind[index] = self._new_kind(call, UNKNOWN) if code is None else code
        kinds = self._kinds
        if independent or (independent is None and _is_independent(kinds)):
            kinds = [self._without_pair(code) for code in range(len(kinds))]
        invoked, ended, faults = self._invoked, self._ended, self._faults
        clock = "abstract"
        if self._times and len(self._times) == self._ticks:
            clock = "monotonic"
            times = self._ascending_times()
            invoked = array("q", (times[tick] for tick in invoked))
            ended = array("q", (OPEN_NS if tick == OPEN_NS else times[tick] for tick in ended))
            faults = [
                (lane, text, times[begin], times[end] if end else 0, position)
                for lane, text, begin, end, position in faults
            ]
            ends = [end for _, _, _, end, _ in self._faults]
        else:
            if self._times:
                self.notes.append(
                    "Some events have a time and others have none; only the order of the events counts."
                )
            ends = [end for _, _, _, end, _ in faults]
        return Operations(
            events=self._events,
            kind=self._kind,
            process=self._process,
            invoked_ns=invoked,
            ended_ns=ended,
            line=self._line,
            kinds=tuple(kinds),
            faults=tuple(
                Fault(lane, text, begin, until if has_end else None, position)
                for (lane, text, begin, until, position), has_end in zip(faults, ends, strict=True)
            ),
            clock=clock,
            source=source,
            notes=tuple(self.notes),
        )

    def _tick(self, time_ns: int | None) -> None:
        self._ticks += 1
        if time_ns is not None:
            self._times.append(time_ns)

    def _end(self, process: int, function: str, line: int, time_ns: int | None) -> tuple[int, int]:
        waiting = self._open.pop(process, None)
        if waiting is None:
            raise _malformed(
                f"process {process} has no open call that this could be the end of; every response "
                "needs an invocation before it",
                line,
                "process",
            )
        index, call, called = waiting
        if called != function:
            raise _malformed(
                f"process {process} called {called} in line {self._line[index]}, and here "
                f"{function} ends; a process has one call at a time",
                line,
                "f",
            )
        self._ticks += 1
        if time_ns is not None:
            self._times.append(time_ns)
        self._ended[index] = self._ticks
        return index, call

    def _new_kind(self, call: int, result: Hashable) -> int:
        code = self._codes[call, result] = len(self._kinds)
        self._kinds.append(Operation(*self._calls[call], result))
        return code

    def _ascending_times(self) -> list[int]:
        """The time of each tick, from 1. The order of events is what counts, so none goes back."""
        times = [0]
        latest, went_back = self._times[0], 0
        for time_ns in self._times:
            if time_ns < latest:
                went_back += 1
            else:
                latest = time_ns
            times.append(latest)
        if went_back:
            self.notes.append(
                f"{went_back} times are earlier than that of the event before; the order of the "
                "events counts."
            )
        return times

    def _without_pair(self, code: int) -> Operation:
        kind = self._kinds[code]
        pair = kind.argument
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise MalformedHistory(
                f"{kind.function} has the value {shown(pair)}, which is no pair of key and value; "
                "the objects of this history are not independent",
                line=self._line[self._kind.index(code)],
                field="value",
            )
        key, argument = pair
        result = kind.result
        if isinstance(result, tuple) and len(result) == 2 and result[0] == key:
            result = result[1]
        return Operation(kind.function, key, argument, result)


def _is_independent(kinds: Iterable[Operation]) -> bool:
    """Whether all values are pairs of an object's key and a value.

    A compare-and-set has a pair as value, too; but then its history has other calls that have none, and
    no call that reads has a pair whose second part is nil.
    """
    has_read = False
    for kind in kinds:
        argument, result = kind.argument, kind.result
        if kind.key is not None or type(argument) is not tuple or len(argument) != 2:
            return False
        if argument[1] is None:
            has_read = True
        if result is UNKNOWN or type(result) is Failed:
            continue
        if type(result) is not tuple or len(result) != 2 or result[0] != argument[0]:
            return False
    return has_read


def placed(
    faults: Iterable[Fault],
    rows: Sequence[tuple[int, Operation]],
    intervals: Sequence[tuple[int, int | None]],
) -> list[Fault]:
    """Faults in order of time, each with the number of events before it.

    Args:
      faults: In any order, whatever their positions.
      rows: As in `from_intervals`.
      intervals: As there.
    """
    moments = [begin for begin, _ in intervals]
    moments += [
        end
        for (_, operation), (_, end) in zip(rows, intervals, strict=True)
        if end is not None and operation.result is not UNKNOWN
    ]
    moments.sort()
    return [
        replace(fault, position=bisect_left(moments, fault.time_ns))
        for fault in sorted(faults, key=lambda fault: fault.time_ns)
    ]


def process_number(value: object, line: int) -> int:
    """A process as a file tells it.

    Raises:
      MalformedHistory: it is no number of a process.
    """
    if type(value) is int and 0 <= value <= INTEGER_MAX:
        return value
    raise _malformed(
        f"must be a number from 0 to {INTEGER_MAX}, found {shown(value)}", line, "process"
    )


def time_number(value: object, line: int, field: str = "time") -> int:
    """A time in nanoseconds as a file tells it.

    Raises:
      MalformedHistory: it is none.
    """
    if type(value) is int and -INTEGER_MAX <= value <= INTEGER_MAX:
        return value
    raise _malformed(f"must be a whole number of nanoseconds, found {shown(value)}", line, field)


def _malformed(problem: str, line: int, field: str) -> MalformedHistory:
    return MalformedHistory(problem, line=line, field=field)
