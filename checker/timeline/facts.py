"""What the picture of an event needs to know about other events."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from checker.history.events import Crash, Enter, Exit, Fail, Info, Invoke, Leave, Ok, Start
from checker.history.history import History


class Facts:
    """One pass over the history.

    Attributes:
      times: The time of each event; ascending.
      invoked_at, ended_at: Position of an operation's two ends among the events, by operation.
      caller: The process that invoked an operation.
      incarnation: By process and lifetime, where any event or the process's own answer tells it.
      restarted: Processes with more than one lifetime.
      last: By process and lifetime, the event that ended it.
    """

    def __init__(self, history: History) -> None:
        self.times = [event.time_ns for event in history.events]
        self.invoked_at: dict[int, int] = {}
        self.ended_at: dict[int, int] = {}
        self.caller: dict[int, int] = {}
        self.incarnation: dict[tuple[int, int], int] = {}
        self.last: dict[tuple[int, int], Crash | Leave] = {}
        self._starts: dict[int, list[tuple[int, int, int]]] = {}
        self._read(history)
        self.restarted = frozenset(p for p, starts in self._starts.items() if len(starts) > 1)

    def _read(self, history: History) -> None:
        for position, event in enumerate(history.events):
            lifetime = (event.process, event.lifetime)
            if event.incarnation is not None:
                self.incarnation[lifetime] = event.incarnation
            match event:
                case Start():
                    start = (event.time_ns, position, event.lifetime)
                    self._starts.setdefault(event.process, []).append(start)
                case Crash() | Leave():
                    self.last[lifetime] = event
                case Invoke():
                    self.invoked_at[event.id] = position
                    self.caller[event.id] = event.process
                case Ok() | Fail() | Info():
                    self.ended_at[event.id] = position
                    self._learn_from_answer(event, lifetime)
                case Enter() | Exit():
                    pass

    def _learn_from_answer(self, event: Ok | Fail | Info, lifetime: tuple[int, int]) -> None:
        # Only live sets have process numbers as keys, so other results tell nothing here.
        if isinstance(event, Ok) and isinstance(event.result, dict):
            own = event.result.get(event.process)
            if own is not None:
                self.incarnation.setdefault(lifetime, own)

    def is_outlived(self, process: int, lifetime: int, time_ns: int) -> bool:
        """Whether the process has restarted before `time_ns`, so that `lifetime` must be named."""
        starts = self._starts.get(process, ())
        before = bisect_left(starts, (time_ns,))
        return any(number > lifetime for _, _, number in starts[:before])

    def start_position(self, process: int, time_ns: int) -> int | None:
        """Position of the start of `process` at exactly `time_ns`, if there is one."""
        starts = self._starts.get(process, ())
        index = bisect_left(starts, (time_ns,))
        if index < len(starts) and starts[index][0] == time_ns:
            return starts[index][1]
        return None

    def last_position(self, time_ns: int) -> int:
        """Position of the last event at or before `time_ns`; -1 if there is none."""
        return bisect_right(self.times, time_ns) - 1
