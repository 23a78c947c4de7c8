"""What the core asks of its driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.messages import AliveTasks, Answer, Request, TaskState
from coord_sim.core.records import Record
from coord_sim.core.status import Status


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a call; a `Status` is an error."""

    call: CallId
    answer: Answer


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A task changed its state: for logs, pictures and recordings; nothing need be done."""

    task: TaskId
    incarnation: Incarnation
    state: TaskState
    reason: Status | None


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """A round of `live_processes` is over, the `number`-th of this service, counted from 1.

    For logs, metrics and recordings.
    """

    number: int
    tasks: frozenset[TaskId]
    answer: AliveTasks


@dataclass(frozen=True, slots=True)
class BarrierEnded:
    """An instance of a barrier is over; `result` is None if it passed. For logs and metrics."""

    barrier_id: str
    counter: int
    result: Status | None


@dataclass(frozen=True, slots=True)
class Remember:
    """Store a record before carrying out the effects after it. Only of a durable service."""

    record: Record


Effect: TypeAlias = Reply | StateChanged | RoundEnded | BarrierEnded | Remember


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request of the client; its answer comes back under the same call id."""

    call: CallId
    request: Request


@dataclass(frozen=True, slots=True)
class Connected:
    """The client is registered; calls may be made from now on."""

    service_incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class Fatal:
    """The client must end its process."""

    reason: Status


ClientEffect: TypeAlias = Send | Connected | Fatal
