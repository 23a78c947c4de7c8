"""Raw clients of a real service, whose calls are recorded as their callers see them.

A process here is what it looks like from outside: calls, heartbeats, a crash. So a request can be sent
late (as one that was on its way when its sender died), or twice.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from checker.history import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Crash,
    Event,
    Fail,
    Fault,
    Header,
    History,
    Info,
    Invoke,
    Ok,
    Start,
)
from tests.conformance.outcome import Outcome
from tests.conformance.services import Service, ServiceOptions
from tests.conformance.stubs import Call, Task, Wire

HEARTBEAT_TIMEOUT_S = 1
_BEAT_S = 0.25
_BARRIER = "b"


class Operation:
    """A call of a process: recorded when it is made, sent then or later."""

    def __init__(
        self, job: RecordedJob, number: int, key: tuple[int, int], send: Callable[[], Call]
    ) -> None:
        self._job = job
        self._number = number
        self._key = key
        self._send = send
        self._answered: asyncio.Task[Outcome] | None = None
        self.sent: Call | None = None

    def send(self) -> None:
        """Sends the request; again, if it was sent before, and then nobody sees the answer."""
        call = self._send()
        if self.sent is None:
            self.sent = call
            self._answered = asyncio.create_task(self._take(call))

    async def reached_the_service(self) -> None:
        """Waits until the request is there, and has no answer."""
        assert self.sent is not None
        assert await self.sent.pending()

    async def answer(self) -> Outcome:
        """Waits for the answer."""
        assert self._answered is not None
        return await self._answered

    async def _take(self, call: Call) -> Outcome:
        outcome = await call.outcome()
        self._job.respond(self._number, self._key, outcome)
        return outcome


class RecordedJob:
    """A job of two processes.

    Attributes:
      events, faults: What was recorded.
    """

    PROCESSES = 2

    def __init__(self, address: str) -> None:
        self.events: list[Event] = []
        self.faults: list[Fault] = []
        self._wire = Wire(address)
        self._began_ns = time.monotonic_ns()
        self._ids = itertools.count()
        self._tasks: dict[int, Task] = {}
        self._lifetimes: dict[int, int] = {}
        self._dead: set[tuple[int, int]] = set()
        self._came: Counter[int] = Counter()

    async def start(self, *processes: int) -> None:
        """Starts processes, for the first time or again; returns when they have connected."""
        await asyncio.gather(*(self._start(process) for process in processes))

    async def _start(self, process: int) -> None:
        number = self._lifetimes.get(process, -1) + 1
        task = Task(self._wire, process, incarnation=1000 * (process + 1) + number)
        since_ns = self._now_ns()
        outcome = await task.register().outcome()
        assert outcome.ok, outcome
        if process in self._tasks:
            self._tasks[process].stop_beating()
        self._tasks[process], self._lifetimes[process] = task, number
        self.events.append(
            Start(
                time_ns=self._now_ns(),
                process=process,
                lifetime=number,
                incarnation=task.incarnation,
                since_ns=since_ns,
            )
        )
        task.keep_beating(_BEAT_S)

    async def register_again(self, process: int) -> None:
        """The same incarnation registers once more."""
        task = self._tasks[process]
        outcome = await task.register().outcome()
        assert outcome.ok, outcome
        task.keep_beating(_BEAT_S)

    def crash(self, process: int) -> None:
        """A process ends: it beats no more, and sees no more answers."""
        self._tasks[process].stop_beating()
        key = (process, self._lifetimes[process])
        self._dead.add(key)
        self.events.append(
            Crash(time_ns=self._now_ns(), process=key[0], lifetime=key[1], cause="killed")
        )

    def stall(self, process: int) -> None:
        """A process beats no more."""
        self._tasks[process].stop_beating()
        self.faults.append(
            Fault(time_ns=self._now_ns(), name=f"process {process} stands still", until_ns=None)
        )

    def plan(self, process: int, name: str) -> Operation:
        """A call that is made now, and not sent yet."""
        task = self._tasks[process]
        arguments: Mapping[str, Any] = {}
        send: Callable[[], Call]
        if name == LIVE_PROCESSES:
            send = partial(task.alive, tuple(range(self.PROCESSES)))
        elif name == SHUTDOWN:
            send = task.shutdown
        elif name == "key_value_set":
            key = f"from/{process}"
            arguments = {"key": key, "value": {"text": "1"}, "allow_overwrite": True}
            send = partial(task.insert, key, b"1", overwrite=True)
        else:
            assert name == "barrier"
            counter = self._came[process]  # No process of these stories starts again before one.
            self._came[process] += 1
            arguments = {"barrier": _BARRIER, "timeout_ms": 60_000, "processes": None}
            send = partial(task.barrier, _BARRIER, counter=counter)
        number = next(self._ids)
        lifetime = self._lifetimes[process]
        self.events.append(
            Invoke(
                time_ns=self._now_ns(),
                process=process,
                lifetime=lifetime,
                id=number,
                operation=name,
                arguments=arguments,
            )
        )
        return Operation(self, number, (process, lifetime), send)

    def call(self, process: int, name: str) -> Operation:
        """A call that is made and sent now."""
        operation = self.plan(process, name)
        operation.send()
        return operation

    def respond(self, number: int, key: tuple[int, int], outcome: Outcome) -> None:
        """A call has returned, if its process lives."""
        if key in self._dead:
            return
        common = {"time_ns": self._now_ns(), "process": key[0], "lifetime": key[1], "id": number}
        if outcome.ok:
            self.events.append(Ok(**common, result=outcome.answer.get("alive")))
            return
        kind = Fail if outcome.code.definite else Info
        self.events.append(kind(**common, code=outcome.code.name, message=outcome.message))

    def history(self, details: Mapping[str, object]) -> History:
        """What was recorded so far."""
        header = Header(
            source="processes", participants=tuple(range(self.PROCESSES)), details=details
        )
        return History(header, self.events, faults=tuple(self.faults))

    async def end(self) -> None:
        """Stops everybody."""
        for task in self._tasks.values():
            task.stop_beating()
        await self._wire.close()

    def _now_ns(self) -> int:
        return time.monotonic_ns() - self._began_ns


OPTIONS = ServiceOptions(
    tasks=RecordedJob.PROCESSES, recoverable=True, heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S
)


async def record(
    service: Service, play: Callable[[RecordedJob], Awaitable[None]], details: Mapping[str, object]
) -> History:
    """Plays a story on a service, and returns what was recorded."""
    address = await service.start(OPTIONS)
    try:
        job = RecordedJob(address)
        try:
            await play(job)
            return job.history(details)
        finally:
            await job.end()
    finally:
        await service.stop()
