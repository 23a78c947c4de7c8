"""Hypothesis strategies: what they draw can be run, and shrinks to what a person would write."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from checker import History, Invalid, Operations, Valid, check
from checker.specs import Register
from coord_sim.errors import ScheduleError
from coord_sim.faults import Crash, Fault, Partition, Pause, Restart
from coord_sim.schedule import Schedule
from coord_sim.sim import nemesis, training_loop
from coord_sim.testing import scripts
from coord_sim.testing.scripts import Barrier, Block, Script
from coord_sim.testing.simulating import simulated
from coord_sim.testing.strategies import (
    faults,
    histories,
    operations,
    programs,
    schedules,
    steps,
)
from coord_sim.testing.strategies.faults import KINDS

T = TypeVar("T")

few = settings(
    max_examples=50,
    database=None,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def least(strategy: SearchStrategy[T], condition: Any) -> T:
    return find(
        strategy,
        condition,
        settings=settings(few, max_examples=2000, phases=[Phase.generate, Phase.shrink]),
    )


def is_invalid(schedule: Schedule) -> bool:
    return isinstance(check(simulated(training_loop(4), schedule).history), Invalid)


# --- faults and schedules ----------------------------------------------------------------------


def test_the_kinds_are_those_of_the_nemesis() -> None:
    assert set(KINDS) == set(nemesis.KINDS)


@given(schedules(stalls=False, kinds=KINDS, semantics="published"))
@few
def test_any_schedule_can_be_run_and_all_come_to_an_end(schedule: Schedule) -> None:
    assert eval(repr(schedule), vars(sys.modules[__name__]) | vars_of_faults()) == schedule
    simulated(training_loop(2), schedule).require_valid().require_progress()


def vars_of_faults() -> dict[str, Any]:
    from coord_sim import faults as module

    return vars(module)


@given(faults(3, stalls=False, heartbeat_timeout_s=4.0))
@few
def test_without_stalls_nothing_lasts(plan: tuple[Fault, ...]) -> None:
    assert all(getattr(fault, "for_s", 0.0) <= 0.1 for fault in plan)


@given(faults(2, kinds=("crash", "host crash", "service kill"), incidents_max=8))
@few
def test_nobody_crashes_who_is_down(plan: tuple[Fault, ...]) -> None:
    down: set[object] = set()
    for fault in plan:
        if isinstance(fault, Crash):
            assert fault.process not in down
            down.add(fault.process)
        elif isinstance(fault, Restart):
            assert fault.process in down
            down.remove(fault.process)


def test_the_ghost_entry_shrinks_to_one_crash_and_one_restart() -> None:
    jobs = schedules(st.integers(2, 4), kinds=("crash", "pause", "skew"), stalls=False)
    found = least(jobs, is_invalid)
    crash, restart = found.faults
    assert isinstance(crash, Crash)
    assert isinstance(restart, Restart)
    assert crash.process == restart.process
    assert found.processes <= 3


def test_a_naive_service_needs_no_faults() -> None:
    found = least(schedules(st.integers(2, 4), semantics="naive"), is_invalid)
    assert found == Schedule(processes=2, seed=found.seed, semantics="naive")


def test_a_single_fault_shrinks_to_its_simplest_form() -> None:
    def cuts_many(plan: tuple[Fault, ...]) -> bool:
        return any(isinstance(fault, Partition) and len(fault.side) > 1 for fault in plan)

    assert least(faults(4), cuts_many) == (Partition((0, 1), 0.0, 0.375, ("service",)),)
    is_long = least(faults(3), lambda plan: any(getattr(f, "for_s", 0) > 3 for f in plan))
    assert is_long == (Pause(0, 0.0, 3.375),)


def test_an_unknown_kind_is_told() -> None:
    with pytest.raises(ScheduleError, match=r"is called 'crashs'; did you mean 'crash'\?"):
        faults(3, kinds=("crashs",))


# --- programs ----------------------------------------------------------------------------------


@given(programs(), st.integers(1, 3))
@few
def test_programs_are_values_that_come_to_an_end(script: Script, processes: int) -> None:
    assert eval(repr(script), vars(scripts)) == script
    run = simulated(script, Schedule(processes=processes, semantics="published"))
    run.require_valid().require_progress()
    assert run.succeeded


def test_a_program_shrinks_to_what_matters() -> None:
    def fails(script: Script) -> bool:
        run = simulated(script, Schedule(processes=2))
        return bool(run.reached.get("step failed")) and "Block" in repr(script)

    found = least(programs(each=st.one_of(steps(keys=()), steps(barriers=()))), fails)
    all_steps = [step for listed in found.lists for step in listed]
    assert len(all_steps) == 2
    assert min(type(step).__name__ for step in all_steps) in ("Barrier", "Block")
    assert Block(0.1) in all_steps


def test_steps_are_chosen() -> None:
    only = {type(step) for step in examples(steps(keys=(), live=False))}
    assert only == {scripts.Sleep, Barrier}


def examples(strategy: SearchStrategy[T]) -> list[T]:
    drawn: list[T] = []

    @given(strategy)
    @few
    def collect(value: T) -> None:
        drawn.append(value)

    collect()
    return drawn


# --- histories ---------------------------------------------------------------------------------


def test_histories_are_what_they_say() -> None:
    verdicts = {
        kind: {type(check(history)) for history in examples(histories(kind))}
        for kind in ("valid", "invalid", "nearly valid")
    }
    assert verdicts["valid"] == {Valid}
    assert verdicts["invalid"] == {Invalid}
    assert verdicts["nearly valid"] >= {Valid, Invalid}  # Or unknown, where an answer was lost.


def test_operations_are_what_they_say() -> None:
    verdicts = {
        kind: {type(check(history, Register())) for history in examples(operations(kind))}
        for kind in ("valid", "invalid", "nearly valid")
    }
    assert verdicts == {"valid": {Valid}, "invalid": {Invalid}, "nearly valid": {Valid, Invalid}}


def test_an_invalid_history_shrinks_to_one_call() -> None:
    def has_answer(history: History) -> bool:
        return isinstance(check(history), Invalid)

    found = least(histories("nearly valid"), has_answer)
    assert found.header.participants == (0,)
    assert len(found.events) <= 6


def test_invalid_operations_shrink_to_one_read() -> None:
    def is_wrong(history: Operations) -> bool:
        return isinstance(check(history, Register()), Invalid)

    found = least(operations("nearly valid"), is_wrong)
    assert [found.at(index).function for index in range(len(found))] == ["read"]
    assert found.at(0).result == 0


# --- without Hypothesis ------------------------------------------------------------------------


def test_without_hypothesis_an_import_says_what_to_install() -> None:
    program = textwrap.dedent(
        """
        import sys

        sys.modules["hypothesis"] = None  # As if there were none.
        for module in ("strategies", "state_machine"):
            try:
                __import__(f"coord_sim.testing.{module}")
            except ImportError as error:
                print(error)
        """
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    lines = told.stdout.splitlines()
    assert len(lines) == 2
    assert all("needs Hypothesis" in line and "coordlab[testing]" in line for line in lines)
