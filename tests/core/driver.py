"""Drives the core by hand: a job whose time stands still unless a test moves it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    AliveTasks,
    Answer,
    Caller,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    Heartbeat,
    InsertKeyValue,
    PollForError,
    RegisterTask,
    Request,
    ShutdownTask,
    TasksWatched,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Code, Status

SERVICE = Incarnation(999)


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
            ),
            SERVICE,
            0,
        )
        self.answers: dict[CallId, Answer] = {}
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

    def sleep(self, time_s: float, beating: Sequence[tuple[int, int]] = ()) -> None:
        """Lets time pass; the (task, incarnation)s of `beating` beat four times a second."""
        end_ns = self.now_ns + seconds(time_s)
        while self.now_ns < end_ns:
            self.now_ns = min(self.now_ns + seconds(0.25), end_ns)
            for task, incarnation in beating:
                self.heartbeat(task, incarnation)
            self._take(self.service.advance(self.now_ns))

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

    def watch(self, version: int = -1) -> CallId:
        return self.ask(WatchTasks(caller=Caller(Incarnation(100), SERVICE), version=version))

    def picture(self) -> TasksWatched:
        """What WatchTasks says now."""
        answer = self.answers[self.watch()]
        assert isinstance(answer, TasksWatched)
        return answer
