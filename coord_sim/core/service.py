"""The coordination service as a state machine: requests, ticks and hang-ups in, effects out.

No I/O, clock or randomness: the driver passes the time (ns, monotonic) and the service's incarnation,
and carries out the effects. Simulator, explorer and gRPC server drive this very class.

This file dispatches and says what follows from what; each concern owns its state in a file of its own.
Comments name sections of the design note "Semantics of the XLA/JAX coordination service".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coord_sim.core.effects import Effect, Reply
from coord_sim.core.error_polls import ErrorPolls
from coord_sim.core.gathering import Gathering
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.key_value_store import KeyValueStore
from coord_sim.core.live_rounds import LiveRounds
from coord_sim.core.membership import NEVER, Membership, Task
from coord_sim.core.messages import (
    Answer,
    DeleteKeyValue,
    Done,
    GetAliveTasks,
    GetKeyValue,
    Heartbeat,
    HeartbeatAccepted,
    InsertKeyValue,
    PollForError,
    Registered,
    RegisterTask,
    Request,
    ShutdownTask,
    TaskState,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.status import BarrierError, Code, ServiceError, Status, WrongService

REGISTRATION_BARRIER = "[Init]Wait_for_all_tasks_to_register"
"""Reserved id that failed registrations name in their payload (section 3)."""

TICK_NS = seconds(1.0)
"""The service looks for stale heartbeats and overdue barriers once a second (section 4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceConfig:
    """What a service is created with.

    Attributes:
      tasks: Number of tasks; their ids are 0 to tasks - 1.
      recoverable: Tasks may come back, and errors are not propagated. Else one death ends all.
      heartbeat_timeout_ns: Silence after which a task is declared dead, at the next tick.
      register_timeout_ns: How long the first to register waits for the last.
      shutdown_timeout_ns: The same for leaving; 0 lets each leave alone.
      semantics: The face of the service.
    """

    tasks: int
    recoverable: bool = False
    heartbeat_timeout_ns: int = seconds(100.0)
    register_timeout_ns: int = seconds(3600.0)
    shutdown_timeout_ns: int = seconds(300.0)
    semantics: Semantics = SHIPPED

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ValueError(f"a job has at least 1 task, found {self.tasks}")
        if self.heartbeat_timeout_ns <= 0:
            raise ValueError("the heartbeat time-out must be positive")


class CoordinationService:
    """One service of one job.

    Args:
      config: Fixed for its life.
      incarnation: The service's own random number, drawn by the driver.
      now_ns: Its birth, from which its ticks count.
    """

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        self.config = config
        self.incarnation = incarnation
        self.membership = Membership(config.tasks)
        self._store = KeyValueStore()
        self._polls = ErrorPolls()
        self._rounds = LiveRounds(self.membership, config.semantics)
        self._registration = Gathering(config.tasks, config.register_timeout_ns)
        self._shutdown = Gathering(config.tasks, config.shutdown_timeout_ns)
        self._shutdown_error: Status | None = None
        self._watchers: dict[CallId, int] = {}
        self._next_tick_ns = now_ns + TICK_NS
        self._replies: list[Reply] = []

    # --- what a driver calls -------------------------------------------------------------------

    def handle(self, call: CallId, request: Request, now_ns: int) -> list[Effect]:
        """Takes a request; its reply may come now, later, or never."""
        if isinstance(request, RegisterTask):
            self._register(call, request, now_ns)
        elif request.caller.service_incarnation != self.incarnation:
            self._reply(call, self._wrong_service(request.caller.service_incarnation))
        else:
            self._serve(call, request, now_ns)
        return self._take_effects()

    def advance(self, now_ns: int) -> list[Effect]:
        """Lets time pass; call it at `next_deadline_ns()` or later, never earlier than before."""
        if now_ns >= self._next_tick_ns:
            # A driver that comes late gets one tick, and the grid stays where it was (section 4).
            missed = (now_ns - self._next_tick_ns) // TICK_NS
            self._next_tick_ns += (missed + 1) * TICK_NS
            self._tick(now_ns)
        return self._take_effects()

    def next_deadline_ns(self) -> int:
        """When `advance` has something to do."""
        return self._next_tick_ns

    def hang_up(self, call: CallId) -> None:
        """A client gave up a call or its connection broke.

        That never takes back an entry into a round or a barrier (sections 8 and 10).
        """
        self._store.hang_up(call)
        self._polls.hang_up(call)
        self._watchers.pop(call, None)

    def stop(self) -> list[Effect]:
        """Answers every waiting call with UNAVAILABLE, so that no client hangs."""
        status = Status(
            code=Code.UNAVAILABLE,
            message="The coordination service is shutting down.",
            service_error=None,
        )
        waiting = [
            *self._store.waiting_calls(),
            *self._polls.waiting_calls(),
            *self._rounds.waiting_calls(),
            *self._watchers,
            *(
                call
                for gathering in self._open_gatherings()
                for call, _ in gathering.arrived.values()
            ),
        ]
        return [Reply(call, status) for call in waiting]

    # --- requests ------------------------------------------------------------------------------

    def _serve(self, call: CallId, request: Request, now_ns: int) -> None:
        refusal = self._refusal(request)
        if refusal is not None:
            self._reply(call, refusal)
            return
        match request:
            case Heartbeat():
                self._reply(call, self._heartbeat(request, now_ns))
            case PollForError():
                self._poll(call, request, now_ns)
            case ShutdownTask():
                self._shut_down(call, request.task, now_ns)
            case WatchTasks():
                self._watch(call, request)
            case InsertKeyValue():
                self._replies += self._store.insert(call, request)
            case GetKeyValue():
                self._replies += self._store.get(call, request)
            case TryGetKeyValue():
                self._replies += self._store.try_get(call, request)
            case DeleteKeyValue():
                self._replies += self._store.delete(call, request)
            case GetAliveTasks():
                self._replies += self._rounds.enter(call, request)
            case RegisterTask():
                raise AssertionError("registrations carry no service incarnation")

    def _refusal(self, request: Request) -> Status | None:
        """Why a caller is refused because of who it is, under the published semantics."""
        semantics = self.config.semantics
        if isinstance(request, RegisterTask | Heartbeat):
            return None  # These have rules of their own.
        incarnation = request.caller.task_incarnation
        if isinstance(request, GetAliveTasks | PollForError | ShutdownTask):
            task = self.membership.find(request.task)
            if task is None:
                return None
        else:
            # These requests name no task: the client is known by its incarnation alone.
            task = self.membership.find_incarnation(incarnation)
        if not semantics.serves_stale_callers:
            if task is None or task.incarnation != incarnation:
                return _stale(incarnation)
        if not semantics.serves_dead_callers and not isinstance(
            request, ShutdownTask | PollForError
        ):
            if task is None or not task.is_connected:
                return _stale(incarnation)
        return None

    def _register(self, call: CallId, request: RegisterTask, now_ns: int) -> None:
        task = self.membership.find(request.task)
        if task is None:
            message = f"Unexpected task registered with task={request.task}"
            self._reply(call, Status(code=Code.INVALID_ARGUMENT, message=message))
        elif not self.config.semantics.revives_the_dead and request.incarnation in task.past:
            self._reply(call, _stale(request.incarnation))
        elif not self._registration.passed:
            self._arrive_at_registration(call, request, task, now_ns)
        elif task.state is TaskState.DISCONNECTED:
            self._connect(call, request, task, now_ns)
        elif task.is_connected:
            self._register_again(call, request, task, now_ns)
        else:
            self._register_in_error(call, request, task, now_ns)

    def _arrive_at_registration(
        self, call: CallId, request: RegisterTask, task: Task, now_ns: int
    ) -> None:
        if self._registration.failed:
            message = f"Task {task.id} is already in error: the registration barrier has failed."
            self._reply(call, Status(code=Code.ABORTED, message=message))
            return
        self.membership.registering()
        older = self._registration.arrive(task.id, call, request.incarnation, now_ns)
        if older is not None:
            message = f"A more recent registration of task {task.id} has arrived."
            self._reply(older, Status(code=Code.ALREADY_EXISTS, message=message))
        if self._registration.is_complete:
            self._registration.passed = True
            for id_, (waiting, incarnation) in sorted(self._registration.arrived.items()):
                self.membership.connect(self.membership.tasks[id_], incarnation, now_ns)
                self._reply(waiting, Registered(service_incarnation=self.incarnation))

    def _connect(self, call: CallId, request: RegisterTask, task: Task, now_ns: int) -> None:
        """Registers a task at once: the registration barrier stays passed (section 3)."""
        self.membership.registering()
        self.membership.connect(task, request.incarnation, now_ns)
        self._incarnation_ended(task, request.incarnation)
        self._reply(call, Registered(service_incarnation=self.incarnation))

    def _register_again(self, call: CallId, request: RegisterTask, task: Task, now_ns: int) -> None:
        if self.config.recoverable or request.incarnation == task.incarnation:
            self._connect(call, request, task, now_ns)
            return
        message = (
            f"{task.id} unexpectedly tried to connect with a different incarnation. "
            "It has likely restarted."
        )
        status = Status(
            code=Code.ABORTED, message=message, service_error=ServiceError(source_task=task.id)
        )
        self._fail_task(task, status)
        self._propagate(status)
        self._reply(call, status)

    def _register_in_error(
        self, call: CallId, request: RegisterTask, task: Task, now_ns: int
    ) -> None:
        error = task.error
        assert error is not None
        if self.config.recoverable and error.code is Code.UNAVAILABLE and error.service_error:
            self._connect(call, request, task, now_ns)
            return
        message = f"Task {task.id} tried to connect while it is already in error: {error}"
        status = Status(
            code=Code.ABORTED, message=message, service_error=ServiceError(source_task=task.id)
        )
        if not self.config.recoverable:
            self._propagate(status)
        self._reply(call, status)

    def _heartbeat(self, request: Heartbeat, now_ns: int) -> HeartbeatAccepted | Status:
        task = self.membership.find(request.task)
        accepted = HeartbeatAccepted(service_incarnation=self.incarnation)
        if task is None:
            message = f"Unexpected heartbeat request from task={request.task}"
            return Status(code=Code.INVALID_ARGUMENT, message=message)
        stale = request.incarnation != task.incarnation
        if stale and not self.config.semantics.accepts_stale_heartbeats and self.config.recoverable:
            return _stale(request.incarnation, code=Code.ABORTED)
        if task.state is TaskState.ERROR:
            message = (
                f"Unexpected heartbeat request from an already-in-error task: {task.id} "
                f"with existing error: {task.error}"
            )
            return Status(code=Code.ABORTED, message=message)
        if task.state is TaskState.DISCONNECTED:
            if self._is_in_grace(task, now_ns):
                return accepted
            message = f"Task {task.id} must be registered before sending heartbeat messages"
            return Status(code=Code.INVALID_ARGUMENT, message=message)
        if not stale:
            task.last_heartbeat_ns = now_ns
            return accepted
        if self.config.recoverable:
            return accepted  # And the clock is not reset (section 4).
        message = (
            f"Incarnation ID mismatch: expecting {task.incarnation} but got {request.incarnation}. "
            f"Task {task.id} has restarted."
        )
        status = Status(
            code=Code.ABORTED, message=message, service_error=ServiceError(source_task=task.id)
        )
        self._fail_task(task, status)
        self._propagate(status)
        return status

    def _poll(self, call: CallId, request: PollForError, now_ns: int) -> None:
        task = self.membership.find(request.task)
        if task is None:
            message = f"Unexpected error poll from task={request.task}"
            self._reply(call, Status(code=Code.INVALID_ARGUMENT, message=message))
            return
        if task.state is TaskState.ERROR:
            message = f"Task {task.id} polls for errors and is already in error: {task.error}"
            self._reply(call, Status(code=Code.FAILED_PRECONDITION, message=message))
            return
        if task.state is TaskState.DISCONNECTED and not self._is_in_grace(task, now_ns):
            message = f"Task {task.id} must be registered before polling for errors"
            self._reply(call, Status(code=Code.FAILED_PRECONDITION, message=message))
            return
        self._replies += self._polls.wait(call, task.id, request.caller.task_incarnation)

    def _watch(self, call: CallId, request: WatchTasks) -> None:
        version = self.membership.version
        if request.version > version:
            # The real service aborts its process here (section 6).
            message = f"Version {request.version} is greater than the current {version}"
            self._reply(call, Status(code=Code.INVALID_ARGUMENT, message=message))
        elif request.version == version:
            self._watchers[call] = request.version
        else:
            self._reply(call, TasksWatched(tasks=self.membership.picture(), version=version))

    # --- leaving (section 9) -------------------------------------------------------------------

    def _shut_down(self, call: CallId, id_: TaskId, now_ns: int) -> None:
        task = self.membership.find(id_)
        if self.config.recoverable or self.config.shutdown_timeout_ns == 0:
            self._leave_alone(call, id_, task, now_ns)
            return
        if task is None:
            cause = Status(code=Code.INVALID_ARGUMENT, message=f"Unknown task {id_}")
            self._fail_shutdown(cause)
            self._reply(call, self._shutdown_error or cause)
            return
        if self._shutdown.passed:
            if task.is_connected:
                self._disconnect(task, now_ns)
                self._reply(call, Done())
            else:
                message = f"Shutdown barrier has failed: task {id_} is already disconnected."
                self._reply(call, Status(code=Code.INTERNAL, message=message))
            return
        if self._shutdown.failed:
            assert self._shutdown_error is not None
            if task.state is not TaskState.DISCONNECTED:
                self._disconnect(task, now_ns)
            self._reply(call, self._shutdown_error)
            return
        older = self._shutdown.arrive(id_, call, task.incarnation, now_ns)
        if older is not None:
            message = f"A more recent barrier call of task {id_} has arrived."
            self._reply(older, Status(code=Code.CANCELLED, message=message, service_error=None))
        in_error = next((t for t in self.membership.tasks if t.state is TaskState.ERROR), None)
        if in_error is not None:
            assert in_error.error is not None
            self._fail_shutdown(in_error.error)
        elif self._shutdown.is_complete:
            self._shutdown.passed = True
            for waiting, _ in self._shutdown.arrived.values():
                self._reply(waiting, Done())
            for each in self.membership.tasks:
                self._disconnect(each, now_ns)

    def _leave_alone(self, call: CallId, id_: TaskId, task: Task | None, now_ns: int) -> None:
        if task is None:
            status = Status(code=Code.INVALID_ARGUMENT, message=f"Unknown task {id_}")
            self._reply(call, status)
        elif task.state is TaskState.DISCONNECTED:
            message = f"Task {id_} is already disconnected."
            self._reply(call, Status(code=Code.FAILED_PRECONDITION, message=message))
        else:
            self._disconnect(task, now_ns)
            self._reply(call, Done())

    def _disconnect(self, task: Task, now_ns: int) -> None:
        self.membership.disconnect(task, now_ns)
        message = f"Task {task.id} has disconnected."
        self._replies += self._polls.end(task.id, Status(code=Code.CANCELLED, message=message))
        self._gone(task)

    def _fail_shutdown(self, cause: Status) -> None:
        """The shutdown barrier fails for everybody, and with it the job."""
        if self._shutdown.is_over:
            return
        self._shutdown.failed = True
        self._shutdown_error = Status(
            code=Code.INTERNAL, message=f"Shutdown barrier has failed: {cause}"
        )
        for call, _ in self._shutdown.arrived.values():
            self._reply(call, self._shutdown_error)
        self._replies += self._polls.propagate(self._shutdown_error)
        for task in self.membership.tasks:
            self._fail_task(task, self._shutdown_error)

    # --- time ----------------------------------------------------------------------------------

    def _tick(self, now_ns: int) -> None:
        if self._registration.is_overdue(now_ns):
            self._fail_registration()
        if self._shutdown.is_overdue(now_ns):
            arrived = len(self._shutdown.arrived)
            message = (
                f"Barrier timed out. Id: Shutdown::{self.incarnation}::0. "
                f"# of tasks that reached the barrier: {arrived}/{self.config.tasks}."
            )
            self._fail_shutdown(Status(code=Code.DEADLINE_EXCEEDED, message=message))
        timeout_ns = self.config.heartbeat_timeout_ns
        stale = [
            task
            for task in self.membership.connected()
            if now_ns - task.last_heartbeat_ns > timeout_ns
        ]
        if not stale:
            return
        for task in stale:
            self.membership.fail(task, _heartbeat_timeout([task.id]))
            if self.config.semantics.declares_deaths_one_by_one:
                self._gone(task)
        if not self.config.semantics.declares_deaths_one_by_one:
            self._gone(*stale)
        for task in stale:
            self._tell_the_dead(task)
        self._fail_shutdown_if_waiting(stale)
        self._propagate(_heartbeat_timeout([task.id for task in stale]))

    def _fail_registration(self) -> None:
        self._registration.failed = True
        missing = self._registration.missing()
        total = self.config.tasks
        message = (
            f"Barrier timed out. Id: {REGISTRATION_BARRIER}::0. "
            f"# of tasks that reached the barrier: {total - len(missing)}/{total}. "
            f"The first task at the barrier: {next(iter(self._registration.arrived))}. "
            f"Some timed out task names: {', '.join(str(task) for task in missing[:2])}"
        )
        status = Status(
            code=Code.DEADLINE_EXCEEDED,
            message=message,
            barrier_error=BarrierError(REGISTRATION_BARRIER, 0),
        )
        for call, _ in self._registration.arrived.values():
            self._reply(call, status)
        failure = Status(code=Code.INTERNAL, message=f"Registration has failed: {status}")
        for task in self.membership.tasks:
            self.membership.put_in_error(task, failure)

    # --- consequences --------------------------------------------------------------------------

    def _fail_task(self, task: Task, reason: Status) -> None:
        if task.is_connected:
            self.membership.fail(task, reason)
            self._gone(task)
            self._fail_shutdown_if_waiting([task])

    def _gone(self, *tasks: Task) -> None:
        """Tasks are no longer connected: they are not waited for any more."""
        for task in tasks:
            self._replies += self._rounds.task_changed(task.id, NEVER)
        self._replies += self._rounds.reexamine()

    def _incarnation_ended(self, task: Task, successor: Incarnation) -> None:
        """A task registered; what its former incarnation had is lost as published (section 10).

        Rounds are not re-examined: a task that connects is one more to wait for.
        """
        self._replies += self._rounds.task_changed(task.id, successor)
        if not self.config.semantics.serves_stale_callers:
            message = f"Task {task.id} has restarted as incarnation {successor}."
            status = Status(code=Code.ABORTED, message=message)
            self._replies += self._polls.end_stale(task.id, successor, status)

    def _tell_the_dead(self, task: Task) -> None:
        """As published, a task declared dead learns it from its waiting poll, and ends itself."""
        if self.config.recoverable and not self.config.semantics.revives_the_dead:
            assert task.error is not None
            self._replies += self._polls.end(task.id, task.error)

    def _fail_shutdown_if_waiting(self, dead: Sequence[Task]) -> None:
        if self._shutdown.arrived and not self._shutdown.is_over:
            assert dead[0].error is not None
            self._fail_shutdown(dead[0].error)

    def _propagate(self, error: Status) -> None:
        """Tells everybody, without recoverability; with it, nobody."""
        if self.config.recoverable:
            return
        if self._polls.anybody_polled:
            self._replies += self._polls.propagate(error)
            return
        message = f"Task error could not be told to any task (unable to inform clients): {error}"
        failure = Status(code=Code.INTERNAL, message=message)
        for task in self.membership.tasks:
            self._fail_task(task, failure)

    # --- small things --------------------------------------------------------------------------

    def _is_in_grace(self, task: Task, now_ns: int) -> bool:
        """A task that has just left may still beat and poll for one time-out (section 4)."""
        left_ns = task.left_ns
        return left_ns is not None and now_ns - left_ns <= self.config.heartbeat_timeout_ns

    def _open_gatherings(self) -> list[Gathering]:
        return [g for g in (self._registration, self._shutdown) if not g.is_over]

    def _wrong_service(self, requested: Incarnation) -> Status:
        return Status(
            code=Code.INTERNAL,
            message="Request was made to the wrong service incarnation: "
            f"requested {requested}, currently {self.incarnation}",
            wrong_service=WrongService(self.incarnation),
        )

    def _reply(self, call: CallId, answer: Answer) -> None:
        self._replies.append(Reply(call, answer))

    def _take_effects(self) -> list[Effect]:
        changes = self.membership.changes
        if changes and self._watchers:
            picture = TasksWatched(tasks=self.membership.picture(), version=self.membership.version)
            self._replies += [Reply(call, picture) for call in self._watchers]
            self._watchers.clear()
        effects: list[Effect] = [*changes, *self._replies]
        self.membership.changes = []
        self._replies = []
        return effects


def _heartbeat_timeout(tasks: Sequence[TaskId]) -> Status:
    names = "\n".join(f"Task {task} heartbeat timeout" for task in tasks[:3])
    return Status(
        code=Code.UNAVAILABLE,
        message="The following tasks are unhealthy (stopped sending heartbeats):\n" + names,
        service_error=ServiceError(source_task=tasks[0] if len(tasks) == 1 else None),
    )


def _stale(incarnation: Incarnation, code: Code = Code.FAILED_PRECONDITION) -> Status:
    """How the published face refuses who is not in the job (any more)."""
    return Status(
        code=code,
        message=f"Incarnation {incarnation} is not in the job: it was never registered, has left, was "
        "declared dead, or was replaced by a newer incarnation of its task.",
    )
