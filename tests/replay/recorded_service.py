"""A service in virtual time that records what it sees, and random jobs on it.

The core runs as the server runs it: requests at their times, `advance` when it is due, a little late.
The recording has every call, as `coordlab serve --record` and `coordlab tap` write it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from checker.history import Event, Header, History, Invoke, Start
from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    Barrier,
    Caller,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    Heartbeat,
    IncrementKeyValue,
    InsertKeyValue,
    PollForError,
    Registered,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    TryGetKeyValue,
    WatchTasks,
)
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.recording import AnswerTexts, operation_of, response

SERVICE = Incarnation(999)


@dataclass(slots=True)
class _Call:
    process: int
    lifetime: int
    id: int
    name: str
    request: Request
    since_ns: int


@dataclass
class RecordedService:
    """The core, its clock and its recording."""

    tasks: int = 3
    kind: type[CoordinationService] = CoordinationService
    semantics: Semantics = SHIPPED
    recoverable: bool = True
    heartbeat_timeout_s: float = 3.0
    shutdown_timeout_s: float = 300.0
    phase_s: float = 0.37
    tick_late_s: float = 0.002
    details: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = ServiceConfig(
            tasks=self.tasks,
            recoverable=self.recoverable,
            heartbeat_timeout_ns=seconds(self.heartbeat_timeout_s),
            shutdown_timeout_ns=seconds(self.shutdown_timeout_s),
            semantics=self.semantics,
        )
        self.now_ns = seconds(self.phase_s)
        self.service = self.kind(config, SERVICE, self.now_ns)
        self.events: list[Event] = []
        self.answers: dict[int, Any] = {}
        self._texts = AnswerTexts()
        self._open: dict[int, _Call] = {}
        self._lifetimes: dict[tuple[int, int], int] = {}
        self._starts = [0] * self.tasks
        self._ids = 0

    def until(self, time_s: float) -> None:
        """Lets time pass, ticks included."""
        time_ns = seconds(time_s)
        while self.service.next_deadline_ns() + seconds(self.tick_late_s) <= time_ns:
            self.now_ns = self.service.next_deadline_ns() + seconds(self.tick_late_s)
            self._take(self.service.advance(self.now_ns))
        self.now_ns = max(self.now_ns, time_ns)

    def request(self, process: int, incarnation: int, request: Request) -> int:
        """A request arrives now; returns its id."""
        number = self._ids
        self._ids += 1
        key = (process, incarnation)
        lifetime = self._lifetimes.get(key)
        if lifetime is None:
            lifetime = self._lifetimes[key] = self._starts[process]
            self._starts[process] += 1
        name, arguments = described(request, self.tasks, incarnation)
        self.events.append(
            Invoke(
                time_ns=self.now_ns,
                process=process,
                lifetime=lifetime,
                id=number,
                operation=name,
                arguments=arguments,
            )
        )
        self._open[number] = _Call(process, lifetime, number, name, request, self.now_ns)
        self._take(self.service.handle(CallId(number), request, self.now_ns))
        return number

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if not isinstance(effect, Reply) or effect.call not in self._open:
                continue
            call = self._open.pop(effect.call)
            self.answers[effect.call] = effect.answer
            self.events.append(
                response(
                    effect.answer,
                    self._texts,
                    time_ns=self.now_ns,
                    process=call.process,
                    lifetime=call.lifetime,
                    operation=call.id,
                    name=call.name,
                )
            )
            if isinstance(effect.answer, Registered):
                assert isinstance(call.request, RegisterTask)
                self.events.append(
                    Start(
                        time_ns=self.now_ns,
                        process=call.process,
                        lifetime=call.lifetime,
                        incarnation=call.request.incarnation,
                        since_ns=call.since_ns,
                    )
                )

    def history(self, **details: object) -> History:
        """The recording."""
        started: set[tuple[int, int]] = set()
        events = []
        for event in self.events:  # The same incarnation may register again: it starts once.
            if isinstance(event, Start):
                if (event.process, event.lifetime) in started:
                    continue
                started.add((event.process, event.lifetime))
            events.append(event)
        header = Header(
            source="server",
            participants=tuple(range(self.tasks)),
            details={
                "records": "all calls",
                "observer": "server",
                "semantics": self.semantics.name,
                "recoverable": self.recoverable,
                "heartbeat_timeout_s": self.heartbeat_timeout_s,
                "shutdown_timeout_s": self.shutdown_timeout_s,
                "service_incarnation": str(SERVICE),
                **self.details,
                **details,
            },
        )
        return History(header, events)


def described(request: Request, tasks: int, incarnation: int) -> tuple[str, dict[str, object]]:
    """A request as an operation of a recording of all calls."""
    if isinstance(request, RegisterTask):
        return "register", {"incarnation": str(request.incarnation)}
    if isinstance(request, Heartbeat):
        same = request.incarnation == incarnation
        return "heartbeat", {} if same else {"incarnation": str(request.incarnation)}
    if isinstance(request, PollForError):
        return "poll_for_error", {}
    found = operation_of(request, tasks)
    assert found is not None
    name, arguments = found[0], dict(found[1])
    if request.caller.service_incarnation != SERVICE:
        arguments["service_incarnation"] = str(request.caller.service_incarnation)
    return name, arguments


@dataclass
class _Process:
    number: int
    incarnation: int
    beat_s: float
    waits_for: int | None = None
    barriers: dict[str, int] = field(default_factory=dict)


class RandomJob:
    """Processes that do at random what the service answers: come, go, die, come back, wait, store.

    Args:
      service: Whose recording it makes.
      seed: Of all that is drawn.
      gentle: No wrong calls: what a program's client would not do is left out.
      deaths: How likely it is that what happens next is a death.
    """

    def __init__(
        self, service: RecordedService, seed: int, *, gentle: bool = False, deaths: float = 0.01
    ) -> None:
        self._service = service
        self._random = random.Random(seed)
        self._gentle = gentle
        self._deaths = deaths
        self._processes: list[_Process | None] = [None] * service.tasks
        self._zombies: list[_Process] = []
        self._now_s = service.phase_s

    def run(self, steps: int) -> RecordedService:
        """Lets so many things happen."""
        for number in range(self._service.tasks):
            self._start(number)
            self._pass(self._random.uniform(0.001, 0.1))
        return self.go_on(steps)

    def go_on(self, steps: int) -> RecordedService:
        """Lets so many more things happen."""
        for _ in range(steps):
            self._pass(self._random.choice((0.002, 0.02, 0.1, 0.3)) * self._random.random())
            self._something()
        self._pass(0.001)
        return self._service

    def _pass(self, time_s: float) -> None:
        """Lets time pass; the living beat every half of the time-out, now and then late."""
        until_s = self._now_s + time_s
        while True:
            due = min(
                (process for process in self._processes if process is not None),
                key=lambda process: process.beat_s,
                default=None,
            )
            if due is None or due.beat_s > until_s:
                break
            self._now_s = max(due.beat_s, self._now_s)
            self._service.until(self._now_s)
            beat = Heartbeat(
                caller=self._caller(due),
                task=TaskId(due.number),
                incarnation=Incarnation(due.incarnation),
            )
            self._service.request(due.number, due.incarnation, beat)
            due.beat_s += self._service.heartbeat_timeout_s / 2 * self._random.uniform(0.9, 1.1)
            if not self._gentle and self._random.random() < 0.02:
                due.beat_s += self._service.heartbeat_timeout_s * self._random.uniform(0.3, 1.2)
        self._now_s = until_s
        self._service.until(until_s)

    def _caller(self, process: _Process) -> Caller:
        return Caller(Incarnation(process.incarnation), SERVICE)

    def _start(self, number: int) -> None:
        old = self._processes[number]
        if old is not None and self._random.random() < 0.3:
            self._zombies.append(old)
        incarnation = self._random.getrandbits(64)
        beat_s = self._now_s + self._service.heartbeat_timeout_s / 2
        process = self._processes[number] = _Process(number, incarnation, beat_s)
        request = RegisterTask(task=TaskId(number), incarnation=Incarnation(incarnation))
        self._service.request(number, incarnation, request)
        if not self._service.recoverable or self._random.random() < 0.5:
            poll = PollForError(caller=self._caller(process), task=TaskId(number))
            self._service.request(number, incarnation, poll)

    def _something(self) -> None:
        number = self._random.randrange(self._service.tasks)
        process = self._processes[number]
        if process is None:
            if self._random.random() < 0.1:
                self._start(number)
            return
        chance = self._random.random()
        if chance < self._deaths:
            self._processes[number] = None  # It is killed.
            return
        if chance < 1.5 * self._deaths:
            self._start(number)
            return
        if self._zombies and chance < 3 * self._deaths and not self._gentle:
            process = self._random.choice(self._zombies)
        waits_for = process.waits_for
        if waits_for is not None and waits_for not in self._service.answers:
            return
        request = self._random.choice(tuple(self._requests(process)))
        call = self._service.request(process.number, process.incarnation, request)
        if isinstance(request, GetAliveTasks | Barrier):
            process.waits_for = call
        if isinstance(request, Barrier):
            process.barriers[request.barrier_id] = request.counter

    def _requests(self, process: _Process) -> Iterator[Request]:
        caller, task, tasks = self._caller(process), TaskId(process.number), self._service.tasks
        key = self._random.choice(("a", "a/b", "c", "n"))
        value = str(self._random.randrange(1000)).encode()
        everybody = tuple(TaskId(other) for other in range(tasks))
        for _ in range(3):
            yield GetAliveTasks(caller=caller, task=task, tasks=everybody)
        yield GetAliveTasks(caller=caller, task=task, tasks=tuple({task, TaskId(0)}))
        yield InsertKeyValue(caller=caller, key=key, value=value, allow_overwrite=True)
        yield InsertKeyValue(caller=caller, key=key, value=value)
        yield TryGetKeyValue(caller=caller, key=key)
        yield GetKeyValueDir(caller=caller, directory="a")
        yield DeleteKeyValue(caller=caller, key=key)
        yield GetKeyValue(caller=caller, key=key)
        yield IncrementKeyValue(caller=caller, key="n", increment=self._random.randrange(9))
        yield WatchTasks(caller=caller, version=-1)
        barrier = self._random.choice(("x", "y"))
        yield Barrier(
            caller=caller,
            barrier_id=barrier,
            timeout_ms=self._random.choice((500, 2000)),
            tasks=(),
            task=task,
            counter=process.barriers.get(barrier, -1) + 1,
        )
        if self._gentle:
            return
        if self._random.random() < 0.05:
            yield ShutdownTask(caller=caller, task=task)
            yield ReportErrorToService(caller=caller, task=task, code=14, message="out of order")
            yield TryGetKeyValue(caller=Caller(caller.task_incarnation, Incarnation(5)), key=key)
