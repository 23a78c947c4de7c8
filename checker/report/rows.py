"""Which lane and row a bar is drawn in: bars of one row do not overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LANES_FEW = 8
"""So many processes may have a lane each, whatever their numbers."""


class Rows:
    """Gives out the rows of one lane, lowest first."""

    def __init__(self) -> None:
        self._busy_until: list[float] = []

    def take(self, start: float, end: float) -> int:
        """The row of a bar; bars must come in the order of their starts.

        Args:
          start: Where it begins.
          end: Where it ends; what has no end may be given its start.
        """
        for row, until in enumerate(self._busy_until):
            if until <= start:
                self._busy_until[row] = end
                return row
        self._busy_until.append(end)
        return len(self._busy_until) - 1

    def __len__(self) -> int:
        return max(1, len(self._busy_until))


def threads_of(
    processes: Sequence[int], first: Mapping[int, int], last: Mapping[int, int]
) -> Mapping[int, int] | None:
    """How processes were renumbered when they crashed, if they were.

    Jepsen gives a worker whose call ended with an unknown outcome a new process number: the old one plus
    the number of workers. Then the processes of a worker belong in one lane.

    Args:
      processes: All of them, ascending.
      first: Position of the first invocation of each.
      last: Of the last one, for those alone whose last operation is of unknown outcome.

    Returns:
      The worker of each process; None if the numbers do not look like that, or there are few.
    """
    if len(processes) <= LANES_FEW:
        return None
    known = set(processes)
    for workers in range(1, len(processes)):
        renumbered = [process for process in processes if process >= workers]
        if renumbered and all(
            process - workers in known
            and last.get(process - workers, first[process]) < first[process]
            for process in renumbered
        ):
            return {process: process % workers for process in processes}
    return None
