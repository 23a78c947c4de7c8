"""The recordings of all starts of all processes as one history."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from checker.history import Crash, Event, Fault, Header, History, Start, merge
from checker.history.gaps import Gap, with_gaps
from checker.history.parts import (
    RECORDER_LANE,
    STOPPED,
    EmptyRecording,
    read_part,
)


def merged(
    header: Header,
    parts: Mapping[int, Sequence[Path]],
    seen: Iterable[Event],
    faults: tuple[Fault, ...],
    *,
    began_ns: int,
) -> History:
    """Merges what processes recorded and what the launcher saw.

    A start of a process may connect more than once, each time as another incarnation: its part numbers
    these from 0, and the history numbers the lifetimes of a process throughout.

    Args:
      header: Of the result.
      parts: By process, the files of its starts, in order.
      seen: Starts of processes stand in `lifetime`.
      faults: What was done.
      began_ns: Becomes the zero of all times.
    """
    histories = []
    gaps = []
    last_lifetime: dict[tuple[int, int], int] = {}
    for process, paths in parts.items():
        lifetimes = 0
        for start, path in enumerate(paths):
            part, is_stopped = _part(path, header)
            events = [replace(event, lifetime=lifetimes + event.lifetime) for event in part.events]
            histories.append(History(header, events, part.notes))
            lifetimes += 1 + max((event.lifetime for event in part.events), default=0)
            last_lifetime[process, start] = lifetimes - 1
            if is_stopped:
                gaps.append(Gap(process, lifetimes - 1 if part.events else None))
    ends = [replace(e, lifetime=last_lifetime[e.process, e.lifetime]) for e in seen]
    history = merge([*histories, History(header, ends)], header)
    history = with_gaps(history, gaps, RECORDER_LANE)
    return replace(
        history,
        events=[_since(event, began_ns) for event in history.events],
        faults=tuple(
            replace(
                fault,
                time_ns=fault.time_ns - began_ns,
                until_ns=None if fault.until_ns is None else fault.until_ns - began_ns,
            )
            for fault in sorted((*faults, *history.faults), key=lambda fault: fault.time_ns)
        ),
    )


def _since(event: Event, began_ns: int) -> Event:
    if isinstance(event, Start | Crash) and event.since_ns is not None:
        event = replace(event, since_ns=event.since_ns - began_ns)
    return replace(event, time_ns=event.time_ns - began_ns)


def _part(path: Path, header: Header) -> tuple[History, bool]:
    """What a start recorded, with notes on what of it cannot be used; whether it stopped too early."""
    nothing = History(header, [])
    if not path.exists():
        return nothing, False
    try:
        part = read_part(path)
    except EmptyRecording:
        # A process that was killed before it wrote its header has nothing to tell.
        return nothing, path.with_name(path.name + STOPPED).exists()
    notes = tuple(f"{path.name}: {note}" for note in part.notes)
    return History(header, part.history.events, notes), part.is_stopped
