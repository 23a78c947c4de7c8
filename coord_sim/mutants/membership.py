"""Wrong views of who is in the job: heartbeats, deaths, registration, leaving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from coord_sim.core.effects import Reply
from coord_sim.core.error_polls import ErrorPolls
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.membership import Task
from coord_sim.core.messages import (
    Heartbeat,
    HeartbeatAccepted,
    Registered,
    RegisterTask,
    ShutdownTask,
    TaskState,
)
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Code, Status


class _LeavesStalePolls(ErrorPolls):
    def end_stale(self, task: TaskId, incarnation: Incarnation, status: Status) -> list[Reply]:
        del task, incarnation, status
        return []


class CountsOldHeartbeats(CoordinationService):
    """A replaced incarnation is not told, and its heartbeats count as its successor's."""

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        super().__init__(config, incarnation, now_ns)
        self._polls = _LeavesStalePolls()

    def _heartbeat(self, request: Heartbeat) -> HeartbeatAccepted | Status:
        task = self.membership.find(request.task)
        if task is not None and request.incarnation in task.past:
            request = replace(request, incarnation=task.incarnation)
        return super()._heartbeat(request)


class DeclaresDeathsEarly(CoordinationService):
    """A task is dead after half the time-out."""

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        half = replace(config, heartbeat_timeout_ns=config.heartbeat_timeout_ns // 2)
        super().__init__(half, incarnation, now_ns)


class NeverDeclaresDeaths(CoordinationService):
    """Silence means nothing."""

    def _declare_dead(self, stale: Sequence[Task]) -> None:
        del stale


class TheDeadComeBack(CoordinationService):
    """A heartbeat connects a task again that was declared dead, in the same incarnation."""

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        semantics = replace(config.semantics, revives_the_dead=True)  # It is not told that it died.
        super().__init__(replace(config, semantics=semantics), incarnation, now_ns)

    def _heartbeat(self, request: Heartbeat) -> HeartbeatAccepted | Status:
        task = self.membership.find(request.task)
        if task is not None and task.incarnation == request.incarnation and _is_silent(task):
            self._connect(task)
            self._updated()
        return super()._heartbeat(request)


def _is_silent(task: Task) -> bool:
    return (
        task.state is TaskState.ERROR
        and task.error is not None
        and task.error.code is Code.UNAVAILABLE
    )


class RegistersWithoutWaiting(CoordinationService):
    """A registration is answered at once, whoever else has registered."""

    def _register(self, call: CallId, request: RegisterTask) -> None:
        task = self.membership.find(request.task)
        if task is None or task.state is not TaskState.DISCONNECTED:
            super()._register(call, request)
            return
        self.membership.announce(task, request.incarnation)
        self._connect(task)
        self._reply(call, Registered(service_incarnation=self.incarnation))
        self._updated()


class DisconnectsAnother(CoordinationService):
    """Whoever leaves, the next connected task is disconnected in its place."""

    def _shut_down(self, call: CallId, request: ShutdownTask) -> None:
        others = [task.id for task in self.membership.connected() if task.id != request.task]
        following = next((id_ for id_ in others if id_ > request.task), None)
        victim = following if following is not None else next(iter(others), request.task)
        super()._shut_down(call, replace(request, task=victim))
