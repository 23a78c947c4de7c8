"""Rows: marks of one moment side by side; and which of them are near an anomaly."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from checker.anomaly import Anomaly
from checker.timeline.marks import Mark, Sign

ROWS_AROUND = 2
"""So many rows before and after what the anomaly names are kept."""

FOCUS_ROWS_MAX = 40
"""Beyond that, rows inside the anomaly's stretch of time are left out, too."""

_BIRTHS = (Sign.CONNECTING, Sign.START)
_DEATHS = (Sign.DYING, Sign.CRASH, Sign.LEAVE)


@dataclass(frozen=True, slots=True)
class Row:
    """Marks of one moment, at most one a lane; or one mark across all lanes.

    Attributes:
      marks: By process; a rule across all lanes is the only mark, under None.
    """

    time_ns: int
    marks: dict[int | None, Mark]

    @property
    def rule(self) -> Mark | None:
        """The mark across all lanes, if the row is one."""
        return self.marks.get(None)

    @property
    def is_accused(self) -> bool:
        """Whether the anomaly names an operation of this row."""
        return any(mark.is_accused for mark in self.marks.values())


def rows_of(marks: Iterable[Mark], lanes: Collection[int]) -> Iterator[Row]:
    """Groups the marks of the lanes; what the witness adds stands alone."""
    row: Row | None = None
    for mark in marks:
        if mark.process is not None and mark.process not in lanes:
            continue
        stands_alone = mark.sign in (Sign.ROUND, Sign.TAKEN)
        if row is not None and (
            stands_alone or mark.time_ns != row.time_ns or mark.process in row.marks
        ):
            yield row
            row = None
        if row is None:
            row = Row(mark.time_ns, {})
        row.marks[mark.process] = mark
        if stands_alone:
            yield row
            row = None
    if row is not None:
        yield row


def near(rows: list[Row], anomaly: Anomaly) -> list[int]:
    """Positions of the rows that show an anomaly, ascending.

    Those are the rows of its stretch of time and a few around it. If that is too much, the rows
    around its operations. And always: how the life of each process began before and ended after.
    """
    times = [row.time_ns for row in rows]
    first = bisect_left(times, anomaly.from_ns)
    last = bisect_right(times, anomaly.to_ns) - 1
    kept = _around(range(first, last + 1), len(rows))
    if len(kept) > FOCUS_ROWS_MAX:
        accused = [position for position, row in enumerate(rows) if row.is_accused]
        kept = _around(accused or (first, last), len(rows))
    if kept:
        kept |= _lives(rows, min(kept), max(kept), set(anomaly.processes))
    return sorted(kept)


def _around(positions: Collection[int], count: int) -> set[int]:
    return {
        neighbour
        for position in positions
        for neighbour in range(position - ROWS_AROUND, position + ROWS_AROUND + 1)
        if 0 <= neighbour < count
    }


def _lives(rows: list[Row], first: int, last: int, processes: set[int]) -> set[int]:
    """Rows of births and deaths: the latest before `first`, all until `last`, the next after."""
    before: dict[tuple[int, Sign], int] = {}
    between: set[int] = set()
    after: dict[tuple[int, Sign], int] = {}
    for position, row in enumerate(rows):
        for process, mark in row.marks.items():
            if process is None or process not in processes:
                continue
            if mark.sign not in _BIRTHS and mark.sign not in _DEATHS:
                continue
            if position < first:
                before[process, mark.sign] = position
            elif position <= last:
                between.add(position)
            elif mark.sign in _DEATHS:
                after.setdefault((process, mark.sign), position)
    return between.union(before.values(), after.values())
