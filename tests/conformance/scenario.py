"""Scenarios: what they are given, what they may ask, and what is kept of their run."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from coord_sim.core.status import Code
from tests.conformance.clients import ClientTask
from tests.conformance.interposer import Interposer, Relay
from tests.conformance.outcome import AT_ONCE_S, Outcome, Timing, renamed
from tests.conformance.services import ForkServer, Service, ServiceOptions
from tests.conformance.stubs import SETTLED_S, Call, Task, Wire

TOLERANCE_S = 0.2
"""On every time (section 16 of the note), and more while this process itself is late."""
LATE_WITHIN_S = 20.0
WAKE_EVERY_S = 0.05


class OutOfTime(AssertionError):
    """Something came too early or too late."""


STUBS = ("stub",)
CLIENTS = ("jaxlib", "coord_sim")
ALL = (*STUBS, *CLIENTS)


class Participant(Protocol):
    """What raw stubs and clients can both do; a scenario for both uses nothing else."""

    number: int
    incarnation: int

    def register(self) -> Call: ...
    def shutdown(self) -> Call: ...
    def alive(self, tasks: Sequence[int]) -> Call: ...
    def insert(self, key: str, value: bytes, *, overwrite: bool = False) -> Call: ...
    def get(self, key: str) -> Call: ...
    def try_get(self, key: str) -> Call: ...
    def increment(self, key: str, by: int) -> Call: ...
    def directory(self, key: str) -> Call: ...
    def delete(self, key: str) -> Call: ...
    def barrier(
        self, barrier_id: str, *, timeout_s: float = 60.0, tasks: Sequence[int] = ()
    ) -> Call: ...


@dataclass(frozen=True, slots=True)
class Arm:
    """What a scenario runs on.

    Attributes:
      caller: `stub`, or the client library: `jaxlib` or `coord_sim`.
      service: `real` or `model`.
    """

    caller: str
    service: str

    @property
    def raw(self) -> bool:
        """Whether the callers are raw stubs."""
        return self.caller == "stub"

    def __str__(self) -> str:
        return f"{self.caller} on {self.service}"


@dataclass(frozen=True, slots=True)
class Observation:
    """Something that a scenario looked at, by a name of its own."""

    name: str
    outcome: Outcome | None
    timing: Timing | None
    note: str = ""

    def text(self, names: dict[int, str]) -> str:
        """The comparable form, in a line without the name."""
        parts = [] if self.outcome is None else [self.outcome.text(names)]
        parts += [renamed(self.note, names)] if self.note else []
        parts += [self.timing.value] if self.timing not in (None, Timing.AT_ONCE) else []
        return "; ".join(parts)


class Job:
    """A job on one service, as a scenario sees it.

    Attributes:
      arm: What it runs on.
      options: Of its service.
      jaxlib: Version of the installed jaxlib, e.g. (0, 12, 0).
      service: The service itself, for scenarios that stop it.
      address: Of the service.
      forks: For scenarios that start processes of their own.
      tasks: The first start of each task, by id, after `register_all` or `task`.
    """

    def __init__(
        self,
        arm: Arm,
        options: ServiceOptions,
        *,
        service: Service,
        address: str,
        forks: ForkServer,
        jaxlib: tuple[int, ...],
    ) -> None:
        self.arm = arm
        self.options = options
        self.service = service
        self.address = address
        self.forks = forks
        self.jaxlib = jaxlib
        self.wire = Wire(address)
        self.names: dict[int, str] = {}
        self.observations: list[Observation] = []
        self._between: list[Interposer | Relay] = []
        self._starts: dict[int, int] = {}
        self._started: list[Task | ClientTask] = []
        self._numbers = itertools.count(1)
        self._late_s = 0.0
        self._woke = time.monotonic()
        self._clock = asyncio.create_task(self._measure_lateness())

    # --- tasks -----------------------------------------------------------------------------------

    def stub(self, number: int, name: str | None = None) -> Task:
        """A new incarnation of a task, as a raw stub that has not called yet.

        Args:
          number: The task's id.
          name: Of the incarnation; by default a, b, c, and b', b'' for later starts.
        """
        incarnation = 10**15 + next(self._numbers)
        task = Task(self.wire, number, incarnation)
        self.names[incarnation] = name or self._next_name(number)
        self._started.append(task)
        return task

    async def start(self, number: int, *, hb: int | None = None) -> Any:
        """A new incarnation of a task, not registered: a stub or a client, as the arm says.

        Args:
          number: The task's id.
          hb: Heartbeat time-out of a client (s), if it is not the service's.
        """
        if self.arm.raw:
            return self.stub(number)
        options = self.options if hb is None else replace(self.options, heartbeat_timeout_s=hb)
        client = await ClientTask.start(self.forks, self.address, number, self.arm.caller, options)
        self._started.append(client)
        return client

    async def registered(self, *tasks: Any) -> None:
        """Registers tasks at the same time; then they beat, and their incarnations have names."""
        calls = [task.register() for task in tasks]
        for task, call in zip(tasks, calls, strict=True):
            outcome = await call.outcome()
            assert outcome.ok, f"task {task.number} could not register: {outcome}"
        for task in tasks:
            if isinstance(task, Task):
                task.keep_beating(self.options.heartbeat_timeout_s / 4)
                self.names[self.wire.service_incarnation] = "SI"
            else:
                alive = await task.alive([task.number]).outcome()
                task.incarnation = alive.answer["alive"][task.number]
                self.names[task.incarnation] = self._next_name(task.number)

    async def register_all(self) -> list[Any]:
        """All tasks, registered and beating."""
        tasks = [await self.start(number) for number in range(self.options.tasks)]
        await self.registered(*tasks)
        return tasks

    async def interpose(self) -> Interposer:
        """From now on, tasks that start reach the service through a proxy that can misbehave."""
        interposer = Interposer(self.address)
        self._between.append(interposer)
        self.address = await interposer.start()
        return interposer

    async def relay(self) -> Relay:
        """From now on, tasks that start reach the service through a relay that counts bytes."""
        relay = Relay(self.address)
        self._between.append(relay)
        self.address = await relay.start()
        return relay

    async def silence(self, task: Any) -> float:
        """Ends a task without a word: a stub sends no more heartbeats, a client's process is killed.

        Returns:
          Since when it is silent (`time.monotonic`, s). A client's last heartbeat was up to half of
          the heartbeat time-out earlier.
        """
        if isinstance(task, Task):
            return await task.silence()
        await task.kill()
        return time.monotonic()

    def _next_name(self, number: int) -> str:
        start = self._starts.get(number, 0)
        self._starts[number] = start + 1
        name = "abcdefgh"[number] if 0 <= number < 8 else f"task{number}"
        return name + "'" * start

    # --- observations ----------------------------------------------------------------------------

    async def ok(
        self,
        name: str,
        call: Call,
        *,
        after: tuple[float, float] | None = None,
        since: float | None = None,
        patience_s: float = AT_ONCE_S,
        **answer: Any,
    ) -> Outcome:
        """Observes a call that must be answered with OK.

        Args:
          name: Of the observation.
          call: To wait for.
          after: Earliest and latest time of the answer (s); by default it must come at once.
          since: What `after` is counted from (`time.monotonic`); default: the call's start.
          patience_s: What counts as at once, for calls that move much data.
          **answer: Fields that the answer must have.

        Returns:
          The outcome.
        """
        outcome = await self._observe(name, call, after, since, patience_s)
        assert outcome.ok, f"{name}: expected OK, found {outcome.text(self.names)}"
        for key, value in answer.items():
            if not self.arm.raw and key not in outcome.answer:
                continue  # The client does not tell.
            found = outcome.answer[key]
            assert found == value, f"{name}: expected {key}={value!r}, found {found!r}"
        return outcome

    async def fails(
        self,
        name: str,
        call: Call,
        code: Code,
        says: str = "",
        payloads: str | None = "CE",
        *,
        after: tuple[float, float] | None = None,
        since: float | None = None,
    ) -> Outcome:
        """Observes a call that must fail.

        Args:
          name: Of the observation.
          call: To wait for.
          code: It must fail with.
          says: Words of the message.
          payloads: As `Outcome.payloads` writes them; None if they are looked at elsewhere.
          after: See `ok`.
          since: See `ok`.

        Returns:
          The outcome.
        """
        outcome = await self._observe(name, call, after, since)
        text = outcome.text(self.names)
        assert outcome.code is code, f"{name}: expected {code.name}, found {text}"
        assert says in outcome.message, f"{name}: expected the words {says!r}, found {text}"
        if self.arm.raw and payloads is not None:
            found = renamed(outcome.payloads(), self.names)
            assert found == payloads, f"{name}: expected payloads {payloads!r}, found {found!r}"
        return outcome

    async def waits(self, name: str, *calls: Call, for_s: float = SETTLED_S) -> None:
        """Observes that calls stay pending."""
        pending = await asyncio.gather(*(call.pending(for_s) for call in calls))
        for call, waits in zip(calls, pending, strict=True):
            if not waits:
                outcome = await call.outcome()
                raise AssertionError(
                    f"{name}: expected to wait, {call.name} ended {outcome.text(self.names)}"
                )
        self.observations.append(Observation(name, None, Timing.PENDING))

    def elapsed(self, name: str, since: float, earliest: float, latest: float) -> None:
        """Asserts that this moment is so long after another (s), give or take the usual slack."""
        elapsed = time.monotonic() - since
        slack_s = TOLERANCE_S + self._note_lateness()
        if not earliest - TOLERANCE_S <= elapsed <= latest + slack_s:
            raise OutOfTime(f"{name}: came after {elapsed:.2f} s, expected {earliest} to {latest}")

    def note(self, name: str, text: object) -> None:
        """Keeps something that is no outcome of a call."""
        self.observations.append(Observation(name, None, None, str(text)))

    async def sleep(self, duration_s: float) -> None:
        """Lets real time pass, where the scenario is about its passing."""
        await asyncio.sleep(duration_s)

    async def _observe(
        self,
        name: str,
        call: Call,
        after: tuple[float, float] | None,
        since: float | None,
        patience_s: float = AT_ONCE_S,
    ) -> Outcome:
        asked = time.monotonic()
        outcome = await call.outcome(LATE_WITHIN_S)
        assert call.answered is not None
        if after is None:
            elapsed = call.answered - max(asked, call.started)
            earliest, latest = None, patience_s
        else:
            elapsed = call.answered - (call.started if since is None else since)
            earliest, latest = after[0] - TOLERANCE_S, after[1]
        slack_s = TOLERANCE_S + self._note_lateness()
        timed_out = elapsed >= (latest + slack_s if earliest is None else earliest)
        timing = Timing.TIMED_OUT if timed_out else Timing.AT_ONCE
        self.observations.append(Observation(name, outcome, timing))
        if elapsed > latest + slack_s or (earliest is not None and elapsed < earliest):
            raise OutOfTime(
                f"{name}: came after {elapsed:.2f} s, expected {after or 'at once'}: "
                f"{outcome.text(self.names)}"
            )
        return outcome

    # --- around the scenario ---------------------------------------------------------------------

    def was_late(self) -> bool:
        """Whether this process was so busy that heartbeats may have been missed."""
        return self._note_lateness() > TOLERANCE_S

    async def close(self) -> None:
        """Ends all tasks."""
        self._clock.cancel()
        for task in self._started:
            if isinstance(task, Task):
                task.stop_beating()
            else:
                await task.kill()
        await self.wire.close()
        for between in self._between:
            await between.stop()

    async def _measure_lateness(self) -> None:
        """A busy machine delays our steps, and heartbeats with them: times get as much slack."""
        while True:
            self._note_lateness()
            self._woke = time.monotonic()
            await asyncio.sleep(WAKE_EVERY_S)

    def _note_lateness(self) -> float:
        late_s = time.monotonic() - self._woke - WAKE_EVERY_S
        self._late_s = max(self._late_s, 2 * late_s)
        return self._late_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One entry of the catalogue.

    Attributes:
      id: Number in section 16 of the note, with a letter for variants; letters alone are ours.
      title: What it shows.
      options: Of the service.
      callers: Who can express it: `stub`, `jaxlib`, `coord_sim`.
      process: Whether the service must be a process of its own, to be stopped.
      alone: Whether it keeps this process so busy that it must run when no other scenario does.
      run: The scenario.
    """

    id: str
    title: str
    options: ServiceOptions
    callers: tuple[str, ...]
    process: bool
    alone: bool
    run: Callable[[Job], Awaitable[None]]


