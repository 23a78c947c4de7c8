"""Requests and replies: one frozen dataclass per message of `xla.coordination.CoordinationService`.

Field names follow the wire (proto/coordination_service.proto) where a program sees them.
`caller` stands for the wire's `incarnations` message: who the client says it is and whom it thinks it
talks to.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.status import Status


@dataclass(frozen=True, slots=True)
class Caller:
    """What a client puts into every request but RegisterTask."""

    task_incarnation: Incarnation
    service_incarnation: Incarnation


class TaskState(enum.IntEnum):
    """States of a task as WatchTasks tells them."""

    DISCONNECTED = 2
    CONNECTED = 3
    ERROR = 4


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """One task in an answer of WatchTasks. `incarnation` is 0 before the first registration."""

    task: TaskId
    incarnation: Incarnation
    state: TaskState
    error: Status | None


# --- membership ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTask:
    """Asks to join. Answered when all tasks have asked (the registration barrier)."""

    task: TaskId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The task is connected."""

    service_incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Says that a task is alive."""

    caller: Caller
    task: TaskId
    incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAccepted:
    """Names the service, so that a client notices a new one."""

    service_incarnation: Incarnation


@dataclass(frozen=True, slots=True, kw_only=True)
class PollForError:
    """Waits until there is an error to tell; never answered otherwise."""

    caller: Caller
    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShutdownTask:
    """Asks to leave."""

    caller: Caller
    task: TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTasks:
    """Waits until the version of the task states is greater than `version`; negative: now."""

    caller: Caller
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TasksWatched:
    """All tasks, and the version of this picture."""

    tasks: tuple[TaskInfo, ...]
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportErrorToService:
    """A task says that it has failed: jaxlib 0.11 and later."""

    caller: Caller
    task: TaskId
    code: int
    message: str


# --- key-value store -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertKeyValue:
    """Stores a value."""

    caller: Caller
    key: str
    value: bytes
    allow_overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKeyValue:
    """Waits for a value, without limit."""

    caller: Caller
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TryGetKeyValue:
    """Reads a value, or fails with NOT_FOUND."""

    caller: Caller
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKeyValue:
    """Removes a key and everything under it; a missing key is fine."""

    caller: Caller
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IncrementKeyValue:
    """Adds to a number that is stored as decimal text; an absent key counts as 0."""

    caller: Caller
    key: str
    increment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GetKeyValueDir:
    """Reads all values under a directory, at any depth."""

    caller: Caller
    directory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """A value, with the key as the caller wrote it."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValueDirectory:
    """Normalised keys and values, ascending by key."""

    entries: tuple[tuple[str, bytes], ...]


# --- barriers --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier:
    """Waits for the other participants. Counters tell the uses of one id apart.

    Attributes:
      timeout_ms: The first caller's counts, for all.
      tasks: The participants; empty means all tasks.
    """

    caller: Caller
    barrier_id: str
    timeout_ms: int
    tasks: tuple[TaskId, ...]
    task: TaskId
    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierPassed:
    """All have arrived; `counter` is the service's."""

    counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelBarrier:
    """Ends a barrier for all who wait at it."""

    caller: Caller
    barrier_id: str
    counter: int
    task: TaskId


# --- aliveness -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class GetAliveTasks:
    """The `live_processes` barrier."""

    caller: Caller
    task: TaskId
    tasks: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AliveTasks:
    """The live set: `(task, incarnation)`, ascending by task. One object for a whole round."""

    alive: tuple[tuple[TaskId, Incarnation], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """An empty answer, of requests that only do something."""


Request: TypeAlias = (
    RegisterTask
    | Heartbeat
    | PollForError
    | ShutdownTask
    | WatchTasks
    | ReportErrorToService
    | InsertKeyValue
    | GetKeyValue
    | TryGetKeyValue
    | DeleteKeyValue
    | IncrementKeyValue
    | GetKeyValueDir
    | Barrier
    | CancelBarrier
    | GetAliveTasks
)
RequestOfTask: TypeAlias = (
    PollForError | ShutdownTask | ReportErrorToService | Barrier | CancelBarrier | GetAliveTasks
)
"""The requests that name the calling task. Of the others only the caller's incarnation is known."""
Answer: TypeAlias = (
    Registered
    | HeartbeatAccepted
    | TasksWatched
    | KeyValue
    | KeyValueDirectory
    | BarrierPassed
    | AliveTasks
    | Done
    | Status
)
