"""Runs a program under a schedule, in virtual time, and records what the processes saw."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

from checker.history import (
    Crash,
    Enter,
    Event,
    Exit,
    Header,
    History,
    Invoke,
    Leave,
    Start,
)
from coord_sim import faults
from coord_sim.core.client import CoordinationClient
from coord_sim.core.effects import ClientEffect, Connected, Effect, Fatal, Reply, Send
from coord_sim.core.identifiers import CallId, TaskId, seconds
from coord_sim.core.messages import Answer, Request
from coord_sim.core.semantics import SEMANTICS
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.errors import ProgramError
from coord_sim.recording import AnswerTexts, operation_of, response
from coord_sim.schedule import Schedule
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.event_queue import EventQueue
from coord_sim.sim.network import Network
from coord_sim.sim.process import Client, Process, Program, Wait

KILLED = "killed"
"""Cause of the crashes that a schedule asks for."""


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a schedule.

    Attributes:
      schedule: What was run.
      history: What the processes saw.
      finished: Whether every process came to an end by itself or by a crash before the limit.
    """

    schedule: Schedule
    history: History
    finished: bool


def simulate(program: Program, schedule: Schedule) -> Run:
    """Runs `program` in every process. The same schedule gives the same history, byte for byte."""
    return _Simulation(program, schedule).run()


class _Simulation:
    def __init__(self, program: Program, schedule: Schedule) -> None:
        self.program = program
        self.schedule = schedule
        self.queue = EventQueue()
        self.entropy = Entropy(schedule.seed)
        self.events: list[Event] = []
        self.texts = AnswerTexts()
        self.operations = 0
        self._network = Network(schedule, self.queue, self.entropy.stream("network"))
        self._calls = 0
        self._callers: dict[CallId, _Lifetime] = {}
        self._starts = [0] * schedule.processes
        self._lifetimes: list[_Lifetime | None] = [None] * schedule.processes
        self._restarts_to_come = sum(isinstance(f, faults.Restart) for f in schedule.faults)
        timeout_ns = seconds(schedule.heartbeat_timeout_s)
        config = ServiceConfig(
            tasks=schedule.processes,
            recoverable=schedule.recoverable,
            heartbeat_timeout_ns=timeout_ns,
            semantics=SEMANTICS[schedule.semantics],
        )
        incarnation = self.entropy.stream("service").incarnation()
        self._service = CoordinationService(config, incarnation, 0)

    def run(self) -> Run:
        for process in range(self.schedule.processes):
            self._start(process)
        for fault in self.schedule.faults:
            act = self._crash if isinstance(fault, faults.Crash) else self._restart
            self.queue.at(seconds(fault.at_s), lambda act=act, p=fault.process: act(p))  # type: ignore[misc]
        self._arm_service()
        self.queue.run(seconds(self.schedule.limit_s), self._is_over)
        header = Header(
            source="simulator",
            clock="virtual",
            participants=tuple(range(self.schedule.processes)),
            details={"schedule": repr(self.schedule)},
        )
        return Run(self.schedule, History(header, self.events), self._is_over())

    def _is_over(self) -> bool:
        return self._restarts_to_come == 0 and not any(self._lifetimes)

    # --- processes -----------------------------------------------------------------------------

    def _start(self, process: int) -> None:
        number = self._starts[process]
        self._starts[process] += 1
        lifetime = _Lifetime(self, process, number)
        self._lifetimes[process] = lifetime
        lifetime.begin()

    def _crash(self, process: int) -> None:
        lifetime = self._lifetimes[process]
        if lifetime is not None:
            self.end(lifetime, KILLED)

    def _restart(self, process: int) -> None:
        self._restarts_to_come -= 1
        if self._lifetimes[process] is None:
            self._start(process)

    def end(self, lifetime: _Lifetime, cause: str | None) -> None:
        """Ends a lifetime: by a crash with a cause, or by itself."""
        self._lifetimes[lifetime.process] = None
        now_ns, process, number = self.queue.now_ns, lifetime.process, lifetime.number
        if cause is None:
            self.events.append(Leave(time_ns=now_ns, process=process, lifetime=number))
        else:
            self.events.append(Crash(time_ns=now_ns, process=process, lifetime=number, cause=cause))
        calls = lifetime.close()
        self._network.to_service(process, lambda: self._hang_up(calls))

    def _hang_up(self, calls: list[CallId]) -> None:
        for call in calls:
            self._service.hang_up(call)
            self._callers.pop(call, None)

    # --- messages ------------------------------------------------------------------------------

    def new_call(self) -> CallId:
        self._calls += 1
        return CallId(self._calls)

    def send(self, lifetime: _Lifetime, call: CallId, request: Request) -> None:
        self._callers[call] = lifetime

        def arrive() -> None:
            self._carry_out(self._service.handle(call, request, self.queue.now_ns))

        self._network.to_service(lifetime.process, arrive)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._reply(effect.call, effect.answer)

    def _reply(self, call: CallId, answer: Answer) -> None:
        lifetime = self._callers.pop(call, None)
        if lifetime is not None:
            self._network.to_process(lifetime.process, lambda: lifetime.receive(call, answer))

    def _arm_service(self) -> None:
        def tick() -> None:
            self._carry_out(self._service.advance(self.queue.now_ns))
            self._arm_service()

        self.queue.at(self._service.next_deadline_ns(), tick)


