"""The histories that a tap writes: one for each service that it finds behind its upstream."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

from coord_sim.core.identifiers import CallId, Incarnation
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Barrier,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    HeartbeatAccepted,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    Registered,
    RegisterTask,
    ReportErrorToService,
    Request,
    TasksWatched,
    TryGetKeyValue,
)
from coord_sim.core.status import Status
from coord_sim.recording.file import RecordingFile
from coord_sim.recording.service_recorder import GIVEN_UP, ServiceRecorder

_HELD_MAX: Final = 10_000
_HELD_BYTES_MAX: Final = 64 << 20
_ID_BYTES: Final = 32

_log = logging.getLogger(__name__)

_DETAILS: Final = {"semantics": "shipped", "recoverable": None, "heartbeat_timeout_s": None}
"""What a tap takes its service for; the rest no message tells."""


class TapRecording:
    """Writes what a tap sees, and says what it could not record.

    A service that was started again has an empty store: its history is another one, in a file of its
    own. Which service answers is told by registrations and heartbeats. After the service could not be
    reached, or closed the last connection, it is in doubt whether it is still the same: what comes is
    held back until one of those tells, or until it is too much.

    Args:
      file: Takes the first history.
      path_of: The path of the n-th history, from 2 on.
      tasks: How many the job has; None if that is not known.
    """

    def __init__(
        self, file: RecordingFile, path_of: Callable[[int], Path], tasks: int | None
    ) -> None:
        self._path_of = path_of
        self._tasks = tasks
        self._services: set[Incarnation] = set()
        self._registering: dict[CallId, tuple[RegisterTask, int]] = {}
        self._held: list[Callable[[ServiceRecorder], None]] | None = None
        self._held_bytes = 0
        self._gaps: Counter[str] = Counter()
        self._is_reachable = True
        self._recorder = ServiceRecorder(file, observer="tap", details=_DETAILS, tasks=tasks)

    @property
    def is_open(self) -> bool:
        """Whether anything can be written still."""
        return self._recorder.file.is_open

    def request(self, call: CallId, request: Request, now_ns: int) -> None:
        """A request was passed on."""
        if isinstance(request, RegisterTask):
            self._registering[call] = (request, now_ns)
        if self._held is None:
            self._recorder.request(call, request, now_ns)
        else:
            self._hold(lambda recorder: recorder.request(call, request, now_ns), bytes_of(request))

    def reply(self, call: CallId, answer: Answer, now_ns: int) -> None:
        """An answer was passed on."""
        if isinstance(answer, Registered | HeartbeatAccepted):
            self._answers(answer.service_incarnation, now_ns)
        self._registering.pop(call, None)
        if self._held is None:
            self._recorder.reply(call, answer, now_ns)
        else:
            self._hold(lambda recorder: recorder.reply(call, answer, now_ns), bytes_of(answer))

    def hang_up(self, call: CallId, now_ns: int) -> None:
        """A client gave up a call, or its connection is gone."""
        self.reply(call, GIVEN_UP, now_ns)

    def gap(self, kind: str, why: str, now_ns: int) -> None:
        """Something cannot be recorded; it is told once for each kind, and counted."""
        self._gaps[kind] += 1
        if self._gaps[kind] == 1:
            _log.warning("not recorded: %s (%s)", kind, why)
            self._remark(f"{kind}: from here on some are left out ({why})", now_ns)

    def lost(self) -> None:
        """The service has closed the last connection: it may be another one that answers next."""
        if self._held is None and self._services:
            self._held = []

    def unreachable(self, now_ns: int) -> None:
        """The service did not take a connection; told once, until it takes one."""
        if self._is_reachable:
            self._is_reachable = False
            self._remark("the service cannot be reached", now_ns)
        self.lost()

    def reachable(self) -> None:
        """The service has taken a connection."""
        self._is_reachable = True

    def close(self, now_ns: int) -> None:
        """Ends the recording. Calls that are open stay so: nobody knows what becomes of them."""
        self._release()
        for kind, number in self._gaps.items():
            if number > 1:
                self._recorder.remark(f"{kind}: {number} in all were left out", now_ns)
        self._recorder.close(now_ns)

    def _remark(self, what: str, now_ns: int) -> None:
        if self._held is None:
            self._recorder.remark(what, now_ns)
        else:
            self._hold(lambda recorder: recorder.remark(what, now_ns), len(what))

    def _hold(self, event: Callable[[ServiceRecorder], None], size: int) -> None:
        assert self._held is not None
        self._held.append(event)
        self._held_bytes += size
        if len(self._held) > _HELD_MAX or self._held_bytes > _HELD_BYTES_MAX:
            self._release()

    def _release(self) -> None:
        """Writes what was held back."""
        held, self._held = self._held or [], None
        self._held_bytes = 0
        for event in held:
            event(self._recorder)

    def _answers(self, service: Incarnation, now_ns: int) -> None:
        """The service says who it is."""
        if service not in self._services:
            self._services.add(service)
            if self._recorder.service is None:
                self._recorder.learn_service(service)
            else:
                self._begin_another(service, now_ns)
        self._release()

    def _begin_another(self, service: Incarnation, now_ns: int) -> None:
        path = self._path_of(len(self._services))
        note = f"another service answers from now on; its history is in {path.name}"
        _log.warning("%s", note)
        # What was held back is later than this file's last line, and earlier than now.
        self._recorder.remark(note, now_ns)
        self._recorder.close(now_ns)
        try:
            file = RecordingFile(path)
        except OSError as error:
            _log.warning("cannot record to %s: %s; the relay goes on", path, error.strerror)
            return  # The former file is closed: what is told from here on goes nowhere.
        registering = dict(self._registering)
        self._recorder = ServiceRecorder(
            file,
            observer="tap",
            details=_DETAILS,
            tasks=self._tasks,
            service=service,
            seen=[request.task for request, _ in registering.values()],
        )
        if self._held is None:
            # Nothing told that the former service is gone: those who wait to join wait for this one.
            for call, (request, since_ns) in registering.items():
                self._recorder.request(call, request, since_ns)


def bytes_of(message: Request | Answer) -> int:
    """What those fields of a message take, about, that can be large."""
    match message:
        case InsertKeyValue() | KeyValue():
            return len(message.key) + len(message.value)
        case KeyValueDirectory():
            return sum(len(key) + len(value) for key, value in message.entries)
        case GetKeyValue() | TryGetKeyValue() | DeleteKeyValue() | IncrementKeyValue():
            return len(message.key)
        case GetKeyValueDir():
            return len(message.directory)
        case CancelBarrier():
            return len(message.barrier_id)
        case Barrier():
            return len(message.barrier_id) + _ID_BYTES * len(message.tasks)
        case GetAliveTasks():
            return _ID_BYTES * len(message.tasks)
        case AliveTasks():
            return 2 * _ID_BYTES * len(message.alive)
        case TasksWatched():
            return 2 * _ID_BYTES * len(message.tasks)
        case Status() | ReportErrorToService():
            return len(message.message)
        case _:
            return 0
