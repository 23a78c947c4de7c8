"""Limits of a search: steps, time and memory, checked between steps."""

from __future__ import annotations

import os
import time
from typing import Final

BYTES_PER_CONFIGURATION: Final = 400
"""A configuration of the plain Python searches with its masks, its place in an index and its path."""

MEMORY_BYTES_MAX: Final = 2 << 30

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_TICKS_PER_LOOK = 64


def resident_bytes() -> int:
    """Memory that this process holds now; 0 where the system does not tell.

    States are the specification's, of any size, and remembered with what became of them: only the system
    knows what they cost.
    """
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


class BudgetSpentError(Exception):
    """A search has used up what it was given; the text says what."""


class Budget:
    """What a check may use. One budget is passed through all searches of a check.

    Args:
      timeout_s: Seconds of wall time from now on, or None.
      steps_max: Configurations that may be made, or None.
      memory_bytes_max: Memory for configurations.
    """

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        steps_max: int | None = None,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
    ) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"timeout_s must be above 0, found {timeout_s}")
        self.timeout_s = timeout_s
        self.deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self.steps_max = steps_max
        self.memory_bytes_max = memory_bytes_max
        self._resident_bytes = resident_bytes()
        self.steps = 0
        self._ticks = 0
        self._next_look = 0

    def spend(self, held: int) -> None:
        """Counts one configuration.

        Args:
          held: Configurations that the search holds now.

        Raises:
          BudgetSpentError: a limit is reached.
        """
        self.steps += 1
        self.tick(held)

    def tick(self, held: int, passed: int = 1) -> None:
        """Looks at the limits now and then. To be called wherever time passes.

        Args:
          held: Configurations that the search holds now.
          passed: How much was done since the last call, in small steps.

        Raises:
          BudgetSpentError: a limit is reached.
        """
        self._ticks += passed
        if self._ticks >= self._next_look:
            self._next_look = self._ticks + _TICKS_PER_LOOK
            self.look(held)

    def look(self, held: int = 0) -> None:
        """Looks at all limits.

        Raises:
          BudgetSpentError: a limit is reached.
        """
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise BudgetSpentError(f"the time limit of {self.timeout_s:g} s is reached")
        if self.steps_max is not None and self.steps >= self.steps_max:
            raise BudgetSpentError(f"{self.steps_max:,} steps are used up")
        grown = resident_bytes() - self._resident_bytes
        if max(grown, held * BYTES_PER_CONFIGURATION) > self.memory_bytes_max:
            raise BudgetSpentError(
                f"the memory limit of {self.memory_bytes_max >> 20:,} MiB is reached"
            )

    def slice(self, steps_max: int) -> Budget:
        """A part of this budget with fewer steps, and the same deadline and memory."""
        if self.steps_max is not None:
            steps_max = max(1, min(steps_max, self.steps_max - self.steps))
        part = Budget(steps_max=steps_max, memory_bytes_max=self.memory_bytes_max)
        part.timeout_s, part.deadline = self.timeout_s, self.deadline
        return part

    def until(self, deadline: float | None) -> Budget:
        """This budget, with a deadline that may be earlier than its own."""
        if deadline is not None and (self.deadline is None or deadline < self.deadline):
            self.deadline = deadline
        return self

    @property
    def is_spent(self) -> bool:
        """Whether the time or the steps are used up."""
        late = self.deadline is not None and time.monotonic() >= self.deadline
        return late or (self.steps_max is not None and self.steps >= self.steps_max)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, or None if there is no limit."""
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
