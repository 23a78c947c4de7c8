"""The history as the server sees it.

A server cannot know when a process crashed, nor whether a reply reached its caller: the header says
so. It knows a caller's lifetime by the incarnation that the request carries.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from checker.history import Header, HistoryWriter, Invoke, Start
from coord_sim.core.identifiers import NS_PER_S, CallId, Incarnation, TaskId
from coord_sim.core.messages import (
    Answer,
    Registered,
    RegisterTask,
    Request,
    RequestOfTask,
)
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import Code, Status
from coord_sim.recording import AnswerTexts, operation_of, response

_log = logging.getLogger(__name__)

CANNOT_KNOW = (
    "when a process crashed: only that it was silent, or registered again",
    "whether and when a reply reached its caller",
    "blocks of live_devices: they have no message of their own",
)

GIVEN_UP = Status(code=Code.CANCELLED, message="the client gave up the call")


def details_of(config: ServiceConfig) -> dict[str, object]:
    """What a recording's header says of its service."""
    return {
        "semantics": config.semantics.name,
        "recoverable": config.recoverable,
        "heartbeat_timeout_s": config.heartbeat_timeout_ns / NS_PER_S,
    }


class ServerRecorder:
    """Appends what the server sees to a file. A disk that fails ends the recording, not the service."""

    def __init__(self, path: str | Path, participants: int, details: dict[str, object]) -> None:
        self._descriptor: int | None = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644
        )
        self._texts = AnswerTexts()
        self._lifetimes: dict[tuple[TaskId, Incarnation], int] = {}
        self._process_of: dict[Incarnation, TaskId] = {}
        self._starts = [0] * participants
        self._registrations: dict[CallId, tuple[RegisterTask, int]] = {}
        self._operations: dict[CallId, tuple[int, int, int, str]] = {}
        self._next_operation = 0
        header = Header(
            source="server",
            clock="monotonic",
            participants=tuple(range(participants)),
            cannot_know=CANNOT_KNOW,
            details=details,
        )
        self._writer = HistoryWriter(self._write, header)

    def resume(self, task: TaskId, incarnation: Incarnation) -> None:
        """A task was in the job before this recording began."""
        self._started(RegisterTask(task=task, incarnation=incarnation), time.monotonic_ns())

    def request(self, call: CallId, request: Request) -> None:
        """A request has arrived."""
        if self._descriptor is None:
            return
        if isinstance(request, RegisterTask):
            self._registrations[call] = (request, time.monotonic_ns())
            return
        operation = operation_of(request, len(self._starts))
        if operation is None:
            return
        incarnation = request.caller.task_incarnation
        if isinstance(request, RequestOfTask):
            process = request.task
        else:
            process = self._process_of.get(incarnation, TaskId(-1))
        lifetime = self._lifetimes.get((process, incarnation))
        if lifetime is None:
            return  # Nobody who registered: there is no lifetime to attribute it to.
        name, arguments = operation
        self._operations[call] = (process, lifetime, self._next_operation, name)
        self._writer.append(
            Invoke(
                time_ns=time.monotonic_ns(),
                process=process,
                lifetime=lifetime,
                id=self._next_operation,
                operation=name,
                arguments=arguments,
            )
        )
        self._next_operation += 1

    def reply(self, call: CallId, answer: Answer) -> None:
        """A reply is about to be sent."""
        registration = self._registrations.pop(call, None)
        if registration is not None:
            if isinstance(answer, Registered):
                self._started(*registration)
            return
        operation = self._operations.pop(call, None)
        if operation is None or self._descriptor is None:
            return
        process, lifetime, number, name = operation
        event = response(
            answer,
            self._texts,
            time_ns=time.monotonic_ns(),
            process=process,
            lifetime=lifetime,
            operation=number,
            name=name,
        )
        self._writer.append(event)

    def hang_up(self, call: CallId) -> None:
        """A client gave up a call: it will not be answered, and may have an effect yet."""
        self.reply(call, GIVEN_UP)

    def close(self) -> None:
        """Ends the recording."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _started(self, request: RegisterTask, since_ns: int) -> None:
        key = (request.task, request.incarnation)
        if key in self._lifetimes or self._descriptor is None:
            return  # The same incarnation registered again.
        lifetime = self._starts[request.task]
        self._starts[request.task] += 1
        self._lifetimes[key] = lifetime
        self._process_of[request.incarnation] = request.task
        self._writer.append(
            Start(
                time_ns=time.monotonic_ns(),
                process=request.task,
                lifetime=lifetime,
                incarnation=request.incarnation,
                since_ns=since_ns,
            )
        )

    def _write(self, lines: bytes) -> None:
        if self._descriptor is None:
            return
        try:
            written = os.write(self._descriptor, lines)
            problem = "" if written == len(lines) else "the disk is full"
        except OSError as error:
            problem = str(error)
        if problem:
            _log.warning("recording stopped: %s; what was written before is kept", problem)
            self.close()
