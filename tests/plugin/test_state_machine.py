"""The state machine: what Hypothesis finds with it, and what its rules can do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

from checker import Violation
from checker.history import Exit
from coord_sim.errors import ServiceError
from coord_sim.faults import Crash, Restart
from coord_sim.schedule import Schedule
from coord_sim.sim import Process
from coord_sim.testing.scripts import Barrier, Block, Read, Round, Sleep, Write
from coord_sim.testing.state_machine import CoordinationStateMachine

found = settings(
    max_examples=400,
    stateful_step_count=10,
    database=None,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)


class Published(CoordinationStateMachine):
    schedule = Schedule(processes=3, semantics="published")


def steps_of(error: BaseException) -> list[str]:
    """The rules of the falsifying example, in order, as Hypothesis prints them."""
    lines = "\n".join(getattr(error, "__notes__", [])).splitlines()
    rules = [line.strip().removeprefix("state.") for line in lines if "state." in line]
    return [line for line in rules if not line.startswith(("live_sets", "teardown"))]


def failure_of(machine: type[CoordinationStateMachine]) -> tuple[str, list[str]]:
    with pytest.raises(Violation) as failed:
        run_state_machine_as_test(machine, settings=found)
    return str(failed.value), steps_of(failed.value)


def test_nothing_is_wrong_with_the_published_service() -> None:
    run_state_machine_as_test(Published, settings=settings(found, max_examples=60))


def test_the_ghost_entry_of_the_shipped_service_is_found_and_shrunk() -> None:
    class Shipped(CoordinationStateMachine):
        # Messages that take equally long: else the shortest example hangs on their order.
        schedule = Schedule(processes=2, latency_min_s=0.001, latency_max_s=0.001)
        kinds = ()
        operations = st.just(Round())
        progress_s = 8.0
        # Rules that are not wanted: time passes at the end.
        a_few_things_happen = None  # type: ignore[assignment]
        time_passes = None  # type: ignore[assignment]

    told, rules = failure_of(Shipped)
    assert "a ghost entry" in told
    assert len(rules) <= 6  # Four, and perhaps some that did nothing.
    assert sum("crashes" in line for line in rules) == 1
    assert any("starts" in line for line in rules)


def test_a_program_that_waits_for_ever_makes_no_progress() -> None:
    class Waits(CoordinationStateMachine):
        schedule = Schedule(processes=2, semantics="published")

        async def program(self, process: Process) -> None:
            if process.lifetime > 0:
                await process.client.blocking_key_value_get("never written")
            await process.sleep(2.0)
            await process.client.shutdown()

    told, rules = failure_of(Waits)
    assert "no progress in 60 s" in told
    assert "waits for key_value_get never written" in told
    assert sum("starts" in line for line in rules) == 1
    assert not any("goes_wrong" in line for line in rules)


def test_rules_and_invariants_of_a_subclass_count() -> None:
    class Counts(Published):
        def __init__(self) -> None:
            super().__init__()
            self.written = 0

        @rule()
        def write(self) -> None:
            if self.idle:
                asked = self.ask(self.idle[0], Write("count", str(self.written + 1)))
                if self.run_until(self.now_s + 5, lambda: asked.is_done) and not asked.error:
                    self.written += 1

        @invariant()
        def writes_are_few(self) -> None:
            if self.written >= 3:
                raise Violation("three writes")

    told, rules = failure_of(Counts)
    assert told == "three writes"
    assert [line for line in rules if not line.startswith("writes")] == ["write()"] * 3


# --- by hand, without Hypothesis ---------------------------------------------------------------


def test_puppets_do_what_they_are_asked() -> None:
    machine = Published()
    assert machine.live == machine.idle == (0, 1, 2)
    written = machine.ask(0, Write("k", "v"))
    assert not written.is_done
    with pytest.raises(LookupError, match="process 0 is not done"):
        _ = written.value
    with pytest.raises(ValueError, match="process 0 is not idle"):
        machine.ask(0, Read("k"))
    assert machine.run_until(machine.now_s + 1, lambda: written.is_done)
    read, missing = machine.ask(1, Read("k")), machine.ask(2, Read("none"))
    machine.run_until(machine.now_s + 1)
    assert read.value == "v"
    with pytest.raises(ServiceError, match="NOT_FOUND"):
        _ = missing.value
    machine.require_progress()
    assert len(machine.live) == 0


def test_events_can_be_taken_one_by_one() -> None:
    machine = Published()
    before = machine.simulation.queue.ran
    written = machine.ask(0, Write("k", "v"))
    steps = 0
    while not written.is_done:
        assert machine.step()
        steps += 1
    assert steps == machine.simulation.queue.ran - before - 1
    assert 2 <= steps < 20


def test_everybody_may_die_and_come_back() -> None:
    machine = Published()
    for process in machine.processes:
        machine.inject(Crash(process, machine.now_s))
    assert len(machine.live) == 0
    machine.run_until(20.0)
    assert machine.now_s == 20.0
    for process in machine.processes:
        machine.inject(Restart(process, machine.now_s))
    machine.run_until(21.0)
    assert machine.idle == (0, 1, 2)
    machine.require_progress()


def test_a_crash_in_a_block_is_seen_by_the_others() -> None:
    machine = Published()
    asked = [machine.ask(process, Block(1.0)) for process in machine.processes]
    machine.run_until(0.5)
    machine.inject(Crash(2, machine.now_s))
    machine.run_until(10.0)
    assert [each.is_done for each in asked] == [True, True, False]
    exits = [event for event in machine.history().events if isinstance(event, Exit)]
    assert {(event.process, event.failed) for event in exits} == {(0, (2,)), (1, (2,))}
    machine.live_sets_are_valid()
    machine.require_progress()


def test_those_who_wait_for_one_that_was_never_started_are_helped() -> None:
    class Late(CoordinationStateMachine):
        schedule = Schedule(processes=2, starts_s=(0.0, None))

    machine = Late()
    assert list(machine.live) == [0]
    assert len(machine.idle) == 0
    machine.require_progress()
    assert len(machine.live) == 0


@pytest.mark.parametrize("step", [Sleep(0.2), Barrier("x", 1000)], ids=repr)
def test_any_async_function_can_be_asked_for(step: Any) -> None:
    async def twice(process: Process) -> int:
        await step(process)
        await process.sleep(0.1)
        return process.number

    machine = Published()
    asked = [machine.ask(process, twice) for process in machine.processes]
    machine.run_until(2.0)
    assert [each.value for each in asked] == [0, 1, 2]
