"""What campaigns count: abstract states of the service, and conditions."""

from __future__ import annotations

from collections import Counter
from itertools import permutations

from coord_sim.campaign import Coverage, Job, Plan, run_batch
from coord_sim.campaign.conditions import OF_THE_SIMULATOR, declared_conditions
from coord_sim.cli.judges import ServiceJudge
from coord_sim.core.effects import Effect
from coord_sim.core.service import CoordinationService
from coord_sim.faults import Crash, Fault, Restart
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate, training_loop
from coord_sim.sim.programs import PROGRAMS
from tests.campaign import programs


def states_of(*faults: Fault, starts_s: tuple[float, ...] = ()) -> list[str]:
    async def call_once(process: Process) -> None:
        await process.sleep(0.5 * process.number)
        await process.client.get_live_nodes(process.participants)
        await process.client.shutdown()

    coverage = Coverage()
    schedule = Schedule(
        processes=3, faults=faults, starts_s=starts_s, latency_min_s=0.001, latency_max_s=0.001
    )
    simulate(call_once, schedule, observer=coverage)
    return list(coverage.states)


def test_states_are_the_same_whoever_comes_first() -> None:
    ways = set()
    for order in permutations((0.0, 2.0, 4.0)):
        ways.add(tuple(state for state in states_of(starts_s=order) if "R" in state))
    assert len(ways) == 1
    assert ways.pop() == ("d. d. dx | R 0", "d. dx dx | R 0")


def test_states_tell_what_a_round_waits_for() -> None:
    states = states_of()
    assert "c. c. cx |  0" in states
    assert "c. cx cx |  0" in states


def test_a_place_of_somebody_who_is_no_more_is_told_apart() -> None:
    assert not any("g" in state for state in states_of())
    assert any("g" in state for state in states_of(Crash(0, 0.3), Restart(0, 0.4)))


def test_runs_that_differ_in_what_happens_differ_in_transitions() -> None:
    def transitions_of(*faults: Fault) -> dict[str, None]:
        coverage = Coverage()
        schedule = Schedule(processes=3, faults=faults)
        simulate(training_loop(3), schedule, observer=coverage)
        return coverage.transitions

    calm, broken = transitions_of(), transitions_of(Crash(0, 1.0))
    assert set(broken) - set(calm)
    assert transitions_of() == calm


def test_an_observer_changes_nothing() -> None:
    schedule = Plan("training_loop", Schedule(processes=3)).case(3).schedule
    watched = simulate(training_loop(3), schedule, observer=Coverage())
    assert watched == simulate(training_loop(3), schedule)


def test_skipping_quiet_steps_misses_no_state() -> None:
    class Thorough(Coverage):
        """Looks after each step, and says so."""

        def saw(self, service: CoordinationService, input_name: str, effects: list[Effect]) -> None:
            super().saw(service, f"{input_name}, looked at", effects)

    for seed in range(15):
        case = Plan("training_loop", Schedule(processes=3)).case(seed)
        quick, thorough = Coverage(), Thorough()
        case.run(quick)
        case.run(thorough)
        assert set(thorough.states) == set(quick.states)


def test_conditions_are_counted_and_those_never_reached_are_known() -> None:
    assert declared_conditions(programs.plain) == ("a second time", "it began", "never comes")
    assert declared_conditions(programs.failing) == ()
    job = Job(Plan("tests.campaign.programs:plain", Schedule(processes=2)), ServiceJudge())
    reached = run_batch(job, 0, 5).reached
    assert reached["it began"] == reached["a second time"] >= 10
    assert "never comes" not in reached


def test_the_conditions_of_the_simulator_are_those_that_it_notes() -> None:
    reached: Counter[str] = Counter()
    declared = {text for make in PROGRAMS.values() for text in declared_conditions(make)}
    for program, arguments in (("training_loop", {}), ("reused_barrier", {"late": 1})):
        plan = Plan(program, Schedule(processes=3), arguments, kinds=("crash", "pause"))
        reached.update(run_batch(Job(plan, ServiceJudge()), 0, 40).reached)
    assert set(reached) - declared == set(OF_THE_SIMULATOR)
