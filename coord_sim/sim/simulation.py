"""Runs a program under a schedule, in virtual time, and records what the processes saw."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from checker.history import Crash, Event, Header, History, Leave
from coord_sim.core.effects import Effect, RoundEnded, StateChanged
from coord_sim.core.identifiers import CallId, seconds
from coord_sim.core.messages import AliveTasks, TaskState
from coord_sim.core.semantics import SEMANTICS
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.errors import ProgramError
from coord_sim.faults import Fault, Slow
from coord_sim.moments import SERVICE
from coord_sim.mutants import service_mutants
from coord_sim.recording import AnswerTexts
from coord_sim.schedule import Place, Schedule
from coord_sim.sim.disk import Disk
from coord_sim.sim.entropy import Entropy, Tape
from coord_sim.sim.event_queue import Ending, EventQueue
from coord_sim.sim.garbage import rare_collections
from coord_sim.sim.gate import Gate
from coord_sim.sim.guard import STEPS_PER_INSTANT_MAX, ProgramGuard
from coord_sim.sim.injection import Injector
from coord_sim.sim.lifetime import Lifetime, Member
from coord_sim.sim.live_devices import LiveDevices, LiveSet
from coord_sim.sim.network import Network
from coord_sim.sim.process import Process, Program
from coord_sim.sim.run import CRASHED, LEFT, NEVER_STARTED, RUNNING, End, LogLine, Run
from coord_sim.sim.service_host import Observer, ServiceFactory, ServiceHost
from coord_sim.sim.wrong_blocks import wrong_blocks

if TYPE_CHECKING:
    from coord_sim.sim.data_plane import DataPlane, Devices

KILLED: Final = "killed"
"""Cause of the crashes that a schedule asks for."""


def simulate(
    program: Program,
    schedule: Schedule,
    *,
    service: ServiceFactory | None = None,
    observer: Observer | None = None,
    tape: Tape | None = None,
) -> Run:
    """Runs `program` in every process. The same schedule gives the same history, byte for byte.

    Args:
      program: What every process runs.
      schedule: Everything else.
      service: Makes the service, in place of the core's or of the schedule's mutant.
      observer: Looks at the service after each step.
      tape: Records all draws, or is played in place of the seed.

    Raises:
      ProgramError: the program does something that the simulator cannot follow.
    """
    return Simulation(program, schedule, service=service, observer=observer, tape=tape).run()


class Simulation:
    """A run that can be stepped, looked at and interfered with.

    Takes the arguments of `simulate`, and:

    Args:
      is_open: Whether it goes on, up to the limit, when everybody has ended: somebody may be started
        again from outside.

    Attributes:
      schedule: What is run.
      queue: The virtual time.
      network: The links between members.
      events: What the processes saw so far.
      happened: To be called with something that conditions of faults name.
    """

    def __init__(
        self,
        program: Program,
        schedule: Schedule,
        *,
        service: ServiceFactory | None = None,
        observer: Observer | None = None,
        tape: Tape | None = None,
        is_open: bool = False,
    ) -> None:
        try:
            inspect.signature(program).bind(None)
        except TypeError as error:
            raise ProgramError(
                f"a program is an async function that takes a Process: {error}"
            ) from None
        self.schedule = schedule
        self.queue = EventQueue()
        self.entropy = Entropy(schedule.seed, tape)
        self.network = Network(schedule, self.queue, self.entropy)
        self.events: list[Event] = []
        self.texts = AnswerTexts()
        self.operations = 0
        self.tasks = schedule.task_count
        self.participants: tuple[Any, ...] = tuple(range(self.tasks))
        self.client_timeout_ns = seconds(
            schedule.client_heartbeat_timeout_s or schedule.heartbeat_timeout_s
        )
        self.members = [Member(self.queue) for _ in range(schedule.processes)]
        self.kind_of_block: type[LiveDevices] = wrong_blocks.get(schedule.mutant, LiveDevices)
        self.guard = ProgramGuard()
        self.steps_per_instant_max = STEPS_PER_INSTANT_MAX
        self._program = program
        self._limit_ns = seconds(schedule.limit_s)
        self._ending = Ending()
        self._is_open = is_open
        self._calls = 0
        self._starts = [0] * schedule.processes
        self._lifetimes: list[Lifetime | None] = [None] * schedule.processes
        self._running = 0
        self._starts_to_come = 0
        self._places: dict[int, Place] = {place.process: place for place in schedule.places}
        self._disks: dict[int, Disk] = {}
        self._ends: dict[int, End] = {}
        self._log: list[LogLine] = []
        self._reached: Counter[str] = Counter()
        self._live_set: tuple[AliveTasks, LiveSet] | None = None
        self._data_plane: DataPlane | None = None
        self._injector = Injector(self)
        self.happened = self._injector.happened
        factory = service or service_mutants.get(schedule.mutant, CoordinationService)
        self._hosts = [self._host(number, factory, observer) for number in range(schedule.services)]
        self._begin()

    # --- driving it ----------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The virtual time, in seconds since the run began."""
        return self.queue.now_ns / 1e9

    @property
    def is_over(self) -> bool:
        """Whether everybody has ended, or the limit is reached."""
        return self._ending.is_over or self.queue.now_ns >= self._limit_ns

    @property
    def live(self) -> tuple[int, ...]:
        """The processes that run now."""
        return tuple(p for p, lifetime in enumerate(self._lifetimes) if lifetime is not None)

    def service(self, number: int = 0) -> CoordinationService | None:
        """The core of a service, to look at; None while it does not run."""
        return self._hosts[number].service

    def step(self) -> bool:
        """Runs one event; False when the run is over."""
        if self._ending.is_over:
            return False
        with self.guard:
            return self.queue.step(self._limit_ns)

    def run_until(self, time_s: float) -> None:
        """Runs all events up to a virtual time."""
        until_ns = min(seconds(time_s), self._limit_ns)
        with self.guard:
            self.queue.run(until_ns, self._ending)
        if not self._ending.is_over and self.queue.now_ns < until_ns:
            self.queue.now_ns = until_ns

    def inject(self, fault: Fault) -> None:
        """Adds a fault: now, if its time is over.

        Raises:
          ScheduleError: it cannot be.
        """
        self.schedule.check(fault)
        self._injector.add(fault)

    def run(self) -> Run:
        """Runs to the end."""
        with self.guard, rare_collections():
            self.queue.run(self._limit_ns, self._ending)
        return self.result()

    def result(self) -> Run:
        """What came of it so far."""
        return Run(
            schedule=self.schedule,
            history=self.history(),
            finished=self._ending.is_over,
            ends=tuple(self._end_of(process) for process in range(self.schedule.processes)),
            log=tuple(self._log),
            reached=dict(sorted(self._reached.items())),
            disks=tuple(dict(self._disks.get(p, ())) for p in range(self.schedule.processes)),
            missed=self._injector.missed(),
            events=self.queue.ran,
            end_s=self.now_s,
        )

    def history(self) -> History:
        """What the processes saw so far."""
        header = Header(
            source="simulator",
            clock="virtual",
            participants=tuple(range(max(self.tasks, self.schedule.processes))),
            details={"schedule": repr(self.schedule)},
        )
        return History(header, self.events, faults=tuple(self._injector.record))

    # --- the beginning -------------------------------------------------------------------------

    def _host(self, number: int, factory: ServiceFactory, observer: Observer | None) -> ServiceHost:
        schedule = self.schedule
        config = ServiceConfig(
            tasks=self.tasks,
            recoverable=schedule.recoverable,
            heartbeat_timeout_ns=seconds(schedule.heartbeat_timeout_s),
            register_timeout_ns=seconds(schedule.register_timeout_s),
            shutdown_timeout_ns=seconds(schedule.shutdown_timeout_s),
            semantics=SEMANTICS[schedule.semantics],
            durable=schedule.durable,
        )
        stream = self.entropy.stream("service" if number == 0 else f"service/{number}")
        return ServiceHost(
            config,
            factory,
            queue=self.queue,
            stream=stream,
            watcher=self,
            observer=observer,
            death_order=schedule.death_order,
        )

    def _begin(self) -> None:
        schedule = self.schedule
        for number, host in enumerate(self._hosts):
            if number > 0 or schedule.service_in is None:
                host.start()
        for fault in schedule.faults:
            self._injector.add(fault)
        for process in range(schedule.processes):
            start_s = schedule.start_s(process)
            if start_s is not None:
                self._starts_to_come += 1
                self.queue.at(seconds(start_s), self._start_first, process)

    def _start_first(self, process: int) -> None:
        self._starts_to_come -= 1
        self._start(process)

    # --- processes -----------------------------------------------------------------------------

    def task_of(self, process: int) -> int:
        """Which task a process says it is."""
        place = self._places.get(process)
        return process if place is None else place.task

    def _start(self, process: int) -> None:
        if process == self.schedule.service_in:
            self._hosts[0].start()
        number = self._starts[process]
        self._starts[process] += 1
        self._ends.pop(process, None)
        place = self._places.get(process)
        host = self._hosts[0 if place is None else place.service]
        lifetime = Lifetime(self, process, number, host)
        self._lifetimes[process] = lifetime
        self._running += 1
        lifetime.begin()

    def crash(self, member: int | str) -> None:
        """A member dies."""
        if member == SERVICE:
            self._hosts[0].crash()
            return
        lifetime = self._lifetimes[cast("int", member)]
        if lifetime is not None:
            for pending in ("live_processes", "barrier"):
                if lifetime.pending(pending):
                    self.reach(f"killed in {pending}")
            self.end(lifetime, KILLED)

    def restart(self, member: int | str) -> None:
        """A member starts again, unless it runs."""
        if member == SERVICE:
            self._hosts[0].start()
        elif self._lifetimes[cast("int", member)] is None:
            self._start(cast("int", member))
        self._look_for_the_end()

    def end(self, lifetime: Lifetime, cause: str | None) -> None:
        """Ends a lifetime: by a crash with a cause, or by itself."""
        if not lifetime.is_alive:
            return
        now_ns, process, number = self.queue.now_ns, lifetime.process, lifetime.number
        self._lifetimes[process] = None
        self._running -= 1
        if self._data_plane is not None:
            self._data_plane.died(process, lifetime.incarnation)
        lifetime.end()
        disk = self._disks.get(process)
        if cause is None:
            self.events.append(Leave(time_ns=now_ns, process=process, lifetime=number))
            self._ends[process] = End(process, LEFT, at_s=now_ns / 1e9)
        else:
            self.events.append(Crash(time_ns=now_ns, process=process, lifetime=number, cause=cause))
            self._ends[process] = End(process, CRASHED, cause, at_s=now_ns / 1e9)
            if disk is not None:
                disk.crash()
        if process == self.schedule.service_in:
            self._hosts[0].crash()
        if cause is not None:
            self.happened("crash", process, "")
        self._look_for_the_end()

    def _look_for_the_end(self) -> None:
        if self._running == 0 and self._starts_to_come == 0 and not self._is_open:
            if self._injector.restarts_to_come == 0:
                self._ending.is_over = True

    def _end_of(self, process: int) -> End:
        lifetime = self._lifetimes[process]
        if lifetime is not None:
            return End(process, RUNNING, waits_for=lifetime.waits_for())
        return self._ends.get(process, End(process, NEVER_STARTED))

    # --- what faults do ------------------------------------------------------------------------

    def pause(self, member: int | str, for_ns: int) -> None:
        """A member stands still for a while."""
        for gate, _ in self._parts(member):
            gate.pause(for_ns)

    def slow_down(self, fault: Slow) -> None:
        """A member is slow for a while."""
        for gate, _ in self._parts(fault.process):
            gate.slow_down(seconds(fault.for_s), seconds(fault.delay_s), fault.factor)

    def skew(self, member: int | str, offset_ns: int, drift: float) -> None:
        """A member's clock changes."""
        for _, skew in self._parts(member):
            skew(offset_ns, drift)

    def _parts(self, member: int | str) -> Iterator[tuple[Gate, Callable[[int, float], None]]]:
        """The gate and the clock of a member, and those of the service that runs in it."""
        host = self._hosts[0]
        if member == SERVICE:
            yield host.gate, host.skew
            return
        process = cast("int", member)
        yield self.members[process].gate, partial(self._skew_process, process)
        if process == self.schedule.service_in:
            yield host.gate, host.skew

    def _skew_process(self, process: int, offset_ns: int, drift: float) -> None:
        self.members[process].clock.skew(self.queue.now_ns, offset_ns, drift)
        lifetime = self._lifetimes[process]
        if lifetime is not None:
            lifetime.rearm()

    def reset(self, process: int) -> None:
        """The connection of a process breaks."""
        lifetime = self._lifetimes[process]
        if lifetime is not None:
            lifetime.reset()

    def lose_connections(self, host: ServiceHost) -> None:
        """A service is gone, and with it all connections to it."""
        for lifetime in list(self._lifetimes):
            if lifetime is not None and lifetime.calls_at(host):
                lifetime.reset()

    # --- what lifetimes ask for ----------------------------------------------------------------

    def new_call(self) -> CallId:
        """A fresh call id."""
        self._calls += 1
        return CallId(self._calls)

    def coroutine(self, process: Process) -> Coroutine[Any, Any, None]:
        """The program of a process, about to begin."""
        coroutine = self._program(process)
        if not hasattr(coroutine, "send"):
            raise ProgramError("a program is an async function that takes a Process")
        return cast("Coroutine[Any, Any, None]", coroutine)

    def live_set(self, answer: AliveTasks) -> LiveSet:
        """An answer as a mapping, one for all who got it."""
        if self._live_set is None or self._live_set[0] is not answer:
            self._live_set = (answer, LiveSet(dict(answer.alive)))
        return self._live_set[1]

    def disk(self, process: int) -> Disk:
        """The disk of a process."""
        disk = self._disks.get(process)
        if disk is None:
            disk = self._disks[process] = Disk()
        return disk

    def devices(self, lifetime: Lifetime) -> Devices:
        """The data plane, as a lifetime sees it; few programs use it."""
        from coord_sim.sim.data_plane import DataPlane, Devices

        schedule = self.schedule
        if self._data_plane is None:
            self._data_plane = DataPlane(
                self.queue,
                stream=self.entropy.stream("data plane"),
                latency_s=(schedule.latency_min_s, schedule.latency_max_s),
                held_until_ns=self._held_until_ns,
                reached=self.reach,
                mutant=schedule.mutant,
            )
        return Devices(
            lifetime.process,
            lifetime.incarnation,
            self._data_plane,
            lifetime,
            abort_collectives=schedule.abort_collectives,
            live=lifetime.latest_live_set,
        )

    def _held_until_ns(self, sender: int, receiver: int, now_ns: int) -> int:
        paused_ns = max(self.members[p].gate.paused_until_ns for p in (sender, receiver))
        return max(now_ns, paused_ns, self.network.held_until_ns(sender, receiver, now_ns))

    # --- what is noted -------------------------------------------------------------------------

    def log(self, lifetime: Lifetime, text: str) -> None:
        """Keeps a line of a program."""
        self._log.append(LogLine(self.now_s, lifetime.process, lifetime.number, text))

    def reach(self, condition: str) -> None:
        """Counts a condition that was reached."""
        self._reached[condition] += 1

    def note(self, effect: Effect) -> None:
        """Counts what the effects of a service mean to a run."""
        if self._places or self.tasks > len(self._lifetimes):
            return  # Tasks are not processes, here.
        if isinstance(effect, StateChanged):
            if effect.state is TaskState.ERROR:
                lifetime = self._lifetime_of(effect.task, effect.incarnation)
                self.reach("declared dead" if lifetime is None else "declared dead while alive")
        elif isinstance(effect, RoundEnded):
            missing = len(effect.tasks) - len(effect.answer.alive)
            self.reach("round without some" if missing else "round with all")
            if any(self._lifetime_of(*member) is None for member in effect.answer.alive):
                self.reach("round that counts the dead")

    def _lifetime_of(self, task: int, incarnation: int) -> Lifetime | None:
        lifetime = self._lifetimes[task]
        return lifetime if lifetime is not None and lifetime.incarnation == incarnation else None
