"""A rule-based state machine over a simulation: subclass it, and Hypothesis plays the adversary.

    from hypothesis.stateful import invariant

    class MyMachine(CoordinationStateMachine):
        schedule = Schedule(processes=3, semantics="published")

        @invariant()
        def nobody_is_counted_twice(self): ...

    TestMyMachine = MyMachine.TestCase

Everything is synchronous: virtual time passes only in rules. The processes are *puppets*, which do what
rules ask of them; or they run a program of the subclass, and rules only break things.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, TypeVar

from coord_sim.testing.requirements import require_hypothesis

require_hypothesis(__name__)

from hypothesis import strategies as st  # noqa: E402
from hypothesis.stateful import (  # noqa: E402
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)
from hypothesis.strategies import SearchStrategy  # noqa: E402

from checker import Invalid, LiveProcesses, Violation, check  # noqa: E402
from checker.history import History  # noqa: E402
from checker.timeline import timeline  # noqa: E402
from coord_sim.errors import CoordSimError, ProgramError  # noqa: E402
from coord_sim.faults import Crash, Fault, Restart  # noqa: E402
from coord_sim.schedule import Schedule  # noqa: E402
from coord_sim.sim import Process, Simulation  # noqa: E402
from coord_sim.sim.waiting import Wait  # noqa: E402
from coord_sim.testing.scripts import Step  # noqa: E402
from coord_sim.testing.strategies.faults import incidents  # noqa: E402
from coord_sim.testing.strategies.programs import steps  # noqa: E402

T = TypeVar("T")

_LIMIT_S = 1e6
_STEP_S = 1.0


class Asked(Generic[T]):
    """Something that a puppet was asked to do.

    Attributes:
      process: Who was asked.
      is_done: Whether it was done, or ended with an error. Never, if the process dies before.
      error: What it ended with.
    """

    def __init__(self, process: int, operation: Callable[[Process], Awaitable[T]]) -> None:
        self.process = process
        self.is_done = False
        self.error: CoordSimError | None = None
        self._operation = operation
        self._value: T

    @property
    def value(self) -> T:
        """What came back.

        Raises:
          CoordSimError: what it ended with.
          LookupError: it is not done.
        """
        if not self.is_done:
            raise LookupError(f"process {self.process} is not done with {self._operation!r}")
        if self.error is not None:
            raise self.error
        return self._value

    async def do(self, process: Process) -> None:
        """Does it, in the process."""
        try:
            self._value = await self._operation(process)
        except ProgramError:
            raise
        except CoordSimError as error:
            self.error = error
        self.is_done = True

    def __repr__(self) -> str:
        return f"<{self._operation!r} of process {self.process}>"


class _Puppet:
    """One start of a process that waits to be asked."""

    def __init__(self) -> None:
        self._next: Wait[Asked[Any] | None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._next is not None

    def come(self) -> Wait[Asked[Any] | None]:
        self._next = Wait("what the test asks for next")
        return self._next

    def take(self) -> Wait[Asked[Any] | None]:
        taken, self._next = self._next, None
        assert taken is not None, "only who is idle is asked"
        return taken


def _one(
    some: Callable[[CoordinationStateMachine], Sequence[int]],
) -> SearchStrategy[int]:
    """One of some processes: the first from a drawn number on, or any if there are none.

    Rules that have nobody to apply to do nothing, rather than being forbidden: so what was drawn for the
    rules means the same when some of them are left out, and examples shrink well.
    """

    def draw(machine: CoordinationStateMachine) -> SearchStrategy[int]:
        count = machine.schedule.processes

        def nearest(number: int) -> int:
            chosen = some(machine)
            return min(chosen, key=lambda process: (process - number) % count, default=number)

        return st.integers(0, count - 1).map(nearest)

    return st.runner().flatmap(draw)


class CoordinationStateMachine(RuleBasedStateMachine):
    """Processes, a service, and rules that let time pass, break things and ask for operations.

    Rules of a subclass use `ask`, `inject`, `run_until`, `step`, `live`, `idle`, `down` and `history`;
    their own invariants are checked after every rule, as is that all live sets so far are valid. At the
    end nothing goes wrong any more, puppets are told to leave, and all must come to an end. A rule that
    is not wanted is set to None.

    Attributes:
      schedule: The job. Its limit is the machine's business.
      kinds: What else than crashes and restarts may go wrong (`coord_sim.sim.nemesis.KINDS`).
      operations: What puppets are asked to do; a strategy for async functions of a process.
      spec: What live sets must satisfy; None: they are not checked.
      progress_s: In so much virtual time all must come to an end, when nothing goes wrong any more.
      simulation: The simulation of this example.
    """

    schedule: ClassVar[Schedule] = Schedule(processes=3)
    kinds: ClassVar[tuple[str, ...]] = ("pause", "reset", "partition", "slow", "skew")
    operations: ClassVar[SearchStrategy[Step]] = steps()
    spec: ClassVar[LiveProcesses | None] = LiveProcesses()
    progress_s: ClassVar[float] = 60.0

    def __init__(self) -> None:
        super().__init__()
        self._outside = sys.exc_info()[1]
        self._puppets: dict[int, _Puppet] = {}
        schedule = replace(self.schedule, limit_s=_LIMIT_S)
        self.simulation = Simulation(self.program, schedule, is_open=True)
        self.run_until(0.1)  # All that start at once have registered.

    async def program(self, process: Process) -> None:
        """What every process runs: what it is asked for, unless a subclass says otherwise."""
        puppet = self._puppets[process.number] = _Puppet()
        while (asked := await puppet.come()) is not None:
            await asked.do(process)
        await process.client.shutdown()

    # --- what rules use ------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The virtual time."""
        return self.simulation.now_s

    @property
    def processes(self) -> range:
        """All processes."""
        return range(self.schedule.processes)

    @property
    def live(self) -> tuple[int, ...]:
        """Those that run now."""
        return self.simulation.live

    @property
    def down(self) -> tuple[int, ...]:
        """Those that do not run: they have ended, or were not started yet."""
        return tuple(process for process in self.processes if process not in self.live)

    @property
    def idle(self) -> tuple[int, ...]:
        """Puppets that wait to be asked."""
        return tuple(p for p in self.live if p in self._puppets and self._puppets[p].is_idle)

    def history(self) -> History:
        """What the processes saw so far."""
        return self.simulation.history()

    def ask(self, process: int, operation: Callable[[Process], Awaitable[T]]) -> Asked[T]:
        """Asks an idle puppet to do something; it begins at once, and goes on as time passes.

        Args:
          process: One of `idle`.
          operation: An async function of its `Process`, for example a step of `scripts`.
        """
        asked = Asked(process, operation)
        self._tell(process, asked)
        return asked

    def inject(self, fault: Fault) -> None:
        """Lets something go wrong, at its moment, or now if that is over."""
        self.simulation.inject(fault)
        self.run_until(self.now_s)

    def run_until(self, time_s: float, condition: Callable[[], bool] | None = None) -> bool:
        """Lets time pass, until then or until a condition holds; whether it does."""
        if condition is None:
            self.simulation.run_until(time_s)
            return True
        while not condition():
            if self.now_s >= time_s or not self.step():
                return condition()
        return True

    def step(self) -> bool:
        """Lets the next thing happen; False if nothing is left to happen."""
        return self.simulation.step()

    def _tell(self, process: int, asked: Asked[Any] | None) -> None:
        if process not in self.idle:
            raise ValueError(f"process {process} is not idle; those that are: {self.idle}")
        self.simulation.queue.after(0, self._puppets[process].take().happen, asked)
        self.run_until(self.now_s)

    # --- rules ---------------------------------------------------------------------------------

    @rule(tenths=st.integers(1, 50))
    def time_passes(self, tenths: int) -> None:
        """For up to 5 s."""
        self.run_until(self.now_s + tenths / 10)

    @rule(count=st.integers(1, 20))
    def a_few_things_happen(self, count: int) -> None:
        """Events, one by one: messages on their way are stopped between any two of them."""
        for _ in range(count):
            self.step()

    @rule(
        process=_one(lambda self: self.idle),
        operation=st.runner().flatmap(lambda self: self.operations),
    )
    def a_process_is_asked(self, process: int, operation: Step) -> None:
        """An idle process begins an operation."""
        if process in self.idle:
            self.ask(process, operation)

    @rule(process=_one(lambda self: self.live))
    def a_process_crashes(self, process: int) -> None:
        """One that runs."""
        if process in self.live:
            self.inject(Crash(process, self.now_s))

    @rule(process=_one(lambda self: self.down))
    def a_process_starts(self, process: int) -> None:
        """One that has ended, or was not started yet."""
        if process in self.down:
            self.inject(Restart(process, self.now_s))

    @precondition(lambda self: self.kinds)
    @rule(incident=st.runner().flatmap(lambda self: self._incidents()))
    def something_goes_wrong(self, incident: tuple[Fault, ...]) -> None:
        """Something else than a crash; it begins now."""
        for fault in incident:
            self.inject(replace(fault, at_s=self.now_s))

    def _incidents(self) -> SearchStrategy[tuple[Fault, ...]]:
        return incidents(
            self.schedule.processes,
            kinds=self.kinds,
            until_s=0.0,
            heartbeat_timeout_s=self.schedule.heartbeat_timeout_s,
        )

    # --- what must be true ---------------------------------------------------------------------

    @invariant()
    def live_sets_are_valid(self) -> None:
        """All answers so far are what `spec` allows."""
        if self.spec is None:
            return
        history = self.history()
        verdict = check(history, self.spec)
        if isinstance(verdict, Invalid):
            picture = timeline(history, verdict, width=100, focus=True)
            raise Violation(f"{verdict.explain()}\n\n{picture}")

    def teardown(self) -> None:
        """Demands progress, unless something else has failed."""
        if sys.exc_info()[1] is self._outside:
            self.require_progress()

    def require_progress(self) -> None:
        """Nothing goes wrong any more, and puppets leave; all must come to an end.

        If somebody waits for a process to register that is down, all who are down are started.

        Raises:
          Violation: somebody has not ended after `progress_s`; says what it waits for.
        """
        until_s = self.now_s + self.progress_s
        if self._waits_for_others_to_register():
            for process in self.down:
                self.inject(Restart(process, self.now_s))
        while self.live and self.now_s < until_s:
            for process in self.idle:
                self._tell(process, None)
            self.run_until(self.now_s + _STEP_S)
        if self.live:
            waiting = [
                f"process {end.process} waits for {end.waits_for or 'nothing'}"
                for end in self.simulation.result().ends
                if end.state == "running"
            ]
            picture = timeline(self.history(), width=100)
            raise Violation(
                f"no progress in {self.progress_s:g} s, although nothing went wrong any more: "
                f"{'; '.join(waiting)}\n\n{picture}"
            )
        self.live_sets_are_valid()

    def _waits_for_others_to_register(self) -> bool:
        return any(end.waits_for == "its registration" for end in self.simulation.result().ends)
