"""Our own histories as columns."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from checker.errors import MalformedHistory
from checker.formats.calls import placed
from checker.history.events import (
    Crash,
    Event,
    Fail,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from checker.history.events import Fault as FaultLine
from checker.history.fields import INTEGER_MAX
from checker.history.history import History
from checker.history.jsonl_reader import HistoryReader
from checker.operations import (
    UNKNOWN,
    Failed,
    Fault,
    Operation,
    Operations,
    from_intervals,
    frozen,
)

if TYPE_CHECKING:
    from checker.formats.source import Source

_KEY, _VALUE = "key", "value"
_BARRIER_OPERATIONS = ("barrier", "cancel_barrier")


def operations_of(history: History, *, source: str = "") -> Operations:
    """The operations of a history as columns.

    A clock with errors makes intervals longer, never shorter: a call counts from its earliest moment to
    the latest of its response, so that what overlaps may overlap. A call that is pending, or ended as
    `info`, is open. The key is the argument `key` (for barriers, their name); of the other arguments a
    lone `value` is the argument, several are a `FrozenMap`. Starts, deaths and faults become faults.

    Args:
      history: A well-formed history.
      source: Where it comes from.

    Raises:
      MalformedHistory: a response without its call.
    """
    operations = _Operations()
    for event in history.events:
        operations.add(event)
    operations.faults += map(_fault, history.faults)
    return operations.columns(history.header.clock, source, history.notes)


def read_json_lines(source: Source) -> Operations:
    """Reads the format of docs/history-format.md."""
    reader = HistoryReader(source.lines(), path=source.path)
    operations = _Operations()
    for event in reader:
        operations.add(event, reader.line)
    operations.faults += map(_fault, reader.faults)
    return operations.columns(reader.header.clock, source.path, reader.notes)


class _Operations:
    """Calls and their responses, as intervals."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self._rows: list[tuple[int, Operation]] = []
        self._intervals: list[tuple[int, int | None]] = []
        self._lines: list[int] = []
        self._row_of: dict[int, int] = {}
        self._uncertainty_ns = 0
        self._latest: tuple[object, Hashable] = (None, None)
        """The latest result and its frozen form: answers of a large job are shared."""

    def add(self, event: Event, line: int = 0) -> None:
        if isinstance(event, Invoke):
            self._row_of[event.id] = len(self._rows)
            self._rows.append((event.process, _call(event)))
            self._intervals.append((event.time_ns - event.uncertainty_ns, None))
            self._lines.append(line)
        elif isinstance(event, Ok | Fail | Info):
            row = self._row_of.pop(event.id, None)
            if row is None:
                raise MalformedHistory(
                    f"response to operation {event.id}, which was never invoked", field="id"
                )
            process, call = self._rows[row]
            self._rows[row] = (process, call._replace(result=self._result(event)))
            latest_ns = min(event.time_ns + event.uncertainty_ns, INTEGER_MAX)
            self._intervals[row] = (self._intervals[row][0], latest_ns)
        elif isinstance(event, Start | Crash | Leave):
            self.faults.append(_birth_or_death(event))
            return
        self._uncertainty_ns = max(self._uncertainty_ns, event.uncertainty_ns)

    def columns(self, clock: str, source: str, notes: Sequence[str]) -> Operations:
        return from_intervals(
            self._rows,
            self._intervals,
            lines=self._lines,
            faults=placed(self.faults, self._rows, self._intervals),
            clock=clock,
            source=source,
            uncertainty_ns=self._uncertainty_ns,
            notes=notes,
        )

    def _result(self, event: Ok | Fail | Info) -> Hashable:
        if isinstance(event, Info):
            return UNKNOWN
        if isinstance(event, Fail):
            return Failed(event.code or None)
        if event.result is not self._latest[0]:
            self._latest = (event.result, frozen(event.result))
        return self._latest[1]


def _call(event: Invoke) -> Operation:
    arguments = event.arguments
    key: Hashable = None
    if event.operation in _BARRIER_OPERATIONS and "barrier" in arguments:
        key = str(arguments["barrier"])
        rest = {name: value for name, value in arguments.items() if name != "barrier"}
    elif _KEY in arguments:
        key = frozen(arguments[_KEY])
        rest = {name: value for name, value in arguments.items() if name != _KEY}
    else:
        rest = dict(arguments)
    argument: object = rest or None
    if len(rest) == 1 and _VALUE in rest:
        argument = rest[_VALUE]
    return Operation(event.operation, key, frozen(argument))


def _fault(fault: FaultLine) -> Fault:
    return Fault(fault.lane, fault.name, fault.time_ns, fault.until_ns)


def _birth_or_death(event: Start | Crash | Leave) -> Fault:
    lane = f"process {event.process}"
    if isinstance(event, Leave):
        return Fault(lane, "leave", event.time_ns)
    name = "crash" if isinstance(event, Crash) else "start"
    if event.since_ns is None or event.since_ns == event.time_ns:
        return Fault(lane, name, event.time_ns)
    return Fault(lane, name, event.since_ns, event.time_ns)
