"""Where on the axes operations took effect, if they did so in a given order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Points:
    """Places of the groups of one order, ascending on both axes."""

    order: list[float]
    time_ns: list[float]


def points_of(
    groups: Sequence[Sequence[int]],
    invoked_at: Sequence[int],
    responded_at: Sequence[int],
    event_ns: Sequence[int],
    last: int,
) -> Points:
    """Places each group in the middle of what its neighbours and its operations' intervals leave.

    Args:
      groups: Operations in the order in which they took effect.
      invoked_at: Position of each operation's invocation among the events.
      responded_at: Position of its response; that of no event if there is none.
      event_ns: Time of each event; empty if there is no time axis.
      last: No point comes after this event.
    """
    earliest: list[int] = []
    position = 0
    for group in groups:
        position = max(position, *(invoked_at[index] for index in group))
        earliest.append(position)
    latest: list[int] = []
    position = last
    for group in reversed(groups):
        ends = [responded_at[index] for index in group if responded_at[index] >= 0]
        position = min(position, *(end - 1 for end in ends)) if ends else position
        latest.append(position)
    latest.reverse()
    # Both ascend, so that the middles do.
    middles = [(first + last) // 2 for first, last in zip(earliest, latest, strict=True)]
    points = Points([], [])
    for event, same in groupby(middles):
        count = len(list(same))
        for number in range(1, count + 1):
            fraction = number / (count + 1)
            points.order.append(event + fraction)
            if event_ns:
                begin_ns = event_ns[event]
                end_ns = event_ns[min(event + 1, len(event_ns) - 1)]
                points.time_ns.append(begin_ns + (end_ns - begin_ns) * fraction)
    return points
