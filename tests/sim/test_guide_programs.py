"""The guide's training loops: what they promise holds from seed to seed, and what they do not shows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from checker import Invalid, check
from checker.specs.blocks import check_blocks
from coord_sim.faults import Crash, Fault, Partition, Pause, Restart
from coord_sim.moments import SERVICE, When
from coord_sim.schedule import Schedule
from coord_sim.sim import Program, Run, draw_faults, simulate
from coord_sim.sim.data_plane import WITHOUT_INCARNATIONS, plane
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.programs.guide import (
    ignore_the_dead,
    late_results,
    recover_the_restarted,
    trained,
)

PROCESSES = 4
STEPS = 6
WITHOUT_FAULTS = [PROCESSES] * STEPS
SLOW_LINKS_S = 0.2
"""So slow that many deaths fall into a collective."""


def drawn(seed: int, *, spared: tuple[int, ...] = (0,), **settings: object) -> Schedule:
    """Crashes and restarts; the guide takes process 0 for immortal."""
    drawn_faults = draw_faults(seed, PROCESSES, until_s=6.0, heartbeat_timeout_s=3.0)
    faults = tuple(
        fault
        for fault in drawn_faults
        if isinstance(fault, Crash | Restart) and fault.process not in spared
    )
    chosen = {"semantics": "published", "faults": faults, **settings}
    return Schedule(processes=PROCESSES, seed=seed, **chosen)  # type: ignore[arg-type]


def crashes(schedule: Schedule) -> tuple[Fault, ...]:
    return tuple(fault for fault in schedule.faults if isinstance(fault, Crash))


def run_of(program: Program, schedule: Schedule) -> Run:
    run = simulate(program, schedule)
    assert run.finished, f"seed {schedule.seed}: {run.ends}"
    return run


def results(run: Run) -> dict[int, Mapping[str, Any]]:
    """What each process has learnt that went through all steps."""
    return {process: disk for process, disk in enumerate(run.disks) if "weights" in disk}


def expect_agreement(run: Run) -> None:
    """All that did a step together have the same weights after it, bit for bit."""
    lines = [line.text for line in run.log if " done by " in line.text]
    weights: dict[str, str] = {}
    for done, bits in (line.split(": weights ") for line in lines):
        assert weights.setdefault(done, bits) == bits, f"seed {run.schedule.seed}: {done}"


# --- what is promised ---------------------------------------------------------------------------


def test_the_training_without_faults_is_what_a_single_process_computes() -> None:
    """The constants hold on every Python: floats are added up in a fixed order."""
    for batch, bits in (("live", "0x1.ba10a61b235c1p+1"), ("global", "0x1.ba10a61b235bfp+1")):
        assert trained(WITHOUT_FAULTS, processes=PROCESSES, batch=batch).hex() == bits
        for program in (ignore_the_dead, recover_the_restarted):
            run = run_of(program(STEPS, batch=batch), Schedule(processes=PROCESSES))
            assert len(results(run)) == PROCESSES
            assert {disk["weights"].hex() for disk in results(run).values()} == {bits}
            assert {disk["members"] for disk in results(run).values()} == {tuple(WITHOUT_FAULTS)}


@pytest.mark.parametrize(
    ("batch", "latency_max_s", "first_seed"),
    [
        ("live", 0.005, 0),
        ("live", SLOW_LINKS_S, 50),
        ("global", 0.005, 100),
        ("global", SLOW_LINKS_S, 150),
    ],
)
def test_those_who_ignore_the_dead_agree_and_lose_nothing(
    batch: str, latency_max_s: float, first_seed: int
) -> None:
    """200 seeds, with one to three crashes, for good."""
    went_on_with_fewer = again = 0
    for seed in range(first_seed, first_seed + 50):
        schedule = drawn(seed, latency_max_s=latency_max_s)
        schedule = drawn(seed, latency_max_s=latency_max_s, faults=crashes(schedule))
        run = run_of(ignore_the_dead(STEPS, batch=batch), schedule)
        found = results(run)
        assert 0 in found
        for disk in found.values():
            assert disk == found[0], f"seed {seed}"
            went_on_with_fewer += len(set(disk["members"])) > 1
            faultless = disk["members"] if batch == "live" else WITHOUT_FAULTS
            assert disk["weights"] == trained(faultless, processes=PROCESSES, batch=batch)
        again += run.reached.get("a step was run again", 0)
    assert went_on_with_fewer > 25
    assert again > 25


@pytest.mark.parametrize(
    ("batch", "latency_max_s", "first_seed"),
    [
        ("live", 0.005, 0),
        ("live", SLOW_LINKS_S, 50),
        ("global", 0.005, 100),
        ("global", SLOW_LINKS_S, 150),
    ],
)
def test_those_who_come_back_are_brought_to_the_weights_of_all(
    batch: str, latency_max_s: float, first_seed: int
) -> None:
    """200 seeds, with crashes and restarts, soon and late."""
    sent = 0
    for seed in range(first_seed, first_seed + 50):
        schedule = drawn(seed, latency_max_s=latency_max_s)
        run = run_of(recover_the_restarted(STEPS, batch=batch), schedule)
        expect_agreement(run)
        assert 0 in results(run)
        for disk in results(run).values():
            faultless = disk["members"] if batch == "live" else WITHOUT_FAULTS
            assert len(faultless) == STEPS
            assert disk["weights"] == trained(faultless, processes=PROCESSES, batch=batch)
        sent += run.reached.get("step and weights were sent to a process that came back", 0)
    assert sent > 25


@pytest.mark.parametrize("sender", ["first", "furthest"])
def test_with_a_coordinator_outside_process_0_may_come_back_too(sender: str) -> None:
    """With the guide's sender the training then begins anew; with the furthest nothing is lost."""
    began_anew = 0
    for seed in range(50):
        program = recover_the_restarted(STEPS, batch="global", sender=sender)
        run = run_of(program, drawn(seed, spared=()))
        for disk in results(run).values():
            assert disk["weights"] == trained(WITHOUT_FAULTS, processes=PROCESSES, batch="global")
        survivor = [line.text for line in run.log if line.process == 3 and line.lifetime == 0]
        steps = [int(text.split()[1]) for text in survivor if " done by " in text]
        began_anew += any(later <= earlier for earlier, later in itertools.pairwise(steps))
    assert (began_anew > 0) == (sender == "first")