class _Lifetime:
    """One start of one process: its client, its program, its open calls."""

    def __init__(self, simulation: _Simulation, process: int, number: int) -> None:
        self.process = process
        self.number = number
        self._simulation = simulation
        self._queue = simulation.queue
        self._alive = True
        self._began_ns = self._queue.now_ns
        self._random = simulation.entropy.stream(f"process/{process}/{number}")
        schedule = simulation.schedule
        timeout_s = schedule.client_heartbeat_timeout_s or schedule.heartbeat_timeout_s
        self._client = CoordinationClient(
            TaskId(process),
            self._random.incarnation(),
            heartbeat_timeout_ns=seconds(timeout_s),
            init_timeout_ns=seconds(simulation.schedule.limit_s),
            new_call=simulation.new_call,
        )
        self._open: dict[CallId, tuple[int, str, Wait[Answer]]] = {}
        self._own_calls: list[CallId] = []
        self._program: Coroutine[Any, Any, None] | None = None

    def begin(self) -> None:
        self._carry_out(self._client.connect(self._queue.now_ns))

    def close(self) -> list[CallId]:
        """Ends the program; returns the calls that are left open."""
        self._alive = False
        if self._program is not None:
            with contextlib.suppress(RuntimeError):  # It awaits on its way out: the dead cannot.
                self._program.close()
        return [*self._open, *self._own_calls]

    # --- the client's half ---------------------------------------------------------------------

    def receive(self, call: CallId, answer: Answer) -> None:
        """An answer has arrived."""
        if not self._alive:
            return
        opened = self._open.pop(call, None)
        if opened is None:
            if call in self._own_calls:
                self._own_calls.remove(call)
            self._carry_out(self._client.receive(call, answer, self._queue.now_ns))
            return
        operation, name, wait = opened
        self._simulation.events.append(
            response(
                answer,
                self._simulation.texts,
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                operation=operation,
                name=name,
            )
        )
        wait.happen(answer)

    def _carry_out(self, effects: list[ClientEffect]) -> None:
        for effect in effects:
            match effect:
                case Send(call, request):
                    self._own_calls.append(call)
                    self._simulation.send(self, call, request)
                case Connected():
                    self._connected()
                case Fatal(reason):
                    self._simulation.end(self, f"client ended the process: {reason}")
                    return
        self._arm_client()

    def _arm_client(self) -> None:
        deadline_ns = self._client.next_deadline_ns()
        if deadline_ns is None:
            return

        def wake() -> None:
            # Deadlines move; one that has moved on is found by the wake-up armed when it did.
            now_deadline_ns = self._client.next_deadline_ns()
            if self._alive and now_deadline_ns is not None:
                if now_deadline_ns <= self._queue.now_ns:
                    self._carry_out(self._client.advance(self._queue.now_ns))

        self._queue.at(deadline_ns, wake)

    def _connected(self) -> None:
        simulation = self._simulation
        simulation.events.append(
            Start(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                incarnation=self._client.incarnation,
                since_ns=self._began_ns,
            )
        )
        assert self._client.caller is not None
        client = Client(self.process, self._client.caller, self)
        participants = range(simulation.schedule.processes)
        process = Process(self.process, participants, client, self, self._random)
        self._program = _coroutine(simulation.program(process))
        self._step()

    # --- the program's half --------------------------------------------------------------------

    def _step(self) -> None:
        """Runs the program up to its next wait."""
        assert self._program is not None
        try:
            waits_for = self._program.send(None)
        except StopIteration:
            self._simulation.end(self, None)
            return
        except Exception as error:
            if isinstance(error, ProgramError):
                raise
            self._simulation.end(self, f"the program raised {type(error).__name__}: {error}")
            return
        if not isinstance(waits_for, Wait):
            raise ProgramError(
                f"the program of process {self.process} awaits {waits_for!r}, which the simulator "
                "does not offer; use process.sleep and process.client"
            )
        waits_for.then(self._resume)

    def _resume(self) -> None:
        if self._alive:
            self._step()

    def call(self, request: Request) -> Wait[Answer]:
        """Sends a request of the program."""
        operation, name = self._record(request)
        call = self._simulation.new_call()
        wait: Wait[Answer] = Wait()
        self._open[call] = (operation, name, wait)
        self._simulation.send(self, call, request)
        return wait

    def _record(self, request: Request) -> tuple[int, str]:
        described = operation_of(request, self._simulation.schedule.processes)
        assert described is not None
        name, arguments = described
        number = self._simulation.operations
        self._simulation.operations += 1
        self._simulation.events.append(
            Invoke(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                id=number,
                operation=name,
                arguments=arguments,
            )
        )
        return number, name

    def sleep(self, delay_ns: int) -> Wait[None]:
        """Lets the program wait."""
        wait: Wait[None] = Wait()
        self._queue.after(delay_ns, lambda: wait.happen(None))
        return wait

    def enter_block(self, block: int, live: Mapping[int, int]) -> None:
        """Records a block's beginning."""
        self._simulation.events.append(
            Enter(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                block=block,
                live=dict(live),
            )
        )

    def exit_block(self, block: int, outcome: str, failed: tuple[int, ...], message: str) -> None:
        """Records a block's end."""
        self._simulation.events.append(
            Exit(
                time_ns=self._queue.now_ns,
                process=self.process,
                lifetime=self.number,
                block=block,
                outcome=outcome,
                failed=failed,
                message=message,
            )
        )


def _coroutine(awaitable: Awaitable[None]) -> Coroutine[Any, Any, None]:
    if not hasattr(awaitable, "send"):
        raise ProgramError("a program is an async function that takes a Process")
    return cast("Coroutine[Any, Any, None]", awaitable)
