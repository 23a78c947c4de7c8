"""What a service looks like at one instant: for metrics, live tables and tests."""

from __future__ import annotations

from dataclasses import dataclass

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskState
from coord_sim.core.status import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSurvey:
    """One task.

    Attributes:
      silent_ns: Since its last heartbeat or registration; None unless it is connected.
    """

    task: TaskId
    state: TaskState
    incarnation: Incarnation
    silent_ns: int | None
    error: Status | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBarrier:
    """An instance of a barrier that waits for `missing`, until `remaining_ns` have passed."""

    barrier_id: str
    counter: int
    arrived: tuple[TaskId, ...]
    missing: tuple[TaskId, ...]
    remaining_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRound:
    """A round of `live_processes` over `tasks` that waits for `missing`."""

    tasks: tuple[TaskId, ...]
    entered: tuple[TaskId, ...]
    missing: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """A service.

    Attributes:
      rounds_ended: Rounds answered since it began, restarts with a state included.
      waiting_gets: Calls that wait for a key.
      waiting_polls: Error polls that wait.
      value_bytes: Size of all keys and values.
    """

    tasks: tuple[TaskSurvey, ...]
    barriers: tuple[OpenBarrier, ...]
    rounds: tuple[OpenRound, ...]
    rounds_ended: int
    version: int
    keys: int
    value_bytes: int
    waiting_gets: int
    waiting_polls: int
