"""The client's half of the protocol as a state machine (design note, section 11).

It registers with retries, beats every half of the time-out, keeps one error poll waiting, and decides
when its process must end. Like the service it has no I/O, clock or randomness; the driver sends what
it asks for and brings the answers.
"""

from __future__ import annotations

from collections.abc import Callable

from coord_sim.core.effects import ClientEffect, Connected, Fatal, Send
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    Answer,
    Caller,
    Heartbeat,
    HeartbeatAccepted,
    PollForError,
    Registered,
    RegisterTask,
)
from coord_sim.core.status import Code, Status

_RETRIED_REGISTRATIONS = (Code.ABORTED, Code.INTERNAL)
_PAUSE_NS = seconds(0.001)
_PAUSE_EXPONENT_MAX = 14


class CoordinationClient:
    """One client of one process.

    Args:
      task: Whose client it is.
      incarnation: Drawn by the driver, once per client.
      heartbeat_timeout_ns: The client's own setting; it beats every half of it, and a heartbeat that
        is not answered within that half is fatal.
      init_timeout_ns: How long registration is tried (the real client adds 5 s).
      new_call: Gives a fresh call id.
    """

    def __init__(
        self,
        task: TaskId,
        incarnation: Incarnation,
        *,
        heartbeat_timeout_ns: int,
        init_timeout_ns: int,
        new_call: Callable[[], CallId],
    ) -> None:
        self.task = task
        self.incarnation = incarnation
        self.caller: Caller | None = None
        """What to put into requests; None until connected."""
        self._interval_ns = heartbeat_timeout_ns // 2
        self._init_timeout_ns = init_timeout_ns + seconds(5.0)
        self._new_call = new_call
        self._give_up_ns = 0
        self._attempt = 0
        self._retry_ns: int | None = None
        self._registering: CallId | None = None
        self._heartbeat: CallId | None = None
        self._beat_ns: int | None = None
        self._beat_deadline_ns: int | None = None
        self._poll: CallId | None = None

    def connect(self, now_ns: int) -> list[ClientEffect]:
        """Begins to register."""
        self._give_up_ns = now_ns + self._init_timeout_ns
        return [self._register()]

    def receive(self, call: CallId, answer: Answer, now_ns: int) -> list[ClientEffect]:
        """Takes the answer to one of the client's own requests; ignores answers to others."""
        if call == self._registering:
            return self._registered(answer, now_ns)
        if call == self._heartbeat:
            return self._beaten(answer)
        if call == self._poll:
            self._poll = None
            # Only CANCELLED is forgiven, and then the client never polls again.
            if isinstance(answer, Status) and answer.code is not Code.CANCELLED:
                return [Fatal(answer)]
        return []

    def advance(self, now_ns: int) -> list[ClientEffect]:
        """Lets time pass."""
        if self._retry_ns is not None and now_ns >= self._retry_ns:
            self._retry_ns = None
            return [self._register()]
        if self._beat_deadline_ns is not None and now_ns >= self._beat_deadline_ns:
            late = f"the heartbeat of task {self.task} was not answered in time"
            return [Fatal(Status(code=Code.DEADLINE_EXCEEDED, message=late, service_error=None))]
        if self._beat_ns is not None and now_ns >= self._beat_ns:
            assert self.caller is not None
            self._beat_ns = now_ns + self._interval_ns
            self._beat_deadline_ns = now_ns + self._interval_ns
            self._heartbeat = self._new_call()
            request = Heartbeat(caller=self.caller, task=self.task, incarnation=self.incarnation)
            return [Send(self._heartbeat, request)]
        return []

    def next_deadline_ns(self) -> int | None:
        """When `advance` has something to do, or None."""
        times = (self._retry_ns, self._beat_ns, self._beat_deadline_ns)
        return min((time for time in times if time is not None), default=None)

    def _register(self) -> Send:
        self._registering = self._new_call()
        return Send(self._registering, RegisterTask(task=self.task, incarnation=self.incarnation))

    def _registered(self, answer: Answer, now_ns: int) -> list[ClientEffect]:
        self._registering = None
        if isinstance(answer, Registered):
            self.caller = Caller(self.incarnation, answer.service_incarnation)
            self._beat_ns = now_ns + self._interval_ns
            self._poll = self._new_call()
            return [
                Connected(answer.service_incarnation),
                Send(self._poll, PollForError(caller=self.caller, task=self.task)),
            ]
        assert isinstance(answer, Status)
        retried = answer.service_error is None or answer.code in _RETRIED_REGISTRATIONS
        self._attempt += 1
        pause_ns = _PAUSE_NS << min(self._attempt, _PAUSE_EXPONENT_MAX)
        if not retried or now_ns + pause_ns > self._give_up_ns:
            return [Fatal(answer)]
        self._retry_ns = now_ns + pause_ns
        return []

    def _beaten(self, answer: Answer) -> list[ClientEffect]:
        self._heartbeat = None
        self._beat_deadline_ns = None
        assert self.caller is not None
        if isinstance(answer, Status):
            return [Fatal(answer)]
        assert isinstance(answer, HeartbeatAccepted)
        if answer.service_incarnation != self.caller.service_incarnation:
            changed = "the service has another incarnation than the one registered with"
            return [Fatal(Status(code=Code.INTERNAL, message=changed))]
        return []
