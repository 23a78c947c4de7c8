"""The coordination service as a state machine: requests, ticks and hang-ups in, effects out.

No I/O, clock or randomness: the driver passes the time (ns, monotonic) and the service's incarnation,
and carries out the effects. Simulator, explorer and gRPC server drive this very class.

This file dispatches and says what follows from what; each concern owns its state in a file of its own.
Comments name sections of the design note "Semantics of the XLA/JAX coordination service". The order of
checks and consequences is that of xla/pjrt/distributed/coordination/coordination_service.cc, because
clients can see it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from coord_sim.core import barriers
from coord_sim.core.barriers import Arrival, BarrierOutcome, Barriers, Ended, Purpose, Told
from coord_sim.core.effects import BarrierEnded, Effect, Remember, Reply
from coord_sim.core.error_polls import ErrorPolls, cancelled
from coord_sim.core.identifiers import NS_PER_MS, CallId, Incarnation, TaskId, seconds
from coord_sim.core.key_value_store import KeyValueStore
from coord_sim.core.live_rounds import LiveRounds
from coord_sim.core.membership import NEVER, Membership, Task
from coord_sim.core.messages import (
    Answer,
    Barrier,
    BarrierPassed,
    CancelBarrier,
    DeleteKeyValue,
    Done,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    Heartbeat,
    HeartbeatAccepted,
    IncrementKeyValue,
    InsertKeyValue,
    PollForError,
    Registered,
    RegisterTask,
    ReportErrorToService,
    Request,
    RequestOfTask,
    ShutdownTask,
    TaskState,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.quoting import quoted
from coord_sim.core.records import BarrierRecord, JobRecord, KeyRecord, Record, TaskRecord
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.status import Code, ServiceError, Status, WrongService
from coord_sim.core.survey import OpenBarrier, Survey, TaskSurvey

TICK_NS = seconds(1.0)
"""The service looks for stale heartbeats and overdue barriers once a second (section 4)."""

TASKS_MAX = 100_000
"""More are a mistake: each costs memory before it ever registers."""
_NAMED_STALE_MAX = 3


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
      durable: Emit `Remember` effects.
      dismisses_polls: Answer error polls CANCELLED at once. The C++ client then lives on and never polls
        again (section 11), so that a broken connection does not end it. Recoverable services only: they
        have nothing to tell.
    """

    tasks: int
    recoverable: bool = False
    heartbeat_timeout_ns: int = seconds(100.0)
    register_timeout_ns: int = seconds(3600.0)
    shutdown_timeout_ns: int = seconds(300.0)
    semantics: Semantics = SHIPPED
    durable: bool = False
    dismisses_polls: bool = False

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ValueError(f"a job has at least 1 task, found {self.tasks}")
        if self.tasks > TASKS_MAX:
            raise ValueError(f"a job has at most {TASKS_MAX} tasks, found {self.tasks}")
        if self.heartbeat_timeout_ns <= 0:
            raise ValueError("the heartbeat time-out must be positive")
        if self.dismisses_polls and not self.recoverable:
            raise ValueError("without recoverability polls are how tasks learn of errors")


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
        self._shutdown_barrier = barriers.shutdown_barrier(incarnation)
        self._barriers = Barriers(
            self.membership,
            config.semantics,
            recoverable=config.recoverable,
            once_only=(barriers.REGISTRATION_BARRIER, self._shutdown_barrier),
        )
        self._beat_accepted = HeartbeatAccepted(service_incarnation=incarnation)
        self._watchers: dict[CallId, None] = {}
        self._next_tick_ns = now_ns + TICK_NS
        self._now_ns = now_ns
        self._effects: list[Effect] = []
        self._remembered: JobRecord | None = None

    @classmethod
    def restore(
        cls,
        config: ServiceConfig,
        incarnation: Incarnation,
        records: Iterable[Record],
        now_ns: int,
    ) -> CoordinationService:
        """A service that goes on where another with this incarnation ended.

        Args:
          config: Of the new service; `tasks` must be as it was.
          incarnation: The former service's.
          records: The latest record of each thing, in any order.
          now_ns: As in the constructor; heartbeat and barrier time-outs count from now.
        """
        service = cls(config, incarnation, now_ns)
        for record in records:
            match record:
                case KeyRecord():
                    service._store.restore(record)
                case TaskRecord():
                    service.membership.restore(record, now_ns)
                case BarrierRecord():
                    service._barriers.restore(record, now_ns)
                case JobRecord():
                    service.membership.version = record.version
                    service._polls.anybody_polled = record.anybody_polled
                    service._polls.propagated = record.propagated
                    service._rounds.ended = record.rounds
                    service._remembered = record
        service._forget_changes()
        return service

    # --- what a driver calls -------------------------------------------------------------------

    def handle(self, call: CallId, request: Request, now_ns: int) -> list[Effect]:
        """Takes a request; its reply may come now, later, or never."""
        self._now_ns = now_ns
        if isinstance(request, RegisterTask):
            self._register(call, request)
        elif request.caller.service_incarnation != self.incarnation:
            self._reply(call, self._wrong_service(request.caller.service_incarnation))
        else:
            self._serve(call, request)
        return self._take_effects()

    def advance(self, now_ns: int, death_order: Sequence[int] = ()) -> list[Effect]:
        """Lets time pass; call it at `next_deadline_ns()` or later, never earlier than before.

        Args:
          now_ns: The time.
          death_order: Which of several tasks that are found dead are declared so first. The real service
            has them in the order of a hash table. Those that are not named come last, ascending.
        """
        if now_ns >= self._next_tick_ns:
            # A driver that comes late gets one tick, and the grid stays where it was (section 4).
            missed = (now_ns - self._next_tick_ns) // TICK_NS
            self._next_tick_ns += (missed + 1) * TICK_NS
            self._now_ns = now_ns
            self._tick(death_order)
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
        self._rounds.hang_up(call)
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
            *self._barriers.waiting_calls(),
        ]
        return [Reply(call, status) for call in waiting]

    def survey(self, now_ns: int) -> Survey:
        """What the service looks like now."""
        return Survey(
            tasks=tuple(
                TaskSurvey(
                    task=task.id,
                    state=task.state,
                    incarnation=task.incarnation,
                    silent_ns=now_ns - task.last_heartbeat_ns if task.is_connected else None,
                    error=task.error,
                )
                for task in self.membership.tasks
            ),
            barriers=tuple(
                OpenBarrier(
                    barrier_id=barrier.id,
                    counter=barrier.counter,
                    arrived=tuple(id_ for id_, arrived in barrier.arrived.items() if arrived),
                    missing=tuple(barrier.missing),
                    remaining_ns=barrier.deadline_ns - now_ns,
                )
                for barrier in self._barriers.open_barriers()
            ),
            rounds=tuple(self._rounds.open_rounds()),
            rounds_ended=self._rounds.ended,
            version=self.membership.version,
            keys=len(self._store),
            value_bytes=self._store.bytes,
            waiting_gets=len(self._store.waiting_calls()),
            waiting_polls=len(self._polls.waiting_calls()),
        )

    # --- requests ------------------------------------------------------------------------------

    def _serve(self, call: CallId, request: Request) -> None:
        refusal = self._refusal(request)
        if refusal is not None:
            self._reply(call, refusal)
            return
        match request:
            case Heartbeat():
                self._reply(call, self._heartbeat(request))
            case PollForError():
                self._poll(call, request)
            case ShutdownTask():
                self._shut_down(call, request)
            case WatchTasks():
                self._watch(call, request)
            case ReportErrorToService():
                self._reply(call, self._report_error(request))
            case InsertKeyValue():
                self._effects += self._store.insert(call, request)
            case GetKeyValue():
                self._effects += self._store.get(call, request)
            case TryGetKeyValue():
                self._effects += self._store.try_get(call, request)
            case DeleteKeyValue():
                self._effects += self._store.delete(call, request)
            case IncrementKeyValue():
                self._effects += self._store.increment(call, request)
            case GetKeyValueDir():
                self._effects += self._store.read_directory(call, request)
            case Barrier():
                self._arrive(call, request)
            case CancelBarrier():
                self._cancel_barrier(call, request)
            case GetAliveTasks():
                self._effects += self._rounds.enter(call, request)
            case RegisterTask():
                raise AssertionError("registrations carry no service incarnation")

    def _refusal(self, request: Request) -> Status | None:
        """Why a caller is refused because of who it is, under the published semantics."""
        semantics = self.config.semantics
        if semantics.serves_stale_callers and semantics.serves_dead_callers:
            return None
        if isinstance(request, RegisterTask | Heartbeat):
            return None  # These have rules of their own.
        incarnation = request.caller.task_incarnation
        if incarnation == NEVER and isinstance(request, WatchTasks | GetKeyValueDir):
            return None  # Nobody may look: whoever watches over a job is not in it.
        if isinstance(request, RequestOfTask):
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

    # --- registration (section 3) --------------------------------------------------------------

    def _register(self, call: CallId, request: RegisterTask) -> None:
        task = self.membership.find(request.task)
        if task is None:
            message = f"Unexpected task registered with task={request.task}"
            self._reply(call, Status(code=Code.INVALID_ARGUMENT, message=message))
        elif not self.config.semantics.revives_the_dead and request.incarnation in task.past:
            self._reply(call, _stale(request.incarnation))
        elif task.state is TaskState.DISCONNECTED or self._may_come_back(task):
            self.membership.announce(task, request.incarnation)
            arrival = Arrival(
                call=call,
                purpose=Purpose.REGISTRATION,
                task=task.id,
                incarnation=request.incarnation,
                barrier_id=barriers.REGISTRATION_BARRIER,
                counter=0,
                timeout_ns=self.config.register_timeout_ns,
                participants=(),
            )
            self._settle(self._barriers.arrive(arrival, self._now_ns))
            self._updated()
        elif task.is_connected and (
            self.config.recoverable or request.incarnation == task.incarnation
        ):
            self.membership.announce(task, request.incarnation)
            self._connect(task)
            if self.config.recoverable:
                reason = "recoverable task silently connected again"
                self._settle(self._barriers.leave(task.id, reason))
            self._updated()
            self._reply(call, Registered(service_incarnation=self.incarnation))
            self._updated()
        else:
            self._refuse_registration(call, task)

    def _may_come_back(self, task: Task) -> bool:
        """Whether an error is forgiven: silence is, an error of the program is not."""
        error = task.error
        return (
            self.config.recoverable
            and error is not None
            and error.code is Code.UNAVAILABLE
            and error.service_error is not None
        )

    def _refuse_registration(self, call: CallId, task: Task) -> None:
        if task.is_connected:
            message = (
                f"{task.id} unexpectedly tried to connect with a different incarnation. "
                "It has likely restarted."
            )
        else:
            message = (
                f"{task.id} unexpectedly tried to connect while it is already in error. ResetTask() "
                f"should be called before a subsequent connect attempt. Existing error: {_error(task)}"
            )
        status = Status(
            code=Code.ABORTED, message=message, service_error=ServiceError(source_task=task.id)
        )
        self._put_in_error(task, status)
        self._propagate(status)
        self._reply(call, status)

    def _connect(self, task: Task) -> None:
        self.membership.connect(task, self._now_ns)
        # What the former incarnation had is lost as published. Rounds are not re-examined: a task
        # that connects is one more to wait for (section 10).
        self._effects += self._rounds.task_changed(task.id, task.incarnation)
        if not self.config.semantics.serves_stale_callers:
            message = f"Task {task.id} has restarted as incarnation {task.incarnation}."
            status = Status(code=Code.ABORTED, message=message)
            self._effects += self._polls.end_stale(task.id, task.incarnation, status)

    # --- heartbeats and errors (sections 4 and 5) ----------------------------------------------

    def _heartbeat(self, request: Heartbeat) -> HeartbeatAccepted | Status:
        task = self.membership.find(request.task)
        accepted = self._beat_accepted
        if task is None:
            message = (
                f"Unexpected heartbeat request from task: {request.task}. "
                "This usually implies a configuration error."
            )
            return Status(code=Code.INVALID_ARGUMENT, message=message)
        stale = request.incarnation != task.incarnation
        if stale and not self.config.semantics.accepts_stale_heartbeats and self.config.recoverable:
            return _stale(request.incarnation, code=Code.ABORTED)
        if task.state is TaskState.ERROR:
            message = (
                f"Unexpected heartbeat request from an already-in-error task: {task.id} "
                f"with existing error: {_error(task)}"
            )
            return Status(code=Code.ABORTED, message=message)
        if self._is_gone(task):
            message = (
                f"Task with task={task.id} must be registered before sending heartbeat messages. "
                "The service might have restarted, please restart / reset and register again."
            )
            return Status(code=Code.INVALID_ARGUMENT, message=message)
        if not stale:
            task.last_heartbeat_ns = self._now_ns
            return accepted
        if self.config.recoverable:
            return accepted  # And the clock is not reset (section 4).
        message = (
            f"{task.id} Heartbeat: Incarnation ID mismatch: expecting {task.incarnation} but got "
            f"{request.incarnation}. The task has restarted and likely crashed earlier - check for any "
            "earlier errors or any scheduler events (e.g. preemption, eviction) to debug further."
        )
        status = Status(code=Code.ABORTED, message=message)
        self._put_in_error(task, status)
        self._propagate(status)
        return status

    def _poll(self, call: CallId, request: PollForError) -> None:
        self._polls.anybody_polled = True
        task = self.membership.find(request.task)
        if task is None:
            code = Code.INVALID_ARGUMENT
            message = (
                f"Unexpected task ({request.task}) that is not in the cluster polling for errors."
            )
        elif self._is_gone(task):
            code = Code.FAILED_PRECONDITION
            message = (
                f"Task ({task.id}) that has not been registered or has disconnected polling for "
                "errors."
            )
        elif task.state is TaskState.ERROR:
            code = Code.FAILED_PRECONDITION
            message = (
                f"Task ({task.id}) that is already in error state polling for errors. "
                f"Current error: {_error(task)}"
            )
        elif self.config.dismisses_polls:
            code = Code.CANCELLED
            message = cancelled("this service has no errors to tell.").message
        else:
            self._effects += self._polls.wait(call, task.id, request.caller.task_incarnation)
            return
        self._reply(call, Status(code=code, message=message))

    def _report_error(self, request: ReportErrorToService) -> Done | Status:
        task = self.membership.find(request.task)
        if task is None:
            message = f"Unexpected request from task {request.task}"
            return Status(code=Code.INVALID_ARGUMENT, message=message)
        if not task.is_connected:
            message = "The task is not connected or already has an error."
            return Status(code=Code.FAILED_PRECONDITION, message=message)
        if request.code == Code.OK:
            # The real service's process aborts here, or the task is in error without one.
            return Status(code=Code.INVALID_ARGUMENT, message="Code 0 (OK) is not an error.")
        error = Status(
            code=Code.of(request.code),
            message=request.message,
            service_error=ServiceError(reported=True, source_task=task.id),
        )
        self._put_in_error(task, error)
        self._propagate(error)
        return Done()

    def _watch(self, call: CallId, request: WatchTasks) -> None:
        version = self.membership.version
        if request.version > version:
            # The real service aborts its process here (section 6).
            message = f"Version {request.version} is greater than the current {version}"
            self._reply(call, Status(code=Code.INVALID_ARGUMENT, message=message))
        elif request.version == version:
            self._watchers[call] = None
        else:
            self._reply(call, TasksWatched(tasks=self.membership.picture(), version=version))

    # --- barriers (section 8) ------------------------------------------------------------------

    def _arrive(self, call: CallId, request: Barrier) -> None:
        arrival = Arrival(
            call=call,
            purpose=Purpose.BARRIER,
            task=request.task,
            incarnation=request.caller.task_incarnation,
            barrier_id=request.barrier_id,
            counter=request.counter,
            timeout_ns=request.timeout_ms * NS_PER_MS,
            participants=request.tasks,
        )
        self._settle(self._barriers.arrive(arrival, self._now_ns))

    def _cancel_barrier(self, call: CallId, request: CancelBarrier) -> None:
        outcome = self._barriers.cancel(request.barrier_id, request.counter, request.task)
        if isinstance(outcome, Status):
            self._reply(call, outcome)
            return
        self._settle(outcome)
        self._reply(call, Done())

    def _settle(self, outcomes: Sequence[BarrierOutcome]) -> None:
        """Tells who waited, and does what follows from the end of a barrier."""
        for outcome in outcomes:
            if isinstance(outcome, Ended):
                self._effects.append(
                    BarrierEnded(outcome.barrier_id, outcome.counter, outcome.result)
                )
                if outcome.barrier_id == barriers.REGISTRATION_BARRIER:
                    self._after_registration(outcome.result)
                elif outcome.barrier_id == self._shutdown_barrier:
                    self._after_shutdown(outcome.result)
                continue
            match outcome.arrival.purpose:
                case Purpose.BARRIER:
                    self._tell_barrier(outcome)
                case Purpose.REGISTRATION:
                    self._tell_registration(outcome)
                case Purpose.SHUTDOWN:
                    self._tell_shutdown(outcome)

    def _tell_barrier(self, told: Told) -> None:
        result = self._left_late(told) or told.result
        self._reply(told.arrival.call, result or BarrierPassed(counter=told.counter))

    def _tell_registration(self, told: Told) -> None:
        task = self.membership.task(told.arrival.task)
        if told.result is None and told.arrival.incarnation == task.incarnation:
            self._connect(task)
            self._reply(told.arrival.call, Registered(service_incarnation=self.incarnation))
            self._updated()
        elif told.result is None or told.result.code is Code.CANCELLED:
            message = "Aborted connect attempt as there is a request from a newer incarnation."
            self._reply(told.arrival.call, Status(code=Code.ALREADY_EXISTS, message=message))
        else:
            self._reply(told.arrival.call, told.result)

    def _after_registration(self, result: Status | None) -> None:
        if result is None:
            return
        failure = Status(
            code=Code.INTERNAL, message=f"Cluster registration failed with error: {quoted(result)}"
        )
        for task in self.membership.tasks:
            self._put_in_error(task, failure)

    # --- leaving (section 9) -------------------------------------------------------------------

    def _shut_down(self, call: CallId, request: ShutdownTask) -> None:
        if self.config.recoverable or self.config.shutdown_timeout_ns == 0:
            self._reply(call, self._disconnect(request.task) or Done())
            return
        arrival = Arrival(
            call=call,
            purpose=Purpose.SHUTDOWN,
            task=request.task,
            incarnation=request.caller.task_incarnation,
            barrier_id=self._shutdown_barrier,
            counter=0,
            timeout_ns=self.config.shutdown_timeout_ns,
            participants=tuple(task.id for task in self.membership.tasks),
        )
        self._settle(self._barriers.arrive(arrival, self._now_ns))

    def _disconnect(self, id_: TaskId) -> Status | None:
        """A task leaves; a reason if it cannot."""
        task = self.membership.find(id_)
        if task is None:
            message = f"Unexpected disconnect request with task={id_}"
            return Status(code=Code.INVALID_ARGUMENT, message=message)
        if task.state is TaskState.DISCONNECTED:
            message = f"The task is already disconnected: {id_}"
            return Status(code=Code.FAILED_PRECONDITION, message=message)
        self.membership.disconnect(task, self._now_ns)
        self._settle(self._barriers.leave(id_, "task disconnected"))
        self._drop_from_rounds(task)
        self._effects += self._polls.end(id_, cancelled("task has disconnected."))
        self._updated()
        return None

    def _left_late(self, told: Told) -> Status | None:
        """A task that comes to the shutdown barrier after its end leaves alone; why it could not."""
        if told.repeated and told.arrival.barrier_id == self._shutdown_barrier:
            return self._disconnect(told.arrival.task)
        return None

    def _tell_shutdown(self, told: Told) -> None:
        problem = self._left_late(told) or told.result
        self._reply(told.arrival.call, Done() if problem is None else _shutdown_failure(problem))

    def _after_shutdown(self, result: Status | None) -> None:
        if result is None:
            if not self.config.recoverable:
                for task in self.membership.tasks:
                    self._disconnect(task.id)
            return
        failure = _shutdown_failure(result)
        self._propagate(failure)
        for task in self.membership.tasks:
            self._put_in_error(task, failure)

    # --- time ----------------------------------------------------------------------------------

    def _tick(self, death_order: Sequence[int]) -> None:
        timeout_ns = self.config.heartbeat_timeout_ns
        oldest_ns, connected = self._now_ns - timeout_ns, TaskState.CONNECTED
        stale = [
            task
            for task in self.membership.tasks
            if task.last_heartbeat_ns < oldest_ns and task.state is connected
        ]
        if stale:
            if death_order and len(stale) > 1:
                rank = {task: place for place, task in enumerate(death_order)}
                stale.sort(key=lambda task: rank.get(task.id, len(rank)))
            self._declare_dead(stale)
        self._settle(self._barriers.expire(self._now_ns))

    def _declare_dead(self, stale: Sequence[Task]) -> None:
        one_by_one = self.config.semantics.declares_deaths_one_by_one
        for task in stale:
            message = (
                f"Task {task.id} heartbeat timeout. This indicates that the remote task has failed, "
                "got preempted, or crashed unexpectedly. Check the task logs for an earlier error or "
                "scheduler events (e.g. preemption, eviction) to debug further."
            )
            status = Status(code=Code.UNAVAILABLE, message=message)
            self._put_in_error(task, status, reexamine=one_by_one)
            if self.config.recoverable and not self.config.semantics.revives_the_dead:
                # As published, a task that was declared dead learns it from its waiting poll.
                self._effects += self._polls.end(task.id, status)
        if not one_by_one:
            for task in stale:
                self._effects += self._rounds.task_changed(task.id, NEVER)
            self._effects += self._rounds.reexamine()
        names = "\n".join(str(task.id) for task in stale[:_NAMED_STALE_MAX])
        message = (
            f"The following tasks are unhealthy (stopped sending heartbeats):\n{names}\n"
            "The tasks have crashed. Check the task logs for an earlier error, or scheduler events "
            "(e.g. preemption, eviction) to debug further."
        )
        self._propagate(Status(code=Code.UNAVAILABLE, message=message))

    # --- consequences --------------------------------------------------------------------------

    def _put_in_error(self, task: Task, reason: Status, *, reexamine: bool = True) -> None:
        if not self.membership.put_in_error(task, reason):
            return
        self._settle(self._barriers.leave(task.id, f"task is set to ERROR: {quoted(reason)}"))
        if reexamine:
            self._drop_from_rounds(task)
        self._updated()

    def _drop_from_rounds(self, task: Task) -> None:
        """A task is no longer connected: it is not waited for any more."""
        self._effects += self._rounds.task_changed(task.id, NEVER)
        self._effects += self._rounds.reexamine()

    def _propagate(self, error: Status) -> None:
        """Tells everybody, without recoverability; with it, nobody."""
        if self.config.recoverable:
            return
        if self._polls.anybody_polled:
            self._effects += self._polls.propagate(error)
            return
        message = (
            "All tasks were set to error because coordination service encountered an error, but was "
            f"unable to inform clients. Error: {quoted(error)}"
        )
        failure = Status(code=Code.INTERNAL, message=message)
        for task in self.membership.tasks:
            self._put_in_error(task, failure)

    def _updated(self) -> None:
        """The states of the tasks have a new version; each who watches is told once."""
        self.membership.version += 1
        if self._watchers:
            picture = TasksWatched(tasks=self.membership.picture(), version=self.membership.version)
            self._effects += [Reply(call, picture) for call in self._watchers]
            self._watchers.clear()

    # --- small things --------------------------------------------------------------------------

    def _is_gone(self, task: Task) -> bool:
        """Disconnected; but a task that has just left may beat and poll for one time-out."""
        if task.state is not TaskState.DISCONNECTED:
            return False
        left_ns = task.left_ns
        return left_ns is None or self._now_ns - left_ns > self.config.heartbeat_timeout_ns

    def _wrong_service(self, requested: Incarnation) -> Status:
        return Status(
            code=Code.INTERNAL,
            message=f"wrong service incarnation: requested {requested}, currently {self.incarnation}",
            wrong_service=WrongService(self.incarnation),
        )

    def _reply(self, call: CallId, answer: Answer) -> None:
        self._effects.append(Reply(call, answer))

    def _take_effects(self) -> list[Effect]:
        effects = self._effects
        self._effects = []
        if self.membership.changes or self._rounds.news:
            effects = [*self.membership.changes, *self._rounds.news, *effects]
            self.membership.changes = []
            self._rounds.news = []
        if self.config.durable:
            effects = [*map(Remember, self._take_records()), *effects]
        self._forget_changes()
        return effects

    def _take_records(self) -> list[Record]:
        job = JobRecord(
            version=self.membership.version,
            anybody_polled=self._polls.anybody_polled,
            propagated=self._polls.propagated,
            rounds=self._rounds.ended,
        )
        records: list[Record] = [
            *map(self._store.record, sorted(self._store.changed)),
            *map(self.membership.record, sorted(self.membership.changed)),
            *map(self._barriers.record, sorted(self._barriers.changed)),
        ]
        if job != self._remembered:
            self._remembered = job
            records.append(job)
        return records

    def _forget_changes(self) -> None:
        self._store.changed.clear()
        self.membership.changed.clear()
        self._barriers.changed.clear()


def _error(task: Task) -> str:
    assert task.error is not None, "only of tasks in error"
    return quoted(task.error)


def _shutdown_failure(cause: Status) -> Status:
    # The real service never closes this quotation.
    message = f"Shutdown barrier has failed.\nBarrier result: '{quoted(cause)}"
    return Status(code=Code.INTERNAL, message=message)


def _stale(incarnation: Incarnation, code: Code = Code.FAILED_PRECONDITION) -> Status:
    """How the published face refuses who is not in the job (any more)."""
    return Status(
        code=code,
        message=f"Incarnation {incarnation} is not in the job: it was never registered, has left, was "
        "declared dead, or was replaced by a newer incarnation of its task.",
    )
