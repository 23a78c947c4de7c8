"""Histories of one run, recorded in parts by one host's clock, as one history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from checker.history.events import Event, Fail, Info, Invoke, Ok
from checker.history.header import Header
from checker.history.history import History


def merge(parts: Sequence[History], header: Header) -> History:
    """Merges the parts by time; equal times keep the order of `parts`.

    Every part numbers its operations from 0, so they are renumbered: first come, first numbered.

    Args:
      parts: Histories whose clocks are the same (`CLOCK_MONOTONIC` of one host).
      header: The header of the result.
    """
    numbers: dict[tuple[int, int], int] = {}
    events: list[Event] = []
    keyed = (
        ((event.time_ns, index, position), event)
        for index, part in enumerate(parts)
        for position, event in enumerate(part.events)
    )
    for key, event in sorted(keyed, key=lambda pair: pair[0]):
        if isinstance(event, Invoke | Ok | Fail | Info):
            number = numbers.setdefault((key[1], event.id), len(numbers))
            events.append(replace(event, id=number))
        else:
            events.append(event)
    notes = tuple(note for part in parts for note in part.notes)
    faults = sorted((f for part in parts for f in part.faults), key=lambda fault: fault.time_ns)
    return History(header, events, notes, tuple(faults))
