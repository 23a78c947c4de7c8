"""Makes what was found small: in the simulator if it shows the same there, else with real processes.

A simulated run takes milliseconds and a real one ten seconds. What is found small in the simulator is
confirmed on real processes; it should therefore show under several latencies and beginnings, and only
if nothing does is it tried what shows under those of one seed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from coord_sim.core.semantics import PUBLISHED, SHIPPED
from coord_sim.errors import ProgramError
from coord_sim.faults import Fault, Restart, Slow
from coord_sim.moments import When
from coord_sim.mutants import CATALOGUE
from coord_sim.schedule import Schedule
from coord_sim.sim.case import Case
from coord_sim.sim.shrinking import Budget, shrink
from jax_bridge.hunt.judging import INVALID, Judge, judged
from jax_bridge.hunt.trying import Trial, Where, try_case

CONFIRMATIONS: Final = 3
"""So often a small case is tried on real processes, which are not deterministic."""

_SEEDS: Final = 10
"""With so many seeds the simulator is asked whether it shows the same."""

_SIMULATED_RUNS: Final = 4000
_LATENCIES_S: Final = ((0.0002, 0.005), (0.01, 0.05))
_SLOW_S: Final = 0.1
"""A process may be so much slower than the others in all that it says."""

_LATE_RESTART_S: Final = 0.25
"""So much later processes may be there than they were asked for."""


DEVIATIONS: Final = tuple(
    name
    for name, mutant in CATALOGUE.items()
    if mutant.switch and getattr(SHIPPED, mutant.switch) != getattr(PUBLISHED, mutant.switch)
)
"""The ways in which the service as shipped parts from the published one, one by one."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A failure, as small as the budget allowed.

    Attributes:
      trial: Of the smallest case that failed on real processes.
      in_simulator: Whether the simulator shows the same of that case.
      simulated, real: How many runs it took.
      failed, tried: Of how many runs of the smallest case on real processes how many failed so.
      blamed: Deviations of which one alone, in a service that is as published otherwise, brings about
        the same in the simulator.
    """

    trial: Trial
    in_simulator: bool = False
    simulated: int = 0
    real: int = 0
    failed: int = 1
    tried: int = 1
    blamed: tuple[str, ...] = ()


def reduce_trial(trial: Trial, where: Where, *, budget_s: float) -> Reduced:
    """The smallest case that fails in the same way.

    Args:
      trial: One that failed.
      where: Where to try.
      budget_s: How long it may take, in seconds; a run that has begun is brought to its end.
    """
    return _Reduction(trial, where, time.monotonic() + budget_s).run()


class _Reduction:
    def __init__(self, trial: Trial, where: Where, until_s: float) -> None:
        self._first = trial
        self._where = where
        self._until_s = until_s
        self._simulated = Simulated(where.judge, trial.kind, trial.case.schedule)
        self._real = 0

    @property
    def _left_s(self) -> float:
        return self._until_s - time.monotonic()

    def run(self) -> Reduced:
        """Tries the simulator first."""
        for fails in (self._simulated, self._simulated.loosely):
            small = self._small_in_simulator(fails)
            if small is not None:
                failed, tried, trial = self._confirmed(small)
                if trial is not None:
                    return self._told(trial, failed, tried)
        return self._told(self._small_on_real_processes(), 1, 1)

    def _told(self, trial: Trial, failed: int, tried: int) -> Reduced:
        case = trial.case
        return Reduced(
            trial,
            in_simulator=self._simulated.fails(case),
            blamed=tuple(self._blamed(case)),
            simulated=self._simulated.runs,
            real=self._real,
            failed=failed,
            tried=tried,
        )

    # --- in the simulator ----------------------------------------------------------------------

    def _small_in_simulator(self, fails: Callable[[Case], bool]) -> Case | None:
        """The smallest case that fails in the simulator; None if it does not show this."""
        drawn = self._first.case
        for seed in (drawn.schedule.seed, *range(_SEEDS)):
            case = replace(drawn, schedule=replace(drawn.schedule, seed=seed))
            if fails(case):
                budget = Budget(_SIMULATED_RUNS, max(0.0, self._left_s / 2))
                return shrink(case, fails, budget).after
            if self._left_s <= 0:
                break
        return None

    def _blamed(self, case: Case) -> Iterator[str]:
        if case.schedule.semantics != "shipped":
            return
        for mutant in DEVIATIONS:
            schedule = replace(case.schedule, semantics="published", mutant=mutant)
            if self._simulated.fails(replace(case, schedule=schedule)):
                yield mutant

    # --- on real processes ---------------------------------------------------------------------

    def _fails(self, case: Case) -> Trial | None:
        self._real += 1
        trial = try_case(case, f"{self._first.folder.name}-{self._real}", self._where)
        if trial.is_failure and trial.kind == self._first.kind:
            return trial
        trial.clear()
        return None

    def _confirmed(self, case: Case) -> tuple[int, int, Trial | None]:
        """Of how many trials how many failed, and one that did."""
        failed = tried = 0
        kept: Trial | None = None
        while tried < CONFIRMATIONS and (not tried or self._left_s > 0):
            tried += 1
            trial = self._fails(case)
            if trial is not None:
                failed += 1
                if kept is not None:
                    kept.clear()
                kept = trial
        return failed, tried, kept

    def _small_on_real_processes(self) -> Trial:
        kept = self._first

        def fails(case: Case) -> bool:
            nonlocal kept
            if case.schedule.limit_s != kept.case.schedule.limit_s:
                return False
            trial = self._fails(case)
            if trial is None:
                return False
            if kept is not self._first:
                kept.clear()
            kept = trial
            return True

        if self._left_s > 0 and fails(self._first.case):  # Else it is too rare to be made smaller.
            budget = Budget(time_s=self._left_s, is_stopped=lambda: self._left_s <= 0)
            shrink(kept.case, lambda case: case == kept.case or fails(case), budget)
        return kept


class Simulated:
    """Whether a case fails in the simulator in a certain way, whatever the latencies.

    Attributes:
      runs: How many were simulated.
    """

    def __init__(self, judge: Judge, kind: str, drawn: Schedule) -> None:
        self.runs = 0
        self._judge = judge
        self._kind = kind
        self._limit_s = drawn.limit_s

    def __call__(self, case: Case) -> bool:
        """Whether it fails so in all variations that real processes may come to."""
        if case.schedule.limit_s != self._limit_s:
            return False  # Real processes start later and take longer.
        return all(self.fails(replace(case, schedule=each)) for each in _varied(case.schedule))

    def loosely(self, case: Case) -> bool:
        """Whether it does with its own latencies, and has its time."""
        return case.schedule.limit_s == self._limit_s and self.fails(case)

    def fails(self, case: Case) -> bool:
        """Whether it does with its own latencies."""
        self.runs += 1
        try:
            found = judged(case.run(), case.program, self._judge)
        except ProgramError:
            return False
        return found.word == INVALID and found.kind == self._kind


def _varied(schedule: Schedule) -> Iterator[Schedule]:
    """The schedule as real processes may come to run it."""
    for low_s, high_s in _LATENCIES_S:
        yield replace(schedule, latency_min_s=low_s, latency_max_s=high_s)
    for process in range(schedule.processes):
        slow = Slow(process, 0.0, schedule.limit_s, _SLOW_S)
        yield replace(schedule, faults=(slow, *schedule.faults))
    if any(isinstance(fault, Restart) for fault in schedule.faults):
        yield replace(schedule, faults=tuple(_later(fault) for fault in schedule.faults))


def _later(fault: Fault) -> Fault:
    if not isinstance(fault, Restart):
        return fault
    if isinstance(fault.at_s, When):
        later = replace(fault.at_s, plus_s=fault.at_s.plus_s + _LATE_RESTART_S)
        return replace(fault, at_s=later)
    return replace(fault, at_s=fault.at_s + _LATE_RESTART_S)
