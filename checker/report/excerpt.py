"""Some of the operations, laid out so that every label has room: for pictures that cannot be zoomed."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass

from checker.report.model import NOWHERE, UNSEEN, Page


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Which bars to draw.

    Attributes:
      bars: Ascending.
      left_out: How many there are besides.
    """

    bars: tuple[int, ...]
    left_out: int


def excerpt(page: Page, bars_max: int, *, core_only: bool = False) -> Excerpt:
    """All operations, or the ones around the anomaly if there are more than `bars_max`.

    Args:
      page: The report.
      bars_max: So many bars at most.
      core_only: Whether to leave out what has no part in the anomaly, if there is one.
    """
    total = len(page.bars)
    starts = page.bars.start
    end = starts[page.failing] if page.failing != NOWHERE else page.length
    important = sorted({*page.core, *page.context}, key=lambda bar: abs(starts[bar] - end))
    important = important[:bars_max]
    if core_only and important:
        return Excerpt(tuple(sorted(important)), total - len(important))
    if total <= bars_max:
        return Excerpt(tuple(range(total)), 0)
    middle = bisect_left(starts, starts[page.failing]) if page.failing != NOWHERE else 0
    if page.failing == NOWHERE and important:
        middle = max(important)
    chosen = dict.fromkeys(important)
    for distance in range(total):
        for bar in (middle - distance, middle + distance):
            if len(chosen) < bars_max and 0 <= bar < total:
                chosen[bar] = None
        if len(chosen) >= bars_max:
            break
    return Excerpt(tuple(sorted(chosen)), total - len(chosen))


class Layout:
    """Places on a line for what an excerpt shows, in the order of events.

    Args:
      page: The report.
      bars: What is shown.
      places: Further moments that need a place: of faults, for instance.
      width_of: The least width of a bar.
      step: Least distance of two events.
    """

    def __init__(
        self,
        page: Page,
        bars: Collection[int],
        places: Collection[float],
        width_of: Callable[[int], float],
        step: float,
    ) -> None:
        columns = page.bars
        due: dict[float, float] = {}
        moments: set[float] = {columns.start[bar] for bar in bars}
        moments.update(columns.end[bar] for bar in bars if columns.end[bar] != NOWHERE)
        moments.update(columns.point[bar] for bar in bars if columns.point[bar] != NOWHERE)
        moments.update(places)
        beginning: dict[float, list[int]] = {}
        for bar in bars:
            beginning.setdefault(columns.start[bar], []).append(bar)
        # An open bar of which nobody saw the end ends where its row goes on.
        end_of: dict[int, float] = {}
        latest: dict[tuple[int, int], int] = {}
        for bar in sorted(bars):
            row = (columns.lane[bar], columns.row[bar])
            before = latest.get(row)
            if before is not None and columns.end[before] == NOWHERE:
                end_of[before] = columns.start[bar]
            latest[row] = bar
            if columns.end[bar] != NOWHERE:
                end_of[bar] = columns.end[bar]
        self._at: dict[float, float] = {}
        place = -step
        for moment in sorted(moments):
            place = max(place + step, due.pop(moment, 0))
            self._at[moment] = place
            for bar in beginning.get(moment, ()):
                end = end_of.get(bar)
                if end is not None:
                    due[end] = max(due.get(end, 0), place + width_of(bar))
        open_ends = [
            self._at[columns.start[bar]] + width_of(bar)
            for bar in bars
            if columns.outcome[bar] == UNSEEN or columns.end[bar] == NOWHERE
        ]
        self.width = max([place, *open_ends, 0])
        """Where the last thing ends."""

    def at(self, moment: float) -> float:
        """The place of a moment that was asked for."""
        return self._at[moment]
