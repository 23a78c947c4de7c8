"""Runs a program on two services in lock step, until they differ.

Each step is taken on both services; then both are asked for the states of all tasks until they have
said the same, or patience ends. So no time is spent on waiting for what does not come: a call that is
answered too late, or not on one service, makes a difference in this step or a later one. A difference
may still be the machine's fault: `Patience` says how long to wait before the first look and the last.

Heartbeats are sent in the background while real time matters. If the machine was so late that time-outs
may have struck at another moment than meant, the run is `late` and says nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from coord_sim.core.status import Code
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.conformance.outcome import Outcome, TaskSeen
from tests.conformance.services import Service
from tests.conformance.stubs import Call, StillPending, Task, Wire
from tests.differential.comparison import Answer, Observation, answer, same
from tests.differential.programs import (
    HEARTBEAT_TIMEOUT_S,
    SHORT_S,
    Program,
    Step,
)

TICK_S = 1.0
MARGIN_S = 0.3
TIMEOUTS_S = SHORT_S + TICK_S + MARGIN_S
SILENCE_S = HEARTBEAT_TIMEOUT_S + TICK_S + MARGIN_S
BEAT_EVERY_S = 0.4
LATEST_BEAT_S = HEARTBEAT_TIMEOUT_S / 2
"""After a longer pause between heartbeats a run is late."""

BETWEEN_TIMED_STEPS_S = SHORT_S * 0.7
"""Steps that take no time may take so long together, between those that do, where it matters: else
something short times out too early, or the grace of a task that has left ends."""

ANSWER_WITHIN_S = 20.0
STRANGER = 987_654_321_987_654
"""An incarnation that nobody has."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a step waits.

    Attributes:
      first_s: Before the services are compared.
      last_s: After which a difference is one.
    """

    first_s: float
    last_s: float


QUICK = Patience(0.0, 2.0)
LONG = Patience(0.15, 3.0)


@dataclass(frozen=True, slots=True)
class Difference:
    """Two services that did not do the same.

    Attributes:
      step: Number of the step, or that of the last one plus 1 for the last look.
      texts: What each of the two services said, by what it is about.
    """

    step: int
    texts: tuple[dict[str, str], dict[str, str]]


@dataclass(slots=True)
class Run:
    """A program's run on two services.

    Attributes:
      difference: The first one, if any.
      late: Whether the machine was too late for the run to say anything.
      steps: How many were taken.
      counts: Operations with the code they came to, or `pending`.
      loose: Steps in which the services agreed but for what is arbitrary.
    """

    difference: Difference | None = None
    late: bool = False
    steps: int = 0
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    loose: int = 0


class Unobservable(Exception):
    """A service does not say any more what state it is in."""


@dataclass(slots=True)
class _Made:
    """A call of a step."""

    number: int
    op: str
    task: int
    start: int
    call: Call
    told: bool = False
    gone: bool = False


class Side:
    """A program on one service.

    Args:
      program: To be run.
      service: Not started.
    """

    def __init__(self, program: Program, service: Service) -> None:
        self.program = program
        self.service = service
        self.names: dict[int, str] = {STRANGER: "stranger"}
        self.beating: dict[int, Task] = {}
        self.version = 0
        self._version_before = 0
        self._step = 0
        self._starts: dict[int, int] = {}
        self._tasks: dict[tuple[int, int], Task] = {}
        self._made: list[_Made] = []
        self._first_version = 0
        self._answers: dict[int, Answer] = {}

    async def start(self) -> None:
        """Starts the service, and learns its incarnation."""
        self.wire = Wire(await self.service.start(self.program.options))
        outcome = await self.wire.call("TryGetKeyValue", pb.TryGetKeyValueRequest()).outcome()
        assert outcome.wrong_service is not None, outcome
        self.wire.service_incarnation = outcome.wrong_service
        self.names[outcome.wrong_service] = "SI"
        self.names[outcome.wrong_service ^ 1] = "not SI"

    async def stop(self) -> None:
        """Ends the service and all calls."""
        if hasattr(self, "wire"):
            await self.wire.close()
        await self.service.stop()

    # --- steps -----------------------------------------------------------------------------------

    def take(self, number: int, step: Step) -> None:
        """Begins a step that takes no time; nothing is waited for."""
        self.begin(number)
        last = self._starts.setdefault(step.task, 0)
        match step.op:
            case "restart":
                self._starts[step.task] = last + 1
                self._make(number, step, last + 1, self._task(step.task, last + 1).register())
            case "hang_up":
                waiting = [made for made in self._waiting() if made.task == step.task]
                if waiting:
                    self._hang_up(waiting[-1 if step["which"] == "newest" else 0])
            case "kill":
                for made in self._waiting():
                    if (made.task, made.start) == (step.task, last):
                        self._hang_up(made)
            case _:
                start = max(last - step.back, 0)
                incarnation = self.wire.service_incarnation
                if step.get("wrong_service"):
                    self.wire.service_incarnation ^= 1
                call = self._call(self._task(step.task, start), step)
                self.wire.service_incarnation = incarnation
                self._make(number, step, start, call)

    def begin(self, number: int) -> None:
        """Begins a step."""
        self._step = number
        self._version_before = self.version
        self._answers = {}

    def beat(self, but: Sequence[int] = ()) -> None:
        """A heartbeat of everybody who is registered, except some."""
        for number, task in self.beating.items():
            if number not in but:
                task.heartbeat()

    def forget(self, silent: Sequence[int]) -> None:
        """These will not beat any more until they register."""
        for number in silent:
            self.beating.pop(number, None)

    def _task(self, number: int, start: int) -> Task:
        task = self._tasks.get((number, start))
        if task is None:
            incarnation = 10**15 + 1000 * (number % 100) + start
            self.names[incarnation] = f"task {number} start {start}"
            task = self._tasks[number, start] = Task(self.wire, number, incarnation)
        return task

    def _call(self, task: Task, step: Step) -> Call:
        match step.op:
            case "register":
                return task.register()
            case "heartbeat":
                return task.heartbeat(STRANGER if step["stranger"] else None)
            case "poll":
                return task.poll()
            case "report":
                return task.report(step["code"], step["message"])
            case "shutdown":
                return task.shutdown()
            case "watch":
                versions = {"none": -1, "latest": self.version, "first": self._first_version}
                return task.watch(versions[step["version"]])
            case "insert":
                value = step["value"].encode("latin-1")
                return task.insert(step["key"], value, overwrite=step["overwrite"])
            case "get":
                return task.get(step["key"])
            case "try_get":
                return task.try_get(step["key"])
            case "increment":
                return task.increment(step["key"], step["by"])
            case "directory":
                return task.directory(step["key"])
            case "delete":
                return task.delete(step["key"], is_directory=step["is_directory"])
            case "barrier":
                return task.barrier(
                    self._barrier_id(step),
                    timeout_s=step["timeout_s"],
                    tasks=step["tasks"],
                    counter=step["counter"],
                )
            case "cancel_barrier":
                return task.cancel_barrier(self._barrier_id(step), counter=step["counter"])
            case "alive":
                return task.alive(step["tasks"])
        raise AssertionError(step.op)

    def _barrier_id(self, step: Step) -> str:
        barrier_id: str = step["barrier_id"]
        return barrier_id.replace("{SI}", str(self.wire.service_incarnation))

    def _make(self, number: int, step: Step, start: int, call: Call) -> None:
        self._made.append(_Made(number, step.op, step.task, start, call))

    def _waiting(self) -> list[_Made]:
        return [made for made in self._made if not made.told and not made.gone]

    def _hang_up(self, made: _Made) -> None:
        made.gone = True
        made.call.cancel()

    # --- observations ------------------------------------------------------------------------------

    async def observe(self) -> Observation:
        """What was answered since the step began, and the states of the tasks.

        Raises:
          Unobservable: there is no answer.
        """
        outcome = await self._ask("WatchTasks", pb.WatchTasksRequest(version_number=-1))
        if not outcome.ok:
            raise Unobservable(outcome.text(self.names))
        tasks: dict[int, TaskSeen] = outcome.answer["tasks"]
        self.version = outcome.answer["version"]
        self._first_version = self._first_version or self.version
        states = {
            number: f"{tasks[number].state} {self.names.get(tasks[number].incarnation)}"
            for number in sorted(tasks)
        }
        for made in self._waiting():
            if not made.call.done:
                continue
            made.told = True
            ended = await made.call.outcome()
            self._answers[made.number] = answer(
                made.op,
                ended,
                self.names,
                states=states,
                # A picture taken in the midst of several changes.
                arbitrary=made.op == "watch"
                and made.number < self._step
                and self.version > self._version_before + 1,
            )
            if made.op in ("register", "restart") and ended.ok:
                self.beating[made.task] = self._tasks[made.task, made.start]
        picture = answer("watch", outcome, self.names, states=states)
        return Observation(dict(self._answers), self.version, states, picture)

    def count(self, counts: Counter[tuple[str, str]]) -> None:
        """Counts the calls by what they came to."""
        for made in self._made:
            if made.gone:
                counts[made.op, "hung up"] += 1
            elif not made.told:
                counts[made.op, "pending"] += 1

    async def inventory(self) -> dict[str, str]:
        """What is left at the end: all keys that the program may know, and counters of its barriers."""
        steps = self.program.steps
        keys = sorted({step["key"] for step in steps if step.get("key") is not None})
        ids = sorted({self._barrier_id(step) for step in steps if step.get("barrier_id")})
        requests: dict[str, tuple[str, Any]] = {}
        for key in keys:
            requests[f"key {key!r}"] = ("TryGetKeyValue", pb.TryGetKeyValueRequest(key=key))
            requests[f"directory {key!r}"] = (
                "GetKeyValueDir",
                pb.GetKeyValueDirRequest(directory_key=key),
            )
        for each in ids:
            # Refused, with the counter that the service has.
            requests[f"barrier {self.names_in(each)}"] = (
                "CancelBarrier",
                pb.CancelBarrierRequest(barrier_id=each, counter=-5),
            )
        outcomes = await asyncio.gather(*(self._ask(*each) for each in requests.values()))
        return {
            what: answer("left", outcome, self.names, states={}).text
            for what, outcome in zip(requests, outcomes, strict=True)
        }

    def names_in(self, text: str) -> str:
        """The text with the service's incarnation by its name."""
        return text.replace(str(self.wire.service_incarnation), "{SI}")

    async def _ask(self, method: str, request: Any) -> Outcome:
        request.incarnations.CopyFrom(
            pb.Incarnations(service_incarnation=self.wire.service_incarnation)
        )
        try:
            outcome = await self.wire.call(method, request).outcome(ANSWER_WITHIN_S)
        except StillPending as error:
            raise Unobservable(str(error)) from error
        if outcome.code is Code.UNAVAILABLE:
            raise Unobservable(outcome.message)
        return outcome


