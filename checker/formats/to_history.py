"""Columns as histories of our own format."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from checker.history.events import LIVE_PROCESSES, Event, Fail, Fault, Info, Invoke, Ok
from checker.history.fields import INTEGER_MAX, shown
from checker.history.header import Header
from checker.history.history import History
from checker.operations import OPEN_NS, Failed, FrozenMap, Operation, Operations, show

_KEY, _VALUE = "key", "value"
_BARRIER_OPERATIONS = ("barrier", "cancel_barrier")


def history_of(operations: Operations) -> History:
    """Columns as a history of our own format, with one lifetime a process.

    Times may be moved: an event that comes after a response of the same time gets a later one, since
    equal times are concurrent, and negative times make all later. Errors of the clock have become part
    of the intervals. Sets become lists.

    Raises:
      ValueError: a value is nothing that JSON has, or the history is about `live_processes`, which
        needs lifetimes that columns do not have.
    """
    if any(kind.function == LIVE_PROCESSES for kind in operations.kinds):
        raise ValueError(
            f"a history with calls of {LIVE_PROCESSES} needs lifetimes, which operations do not have; "
            "copy the file itself"
        )
    participants = tuple(sorted(set(operations.process))) or (0,)
    header = Header(source="manual", participants=participants, clock=operations.clock)
    writer = _Writer(operations)
    return History(header, writer.events(), tuple(operations.notes), writer.faults())


class _Writer:
    """Makes the events, in order; time never goes back."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        faults_ns = (fault.time_ns for fault in operations.faults)
        offset_ns = -min(0, min(operations.invoked_ns, default=0), min(faults_ns, default=0))
        latest_ns = max(max(operations.ended_ns, default=0), max(operations.invoked_ns, default=0))
        if latest_ns + offset_ns + 2 * len(operations) > INTEGER_MAX:
            raise ValueError(f"the times are too far apart for nanoseconds up to {INTEGER_MAX}")
        self._offset_ns = offset_ns
        self._latest_ns = 0
        self._after_response = False

    def events(self) -> list[Event]:
        events: list[Event] = []
        operations = self._operations
        gave_up = self._gave_up()
        other = next(gave_up, None)
        for event in operations.events:
            index = ~event if event < 0 else event
            time_ns = operations.ended_ns[index] if event < 0 else operations.invoked_ns[index]
            while other is not None and other[0] < time_ns:
                events.append(self._info(*other))
                other = next(gave_up, None)
            time_ns = self._time(time_ns, is_response=event < 0)
            events.append(
                self._response(index, time_ns) if event < 0 else self._call(index, time_ns)
            )
        while other is not None:
            events.append(self._info(*other))
            other = next(gave_up, None)
        return events

    def faults(self) -> tuple[Fault, ...]:
        offset_ns = self._offset_ns
        return tuple(
            Fault(
                time_ns=min(fault.time_ns + offset_ns, INTEGER_MAX),
                name=fault.name,
                until_ns=None
                if fault.until_ns is None
                else min(fault.until_ns + offset_ns, INTEGER_MAX),
                lane=fault.lane,
            )
            for fault in sorted(self._operations.faults, key=lambda fault: fault.time_ns)
        )

    def _gave_up(self) -> Iterator[tuple[int, int]]:
        """Time and number of the calls whose callers gave up. These ends bind no order."""
        operations = self._operations
        return iter(
            sorted(
                (max(operations.ended_ns[index], operations.invoked_ns[index]), index)
                for index in range(len(operations))
                if operations.ended_ns[index] != OPEN_NS and operations.at(index).is_open
            )
        )

    def _info(self, time_ns: int, index: int) -> Event:
        time_ns = self._latest_ns = max(self._latest_ns, time_ns + self._offset_ns)
        process = self._operations.process[index]
        return Info(time_ns=time_ns, process=process, lifetime=0, id=index, code="UNKNOWN")

    def _time(self, time_ns: int, *, is_response: bool) -> int:
        time_ns = max(time_ns + self._offset_ns, self._latest_ns + self._after_response)
        self._latest_ns, self._after_response = time_ns, is_response
        return time_ns

    def _call(self, index: int, time_ns: int) -> Event:
        operation = self._operations.at(index)
        return Invoke(
            time_ns=time_ns,
            process=self._operations.process[index],
            lifetime=0,
            id=index,
            operation=operation.function,
            arguments=_arguments(operation),
        )

    def _response(self, index: int, time_ns: int) -> Event:
        process, result = self._operations.process[index], self._operations.at(index).result
        if isinstance(result, Failed):
            error = result.error
            code = error if isinstance(error, str) else "" if error is None else show(error)
            return Fail(time_ns=time_ns, process=process, lifetime=0, id=index, code=str(code))
        return Ok(time_ns=time_ns, process=process, lifetime=0, id=index, result=json_value(result))


def _arguments(operation: Operation) -> dict[str, object]:
    arguments: dict[str, object] = {}
    key_name = "barrier" if operation.function in _BARRIER_OPERATIONS else _KEY
    if operation.key is not None:
        arguments[key_name] = json_value(operation.key)
    argument = operation.argument
    if argument is None:
        return arguments
    if isinstance(argument, FrozenMap):
        names = [name for name, _ in argument.items]
        if names != [_VALUE] and names and key_name not in names and _are_strings(names):
            return arguments | {str(name): json_value(value) for name, value in argument.items}
    arguments[_VALUE] = json_value(argument)
    return arguments


def _are_strings(names: list[Hashable]) -> bool:
    return all(isinstance(name, str) for name in names)


def json_value(value: Hashable) -> object:
    """A value as JSON has it: sets become lists, keys of mappings strings.

    Raises:
      ValueError: JSON has nothing like it.
    """
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float) and value - value == 0:  # Neither infinite nor undefined.
        return value
    if isinstance(value, tuple):
        return [json_value(item) for item in value]
    if isinstance(value, frozenset):
        return [
            json_value(item)
            for item in sorted(value, key=lambda item: (str(type(item)), str(item)))
        ]
    if isinstance(value, FrozenMap):
        return {
            str(key) if isinstance(key, str) else show(key): json_value(item)
            for key, item in value.items
        }
    raise ValueError(f"{shown(value)} cannot be written as JSON")
