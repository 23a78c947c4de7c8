"""Shrinking: what is left still fails, and nothing of it can be left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from checker import Invalid, LiveProcesses, check
from coord_sim.campaign import judged
from coord_sim.cli.judges import ServiceJudge
from coord_sim.core.semantics import SHIPPED
from coord_sim.faults import Crash, Degrade, Fault, Partition, Pause, Restart
from coord_sim.moments import SERVICE, When
from coord_sim.schedule import Schedule
from coord_sim.sim.case import Case
from coord_sim.sim.nemesis import draw_schedule
from coord_sim.sim.shrinking import Budget, Shrunk, shrink, size_of

JUDGE = ServiceJudge()


def fails_as(kind: str) -> Callable[[Case], bool]:
    return lambda case: judged(case, JUDGE)[1].kind == kind


def first_failure(kind: str, base: Schedule, program: str = "training_loop") -> Case:
    for seed in range(200):
        case = Case(program, draw_schedule(seed, base))
        if fails_as(kind)(case):
            return case
    raise AssertionError("no seed fails in that way")


def shrunk(kind: str, base: Schedule, program: str = "training_loop") -> Shrunk:
    found = shrink(first_failure(kind, base, program), fails_as(kind), Budget(time_s=600.0))
    assert fails_as(kind)(found.after)
    assert found.is_minimal
    return found


def is_ghost(case: Case) -> bool:
    verdict = check(case.run().history, LiveProcesses())
    return isinstance(verdict, Invalid) and "ghost entry" in verdict.explain()


def test_a_ghost_entry_is_one_crash_and_one_restart_of_one_of_two_processes() -> None:
    base = Schedule(processes=3, semantics=SHIPPED.name)
    drawn = next(
        case
        for seed in range(200)
        if len((case := Case("training_loop", draw_schedule(seed, base))).schedule.faults) > 4
        and is_ghost(case)
    )
    found = shrink(drawn, is_ghost, Budget(time_s=600.0))
    after = found.after.schedule
    assert is_ghost(found.after)
    assert after.processes == 2
    assert [type(fault) for fault in after.faults] == [Crash, Restart]
    assert found.after.arguments["steps"] <= 2
    assert after.quiet_from_s is None
    assert after.limit_s <= 10.0
    assert size_of(found.after) in str(found)


def test_answers_at_once_need_no_fault() -> None:
    naive = Schedule(processes=3, semantics="naive")
    found = shrunk("live set: no-common-instant", naive)
    assert shrunk("live set: no-common-instant", naive) == found  # Whenever it is done.
    after = found.after
    assert after.schedule.faults == ()
    assert after.schedule.processes == 2
    assert after.arguments["steps"] == 1


def test_blocks_without_incarnations_need_one_that_comes_back() -> None:
    base = Schedule(processes=3, semantics="published", mutant="live-devices-without-incarnations")
    found = shrunk("blocks: block-completed-despite-failure", base)
    kinds = [type(fault) for fault in found.after.schedule.faults]
    assert kinds == [Crash, Restart]
    assert found.after.schedule.mutant == base.mutant


def test_a_bug_of_a_program_needs_no_fault() -> None:
    kind = "the program raised KeyError"
    after = shrunk(kind, Schedule(processes=3), "tests.campaign.programs:failing").after
    assert after.schedule.faults == ()
    assert after.schedule.processes == 2
    assert after.arguments == {"after": 0}


def test_what_does_not_fail_is_not_shrunk() -> None:
    with pytest.raises(ValueError, match="does not fail"):
        shrink(Case("training_loop", Schedule(processes=2)), lambda _: False)


# --- without simulating: the search alone ---------------------------------------------------------

MANY: tuple[Fault, ...] = (
    Crash(2, 1.234),
    Restart(2, 2.345),
    Pause(0, 3.1415, 7.77),
    Partition((1, 3), 4.2, 2.2, (SERVICE,), one_way=True),
    Degrade(3, 5.1, 3.3, delay_s=0.7, loss=0.3, raw=True),
    Crash(3, When("inside", 3, "live_processes", 9, 0.5)),
)
LARGE = Case(
    "training_loop",
    Schedule(
        processes=5,
        seed=77,
        faults=MANY,
        hosts=((0, 1), (2, 3, 4)),
        starts_s=(0.0, 1.5, 0.0, None),
        loss=0.1,
        latency_min_s=0.05,
        latency_max_s=0.1,
        semantics="published",
    ),
    {"steps": 20, "slow": 3, "slow_s": 2.0},
)


def test_what_does_not_matter_goes() -> None:
    found = shrink(LARGE, lambda _: True)
    assert found.after == Case(
        "training_loop", Schedule(processes=1, semantics="published", limit_s=1.0), {"steps": 0}
    )


def test_what_matters_stays_and_processes_keep_their_roles() -> None:
    def fails(case: Case) -> bool:
        slow = case.arguments.get("slow")
        return any(
            isinstance(fault, Partition) and slow in fault.side and fault.one_way
            for fault in case.schedule.faults
        )

    after = shrink(LARGE, fails).after
    assert after.schedule.processes == 1
    assert after.arguments == {"steps": 0, "slow": 0}
    (cut,) = after.schedule.faults
    assert isinstance(cut, Partition)
    assert cut.side == (0,)
    assert cut.for_s <= 2.2


def test_conditions_count_down() -> None:
    def fails(case: Case) -> bool:
        return any(isinstance(fault.at_s, When) for fault in case.schedule.faults)

    (fault,) = shrink(LARGE, fails).after.schedule.faults
    assert fault == Crash(0, When("inside", 0, "live_processes", 1))


def test_a_single_long_fault_gets_short_and_round() -> None:
    def fails(case: Case) -> bool:
        return any(isinstance(fault, Pause) and fault.for_s > 3 for fault in case.schedule.faults)

    (fault,) = shrink(LARGE, fails).after.schedule.faults
    assert isinstance(fault, Pause)
    assert fault.at_s == 0.0
    assert fault.for_s in (4.0, 5.0)


def test_a_service_that_is_killed_stays_durable() -> None:
    schedule = Schedule(
        processes=2, faults=(Crash(SERVICE, 1.0), Restart(SERVICE, 2.0)), durable=True, seed=3
    )

    def fails(case: Case) -> bool:
        return len(case.schedule.faults) == 2

    after = shrink(Case("training_loop", schedule), fails).after.schedule
    assert after.durable
    assert after.seed == 0


@pytest.mark.parametrize("budget", [Budget(runs=20), Budget(time_s=0.0)])
def test_a_budget_holds_and_what_is_left_fails(budget: Budget) -> None:
    tried: list[Case] = []

    def fails(case: Case) -> bool:
        tried.append(case)
        return any(isinstance(fault, Crash) for fault in case.schedule.faults)

    found = shrink(LARGE, fails, budget)
    assert not found.is_minimal
    assert "budget" in str(found)
    assert found.runs == len(tried) <= budget.runs
    assert fails(found.after)


def test_whoever_stops_it_gets_what_was_found() -> None:
    runs = 0

    def fails(case: Case) -> bool:
        nonlocal runs
        runs += 1
        return True

    found = shrink(LARGE, fails, Budget(is_stopped=lambda: runs >= 5))
    assert found.runs == 5
    assert not found.is_minimal


def test_all_that_is_tried_can_be_run() -> None:
    """Whatever fails, in any pattern: each candidate is a schedule, and the search ends."""
    for pattern in range(1, 40, 4):
        tried: list[Case] = []

        def fails(case: Case, pattern: int = pattern, tried: list[Case] = tried) -> bool:
            tried.append(case)
            return len(tried) == 1 or (len(tried) * 2654435761 >> 7) % 40 < pattern

        case = replace(LARGE, schedule=replace(LARGE.schedule, seed=pattern))
        found = shrink(case, fails)
        assert found.after in tried
        assert found.is_minimal
        for each in tried[::50]:
            each.make_program()