async def run(
    program: Program,
    services: tuple[Service, Service],
    active: asyncio.Semaphore,
    patience: Patience,
) -> Run:
    """Runs a program.

    Args:
      program: What to run.
      services: Fresh ones; the first is the standard.
      active: Held while the program keeps the machine busy; else other programs delay its steps.
      patience: How long to wait.
    """
    sides = (Side(program, services[0]), Side(program, services[1]))
    try:
        async with active:
            await asyncio.gather(*(side.start() for side in sides))
        return await _Execution(program, sides, active, patience).run()
    finally:
        await asyncio.gather(*(side.stop() for side in sides))


class _Execution:
    def __init__(
        self,
        program: Program,
        sides: tuple[Side, Side],
        active: asyncio.Semaphore,
        patience: Patience,
    ) -> None:
        self._program = program
        self._sides = sides
        self._active = active
        self._patience = patience
        self._result = Run()
        self._several_at_once = False
        self._connected: frozenset[int] = frozenset()
        self._killed: set[int] = set()
        self._last_beat = 0.0
        self._hurries = program.timed and (
            SHORT_S in (program.register_timeout_s, program.shutdown_timeout_s)
            or any(
                step.op == "shutdown" or step.get("timeout_s") == SHORT_S for step in program.steps
            )
        )

    async def run(self) -> Run:
        async with contextlib.AsyncExitStack() as place:
            await place.enter_async_context(self._active)
            since = self._last_beat = time.monotonic()
            for number, step in enumerate(self._program.steps):
                timed = step.op in ("timeouts", "silence")
                if timed:
                    await place.aclose()
                    await self._let_time_pass(number, step)
                    await place.enter_async_context(self._active)
                    since = time.monotonic()
                else:
                    for side in self._sides:
                        side.take(number, step)
                    self._note_life(step)
                self._result.steps += 1
                if not await self._agree(number, step):
                    break
                self._beat_if_due()
                if self._hurries and time.monotonic() - since > BETWEEN_TIMED_STEPS_S:
                    self._result.late = True
                    break
            else:
                await self._compare_what_is_left()
        self._sides[0].count(self._result.counts)
        return self._result

    def _note_life(self, step: Step) -> None:
        if step.op == "kill":
            self._killed.add(step.task)
        elif step.op in ("register", "restart"):
            self._killed.discard(step.task)

    def _beat_if_due(self) -> None:
        elapsed = time.monotonic() - self._last_beat
        if self._program.timed and elapsed > BEAT_EVERY_S:
            self._beat()

    def _beat(self, but: Sequence[int] = ()) -> None:
        now = time.monotonic()
        self._result.late |= now - self._last_beat > LATEST_BEAT_S
        self._last_beat = now
        for side in self._sides:
            side.beat(but)

    async def _let_time_pass(self, number: int, step: Step) -> None:
        for side in self._sides:
            side.begin(number)
        self._beat()  # Deaths count from here.
        silent: tuple[int, ...] = ()
        duration_s = TIMEOUTS_S
        if step.op == "silence":
            silent = (*step["silent"], *self._killed)
            duration_s = SILENCE_S
        end = time.monotonic() + duration_s
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, BEAT_EVERY_S))
            self._beat(silent)
        for side in self._sides:
            side.forget(silent)

    async def _agree(self, number: int, step: Step) -> bool:
        began = time.monotonic()
        await asyncio.sleep(self._patience.first_s)
        pause_s = 0.002
        while True:
            seen = await self._observations(number)
            if seen is None:
                return False
            one, other = seen
            if same(one, other, loose=False):
                break
            elapsed = time.monotonic() - began
            self._several_at_once |= self._several(one, other)
            enough = elapsed > self._patience.last_s / 4
            if enough and self._several_at_once and same(one, other, loose=True):
                self._result.loose += 1
                break
            if elapsed > self._patience.last_s:
                self._result.difference = Difference(number, (_texts(one), _texts(other)))
                return False
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
            self._beat_if_due()
        self._several_at_once |= self._several(one, other)
        self._connected = one.connected
        for call, each in one.answers.items():
            op = self._program.steps[call].op
            self._result.counts[op, each.code.name] += 1
        if step.op not in ("hang_up", "kill") and number not in one.answers:
            self._result.counts[step.op, "waits or passes"] += 1
        return True

    def _several(self, one: Observation, other: Observation) -> bool:
        """Whether several tasks are in error, or have left in this step: in any order, that is."""
        return any(
            seen.in_error > 1 or len(self._connected - seen.connected) > 1 for seen in (one, other)
        )

    async def _observations(self, number: int) -> tuple[Observation, Observation] | None:
        seen = await asyncio.gather(
            *(side.observe() for side in self._sides), return_exceptions=True
        )
        if any(isinstance(each, Unobservable) for each in seen):
            texts = [
                {"service": str(each) if isinstance(each, Unobservable) else "answers"}
                for each in seen
            ]
            self._result.difference = Difference(number, (texts[0], texts[1]))
            return None
        for each in seen:
            if isinstance(each, BaseException):
                raise each
        one, other = seen
        assert isinstance(one, Observation)
        assert isinstance(other, Observation)
        return one, other

    async def _compare_what_is_left(self) -> None:
        number = len(self._program.steps)
        one, other = await asyncio.gather(*(side.inventory() for side in self._sides))
        if one != other:
            self._result.difference = Difference(number, (one, other))


def _texts(seen: Observation) -> dict[str, str]:
    texts = {f"answer to step {call}": each.text for call, each in sorted(seen.answers.items())}
    return {**texts, "tasks": seen.picture.text}
