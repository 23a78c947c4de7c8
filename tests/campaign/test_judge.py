"""The judge tells failures of several kinds apart, and blames nobody for what faults do."""

from __future__ import annotations

from coord_sim.campaign import Judgement, Plan, judged
from coord_sim.cli.judges import ServiceJudge
from coord_sim.faults import Crash, Reset
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate, training_loop
from coord_sim.sim.case import Case
from coord_sim.sim.process import Program

PUBLISHED = Schedule(processes=3, semantics="published")


def verdict(program: Program, schedule: Schedule) -> Judgement:
    return ServiceJudge()(simulate(program, schedule))


def kind_of(mutant: str, seeds: int, program: str = "training_loop") -> str:
    plan = Plan(program, Schedule(processes=3, semantics="published", mutant=mutant))
    for seed in range(seeds):
        _, judgement = judged(plan.case(seed), ServiceJudge())
        if judgement.is_failure:
            return judgement.kind
    return "none"


def test_each_kind_of_failure_has_a_name() -> None:
    assert kind_of("answers-at-once", 5).startswith("live set: ")
    assert kind_of("waits-for-the-dead", 20) == "no progress: live_processes"
    assert kind_of("registers-without-waiting", 40) == "no progress: registration"
    assert kind_of("collective-treated-as-atomic", 20).startswith("blocks: ")
    assert kind_of("", 20) == "none"


def test_a_key_that_is_overwritten_is_a_failure_of_that_key() -> None:
    async def write_twice(process: Process) -> None:
        await process.client.key_value_set("leader", str(process.number))
        await process.client.shutdown()

    schedule = Schedule(processes=2, mutant="overwrites-silently")
    found = verdict(write_twice, schedule)
    assert found.kind.startswith("key: ")
    assert "leader" in found.explanation


def test_a_program_is_blamed_for_its_own_errors_only() -> None:
    async def buggy(process: Process) -> None:
        await process.sleep(1.0)
        raise IndexError(process.number)

    found = verdict(buggy, PUBLISHED)
    assert found.kind == "the program raised IndexError"
    assert "test_judge.py" in found.explanation

    async def cut_off(process: Process) -> None:
        await process.client.blocking_key_value_get("never")

    cut = Schedule(processes=1, semantics="published", faults=(Reset(0, 1.0),))
    assert verdict(cut_off, cut) == Judgement("valid")


def test_no_progress_is_demanded_in_a_quiet_phase_only() -> None:
    async def stuck(process: Process) -> None:
        await process.client.blocking_key_value_get("never")

    assert verdict(stuck, PUBLISHED).word == "valid"
    quiet = Schedule(processes=2, semantics="published", faults=(Crash(1, 1.0),), quiet_from_s=1.0)
    found = verdict(stuck, quiet)
    assert found.kind == "no progress: key_value_get"
    assert "process 0 waits for key_value_get never" in found.explanation
    short = Schedule(processes=2, semantics="published", quiet_from_s=1.0, limit_s=10.0)
    assert verdict(stuck, short).word == "valid"
    assert verdict(training_loop(2), quiet).word == "valid"


def test_what_the_simulator_cannot_follow_is_a_failure() -> None:
    run, judgement = judged(Case("tests.campaign.programs:foreign", PUBLISHED), ServiceJudge())
    assert run is None
    assert judgement.kind == "program error"
    assert "process.sleep" in judgement.explanation


def test_the_failure_model_is_the_judges() -> None:
    plan = Plan("training_loop", PUBLISHED, kinds=("pause",))
    kinds = {
        failures: {
            judged(plan.case(seed), ServiceJudge(failures=failures))[1].word for seed in range(40)
        }
        for failures in ("suspicion", "crash-stop")
    }
    assert kinds == {"suspicion": {"valid"}, "crash-stop": {"valid", "invalid"}}
