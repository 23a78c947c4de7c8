"""The clock of a member: true virtual time, unless it jumps or drifts."""

from __future__ import annotations


class Clock:
    """Turns true time into local time and back.

    A monotonic clock (timers, time-outs) drifts; a wall clock also jumps.

    Attributes:
      is_true: Whether the monotonic clock is exact.
    """

    __slots__ = ("_local_ns", "_offset_ns", "_rate", "_since_ns", "is_true")

    def __init__(self) -> None:
        self.is_true = True
        self._since_ns = 0
        self._local_ns = 0
        self._rate = 1.0
        self._offset_ns = 0

    def skew(self, now_ns: int, offset_ns: int, drift: float) -> None:
        """Jumps by `offset_ns`, and runs at `1 + drift` from now on."""
        self._local_ns = self.monotonic_ns(now_ns)
        self._since_ns = now_ns
        self._rate = 1.0 + drift
        self._offset_ns += offset_ns
        self.is_true = self._local_ns == now_ns and drift == 0.0

    def monotonic_ns(self, now_ns: int) -> int:
        """What the monotonic clock shows at a true time."""
        if self.is_true:
            return now_ns
        return self._local_ns + round((now_ns - self._since_ns) * self._rate)

    def wall_ns(self, now_ns: int) -> int:
        """What the wall clock shows at a true time."""
        return self.monotonic_ns(now_ns) + self._offset_ns

    def true_ns(self, local_ns: int) -> int:
        """The first true time at which the monotonic clock shows at least `local_ns`."""
        if self.is_true:
            return local_ns
        true_ns = self._since_ns + round((local_ns - self._local_ns) / self._rate)
        while self.monotonic_ns(true_ns) < local_ns:
            true_ns += 1
        return true_ns
