"""What the core asks of its driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.messages import Answer, Request, TaskState
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


Effect: TypeAlias = Reply | StateChanged


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
