"""Histories of several clocks as histories of one, with the errors that remain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from checker.clocks.offsets import Clocks, Offset
from checker.history.events import Crash, Event, Fault, Start
from checker.history.history import History
from checker.operations import OPEN_NS, Operations, from_intervals

_Times = TypeVar("_Times", History, Operations)


def with_uncertainty(
    times: _Times, clocks: Clocks, *, host_of: Mapping[int, int] | None = None
) -> _Times:
    """The same by one clock, the reference's, with the errors that remain: checks raise no false alarm.

    Times are moved by the middle of the interval of their host's offset, and may be wrong by half its
    width more than before. Events are sorted again; no time is below 0.

    Args:
      times: A history, or operations. The clock of a process is that of its host.
      clocks: The offsets of all hosts.
      host_of: By process, its host; each is one of its own if left out.

    Raises:
      ValueError: an offset is not bounded, or not known; give `estimate` a `largest_ns`.
    """
    of_host = {host: _correction(host, offset) for host, offset in clocks.offsets.items()}

    def correction(process: int) -> _Correction:
        host = process if host_of is None else host_of.get(process, process)
        if host not in of_host:
            raise ValueError(f"nothing is known of the clock of host {host} (process {process})")
        return of_host[host]

    if isinstance(times, History):
        return _corrected_history(times, correction)
    return _corrected_operations(times, correction)


def by_the_reference(history: History, offset: Offset, *, drift_ns: int = 0) -> History:
    """What one host recorded, by the reference's clock; faults, too.

    Args:
      history: All times by this host's clock.
      offset: How far that is ahead of the reference's.
      drift_ns: How far either clock may have moved meanwhile.

    Raises:
      ValueError: the offset is not bounded.
    """
    ahead_ns, error_ns = _correction(0, offset)
    error_ns += drift_ns
    events = [
        replace(_later(event, -ahead_ns), uncertainty_ns=event.uncertainty_ns + error_ns)
        for event in history.events
    ]
    faults = tuple(_fault_later(fault, -ahead_ns) for fault in history.faults)
    return replace(history, events=events, faults=faults)


class _Correction(NamedTuple):
    ahead_ns: int
    error_ns: int


def _correction(host: int, offset: Offset) -> _Correction:
    if offset.low_ns is None or offset.high_ns is None:
        raise ValueError(
            f"no messages bound the offset of host {host} on both sides; give estimate() a largest_ns"
        )
    middle = (offset.low_ns + offset.high_ns) // 2
    return _Correction(middle, offset.high_ns - middle)


def _corrected_history(history: History, correction: Callable[[int], _Correction]) -> History:
    moved: list[Event] = []
    for event in history.events:
        ahead_ns, error_ns = correction(event.process)
        event = _later(event, -ahead_ns)
        moved.append(replace(event, uncertainty_ns=event.uncertainty_ns + error_ns))
    first_ns = min(
        (getattr(event, "since_ns", None) or event.time_ns for event in moved), default=0
    )
    if first_ns < 0:
        moved = [_later(event, -first_ns) for event in moved]
    moved.sort(key=lambda event: event.time_ns)
    faults = history.faults
    if first_ns < 0:
        faults = tuple(_fault_later(fault, -first_ns) for fault in faults)
    return replace(history, events=moved, faults=faults)


def _later(event: Event, by_ns: int) -> Event:
    time_ns = event.time_ns + by_ns
    if isinstance(event, Start | Crash) and event.since_ns is not None:
        return replace(event, time_ns=time_ns, since_ns=event.since_ns + by_ns)
    return replace(event, time_ns=time_ns)


def _fault_later(fault: Fault, by_ns: int) -> Fault:
    until_ns = None if fault.until_ns is None else fault.until_ns + by_ns
    return replace(fault, time_ns=fault.time_ns + by_ns, until_ns=until_ns)


def _corrected_operations(
    operations: Operations, correction: Callable[[int], _Correction]
) -> Operations:
    rows = [(operations.process[i], operations.at(i)) for i in range(len(operations))]
    intervals: list[tuple[int, int | None]] = []
    largest = 0
    for index, (process, _) in enumerate(rows):
        ahead_ns, error_ns = correction(process)
        largest = max(largest, error_ns)
        ended_ns = operations.ended_ns[index]
        end = None if ended_ns == OPEN_NS else ended_ns - ahead_ns + error_ns
        intervals.append((operations.invoked_ns[index] - ahead_ns - error_ns, end))
    first_ns = min((begin for begin, _ in intervals), default=0)
    by_ns = max(0, -first_ns)
    moved = [(begin + by_ns, None if end is None else end + by_ns) for begin, end in intervals]
    return from_intervals(
        rows,
        moved,
        lines=operations.line,
        faults=operations.faults,
        clock=operations.clock,
        source=operations.source,
        uncertainty_ns=operations.uncertainty_ns + largest,
        notes=operations.notes,
    )
