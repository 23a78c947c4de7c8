"""Drives the core by hand: a job whose time stands still unless a test moves it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from coord_sim.core.effects import Effect, Remember, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Barrier,
    BarrierPassed,
    Caller,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    Heartbeat,
    IncrementKeyValue,
    InsertKeyValue,
    KeyValueDirectory,
    PollForError,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.records import BarrierRecord, JobRecord, KeyRecord, Record, TaskRecord
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Code, Status

SERVICE = Incarnation(999)


def thing(record: Record) -> tuple[type, object]:
    """What a record is of: the latest one counts."""
    match record:
        case KeyRecord(key, _):
            return KeyRecord, key
        case TaskRecord():
            return TaskRecord, record.task
        case BarrierRecord():
            return BarrierRecord, record.key
        case JobRecord():
            return JobRecord, None


class Driver:
    """A service and the answers that it has given."""

    def __init__(
        self,
        tasks: int = 2,
        *,
        recoverable: bool = True,
        semantics: Semantics = SHIPPED,
        heartbeat_timeout_s: float = 2.0,
        register_timeout_s: float = 3600.0,
        shutdown_timeout_s: float = 300.0,
        durable: bool = False,
        dismisses_polls: bool = False,
    ) -> None:
        self.now_ns = 0
        self.service = CoordinationService(
            ServiceConfig(
                tasks=tasks,
                recoverable=recoverable,
                semantics=semantics,
                heartbeat_timeout_ns=seconds(heartbeat_timeout_s),
                register_timeout_ns=seconds(register_timeout_s),
                shutdown_timeout_ns=seconds(shutdown_timeout_s),
                durable=durable,
                dismisses_polls=dismisses_polls,
            ),
            SERVICE,
            0,
        )
        self.answers: dict[CallId, Answer] = {}
        self.remembered: dict[tuple[type, object], Record] = {}
        self._calls = itertools.count()

    def ask(self, request: Request) -> CallId:
        """Sends a request."""
        call = CallId(next(self._calls))
        self._take(self.service.handle(call, request, self.now_ns))
        return call

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.call not in self.answers, "a call is answered once"
                self.answers[effect.call] = effect.answer
            elif isinstance(effect, Remember):
                self.remembered[thing(effect.record)] = effect.record

    def sleep(
        self,
        time_s: float,
        beating: Sequence[tuple[int, int]] = (),
        death_order: Sequence[int] = (),
    ) -> None:
        """Lets time pass; the (task, incarnation)s of `beating` beat four times a second."""
        end_ns = self.now_ns + seconds(time_s)
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + seconds(0.25), end_ns)
            for task, incarnation in beating:
                self.heartbeat(task, incarnation)
            self._take(self.service.advance(self.now_ns, death_order))

    def pending(self, call: CallId) -> bool:
        """Whether a call waits."""
        return call not in self.answers

    def code(self, call: CallId) -> Code:
        """How a call has ended."""
        answer = self.answers[call]
        return answer.code if isinstance(answer, Status) else Code.OK

    def status(self, call: CallId) -> Status:
        """The error of a call."""
        answer = self.answers[call]
        assert isinstance(answer, Status), f"answered without an error: {answer}"
        return answer

    def alive(self, call: CallId) -> dict[int, int]:
        """The live set that a call got."""
        answer = self.answers[call]
        assert isinstance(answer, AliveTasks), f"no live set: {answer}"
        return dict(answer.alive)

    # --- requests, short ---

    def register(self, task: int, incarnation: int) -> CallId:
        return self.ask(RegisterTask(task=TaskId(task), incarnation=Incarnation(incarnation)))

    def register_all(self) -> None:
        """Registers task t with incarnation 100 + t."""
        for task in range(self.service.config.tasks):
            self.register(task, 100 + task)

    def heartbeat(self, task: int, incarnation: int) -> Code:
        caller = Caller(Incarnation(incarnation), SERVICE)
        call = self.ask(
            Heartbeat(caller=caller, task=TaskId(task), incarnation=Incarnation(incarnation))
        )
        return self.code(call)

    def poll(self, task: int, incarnation: int) -> CallId:
        caller = Caller(Incarnation(incarnation), SERVICE)
        return self.ask(PollForError(caller=caller, task=TaskId(task)))

    def shutdown(self, task: int, incarnation: int) -> CallId:
        caller = Caller(Incarnation(incarnation), SERVICE)
        return self.ask(ShutdownTask(caller=caller, task=TaskId(task)))

    def live(self, task: int, incarnation: int, tasks: Sequence[int]) -> CallId:
        caller = Caller(Incarnation(incarnation), SERVICE)
        ids = tuple(TaskId(id_) for id_ in tasks)
        return self.ask(GetAliveTasks(caller=caller, task=TaskId(task), tasks=ids))

    def insert(self, key: str, value: bytes, *, overwrite: bool = False, who: int = 100) -> CallId:
        caller = Caller(Incarnation(who), SERVICE)
        return self.ask(
            InsertKeyValue(caller=caller, key=key, value=value, allow_overwrite=overwrite)
        )

    def get(self, key: str, *, who: int = 100) -> CallId:
        return self.ask(GetKeyValue(caller=Caller(Incarnation(who), SERVICE), key=key))

    def try_get(self, key: str, *, who: int = 100) -> CallId:
        return self.ask(TryGetKeyValue(caller=Caller(Incarnation(who), SERVICE), key=key))

    def delete(self, key: str, *, who: int = 100) -> CallId:
        return self.ask(DeleteKeyValue(caller=Caller(Incarnation(who), SERVICE), key=key))

    def increment(self, key: str, by: int) -> CallId:
        caller = Caller(Incarnation(100), SERVICE)
        return self.ask(IncrementKeyValue(caller=caller, key=key, increment=by))

    def directory(self, key: str, *, who: int = 100) -> list[str]:
        """The keys that a directory read names."""
        caller = Caller(Incarnation(who), SERVICE)
        answer = self.answers[self.ask(GetKeyValueDir(caller=caller, directory=key))]
        assert isinstance(answer, KeyValueDirectory)
        return [name for name, _ in answer.entries]

    def barrier(
        self,
        task: int,
        barrier_id: str = "b",
        counter: int = 0,
        tasks: Sequence[int] = (),
        *,
        timeout_s: float = 60.0,
        incarnation: int | None = None,
    ) -> CallId:
        """Arrives; incarnation 100 + task unless told otherwise."""
        who = Incarnation(100 + task if incarnation is None else incarnation)
        return self.ask(
            Barrier(
                caller=Caller(who, SERVICE),
                barrier_id=barrier_id,
                timeout_ms=round(timeout_s * 1000),
                tasks=tuple(map(TaskId, tasks)),
                task=TaskId(task),
                counter=counter,
            )
        )

    def cancel_barrier(self, barrier_id: str, counter: int = 0, task: int = 0) -> CallId:
        caller = Caller(Incarnation(100 + task), SERVICE)
        return self.ask(
            CancelBarrier(caller=caller, barrier_id=barrier_id, counter=counter, task=TaskId(task))
        )

    def report(self, task: int, code: int, message: str = "boom") -> CallId:
        caller = Caller(Incarnation(100 + task), SERVICE)
        return self.ask(
            ReportErrorToService(caller=caller, task=TaskId(task), code=code, message=message)
        )

    def passed(self, call: CallId) -> int:
        """The counter of a barrier that passed."""
        answer = self.answers[call]
        assert isinstance(answer, BarrierPassed), f"not passed: {answer}"
        return answer.counter

    def kill_and_restore(self) -> None:
        """The service dies; another goes on with what it remembered. All waiting calls are lost."""
        remembered = list(self.remembered.values())
        self.service = CoordinationService.restore(
            self.service.config, SERVICE, remembered, self.now_ns
        )

    def watch(self, version: int = -1, *, who: int = 100) -> CallId:
        return self.ask(WatchTasks(caller=Caller(Incarnation(who), SERVICE), version=version))

    def picture(self) -> TasksWatched:
        """What WatchTasks says now."""
        answer = self.answers[self.watch()]
        assert isinstance(answer, TasksWatched)
        return answer
