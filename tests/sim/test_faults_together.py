"""Faults that overlap, and what the dead still try to do: order, silence and cuts hold nevertheless."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest

from checker import LiveProcesses, check
from checker.history import Crash as CrashEvent
from checker.history import Event, Invoke, Leave, Ok, WellFormed
from coord_sim.core.messages import TaskState
from coord_sim.errors import ProgramError, ServiceError
from coord_sim.faults import Crash, Degrade, Fault, Partition, Pause, Reset, Restart, Skew, Slow
from coord_sim.moments import SERVICE, When
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, Program, Run, Simulation, simulate, training_loop
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.lifetime import Lifetime
from coord_sim.sim.nemesis import draw_schedule


def run(program: Program, *faults: Fault, **settings: Any) -> Run:
    settings = {"processes": 2, "semantics": "published", "limit_s": 60.0, **settings}
    return simulate(program, Schedule(faults=faults, **settings))


# --- together ------------------------------------------------------------------------------------


async def two_writes(process: Process) -> None:
    """Process 1 writes twice without waiting; who reads in the end sees the second."""
    await process.sleep(1.1)
    if process.number == 1:
        writes = []
        for number in range(6):
            write = process.client.key_value_set("k", str(number), allow_overwrite=True)
            writes.append(process.start(write))
            await process.sleep(0.2)
        for waiting in writes:
            await waiting
    else:
        await process.sleep(25.0)
        process.disk["k"] = await process.client.key_value_try_get("k")


@pytest.mark.parametrize(
    "faults",
    [
        (Pause(SERVICE, 1.0, 1.0), Pause(SERVICE, 1.5, 1.5)),
        (Slow(SERVICE, 1.0, 1.0, delay_s=0.5),),
        (Slow(SERVICE, 1.0, 5.0, delay_s=0.5), Slow(SERVICE, 1.5, 0.5, delay_s=0.1)),
        (Slow(SERVICE, 1.0, 2.0, delay_s=0.4), Pause(SERVICE, 1.5, 2.0)),
        (Partition((1,), 1.0, 1.0), Partition((1,), 1.5, 2.0)),
        (Partition((1,), 1.0, 2.0, one_way=True), Degrade(1, 0.5, 1.0, delay_s=0.4)),
        (Degrade(1, 1.0, 0.5, delay_s=1.5), Partition((1,), 1.6, 3.0)),
    ],
)
def test_what_one_process_sends_arrives_in_order_whatever_overlaps(
    faults: tuple[Fault, ...],
) -> None:
    overlapping = run(two_writes, *faults, heartbeat_timeout_s=40.0)
    assert overlapping.disks[0]["k"] == "5"
    assert overlapping.finished


@pytest.mark.parametrize(
    "others",
    [
        (Degrade(1, 1.0, 1.0, delay_s=0.001),),
        (Partition((1,), 1.0, 2.0),),
        (Partition((0,), 1.0, 4.0), Degrade(None, 2.0, 2.0, jitter_s=0.1)),
        (Degrade(1, 1.0, 0.4, delay_s=3.0),),
    ],
)
def test_nothing_crosses_a_cut_while_it_lasts(others: tuple[Fault, ...]) -> None:
    cut = run(
        two_writes, Partition((1,), 1.5, 10.0), *others, heartbeat_timeout_s=40.0, limit_s=60.0
    )
    answered = times_s(cut, Ok, 1)
    assert not [time for time in answered if 1.52 < time < 11.5]
    assert len(answered) == 6


def times_s(run_: Run, kind: type[Event], process: int) -> list[float]:
    return [
        event.time_ns / 1e9
        for event in run_.history.events
        if isinstance(event, kind) and event.process == process
    ]


@pytest.mark.parametrize(
    "others",
    [
        (Pause(1, 3.0, 6.0),),
        (Slow(1, 1.0, 4.0, delay_s=0.3, factor=2.0),),
        (Skew(1, 2.5, offset_s=3.0, drift=0.2),),
        (Reset(0, 3.0), Partition((0,), 2.5, 1.0)),
    ],
)
def test_a_process_does_nothing_while_it_stands_still(others: tuple[Fault, ...]) -> None:
    async def program(process: Process) -> None:
        for number in range(20):
            await process.client.key_value_set(f"{process.number}/{number}", "")
            with pytest.raises(ServiceError):
                await process.client.blocking_key_value_get("never", 200)

    still = run(program, Pause(1, 2.0, 5.0), *others, heartbeat_timeout_s=60.0, limit_s=120.0)
    pauses = [fault for fault in others if isinstance(fault, Pause)]
    longest_s = 9.0 if pauses else 7.0
    inside = [
        event
        for event in still.history.events
        if event.process == 1 and 2e9 < event.time_ns < longest_s * 1e9
    ]
    assert inside == []
    assert len([time for time in times_s(still, Invoke, 1) if time >= longest_s]) > 10


def test_drawn_faults_that_overlap_leave_every_history_well_formed() -> None:
    """With a program that goes on in its `finally` clauses, as programs do."""

    async def program(process: Process) -> None:
        try:
            await training_loop(3)(process)
        finally:
            process.log("leaving")
            try:
                await process.client.key_value_set("last", str(process.number), True)
            finally:
                await process.client.shutdown()

    base = Schedule(processes=3, semantics="published", hosts=((0, 1), (2,)))
    for seed in range(60):
        drawn = simulate(program, draw_schedule(seed, base))
        rules = WellFormed(drawn.history.header)
        for event in drawn.history.events:
            rules.accept(event)
        assert check(drawn.history, LiveProcesses()).word == "valid", f"seed {seed}"


# --- the dead ------------------------------------------------------------------------------------


def test_what_a_killed_process_does_in_its_finally_clauses_has_no_effect() -> None:
    async def program(process: Process) -> None:
        if process.number == 1 and process.lifetime == 0:
            try:
                try:
                    await process.sleep(60.0)
                finally:
                    process.disk["late"] = 1
                    process.log("dead men tell no tales")
                    process.sometimes("said by the dead")
                    await process.client.key_value_set("k", "written by the dead")
            finally:
                await process.client.shutdown()
        elif process.number == 0:
            await process.sleep(5.0)
            with pytest.raises(ServiceError):
                await process.client.key_value_try_get("k")

    simulation = Simulation(
        program,
        Schedule(processes=2, semantics="published", faults=(Crash(1, 2.0), Restart(1, 8.0))),
    )
    simulation.run_until(2.5)
    service = simulation.service()
    assert service is not None
    assert [task.state for task in service.membership.tasks] == [TaskState.CONNECTED] * 2
    simulation.run_until(6.5)
    assert service.membership.tasks[1].state is TaskState.ERROR
    killed = simulation.run()
    assert killed.log == ()
    assert "said by the dead" not in killed.reached
    assert killed.disks[1] == {}
    rules = WellFormed(killed.history.header)
    for event in killed.history.events:
        rules.accept(event)
    assert killed.ends[0].state == "left"


def test_messages_to_a_service_that_died_are_lost_with_it() -> None:
    async def write(process: Process) -> None:
        await process.sleep(1.0 - process.clock_s())
        if process.number == 1:
            await process.client.key_value_set("k", "sent to the first service")
        await process.sleep(60.0)

    faults = (
        Partition((1,), 0.9, 4.0),
        Crash(1, 1.2),
        Crash(SERVICE, 2.0),
        Restart(SERVICE, 3.0),
    )
    schedule = Schedule(processes=2, faults=faults, durable=True, limit_s=20.0)
    simulation = Simulation(write, schedule, is_open=True)
    simulation.run_until(10.0)
    service = simulation.service()
    assert service is not None
    assert service.survey(simulation.queue.now_ns).keys == 0


def test_dead_lifetimes_are_forgotten() -> None:
    async def program(process: Process) -> None:
        await process.sleep(1e6)

    faults: list[Fault] = []
    for number in range(40):
        faults += [Crash(1, 1.0 + number), Restart(1, 1.5 + number)]
    simulation = Simulation(program, Schedule(processes=2, faults=tuple(faults), limit_s=100.0))
    simulation.run_until(60.0)
    gc.collect()
    frames = [
        each
        for each in gc.get_objects()
        if isinstance(each, Lifetime) and each.process == 1 and not each.is_alive and each._tasks
    ]
    assert frames == []


# --- leaving -------------------------------------------------------------------------------------


def test_leaving_cancels_what_waits_and_the_second_time_sends_nothing() -> None:
    async def program(process: Process) -> None:
        async def get(key: str) -> None:
            with pytest.raises(ServiceError) as error:
                await process.client.blocking_key_value_get(key)
            process.log(error.value.status.code.name)

        waiting = process.start(get("never"))
        await process.sleep(1.0)
        await process.client.shutdown()
        await process.client.shutdown()
        await waiting
        await get("k")
        await process.client.key_value_set("k", "the store still answers")

    left = run(program, processes=1, semantics="shipped")
    assert [line.text for line in left.log] == ["CANCELLED", "CANCELLED"]
    assert left.ends[0].state == "left"
    assert len([e for e in left.history.events if isinstance(e, Invoke)]) == 3


async def leave_apart(process: Process) -> None:
    """Process 1 leaves four seconds after process 0, which waits for it, with a read open."""

    async def get() -> None:
        with pytest.raises(ServiceError, match="CANCELLED"):
            await process.client.blocking_key_value_get("never")
        process.log("cancelled")

    waiting = process.start(get())
    await process.sleep(1.0 + 4.0 * process.number)
    await process.client.shutdown()
    await waiting


def test_what_waits_goes_on_waiting_until_the_process_has_left() -> None:
    done = run(leave_apart, recoverable=False)
    assert [line.text for line in done.log] == ["cancelled"] * 2
    assert all(line.time_s >= 5.0 for line in done.log)
    assert [end.state for end in done.ends] == ["left", "left"]


def test_a_process_that_waits_to_leave_still_dies_of_heartbeats_that_fail() -> None:
    done = run(leave_apart, Pause(SERVICE, 1.5, 20.0), recoverable=False)
    assert "the heartbeat of task 0 was not answered in time" in done.ends[0].cause


def test_a_process_that_exits_by_itself_leaves_or_crashes_by_its_code() -> None:
    async def program(process: Process) -> None:
        raise SystemExit(process.number)

    done = run(program, processes=2)
    assert [end.state for end in done.ends] == ["left", "crashed"]
    assert "the program raised SystemExit: 1" in done.ends[1].cause
    assert {type(e) for e in done.history.events if isinstance(e, Leave | CrashEvent)} == {
        Leave,
        CrashEvent,
    }


def test_a_coroutine_that_exits_ends_its_process_in_the_middle_of_a_step() -> None:
    async def program(process: Process) -> None:
        async def quits() -> None:
            raise SystemExit(0)

        process.start(quits())
        process.log("said by nobody")

    done = run(program, processes=1)
    assert done.ends[0].state == "left"
    assert done.log == ()


def test_what_is_no_program_is_said_before_the_run() -> None:
    async def takes_nothing() -> None:
        pass

    def fails_at_once(process: Process) -> Any:
        raise ValueError("no coroutine")

    with pytest.raises(ProgramError, match="takes a Process"):
        run(takes_nothing)  # type: ignore[arg-type]
    assert "ValueError: no coroutine" in run(fails_at_once).ends[0].cause


def test_hundreds_of_coroutines_may_wait_for_each_other() -> None:
    async def program(process: Process) -> None:
        async def wait_for(other: Any) -> None:
            await other

        waiting: Any = process.sleep(1.0)
        for _ in range(3000):
            waiting = process.start(wait_for(waiting))
        await waiting

    assert run(program, processes=1).finished


# --- who and where -------------------------------------------------------------------------------


def test_a_job_with_more_tasks_than_processes_never_forms() -> None:
    alone = run(training_loop(1), processes=1, tasks=2, register_timeout_s=5.0, init_timeout_s=10.0)
    assert alone.ends[0].state == "crashed"


@pytest.mark.parametrize(
    ("fault", "late"), [(Pause(0, 1.5, 4.0), True), (Partition((0,), 1.5, 4.0), True)]
)
def test_what_befalls_a_process_befalls_the_service_in_it(fault: Fault, late: bool) -> None:
    inside = run(two_writes, fault, service_in=0, heartbeat_timeout_s=40.0)
    outside = run(two_writes, fault, heartbeat_timeout_s=40.0)
    assert bool([time for time in times_s(inside, Ok, 1) if 1.52 < time < 5.4]) != late
    assert [time for time in times_s(outside, Ok, 1) if 1.52 < time < 5.4]
    if isinstance(fault, Partition):
        assert inside.disks[0]["k"] == "5"


def test_a_restart_that_never_comes_does_not_keep_a_run_from_its_end() -> None:
    never = When("inside", 1, "live_processes", 99)
    over = run(training_loop(2), Crash(1, never), Restart(1, When("crash", 1)))
    assert over.finished
    assert over.end_s < 10.0
    last = run(training_loop(2), Crash(0, 1.0), Crash(1, 1.0), Restart(1, When("crash", 1)))
    assert last.ends[1].state == "left"


def test_a_new_start_does_not_stand_still_with_the_old_one() -> None:
    paused = run(training_loop(2), Pause(1, 1.0, 20.0), Crash(1, 2.0), Restart(1, 3.0))
    assert paused.end_s < 15.0


def test_a_new_start_is_let_in_although_the_old_one_was_slow_and_stood_still() -> None:
    """Found by a campaign, with seed 1004746."""
    faults = (Slow(0, 1.23, 5.0, delay_s=0.01), Pause(0, 1.52, 5.0), Crash(0, 5.0), Restart(0, 5.0))
    for seed in range(8):
        again = run(training_loop(2), *faults, processes=1, seed=seed, limit_s=30.0)
        assert again.finished, f"seed {seed}: {again.ends}"


def test_stepping_to_the_limit_is_the_same_as_running_to_it() -> None:
    faults = tuple(Crash(process, 10.0) for process in range(3))
    schedule = Schedule(processes=3, faults=faults, limit_s=10.0)

    async def program(process: Process) -> None:
        await process.sleep(60.0)

    simulation = Simulation(program, schedule)
    while simulation.step():
        pass
    whole = simulate(program, schedule)
    assert replace(simulation.result()).ends == whole.ends
    assert simulation.result().events == whole.events


def test_streams_of_one_seed_are_independent() -> None:
    draws = [Entropy(1).stream(name).random() for name in ("a", "b")]
    assert draws[0] != draws[1]
