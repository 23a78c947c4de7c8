"""The line that runs down a lane."""

from __future__ import annotations

from checker.timeline.marks import Mark, Sign


class Lane:
    """What is going on in a lane between its marks."""

    def __init__(self) -> None:
        self._alive: set[int] = set()
        self._between: set[int] = set()
        """Lifetimes that are connecting or dying: alive or not, nobody knows."""
        self._open: dict[int, int] = {}

    def pass_(self, mark: Mark) -> None:
        """Takes a mark into account."""
        match mark.sign:
            case Sign.CONNECTING | Sign.DYING:
                self._between.add(mark.lifetime)
            case Sign.CRASH | Sign.LEAVE:
                self._end(mark.lifetime)
            case Sign.TAKEN | Sign.ROUND:
                pass
            case _:
                self._alive.add(mark.lifetime)
                self._pass_of_the_living(mark)

    def _pass_of_the_living(self, mark: Mark) -> None:
        if mark.sign is Sign.START:
            self._between.discard(mark.lifetime)
        elif mark.operation is None:
            pass
        elif mark.sign is Sign.INVOKE:
            self._open[mark.operation] = mark.lifetime
        else:
            self._open.pop(mark.operation, None)

    def _end(self, lifetime: int) -> None:
        self._alive.discard(lifetime)
        self._between.discard(lifetime)
        self._open = {op: whose for op, whose in self._open.items() if whose != lifetime}

    @property
    def line(self) -> str:
        """Name of the line that runs down the lane."""
        if self._between:
            return "between"
        if self._open:
            return "open"
        return "alive" if self._alive else "dead"
