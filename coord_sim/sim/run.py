"""What came of a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from checker.history import Crash, History
from coord_sim.faults import Fault
from coord_sim.schedule import Schedule

LEFT: Final = "left"
CRASHED: Final = "crashed"
RUNNING: Final = "running"
NEVER_STARTED: Final = "never started"


RAISED: Final = "the program raised "
"""Begins the cause of a crash by an exception; its name and its text follow."""

_CONSEQUENCES: Final = ("ServiceError", "CollectiveError", "ProcessFailureError")
"""What a program may raise because something was broken on purpose."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """What a program said, and when."""

    time_s: float
    process: int
    lifetime: int
    text: str

    def __str__(self) -> str:
        return f"{self.time_s:.3f} s: process {self.process}: {self.text}"


@dataclass(frozen=True, slots=True)
class End:
    """How a process was at the end of a run.

    Attributes:
      process: Its number.
      state: `left`, `crashed`, `running` or `never started`.
      cause: Of a crash; empty otherwise.
      waits_for: What a running one waits for, in words.
      at_s: When it left or crashed.
    """

    process: int
    state: str
    cause: str = ""
    waits_for: str = ""
    at_s: float | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a schedule.

    Attributes:
      schedule: What was run.
      history: What the processes saw, and the faults.
      finished: Whether every process came to an end by itself or by a crash before the limit.
      ends: How each process was in the end.
      log: What the programs said.
      reached: How often each condition was reached: of the programs (`Process.sometimes`), of the
        service and of the data plane.
      disks: What each process kept.
      missed: Faults that did not happen: the run was over before, or their conditions never held.
      events: How many events of the queue were run.
      end_s: The virtual time at the end.
    """

    schedule: Schedule
    history: History
    finished: bool
    ends: tuple[End, ...] = ()
    log: tuple[LogLine, ...] = ()
    reached: Mapping[str, int] = field(default_factory=dict)
    disks: tuple[Mapping[str, Any], ...] = ()
    missed: tuple[Fault, ...] = ()
    events: int = 0
    end_s: float = 0.0

    def unexpected_error(self) -> tuple[int, str, str] | None:
        """Process, exception and story of the first program that raised what no fault explains."""
        for event in self.history.events:
            if isinstance(event, Crash) and (event.cause or "").startswith(RAISED):
                story = str(event.cause)
                error = story.removeprefix(RAISED).partition(":")[0]
                if error not in _CONSEQUENCES:
                    return event.process, error, story
        return None
