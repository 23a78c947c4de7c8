"""What an exploration needs to know of whoever judges histories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from checker.history import Event


class Judge(Protocol):
    """Reads histories step by step. States are small integers, equal where futures are.

    Events have no times; ids of calls and incarnations are those of `coord_sim.explore.names`.
    """

    @property
    def initial(self) -> int:
        """The state before the first event."""

    def after(self, state: int, events: Sequence[Event]) -> int | None:
        """The state after these events, or None if the history is invalid, and so is any longer one."""

    def renamed(self, state: int, processes: Sequence[int]) -> int:
        """The state after the same events under other numbers of processes (the new one of each)."""


class Unjudged:
    """Finds no fault with anything."""

    initial = 0

    def after(self, state: int, events: Sequence[Event]) -> int:
        """The only state."""
        del state, events
        return self.initial

    def renamed(self, state: int, processes: Sequence[int]) -> int:
        """The only state."""
        del state, processes
        return self.initial
