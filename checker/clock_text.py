"""Times of a history as people read them."""

from __future__ import annotations

from checker.history.history import History


class ClockText:
    """Writes times since the first event: `1.204 s`, or plain numbers of an abstract clock."""

    def __init__(self, history: History) -> None:
        self._abstract = history.header.clock == "abstract"
        events = history.events
        self._zero_ns = 0 if self._abstract or not events else _first_ns(history)

    def at(self, time_ns: int) -> str:
        """A moment, e.g. `1.204 s`."""
        if self._abstract:
            return str(time_ns)
        return f"{(time_ns - self._zero_ns) / 1e9:.3f} s"


def _first_ns(history: History) -> int:
    first = history.events[0]
    since_ns = getattr(first, "since_ns", None)
    return first.time_ns if since_ns is None else min(first.time_ns, since_ns)
