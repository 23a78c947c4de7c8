"""The history as the service's side sees it: by the server itself, or by a relay in front of it.

Every call is an operation, the protocol's own too, so that the recording can be replayed. A call's
lifetime is known by the incarnation that the request carries.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from checker.history import (
    LIVE_PROCESSES,
    Fault,
    Header,
    History,
    HistoryWriter,
    Invoke,
    Ok,
    Start,
    dumps,
)
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    GetAliveTasks,
    Heartbeat,
    PollForError,
    RegisterTask,
    Request,
    RequestOfTask,
    TasksWatched,
)
from coord_sim.core.status import Code, Status
from coord_sim.recording.file import RecordingFile
from coord_sim.recording.operations import AnswerTexts, operation_of, response

REGISTER: Final = "register"
HEARTBEAT: Final = "heartbeat"
POLL_FOR_ERROR: Final = "poll_for_error"

RECORDER_LANE: Final = "recorder"
"""Whose lines of type `fault` tell what the recording lacks."""

GIVEN_UP: Final = Status(code=Code.CANCELLED, message="the client gave up the call")

CANNOT_KNOW: Final = (
    "when a process crashed: only that it was silent, or registered again",
    "whether and when a reply reached its caller",
    "blocks of live_devices: they have no message of their own",
    "calls of a caller whose registration was not seen: they are counted, and left out",
)

PARTICIPANTS_MAX: Final = 100_000
"""Process numbers that a recorder takes up by itself; a peer must not make it list more."""

_log = logging.getLogger(__name__)

_STRANGER: Final = "calls of strangers"


class ServiceRecorder:
    """Appends what the service's side sees to a file.

    Args:
      file: Takes it. A file that fails ends the recording, nothing else.
      observer: Who sees it: `server` or `tap`.
      details: What else the header says. Readers take what is missing for unknown.
      tasks: How many the job has, or None if that is not known: then the header lists those that were
        seen, and is written again when another one is.
      service: The incarnation of the service, or None if it is not known yet.
      seen: Tasks of the job that are known already, if not all are. Others are found by their
        registrations and by answers, not by what callers ask for.
    """

    def __init__(
        self,
        file: RecordingFile,
        *,
        observer: str,
        details: Mapping[str, object],
        tasks: int | None,
        service: Incarnation | None = None,
        seen: Iterable[int] = (),
    ) -> None:
        self.file = file
        self._observer = observer
        self._details = dict(details)
        self._tasks = tasks
        self._service = service
        self._participants = set(range(tasks)) if tasks is not None else {0, *seen}
        self._texts = AnswerTexts()
        self._lifetimes: dict[tuple[TaskId, Incarnation], int] = {}
        self._since_ns: dict[tuple[TaskId, Incarnation], int] = {}
        self._started: set[tuple[TaskId, int]] = set()
        self._starts: dict[TaskId, int] = {}
        self._process_of: dict[Incarnation, TaskId] = {}
        self._operations: dict[CallId, tuple[TaskId, int, int, str]] = {}
        self._registrations: dict[CallId, RegisterTask] = {}
        self._seen_list: object = None
        self._seen_answer: object = None
        """The latest whose tasks are all of the job: the next call often shares it."""
        self._next_operation = 0
        self._strangers = 0
        self._writer = HistoryWriter(file.write, self._header())

    @property
    def service(self) -> Incarnation | None:
        """The incarnation of the service, once it is known."""
        return self._service

    def learn_service(self, incarnation: Incarnation) -> None:
        """Which service it is has become known."""
        self._service = incarnation
        self._rewrite_header()

    def resume(self, task: TaskId, incarnation: Incarnation, now_ns: int) -> None:
        """A task was in the job before this recording began."""
        lifetime = self._lifetime_of(task, incarnation, now_ns)
        self._start(task, lifetime, incarnation, now_ns)

    def request(self, call: CallId, request: Request, now_ns: int) -> None:
        """A request has arrived.

        Args:
          call: Names it in `reply` and `hang_up`.
          request: What it asks.
          now_ns: When, by CLOCK_MONOTONIC; not before what was told last, as in all methods.
        """
        if not self.file.is_open:
            return
        described = self._described(request, now_ns)
        if described is None:
            if isinstance(request, RegisterTask):
                self._strange(f"task {request.task} registers, of a job of {self._tasks}", now_ns)
            else:
                self._strange("who calls has not registered here", now_ns)
            return
        process, lifetime, name, arguments = described
        number = self._next_operation
        self._next_operation += 1
        self._operations[call] = (process, lifetime, number, name)
        if isinstance(request, RegisterTask):
            self._registrations[call] = request
        self._writer.append(
            Invoke(
                time_ns=now_ns,
                process=process,
                lifetime=lifetime,
                id=number,
                operation=name,
                arguments=arguments,
            )
        )

    def reply(self, call: CallId, answer: Answer, now_ns: int) -> None:
        """A reply is about to be sent."""
        operation = self._operations.pop(call, None)
        registration = self._registrations.pop(call, None)
        if operation is None or not self.file.is_open:
            return
        process, lifetime, number, name = operation
        if isinstance(answer, AliveTasks) and answer is not self._seen_answer:
            if not self._see(task for task, _ in answer.alive):
                # Of another job than was said: the call stays open.
                self._strange("an answer names tasks that the job does not have", now_ns)
                return
            self._seen_answer = answer
        elif isinstance(answer, TasksWatched):
            self._see(info.task for info in answer.tasks)
        event = response(
            answer,
            self._texts,
            time_ns=now_ns,
            process=process,
            lifetime=lifetime,
            operation=number,
            name=name,
        )
        self._writer.append(event)
        if registration is not None and isinstance(event, Ok):
            self._start(process, lifetime, registration.incarnation, now_ns)

    def hang_up(self, call: CallId, now_ns: int) -> None:
        """A client gave up a call: it will not be answered, and may have an effect yet."""
        self.reply(call, GIVEN_UP, now_ns)

    def remark(self, what: str, now_ns: int) -> None:
        """Says something of the recording itself, such as what it lacks from now on."""
        self._writer.append_fault(Fault(time_ns=now_ns, name=what, lane=RECORDER_LANE))

    def close(self, now_ns: int) -> None:
        """Ends the recording."""
        if self._strangers > 1:
            self.remark(f"{_STRANGER}: {self._strangers} in all were left out", now_ns)
        self.file.close()

    # --- who calls, and what -------------------------------------------------------------------

    def _described(
        self, request: Request, now_ns: int
    ) -> tuple[TaskId, int, str, Mapping[str, object]] | None:
        """Process, lifetime, name and arguments of a call; None if it is nobody's."""
        if isinstance(request, RegisterTask):
            if not self._see((request.task,)):
                return None
            lifetime = self._lifetime_of(request.task, request.incarnation, now_ns)
            return request.task, lifetime, REGISTER, {"incarnation": str(request.incarnation)}
        caller = request.caller
        incarnation = caller.task_incarnation
        if isinstance(request, RequestOfTask | Heartbeat):
            process = request.task
        else:
            process = self._process_of.get(incarnation, TaskId(-1))
        lifetime_or_none = self._lifetimes.get((process, incarnation))
        if lifetime_or_none is None:
            return None  # Nobody who registered: there is no lifetime to attribute it to.
        lifetime = lifetime_or_none
        name: str
        arguments: Mapping[str, object]
        if isinstance(request, Heartbeat):
            name = HEARTBEAT
            is_own = request.incarnation == incarnation
            arguments = {} if is_own else {"incarnation": str(request.incarnation)}
        elif isinstance(request, PollForError):
            name, arguments = POLL_FOR_ERROR, {}
        else:
            operation = operation_of(request, self._tasks)
            assert operation is not None, "all other requests are operations"
            name, arguments = operation
            if name == LIVE_PROCESSES and (process, lifetime) not in self._started:
                return None  # Not in the job yet; histories have no such calls.
        if isinstance(request, GetAliveTasks) and self._tasks is None:
            arguments = self._about_the_job(request, arguments)
        if self._service is not None and caller.service_incarnation != self._service:
            arguments = {**arguments, "service_incarnation": str(caller.service_incarnation)}
        return process, lifetime, name, arguments

    def _about_the_job(
        self, request: GetAliveTasks, arguments: Mapping[str, object]
    ) -> Mapping[str, object]:
        """The arguments without ids that are none of the job.

        That somebody asks for a process does not make it one. All of the job have registered by now:
        nobody is let in, and calls this, before all have.
        """
        if request.tasks is self._seen_list:
            return arguments
        if self._participants.issuperset(request.tasks):
            self._seen_list = request.tasks
            return arguments
        known = self._participants.intersection(request.tasks)
        return {**arguments, "participants": tuple(sorted(known))}

    def _lifetime_of(self, task: TaskId, incarnation: Incarnation, now_ns: int) -> int:
        key = (task, incarnation)
        lifetime = self._lifetimes.get(key)
        if lifetime is None:
            lifetime = self._starts.get(task, 0)
            self._starts[task] = lifetime + 1
            self._lifetimes[key] = lifetime
            self._since_ns[key] = now_ns
            self._process_of[incarnation] = task
        return lifetime

    def _start(self, task: TaskId, lifetime: int, incarnation: Incarnation, now_ns: int) -> None:
        if (task, lifetime) in self._started or not self.file.is_open:
            return  # The same incarnation registered again.
        self._started.add((task, lifetime))
        self._writer.append(
            Start(
                time_ns=now_ns,
                process=task,
                lifetime=lifetime,
                incarnation=incarnation,
                since_ns=self._since_ns.pop((task, incarnation)),
            )
        )

    def _strange(self, why: str, now_ns: int) -> None:
        self._strangers += 1
        if self._strangers == 1:
            _log.warning("not recorded: %s (%s)", _STRANGER, why)
            self.remark(f"{_STRANGER}: from here on some are left out", now_ns)

    # --- the header ----------------------------------------------------------------------------

    def _header(self) -> Header:
        details: dict[str, object] = {
            "records": "all calls",
            "observer": self._observer,
            **self._details,
        }
        if self._service is not None:
            details["service_incarnation"] = str(self._service)
        return Header(
            source="server",
            clock="monotonic",
            participants=tuple(sorted(self._participants)),
            cannot_know=CANNOT_KNOW,
            details=details,
        )

    def _see(self, tasks: Iterable[int]) -> bool:
        """Whether tasks are of the job; those that may be are taken up."""
        new = set(tasks) - self._participants
        if not new:
            return True
        if self._tasks is not None or len(new) + len(self._participants) > PARTICIPANTS_MAX:
            return False
        if min(new) < 0:
            return False
        self._participants |= new
        self._rewrite_header()
        return True

    def _rewrite_header(self) -> None:
        if self._tasks is None and self.file.is_regular:
            self.file.replace_head(dumps(History(self._header(), (), ())).encode())
