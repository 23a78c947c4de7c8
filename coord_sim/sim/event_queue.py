"""Virtual time: a queue of things to do, in the total order (instant, sequence)."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

Action: TypeAlias = Callable[..., None]


class EventQueue:
    """Runs actions at their instants; time jumps from one to the next.

    Attributes:
      now_ns: The virtual time.
      ran: How many actions have run.
    """

    __slots__ = ("_entries", "_sequence", "now_ns", "ran")

    def __init__(self) -> None:
        self.now_ns = 0
        self.ran = 0
        self._entries: list[tuple[int, int, Action, tuple[Any, ...]]] = []
        self._sequence = 0

    def at(self, time_ns: int, action: Action, *arguments: Any) -> None:
        """Runs `action(*arguments)` at `time_ns`, after all that was queued for that instant before."""
        if time_ns < self.now_ns:  # noqa: PLR1730 - max() costs a call, here
            time_ns = self.now_ns
        self._sequence += 1
        heapq.heappush(self._entries, (time_ns, self._sequence, action, arguments))

    def after(self, delay_ns: int, action: Action, *arguments: Any) -> None:
        """Runs `action(*arguments)` in `delay_ns`."""
        self.at(self.now_ns + delay_ns, action, *arguments)

    def step(self, until_ns: int) -> bool:
        """Runs the next action, if there is one until then; else moves the time to `until_ns`."""
        entries = self._entries
        if not entries or entries[0][0] > until_ns:
            self.now_ns = max(self.now_ns, until_ns)
            return False
        self.now_ns, _, action, arguments = heapq.heappop(entries)
        self.ran += 1
        action(*arguments)
        return True

    def run(self, until_ns: int, ending: Ending) -> None:
        """Runs actions in order until `ending.is_over`, the limit, or nothing is left."""
        entries, pop = self._entries, heapq.heappop
        ran = 0
        try:
            while entries and not ending.is_over:
                if entries[0][0] > until_ns:
                    self.now_ns = max(self.now_ns, until_ns)
                    return
                self.now_ns, _, action, arguments = pop(entries)
                ran += 1
                action(*arguments)
        finally:
            self.ran += ran


class Ending:
    """Says when a run is over; whoever knows sets it."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False
