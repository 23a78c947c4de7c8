"""Random runs of our own service with all operations on the store and on barriers, in virtual time.

Clients call, wait, lose patience, crash and come back; messages take time. The history is what the
callers saw; `edge="server"` is what the service saw.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from checker.history import Crash, Event, Header, History, Info, Invoke, Start
from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    Answer,
    Barrier,
    BarrierPassed,
    Caller,
    CancelBarrier,
    DeleteKeyValue,
    GetAliveTasks,
    GetKeyValue,
    GetKeyValueDir,
    IncrementKeyValue,
    InsertKeyValue,
    Registered,
    RegisterTask,
    Request,
    TryGetKeyValue,
)
from coord_sim.core.semantics import SEMANTICS
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import Status
from coord_sim.recording import AnswerTexts, operation_of, response

_SERVICE = Incarnation(999)
_KEYS = ("a", "a/b", "a//c", "/d", "n", "n")
_VALUES = (b"1", b" +7", b"x", b"\xff", b"")


@dataclass
class _Client:
    """A lifetime."""

    process: int
    lifetime: int
    incarnation: Incarnation
    counters: dict[str, int] = field(default_factory=dict)
    waits_at: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    open: int = 0
    alive: bool = True


@dataclass
class ServiceRun:
    """One run. `history()` carries it out."""

    seed: int
    processes: int = 3
    calls: int = 60
    semantics: str = "published"
    edge: str = "processes"
    crash: float = 0.02
    _moments: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)

    def history(self) -> History:
        """What was seen."""
        self._random = random.Random(self.seed)
        self._numbers = itertools.count()
        self._ids = itertools.count()
        self._texts = AnswerTexts()
        self._events: list[Event] = []
        self._waiting: dict[CallId, Callable[[Answer], None]] = {}
        self._now_ns = 0
        self._asked = 0
        config = ServiceConfig(
            tasks=self.processes,
            recoverable=True,
            heartbeat_timeout_ns=seconds(1000.0),
            semantics=SEMANTICS[self.semantics],
        )
        self._service = CoordinationService(config, _SERVICE, 0)
        for process in range(self.processes):
            self._start(process, 0)
        self._tick()
        while self._moments and self._now_ns < seconds(60.0):
            self._now_ns, _, action = heapq.heappop(self._moments)
            action()
        header = Header(
            source=self.edge if self.edge == "server" else "simulator",
            clock="virtual",
            participants=tuple(range(self.processes)),
        )
        return History(header, self._events)

    def _later(self, action: Callable[[], None], most_s: float = 0.2) -> None:
        time_ns = self._now_ns + 1 + int(self._random.random() * seconds(most_s))
        heapq.heappush(self._moments, (time_ns, next(self._numbers), action))

    def _tick(self) -> None:
        self._take(self._service.advance(self._now_ns))
        if self._asked < self.calls or self._waiting:
            time_ns = self._service.next_deadline_ns()
            heapq.heappush(self._moments, (time_ns, next(self._numbers), self._tick))

    def _take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply) and effect.call in self._waiting:
                self._waiting.pop(effect.call)(effect.answer)

    def _send(self, request: Request, on_answer: Callable[[Answer], None]) -> CallId:
        call = CallId(next(self._numbers))

        def arrive() -> None:
            self._waiting[call] = on_answer
            self._take(self._service.handle(call, request, self._now_ns))

        self._later(arrive)
        return call

    # --- processes -----------------------------------------------------------------------------

    def _start(self, process: int, lifetime: int) -> None:
        client = _Client(process, lifetime, Incarnation(self._random.randrange(1, 2**40)))
        since_ns = self._now_ns

        def registered(answer: Answer) -> None:
            if isinstance(answer, Registered):
                self._events.append(
                    Start(
                        time_ns=self._now_ns,
                        process=process,
                        lifetime=lifetime,
                        incarnation=client.incarnation,
                        since_ns=since_ns,
                    )
                )
                for _ in range(2):  # Two threads.
                    self._later(lambda: self._think(client))

        self._send(RegisterTask(task=TaskId(process), incarnation=client.incarnation), registered)

    def _think(self, client: _Client) -> None:
        if not client.alive or self._asked >= self.calls:
            return
        self._asked += 1
        if self._random.random() < self.crash:
            client.alive = False
            if self.edge != "server":
                self._events.append(
                    Crash(time_ns=self._now_ns, process=client.process, lifetime=client.lifetime)
                )
            self._later(lambda: self._start(client.process, client.lifetime + 1), 1.0)
            return
        self._call(client, self._request(client))

    def _call(self, client: _Client, request: Request) -> None:
        described = operation_of(request, self.processes)
        assert described is not None
        name, arguments = described
        number = next(self._ids)
        over = False
        at_server = self.edge == "server"
        if isinstance(request, Barrier):
            client.waits_at.add(request.barrier_id)

        def record(kind: type[Any], **fields: Any) -> None:
            self._events.append(
                kind(
                    time_ns=self._now_ns,
                    process=client.process,
                    lifetime=client.lifetime,
                    id=number,
                    **fields,
                )
            )

        def end(answer: Answer | None) -> None:
            nonlocal over
            if over or not client.alive:
                return
            over = True
            if isinstance(request, Barrier):
                client.waits_at.discard(request.barrier_id)
                if answer is None:
                    client.lost.add(request.barrier_id)
                _count(client, request, answer)
            if not at_server:
                respond(answer)
            self._later(lambda: self._think(client))

        def respond(answer: Answer | None) -> None:
            if answer is None:
                record(Info, code="CANCELLED", message="out of patience")
                return
            self._events.append(
                response(
                    answer,
                    self._texts,
                    time_ns=self._now_ns,
                    process=client.process,
                    lifetime=client.lifetime,
                    operation=number,
                    name=name,
                )
            )

        def answered(answer: Answer) -> None:
            if at_server:
                respond(answer)
            self._later(lambda: end(answer))

        if at_server:

            def arrive() -> None:
                call = CallId(next(self._numbers))
                record(Invoke, operation=name, arguments=arguments)
                self._waiting[call] = answered
                self._take(self._service.handle(call, request, self._now_ns))

            self._later(arrive)
        else:
            if isinstance(request, Barrier):
                arguments = {key: value for key, value in arguments.items() if key != "counter"}
            record(Invoke, operation=name, arguments=arguments)
            self._send(request, answered)
        patience_s = self._random.choice((0.3, 4.0, 4.0))
        self._later(lambda: end(None), 2 * patience_s)

    def _request(self, client: _Client) -> Request:
        rng = self._random
        caller = Caller(client.incarnation, _SERVICE)
        key = rng.choice(_KEYS)
        task = TaskId(client.process)
        match rng.randrange(12):
            case 0 | 1:
                return InsertKeyValue(
                    caller=caller,
                    key=key,
                    value=rng.choice(_VALUES),
                    allow_overwrite=rng.random() < 0.6,
                )
            case 2:
                return GetKeyValue(caller=caller, key=key)
            case 3 | 4:
                return TryGetKeyValue(caller=caller, key=key)
            case 5:
                return DeleteKeyValue(caller=caller, key=key)
            case 6 | 7:
                return IncrementKeyValue(caller=caller, key="n", increment=rng.choice((1, -2)))
            case 8:
                return GetKeyValueDir(caller=caller, directory=rng.choice(("a", "a/", "n", "/")))
            case 9 if self.edge == "server" and rng.random() < 0.3:
                return CancelBarrier(
                    caller=caller, barrier_id="b", counter=rng.randrange(3), task=task
                )
        barrier = rng.choice(("b", "c"))
        if barrier in client.waits_at:
            return GetAliveTasks(caller=caller, task=task, tasks=(task,))
        pair = (TaskId(0), TaskId(1))
        # Who repeats a call whose answer was lost gives the same arguments.
        is_mistaken = barrier not in client.lost and rng.random() < 0.05
        return Barrier(
            caller=caller,
            barrier_id=barrier,
            timeout_ms=rng.choice((500, 3000)),
            tasks=pair if barrier == "c" and not is_mistaken else (),
            task=task,
            counter=client.counters.get(barrier, -1) + 1,
        )


def _count(client: _Client, request: Barrier, answer: Answer | None) -> None:
    """What a client learns of the counter (service-semantics.md, section 8, client counters)."""
    if isinstance(answer, BarrierPassed):
        client.counters[request.barrier_id] = answer.counter
    elif isinstance(answer, Status) and answer.barrier_error is not None:
        client.counters[request.barrier_id] = answer.barrier_error.counter
