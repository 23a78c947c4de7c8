"""The client's half of the protocol as a state machine (design note, section 11).

It registers with retries, beats every half of the time-out, keeps one error poll waiting, counts the
uses of barriers, and decides when its process must end. Like the service it has no I/O, clock or
randomness; the driver sends what it asks for and brings the answers.
"""

from __future__ import annotations

from collections.abc import Callable

from coord_sim.core.effects import ClientEffect, Connected, Fatal, Send
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    Answer,
    BarrierPassed,
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
_RETRIED_HEARTBEATS = (Code.UNAVAILABLE, Code.UNKNOWN)
_HEARTBEAT_ATTEMPTS = 4
_HEARTBEAT_PAUSE_NS = seconds(0.001)
_FATAL_DELAY_NS = seconds(1.0)
_OUTAGE_PAUSE_NS = seconds(0.2)


class CoordinationClient:
    """One client of one process.

    Args:
      task: Whose client it is.
      incarnation: Drawn by the driver, once per client.
      heartbeat_timeout_ns: The client's own setting; it beats every half of it, and a heartbeat that
        is not answered within that half is fatal.
      init_timeout_ns: How long registration is tried (the real client adds 5 s).
      new_call: Gives a fresh call id.
      outage_ns: How long the client lives on without a service that answers. 0 is what the real client
        does: its error poll ends it as soon as the connection breaks.
    """

    __slots__ = (
        "_answer_by_ns",
        "_at_barrier",
        "_attempt",
        "_barriers",
        "_beat",
        "_beat_deadline_ns",
        "_beat_ns",
        "_doom",
        "_give_up_ns",
        "_heartbeat",
        "_heartbeat_attempts",
        "_init_timeout_ns",
        "_interval_ns",
        "_is_connected",
        "_is_in_doubt",
        "_new_call",
        "_outage_ns",
        "_outage_since_ns",
        "_poll",
        "_poll_ns",
        "_registering",
        "_retry_ns",
        "caller",
        "incarnation",
        "task",
    )

    def __init__(
        self,
        task: TaskId,
        incarnation: Incarnation,
        *,
        heartbeat_timeout_ns: int,
        init_timeout_ns: int,
        new_call: Callable[[], CallId],
        outage_ns: int = 0,
    ) -> None:
        self.task = task
        self.incarnation = incarnation
        self.caller: Caller | None = None
        """What to put into requests; None until connected."""
        self._is_connected = False
        self._beat: Heartbeat | None = None
        self._interval_ns = heartbeat_timeout_ns // 2
        self._init_timeout_ns = init_timeout_ns + seconds(5.0)
        self._new_call = new_call
        self._outage_ns = outage_ns
        self._outage_since_ns: int | None = None
        self._give_up_ns = 0
        self._answer_by_ns = 0
        self._attempt = 0
        self._retry_ns: int | None = None
        self._registering: CallId | None = None
        self._heartbeat: CallId | None = None
        self._heartbeat_attempts = 0
        self._is_in_doubt = False
        self._beat_ns: int | None = None
        self._beat_deadline_ns: int | None = None
        self._poll: CallId | None = None
        self._poll_ns: int | None = None
        self._doom: tuple[int, Status] | None = None
        self._barriers: dict[str, int] = {}
        self._at_barrier: set[str] = set()

    # --- what a driver calls -------------------------------------------------------------------

    def connect(self, now_ns: int) -> list[ClientEffect]:
        """Begins to register."""
        self._give_up_ns = now_ns + self._init_timeout_ns
        return [self._register(now_ns)]

    def receive(self, call: CallId, answer: Answer, now_ns: int) -> list[ClientEffect]:
        """Takes the answer to one of the client's own requests; ignores answers to others."""
        if call == self._registering:
            return self._registered(answer, now_ns)
        if call == self._heartbeat:
            return self._beaten(answer, now_ns)
        if call == self._poll:
            return self._polled(answer, now_ns)
        return []

    def advance(self, now_ns: int) -> list[ClientEffect]:
        """Lets time pass."""
        if self._registering is not None and now_ns >= self._answer_by_ns:
            late = f"RegisterTask of task {self.task} was not answered in time"
            status = Status(code=Code.DEADLINE_EXCEEDED, message=late, service_error=None)
            return self._registered(status, now_ns)
        if self._retry_ns is not None and now_ns >= self._retry_ns:
            self._retry_ns = None
            return [self._register(now_ns)]
        if self._doom is not None and now_ns >= self._doom[0]:
            reason = self._doom[1]
            self.leave()
            return [Fatal(reason)]
        if self._beat_deadline_ns is not None and now_ns >= self._beat_deadline_ns:
            self._heartbeat = None
            late = f"the heartbeat of task {self.task} was not answered in time"
            status = Status(code=Code.DEADLINE_EXCEEDED, message=late, service_error=None)
            return self._heartbeat_failed(status, now_ns)
        if self._poll_ns is not None and now_ns >= self._poll_ns:
            self._poll_ns = None
            return [self._send_poll()]
        if self._beat_ns is not None and now_ns >= self._beat_ns:
            return [self._send_heartbeat(now_ns)]
        return []

    def doubt(self, now_ns: int) -> list[ClientEffect]:
        """Beats at once, if it beats at all: the driver has seen that the service may be gone."""
        if self._beat_ns is None:
            return []
        if self._heartbeat is not None:
            self._is_in_doubt = True  # It may have been answered before what the driver saw.
            return []
        return [self._send_heartbeat(now_ns)]

    def next_deadline_ns(self) -> int | None:
        """When `advance` has something to do, or None."""
        earliest_ns = self._beat_ns
        deadline_ns = self._beat_deadline_ns
        if deadline_ns is not None and (earliest_ns is None or deadline_ns < earliest_ns):
            earliest_ns = deadline_ns
        if self._is_connected and self._doom is None and self._poll_ns is None:
            return earliest_ns  # Nearly always.
        doom_ns = None if self._doom is None else self._doom[0]
        late_ns = None if self._registering is None else self._answer_by_ns
        times = (earliest_ns, self._retry_ns, self._poll_ns, doom_ns, late_ns)
        return min((time for time in times if time is not None), default=None)

    def leave(self) -> None:
        """Ends heartbeats and polls, and forgets a failed heartbeat: the client shuts down."""
        self._heartbeat = self._poll = self._registering = None
        self._beat_ns = self._beat_deadline_ns = self._poll_ns = self._retry_ns = None
        self._doom = None

    def is_fatal(self, answer: Answer) -> bool:
        """Whether the answer to any call says that the client speaks to a service not its own."""
        return isinstance(answer, Status) and answer.wrong_service is not None

    # --- barriers ------------------------------------------------------------------------------

    def enter_barrier(self, barrier_id: str) -> int | Status:
        """The counter to send, or why this client may not wait at the barrier now."""
        if barrier_id in self._at_barrier:
            return Status(
                code=Code.FAILED_PRECONDITION,
                message=f"Barrier {barrier_id} is already ongoing.",
            )
        self._at_barrier.add(barrier_id)
        return self._barriers.get(barrier_id, -1) + 1

    def leave_barrier(self, barrier_id: str, answer: Answer | None) -> None:
        """The answer, not the request, decides which instance was the last; None if none came."""
        self._at_barrier.discard(barrier_id)
        if isinstance(answer, BarrierPassed):
            self._barriers[barrier_id] = answer.counter
        elif isinstance(answer, Status) and answer.barrier_error is not None:
            self._barriers[barrier_id] = answer.barrier_error.counter

    # --- registration --------------------------------------------------------------------------

    def _register(self, now_ns: int) -> Send:
        self._registering = self._new_call()
        self._answer_by_ns = now_ns + self._init_timeout_ns
        return Send(self._registering, RegisterTask(task=self.task, incarnation=self.incarnation))

    def _registered(self, answer: Answer, now_ns: int) -> list[ClientEffect]:
        self._registering = None
        if isinstance(answer, Registered):
            self.caller = Caller(self.incarnation, answer.service_incarnation)
            self._beat = Heartbeat(caller=self.caller, task=self.task, incarnation=self.incarnation)
            self._is_connected = True
            self._beat_ns = now_ns + self._interval_ns
            return [Connected(answer.service_incarnation), self._send_poll()]
        assert isinstance(answer, Status)
        retried = answer.service_error is None or answer.code in _RETRIED_REGISTRATIONS
        self._attempt += 1
        # Whether its time is over is asked before the pause: the last attempt may come after that.
        if not retried or now_ns >= self._give_up_ns:
            return [Fatal(answer)]
        self._retry_ns = now_ns + (_PAUSE_NS << min(self._attempt, _PAUSE_EXPONENT_MAX))
        return []

    # --- error polls ---------------------------------------------------------------------------

    def _send_poll(self) -> Send:
        assert self.caller is not None
        self._poll = self._new_call()
        return Send(self._poll, PollForError(caller=self.caller, task=self.task))

    def _polled(self, answer: Answer, now_ns: int) -> list[ClientEffect]:
        self._poll = None
        if not isinstance(answer, Status):
            wrong = Status(
                code=Code.INTERNAL, message="an error poll was answered without an error"
            )
            return [Fatal(wrong)]
        if answer.code is Code.CANCELLED:
            return []  # Forgiven, and then the client never polls again.
        if self._is_borne(answer, now_ns):
            self._poll_ns = now_ns + _OUTAGE_PAUSE_NS
            return self.doubt(now_ns)  # The answer to a heartbeat says that the outage is over.
        return [Fatal(answer)]

    # --- heartbeats ----------------------------------------------------------------------------

    def _send_heartbeat(self, now_ns: int) -> Send:
        assert self._beat is not None
        self._heartbeat_attempts += 1
        self._is_in_doubt = False
        self._beat_ns = now_ns + self._interval_ns
        self._beat_deadline_ns = now_ns + self._interval_ns
        self._heartbeat = self._new_call()
        return Send(self._heartbeat, self._beat)

    def _beaten(self, answer: Answer, now_ns: int) -> list[ClientEffect]:
        self._heartbeat = None
        self._beat_deadline_ns = None
        assert self.caller is not None
        if isinstance(answer, Status):
            return self._heartbeat_failed(answer, now_ns)
        assert isinstance(answer, HeartbeatAccepted)
        self._heartbeat_attempts = 0
        self._outage_since_ns = None
        if answer.service_incarnation != self.caller.service_incarnation:
            changed = "the service has another incarnation than the one registered with"
            return [Fatal(Status(code=Code.INTERNAL, message=changed))]
        if self._is_in_doubt:
            return self.doubt(now_ns)
        return []

    def _heartbeat_failed(self, status: Status, now_ns: int) -> list[ClientEffect]:
        self._beat_deadline_ns = None
        if self.is_fatal(status):
            return [Fatal(status)]
        is_transport = status.service_error is None
        if self._heartbeat_attempts < _HEARTBEAT_ATTEMPTS:
            if is_transport and status.code in _RETRIED_HEARTBEATS:
                self._beat_ns = now_ns + _HEARTBEAT_PAUSE_NS
                return []
        self._heartbeat_attempts = 0
        if self._is_borne(status, now_ns):
            self._beat_ns = now_ns + min(_OUTAGE_PAUSE_NS, self._interval_ns)
            return []
        self._beat_ns = None
        self._doom = (now_ns + _FATAL_DELAY_NS, status)
        return []

    def _is_borne(self, status: Status, now_ns: int) -> bool:
        """Whether an error of the transport is lived through, as an outage that may yet end."""
        if self._outage_ns == 0 or status.service_error is not None:
            return False
        if self._outage_since_ns is None:
            self._outage_since_ns = now_ns
        return now_ns - self._outage_since_ns <= self._outage_ns