ENTERED: list[Scenario] = []
"""What `scenario` has entered; `tests.conformance.catalogue.SCENARIOS` has all."""


def scenario(
    number: str,
    tasks: int,
    *,
    recoverable: bool = False,
    hb: int = 100,
    shutdown_timeout_s: int = 300,
    register_timeout_s: int = 3600,
    callers: tuple[str, ...] = STUBS,
    process: bool = False,
    alone: bool = False,
) -> Callable[[Callable[[Job], Awaitable[None]]], Callable[[Job], Awaitable[None]]]:
    """Enters a function into the catalogue; the first line of its docstring is the title.

    Args:
      number: See `Scenario.id`.
      tasks: Of the job.
      recoverable: Of the service, as the others.
      hb: Heartbeat time-out (s).
      shutdown_timeout_s: Of the shutdown barrier.
      register_timeout_s: Of the registration barrier.
      callers: See `Scenario`.
      process: See `Scenario`.
      alone: See `Scenario`.
    """

    def enter(run: Callable[[Job], Awaitable[None]]) -> Callable[[Job], Awaitable[None]]:
        assert number not in {each.id for each in ENTERED}, number
        entry = Scenario(
            id=number,
            title=(run.__doc__ or "").strip().split("\n")[0].rstrip("."),
            options=ServiceOptions(
                tasks=tasks,
                recoverable=recoverable,
                heartbeat_timeout_s=hb,
                shutdown_timeout_s=shutdown_timeout_s,
                register_timeout_s=register_timeout_s,
            ),
            callers=callers,
            process=process,
            alone=alone,
            run=run,
        )
        ENTERED.append(entry)
        return run

    return enter


@dataclass(frozen=True, slots=True)
class Result:
    """What a run of a scenario on an arm came to.

    Attributes:
      observations: Names and comparable texts, in order.
      problem: Why the scenario failed, or empty.
      late: Whether it may have failed by time alone, which a busy machine can cause.
    """

    observations: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    late: bool = False
