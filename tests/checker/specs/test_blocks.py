"""Atomic blocks: by hand, and of simulated services that keep or break them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from checker.history import Crash, Enter, Event, Exit, Header, History, Info, Invoke, Ok, Start
from checker.specs.blocks import AtomicBlocks, check_blocks
from checker.verdict import Invalid, Valid
from coord_sim.schedule import Schedule
from coord_sim.sim import draw_faults, simulate, training_loop

BOTH = {0: 100, 1: 101}
ALONE = {0: 100}
OTHER = {0: 100, 1: 999}


class Story:
    """Writes the events of processes that only run blocks."""

    def __init__(self) -> None:
        self.events: list[Event] = [
            Start(time_ns=0, process=process, lifetime=0, incarnation=100 + process)
            for process in (0, 1)
        ]
        self._calls = 0

    def _now(self) -> int:
        return len(self.events)

    def told(self, process: int, live: Mapping[int, int]) -> None:
        self._calls += 1
        at: dict[str, Any] = {"process": process, "lifetime": 0, "id": self._calls}
        arguments: dict[str, object] = {}
        invoke = Invoke(time_ns=self._now(), operation="live_processes", arguments=arguments, **at)
        self.events += [invoke, Ok(time_ns=self._now(), result=live, **at)]

    def lost(self, process: int) -> None:
        self._calls += 1
        at: dict[str, Any] = {"process": process, "lifetime": 0, "id": self._calls}
        arguments: dict[str, object] = {}
        invoke = Invoke(time_ns=self._now(), operation="live_processes", arguments=arguments, **at)
        self.events += [invoke, Info(time_ns=self._now(), code="UNAVAILABLE", **at)]

    def enter(self, process: int, block: int, live: Mapping[int, int]) -> None:
        self.events.append(
            Enter(time_ns=self._now(), process=process, lifetime=0, block=block, live=live)
        )

    def exit(self, process: int, block: int, outcome: str, failed: tuple[int, ...] = ()) -> None:
        self.events.append(
            Exit(
                time_ns=self._now(),
                process=process,
                lifetime=0,
                block=block,
                outcome=outcome,
                failed=failed,
            )
        )

    def block(
        self,
        process: int,
        block: int,
        live: Mapping[int, int],
        outcome: str,
        after: Mapping[int, int],
    ) -> None:
        """A whole stay in a block."""
        self.enter(process, block, live)
        self.told(process, after)
        failed = tuple(member for member in live if after.get(member) != live[member])
        self.exit(process, block, outcome, failed if outcome == "failed" else ())

    @property
    def history(self) -> History:
        header = Header(source="manual", participants=(0, 1), clock="abstract")
        return History(header, self.events)


def anomaly(story: Story, spec: AtomicBlocks | None = None) -> str:
    """The kind of what is wrong, or nothing."""
    verdict = check_blocks(story.history, spec)
    return verdict.anomaly.kind if isinstance(verdict, Invalid) else ""


def test_both_complete_or_both_fail() -> None:
    story = Story()
    for process in BOTH:
        story.told(process, BOTH)
    for process in BOTH:
        story.block(process, 0, BOTH, "completed", BOTH)
    assert anomaly(story) == ""
    story.block(0, 1, BOTH, "failed", ALONE)
    story.enter(1, 1, BOTH)
    story.events.append(Crash(time_ns=99, process=1, lifetime=0))
    assert anomaly(story) == ""
    verdict = check_blocks(story.history)
    assert isinstance(verdict, Valid)
    assert verdict.explain() == "1 block completed, 1 failed, 0 undecided."


def test_one_completes_what_another_leaves_as_failed() -> None:
    story = Story()
    for process in BOTH:
        story.told(process, BOTH)
    story.block(0, 0, BOTH, "failed", ALONE)
    story.block(1, 0, BOTH, "completed", BOTH)
    verdict = check_blocks(story.history)
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "block-ended-in-both-branches"
    assert verdict.anomaly.processes == (0, 1)
    first = verdict.explain().split("\n")[0]
    assert (
        first == "Process 1 (block 0) completed the block that process 0 (block 0) left as failed."
    )


def test_who_is_a_block_ahead_is_compared_with_its_own_block() -> None:
    """The same live set again: blocks are told apart by how often it was answered."""
    story = Story()
    for process in BOTH:
        story.told(process, BOTH)
    story.block(0, 0, BOTH, "completed", BOTH)
    story.block(0, 1, BOTH, "failed", ALONE)
    story.block(1, 0, BOTH, "completed", BOTH)
    assert anomaly(story) == ""
    story.block(1, 1, BOTH, "completed", BOTH)
    assert anomaly(story) == "block-ended-in-both-branches"


def test_incarnations_before_and_after_agree() -> None:
    story = Story()
    story.told(0, BOTH)
    story.block(0, 0, BOTH, "completed", OTHER)
    assert anomaly(story) == "block-completed-despite-failure"
    story = Story()
    story.told(0, BOTH)
    story.block(0, 0, BOTH, "failed", OTHER)
    assert anomaly(story) == ""
    last = story.events[-1]
    assert isinstance(last, Exit)
    story.events[-1] = replace(last, failed=(0,))
    assert anomaly(story) == "block-failed-for-others"


def test_an_exception_of_the_program_is_no_branch_unless_that_is_asked_for() -> None:
    story = Story()
    for process in BOTH:
        story.told(process, BOTH)
    story.block(0, 0, BOTH, "completed", BOTH)
    story.block(1, 0, BOTH, "raised", BOTH)
    assert anomaly(story) == ""
    strict = AtomicBlocks(raised_is_failed=True)
    assert anomaly(story, strict) == "block-ended-in-both-branches"


def test_after_a_lost_answer_stays_are_not_compared() -> None:
    story = Story()
    for process in BOTH:
        story.told(process, BOTH)
    story.lost(1)
    story.block(0, 0, BOTH, "failed", ALONE)
    story.block(1, 0, BOTH, "completed", BOTH)
    verdict = check_blocks(story.history)
    assert isinstance(verdict, Valid)
    assert verdict.explain().endswith("; 1 stay not compared.")


@pytest.mark.parametrize("semantics", ["published", "naive"])
def test_simulated_services_keep_and_break_them(semantics: str) -> None:
    verdicts: Counter[str] = Counter()
    for seed in range(60):
        faults = draw_faults(seed, 3, until_s=5.0, heartbeat_timeout_s=3.0)
        schedule = Schedule(processes=3, seed=seed, faults=faults, semantics=semantics)
        verdicts[check_blocks(simulate(training_loop(), schedule).history).word] += 1
    if semantics == "published":
        assert verdicts == {"valid": 60}
    else:
        assert verdicts["invalid"] > 40


def test_a_falsified_outcome_is_found() -> None:
    schedule = Schedule(processes=3, seed=1, semantics="published")
    history = simulate(training_loop(), schedule).history
    assert check_blocks(history).word == "valid"
    events = list(history.events)
    at = next(index for index, event in enumerate(events) if isinstance(event, Exit))
    exit_ = events[at]
    assert isinstance(exit_, Exit)
    assert exit_.outcome == "completed"
    events[at] = replace(exit_, outcome="failed", failed=(2,))
    assert check_blocks(History(history.header, events)).word == "invalid"
