"""What comes to a member: at once, unless it stands still or is slow."""

from __future__ import annotations

from collections import deque
from typing import Any

from coord_sim.sim.event_queue import Action, EventQueue


class Gate:
    """The door of a member, which keeps the order of what comes.

    Attributes:
      is_open: Whether nothing hinders the member: what comes may be carried out at once. Else it must go
        through `take` (messages) or, while `is_paused`, through `defer` (all that the member does).
    """

    __slots__ = (
        "_deferred",
        "_inbox",
        "_is_armed",
        "_paused_until_ns",
        "_queue",
        "_slow",
        "is_open",
    )

    def __init__(self, queue: EventQueue) -> None:
        self.is_open = True
        self._queue = queue
        self._paused_until_ns = 0
        self._deferred: list[tuple[Action, tuple[Any, ...]]] = []
        self._slow: list[tuple[int, int, float]] = []
        """Until when, how long for each message, how many times as long for sleeps."""
        self._inbox: deque[tuple[Action, tuple[Any, ...]]] = deque()
        self._is_armed = False

    # --- what hinders it -------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether the member stands still."""
        return self._paused_until_ns > self._queue.now_ns

    @property
    def paused_until_ns(self) -> int:
        """Until when it stands still; a time that is past if it does not."""
        return self._paused_until_ns

    @property
    def factor(self) -> float:
        """So many times as long does the member sleep now."""
        now_ns = self._queue.now_ns
        return max((factor for until_ns, _, factor in self._slow if until_ns > now_ns), default=1.0)

    def pause(self, for_ns: int) -> None:
        """Stands still for a while."""
        until_ns = self._queue.now_ns + for_ns
        if until_ns > self._paused_until_ns:
            self._paused_until_ns = until_ns
            self.is_open = False
            self._queue.at(until_ns, self._go_on)

    def slow_down(self, for_ns: int, delay_ns: int, factor: float) -> None:
        """Takes so long for each message, one after the other, for a while; the slowest counts."""
        self._slow.append((self._queue.now_ns + for_ns, delay_ns, factor))
        self.is_open = False

    def begin_anew(self) -> None:
        """The member starts: whoever stood still is dead, and so is what came to it."""
        self._paused_until_ns = 0
        self._deferred.clear()
        self._inbox.clear()
        self._is_armed = False  # What was to let the next one in may have been among the deferred.

    # --- what comes ------------------------------------------------------------------------------

    def take(self, action: Action, *arguments: Any) -> None:
        """Carries out what a message asks for, when its turn has come."""
        if self.is_paused:
            self.defer(self.take, action, *arguments)
            return
        delay_ns = self._delay_ns()
        if not delay_ns and not self._inbox:
            self.is_open = not self._slow
            action(*arguments)
            return
        self._inbox.append((action, arguments))
        if not self._is_armed:
            self._arm(delay_ns)

    def defer(self, action: Action, *arguments: Any) -> None:
        """Does something when the member goes on."""
        self._deferred.append((action, arguments))

    def defer_first(self, action: Action, *arguments: Any) -> None:
        """Does something before all else when the member goes on."""
        self._deferred.insert(0, (action, arguments))

    def _go_on(self) -> None:
        if self.is_paused:
            return  # The pause was prolonged.
        deferred, self._deferred = self._deferred, []
        for action, arguments in deferred:
            action(*arguments)
        self.is_open = not self._slow and not self._inbox

    def _delay_ns(self) -> int:
        if self._slow:
            now_ns = self._queue.now_ns
            self._slow = [entry for entry in self._slow if entry[0] > now_ns]
        return max((delay_ns for _, delay_ns, _ in self._slow), default=0)

    def _arm(self, delay_ns: int) -> None:
        self._is_armed = True
        self._queue.after(delay_ns, self._let_in)

    def _let_in(self) -> None:
        if self.is_paused:
            self.defer_first(self._let_in)  # Before what came meanwhile.
            return
        self._is_armed = False
        if not self._inbox:
            return
        action, arguments = self._inbox.popleft()
        action(*arguments)
        if self._inbox and not self._is_armed:
            self._arm(self._delay_ns())
