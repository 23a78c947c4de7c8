"""Virtual time: a queue of things to do, in the total order (instant, sequence)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeAlias

Action: TypeAlias = Callable[[], None]


class EventQueue:
    """Runs actions at their instants; time jumps from one to the next.

    Attributes:
      now_ns: The virtual time.
    """

    def __init__(self) -> None:
        self.now_ns = 0
        self._queue: list[tuple[int, int, Action]] = []
        self._sequence = 0

    def at(self, time_ns: int, action: Action) -> None:
        """Runs `action` at `time_ns`, after everything that was queued for that instant before."""
        heapq.heappush(self._queue, (max(time_ns, self.now_ns), self._sequence, action))
        self._sequence += 1

    def after(self, delay_ns: int, action: Action) -> None:
        """Runs `action` in `delay_ns`."""
        self.at(self.now_ns + delay_ns, action)

    def run(self, until_ns: int, is_over: Callable[[], bool]) -> None:
        """Runs actions in order until `is_over()`, the limit, or nothing is left."""
        while self._queue and not is_over():
            time_ns, _, action = self._queue[0]
            if time_ns > until_ns:
                self.now_ns = until_ns
                return
            heapq.heappop(self._queue)
            self.now_ns = time_ns
            action()