def test_whatever_happens_to_network_clocks_and_service_no_process_learns_wrong_weights() -> None:
    """Stalls beyond the time-out: the living are declared dead, refused, and end."""
    for seed in range(60):
        stream = Entropy(seed).stream("stalls")
        stalls: list[Fault] = []
        for _ in range(3):
            process, at_s, for_s = (
                stream.below(4),
                stream.between(0.5, 6.0),
                stream.between(0.1, 5.0),
            )
            other = (process + 1 + stream.below(3)) % PROCESSES
            stalls += [
                Pause(process, at_s, for_s),
                Partition((process,), at_s + 1.0, for_s, other=(other,)),
                Pause(SERVICE, at_s + 2.0, for_s / 3),
            ]
        schedule = drawn(seed, spared=())
        schedule = drawn(seed, faults=(*schedule.faults, *stalls))
        program = recover_the_restarted(STEPS, batch="global", sender="furthest")
        run = run_of(program, schedule)
        expect_agreement(run)
        for disk in results(run).values():
            assert disk["weights"] == trained(WITHOUT_FAULTS, processes=PROCESSES, batch="global")


# --- what is not --------------------------------------------------------------------------------


def test_with_fewer_processes_the_guides_batch_is_smaller_and_the_weights_are_others() -> None:
    fewer = [4, 4, 3, 3, 3, 3]
    batches = ("live", "global")
    whole = [trained(WITHOUT_FAULTS, processes=PROCESSES, batch=batch) for batch in batches]
    less = [trained(fewer, processes=PROCESSES, batch=batch) for batch in batches]
    assert less[0] != whole[0]
    assert less[1] == whole[1]
    assert whole[0] == pytest.approx(
        whole[1], rel=1e-12
    )  # The same batch, summed in another order.
    assert whole[0] != whole[1]


def test_the_loop_that_ignores_the_dead_must_not_meet_the_restarted() -> None:
    """All branches are taken together, and yet everybody ends with weights of its own."""
    for seed in range(10):
        run = simulate(ignore_the_dead(STEPS, batch="global"), drawn(seed))
        if len({disk["weights"] for disk in results(run).values()}) > 1:
            assert check_blocks(run.history).word == "valid"
            return
    pytest.fail("all agree")


HANDOVER: tuple[Fault, ...] = (
    Crash(1, When("inside", 1, "block", 2, 0.2)),
    Restart(1, When("crash", 1, "", 1, 0.3)),
)
"""Process 1 comes back, so that its third block begins with a handover."""


def death_in_a_handover(seed: int) -> Schedule:
    later_s = Entropy(seed).stream("death").between(0.0, 0.4)
    faults = (*HANDOVER, Crash(2, When("inside", 1, "block", 3, later_s)))
    return drawn(seed, faults=faults, latency_max_s=SLOW_LINKS_S)


def test_the_guides_handover_in_pairs_can_hang_though_both_of_the_pair_live() -> None:
    """Process 2 dies while all gather the steps; some have the steps of all, some have an error.

    If the sender has the error, the receiver waits for it in their collective, in which nobody is dead.
    If the receiver has it, the sender's device waits, and never comes to the step that would be
    cancelled. A broadcast over all has the dead one as a member, and is cancelled.
    """
    hangs: set[tuple[str, ...]] = set()
    for seed in range(40):
        schedule = death_in_a_handover(seed)
        run_of(recover_the_restarted(STEPS, handover="all"), schedule)
        run = simulate(recover_the_restarted(STEPS, handover="pairs"), schedule)
        if not run.finished:
            hangs.add(tuple(end.waits_for for end in run.ends))
    assert hangs == {
        (
            "live_processes",
            "collective broadcast_one_to_all from 0 over 0, 1",
            "",
            "live_processes",
        ),
        ("computation of new_state", "live_processes", "", "live_processes"),
    }


