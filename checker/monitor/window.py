"""The recent part of an object's history, from which a violation is explained."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator
from typing import Final, NamedTuple

from checker.operations import UNKNOWN, Operation
from checker.search.problem import NEVER

EVENTS_MIN: Final = 128
"""A part begins where the state is known, and after so many events the next one does."""

EVENTS_MAX: Final = 2048
"""A part in which the state does not become known for so many events is given up."""

LATEST_MAX: Final = 32
"""So many events are kept in any case."""

CARRIED_MAX: Final = 64
"""Operations of unknown outcome that a part may begin with."""


class Call:
    """An operation of the monitor.

    Attributes:
      number: Its number.
      process: Who called.
      operation: What was called, with the result as far as it is known.
      invoked_ns, ended_ns: As in `Operations`.
      line: Of the invocation.
      responds: Position of the response among the events of the object, `NEVER` if its outcome is
        unknown, None while it is open.
      kind: Its kind's number, or -1.
      committed: Whether it counts as of unknown outcome because others could not wait for it.
    """

    __slots__ = (
        "committed", "ended_ns", "invoked_ns", "kind", "line", "number", "operation", "process",
        "responds",
    )  # fmt: skip

    def __init__(
        self, number: int, process: int, operation: Operation, invoked_ns: int, line: int
    ) -> None:
        self.number = number
        self.process = process
        self.operation = operation
        self.invoked_ns = invoked_ns
        self.ended_ns = -1
        self.line = line
        self.responds: int | None = None
        self.kind = -1
        self.committed = False

    @property
    def is_known(self) -> bool:
        """Whether it is known how it ended, or that it never will be."""
        return self.responds is not None

    @property
    def so_far(self) -> Operation:
        """The operation as it is seen now: of unknown outcome if it is open."""
        if self.responds is None or self.responds == NEVER:
            return self.operation._replace(result=UNKNOWN)
        return self.operation


class Happened(NamedTuple):
    """An event: the invocation or the response of a call."""

    call: Call
    is_response: bool


class _Part(NamedTuple):
    state: Hashable
    carried: tuple[Call, ...]
    events: list[Happened]


class Window:
    """The latest two parts of an object's history that begin where its state was known.

    Args:
      state: The state at the beginning.
    """

    def __init__(self, state: Hashable) -> None:
        self._older: _Part | None = None
        self._newer: _Part | None = _Part(state, (), [])
        self._latest: deque[Happened] = deque(maxlen=LATEST_MAX)

    def add(self, event: Happened) -> None:
        """Takes an event that was explained."""
        self._latest.append(event)
        part = self._newer
        if part is None:
            return
        if len(part.events) >= EVENTS_MAX:
            self._older = self._newer = None
        else:
            part.events.append(event)

    @property
    def wants_part(self) -> bool:
        """Whether it is time for a part to begin."""
        return self._newer is None or len(self._newer.events) >= EVENTS_MIN

    def begin(self, state: Hashable, carried: tuple[Call, ...]) -> None:
        """Begins a part: all operations but the carried ones have ended, in this state."""
        if len(carried) <= CARRIED_MAX:
            self._older, self._newer = self._newer, _Part(state, carried, [])

    def recent(self) -> tuple[Hashable, Iterator[Happened]] | None:
        """The state that the history begins with, and its events; None if that is not known."""
        first = self._older or self._newer
        if first is None or self._newer is None:
            return None
        return first.state, self._events(first)

    def latest(self) -> list[Happened]:
        """The latest events, wherever they begin."""
        return list(self._latest)

    def _events(self, first: _Part) -> Iterator[Happened]:
        for call in first.carried:
            yield Happened(call, is_response=False)
        yield from first.events
        if self._newer is not None and self._newer is not first:
            yield from self._newer.events
