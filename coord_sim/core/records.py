"""What a service must remember to go on after it was killed: one record for each thing that changes.

A service with `ServiceConfig.durable` emits a `Remember` effect with each change; a driver that stores
it before it answers loses nothing that was acknowledged. `CoordinationService.restore` takes the latest
record of each thing. Waiting calls are not remembered: their connections are gone with the process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import TaskState
from coord_sim.core.status import Status


@dataclass(frozen=True, slots=True)
class KeyRecord:
    """A normalised key and its value; None if the key was deleted."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task. `past` are incarnations that have ended."""

    task: TaskId
    state: TaskState
    incarnation: Incarnation
    error: Status | None
    has_left: bool
    past: tuple[Incarnation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierRecord:
    """The latest instance of a barrier id, without who has arrived."""

    key: str
    id: str
    counter: int
    is_over: bool
    result: Status | None
    initiator: TaskId | None
    timeout_ns: int
    participants: tuple[TaskId, ...]
    passed_by: tuple[tuple[TaskId, Incarnation], ...]
    passed_counter: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """What belongs to no single task."""

    version: int
    anybody_polled: bool
    propagated: Status | None
    rounds: int


Record: TypeAlias = KeyRecord | TaskRecord | BarrierRecord | JobRecord