@pytest.mark.parametrize("waits", ["inside", "after"])
def test_a_result_that_is_not_waited_for_inside_fails_after_its_block_was_completed(
    waits: str,
) -> None:
    for seed in range(30):
        run = run_of(late_results(waits=waits), drawn(seed))
        assert check_blocks(run.history).word == "valid"
        late = run.reached.get("a result failed after its block was completed", 0)
        if waits == "inside":
            assert late == 0
        elif late:
            return
    assert waits == "inside"


def test_on_the_service_as_shipped_a_ghost_makes_the_survivors_wait_for_a_member_that_waits() -> (
    None
):
    """A process dies in the barrier and is back before the round ends: it is in the others' block, and
    waits for the next round, while they wait for it in a collective. Never are weights wrong."""
    for seed in range(200):
        schedule = drawn(seed, semantics="shipped")
        run = simulate(recover_the_restarted(STEPS, batch="global"), schedule)
        for disk in results(run).values():
            assert disk["weights"] == trained(WITHOUT_FAULTS, processes=PROCESSES, batch="global")
        verdict = check(run.history)
        if not run.finished:
            assert isinstance(verdict, Invalid)
            assert "ghost entry" in verdict.explain()
            waiting = {
                end.waits_for.split(" over ")[0] for end in run.ends if end.state == "running"
            }
            assert waiting == {"collective all_gather", "live_processes"}
            return
    pytest.fail("no ghost")


def test_without_cancelling_the_first_death_inside_a_block_is_the_end_of_progress() -> None:
    stuck = 0
    for seed in range(20):
        schedule = drawn(seed, abort_collectives=False)
        stuck += not simulate(recover_the_restarted(STEPS), schedule).finished
    assert stuck > 10


# --- known-wrong variants -----------------------------------------------------------------------


def branches_differ(run: Run) -> bool:
    return isinstance(check_blocks(run.history), Invalid)


def is_stuck(run: Run) -> bool:
    return not run.finished


@pytest.mark.parametrize(
    ("mutant", "is_wrong"),
    [
        ("collective-treated-as-atomic", branches_differ),
        ("live-devices-without-incarnations", branches_differ),
        ("live-devices-at-two-program-points", is_stuck),
        (WITHOUT_INCARNATIONS, is_stuck),
    ],
)
def test_wrong_variants_are_caught_within_forty_seeds(mutant: str, is_wrong: Any) -> None:
    program = recover_the_restarted(STEPS)
    for seed in range(40):
        if is_wrong(simulate(program, drawn(seed, mutant=mutant, latency_max_s=SLOW_LINKS_S))):
            right = run_of(program, drawn(seed, latency_max_s=SLOW_LINKS_S))
            assert not is_wrong(right)
            return
    pytest.fail("not caught")


# --- the rest -----------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_run() -> None:
    for seed in range(5):
        schedule = drawn(seed, latency_max_s=SLOW_LINKS_S)
        one, other = (simulate(recover_the_restarted(STEPS), schedule) for _ in range(2))
        assert one.log == other.log
        assert one.reached == other.reached
        assert one.history.events == other.history.events


def test_deaths_inside_collectives_are_met_and_end_differently() -> None:
    reached: set[str] = set()
    for seed in range(30):
        run = simulate(recover_the_restarted(STEPS), drawn(seed, latency_max_s=SLOW_LINKS_S))
        reached |= {name for name, count in run.reached.items() if count}
    assert reached >= {
        plane.NEVER_JOINED,
        plane.DIED_INSIDE,
        plane.NOT_ATOMIC,
        plane.WRONG_RESULT,
        plane.CANCELLED,
    }


@pytest.mark.parametrize(
    "make",
    [
        lambda: ignore_the_dead(batch="big"),
        lambda: recover_the_restarted(handover="post"),
        lambda: recover_the_restarted(sender="last"),
        lambda: late_results(waits="never"),
    ],
)
def test_unknown_words_are_refused_with_the_known_ones(make: Any) -> None:
    with pytest.raises(ValueError, match="is one of"):
        make()


PAGE = (Path(__file__).parents[2] / "docs" / "data-plane.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", EXAMPLES)
def test_the_pages_examples_run(code: str) -> None:
    exec(compile(code, "data-plane.md", "exec"), {})


def test_the_page_names_all_conditions_that_can_be_reached() -> None:
    words = " ".join(PAGE.split())
    for name in (
        plane.NEVER_JOINED,
        plane.DIED_INSIDE,
        plane.NOT_ATOMIC,
        plane.WRONG_RESULT,
        plane.MISMATCH,
        plane.CANCELLED,
    ):
        assert f"`{name}`" in words
    assert len(EXAMPLES) == 2
