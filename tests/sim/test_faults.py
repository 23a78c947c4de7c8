"""What each fault does to a run, seen by programs and in the history."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from checker.history import Crash as CrashEvent
from checker.history import Event, Fail, Info, Invoke, Ok, Start
from coord_sim.core.status import Code
from coord_sim.errors import ScheduleError, ServiceError
from coord_sim.faults import (
    Crash,
    Degrade,
    Fault,
    Partition,
    Pause,
    Refuse,
    Reset,
    Restart,
    Skew,
    Slow,
)
from coord_sim.moments import SERVICE, When, parse_moment
from coord_sim.schedule import Place, Schedule
from coord_sim.sim import Process, Program, Run, simulate, training_loop


def run(program: Program, *faults: Fault, **settings: Any) -> Run:
    settings = {"processes": 2, "semantics": "published", "limit_s": 60.0, **settings}
    return simulate(program, Schedule(faults=faults, **settings))


def times_s(run_: Run, kind: type[Event], process: int) -> list[float]:
    return [
        event.time_ns / 1e9
        for event in run_.history.events
        if isinstance(event, kind) and event.process == process
    ]


async def write_every_second(process: Process) -> None:
    for number in range(8):
        await process.client.key_value_set(f"{process.number}/{number}", "x")
        await process.sleep(1.0)


def test_a_paused_process_stands_still_and_goes_on_and_its_messages_wait() -> None:
    paused = run(write_every_second, Pause(1, 2.5, 1.0), heartbeat_timeout_s=10.0)
    for process, expected in ((0, 0), (1, 1)):
        writes = times_s(paused, Invoke, process)
        assert sum(2.5 < time < 3.5 for time in writes) == 1 - expected
    assert paused.finished


def test_a_pause_longer_than_the_time_out_is_taken_for_a_death() -> None:
    paused = run(training_loop(), Pause(1, 2.0, 8.0))
    assert paused.reached["declared dead while alive"] == 1
    (end,) = [end for end in paused.ends if end.process == 1]
    assert end.state == "crashed"
    assert end.at_s == pytest.approx(10.0, abs=0.1)
    assert "heartbeat timeout" in end.cause


def test_a_slow_process_sleeps_longer_and_takes_its_messages_one_after_the_other() -> None:
    slow = run(write_every_second, Slow(1, 0.0, 100.0, delay_s=0.25, factor=2.0))
    calls = times_s(slow, Invoke, 1)
    assert all(late - early > 2.2 for early, late in itertools.pairwise(calls))
    assert times_s(slow, Ok, 0)[-1] < 8.0


def test_a_skewed_clock_jumps_for_the_program_and_drifts_for_its_timers() -> None:
    read: list[float] = []

    async def program(process: Process) -> None:
        if process.number == 1:
            for _ in range(4):
                read.append(process.clock_s())
                await process.sleep(1.0)

    skewed = run(program, Skew(1, 1.5, offset_s=100.0, drift=-0.5))
    assert read[1] - read[0] == pytest.approx(1.0)
    assert read[2] - read[1] == pytest.approx(101.0, abs=0.3)
    # Half as fast: it wakes late, but by its own clock a second has passed.
    assert read[3] - read[2] == pytest.approx(1.0)
    assert skewed.end_s > 5.0


def test_a_slow_clock_beats_too_rarely_for_the_service() -> None:
    """At half the speed a heartbeat comes every 3 s in place of 1.5; the service waits for 2."""
    times = {"heartbeat_timeout_s": 2.0, "client_heartbeat_timeout_s": 3.0}
    drifting = run(write_every_second, Skew(1, 0.0, drift=-0.5), **times)
    assert drifting.reached["declared dead while alive"] == 1
    assert "declared dead while alive" not in run(write_every_second, **times).reached


@pytest.mark.parametrize(
    "bad", [{"loss": 0.5}, {"reorder": 1.0}, {"delay_s": 0.3}, {"jitter_s": 0.6}]
)
def test_a_bad_network_shows_as_delay_and_nothing_is_lost(bad: dict[str, Any]) -> None:
    good = run(write_every_second, heartbeat_timeout_s=20.0)
    degraded = run(write_every_second, Degrade(1, 0.0, 60.0, **bad), heartbeat_timeout_s=20.0)
    assert len(times_s(degraded, Ok, 1)) == 8
    assert sum(times_s(degraded, Ok, 1)) > sum(times_s(good, Ok, 1)) + 0.5
    assert degraded.finished


def test_duplicates_are_dropped_by_the_transport_but_not_by_a_raw_network() -> None:
    async def count(process: Process) -> None:
        for _ in range(5):
            await process.client.key_value_increment("n")
        process.disk["n"] = await process.client.key_value_try_get("n")

    def counted(*, raw: bool) -> int:
        fault = Degrade(None, 0.0, 60.0, duplicate=1.0, raw=raw)
        return int(run(count, fault, processes=1).disks[0]["n"])

    assert counted(raw=False) == 5
    assert counted(raw=True) > 5


def test_a_raw_network_loses_messages_for_good() -> None:
    lossy = run(write_every_second, Degrade(1, 0.5, 60.0, loss=1.0, raw=True))
    assert "answered in time" in lossy.ends[1].cause
    assert len(times_s(lossy, Ok, 1)) < 2


@pytest.mark.parametrize(
    ("partition", "arrives"),
    [
        (Partition((1,), 1.5, 0.9), False),
        (Partition((1,), 1.5, 0.9, (SERVICE,)), False),
        (Partition((1,), 1.5, 0.9, (SERVICE,), one_way=True), False),
        (Partition((SERVICE,), 1.5, 0.9, (1,), one_way=True), True),
        (Partition((1,), 1.5, 0.9, (0,)), True),
    ],
)
def test_a_partition_holds_back_what_is_sent_until_it_is_over(
    partition: Partition, arrives: bool
) -> None:
    """In time, that is: a value written at 2 s is read by another at 2.2 s."""

    async def program(process: Process) -> None:
        await process.sleep(2.0 - process.clock_s())
        if process.number == 1:
            await process.client.key_value_set("k", "v")
            process.disk["done_s"] = process.clock_s()
        else:
            await process.client.blocking_key_value_get("k")
            process.disk["seen_s"] = process.clock_s()

    parted = run(program, partition)
    assert (parted.disks[0]["seen_s"] < 2.2) == arrives
    is_whole = partition.other == (0,)
    assert (parted.disks[1]["done_s"] < 2.2) == is_whole


def test_a_reset_fails_what_waits_and_ends_the_process_through_its_error_poll() -> None:
    """As measured on jaxlib: the poll is sent without retries, so that one reset is fatal."""

    async def wait(process: Process) -> None:
        await process.client.blocking_key_value_get("never")

    broken = run(wait, Reset(1, 1.0), limit_s=10.0)
    assert [event.code for event in broken.history.events if isinstance(event, Info)] == [
        "UNAVAILABLE"
    ]
    assert broken.ends[1].at_s == pytest.approx(1.0)
    assert "Connection reset" in broken.ends[1].cause


def test_refused_connections_hit_who_has_none_and_registration_waits_for_one() -> None:
    refused = run(write_every_second, Refuse(0, 3.0, 60.0), Refuse(1, 0.0, 5.0), starts_s=(0, 1))
    assert refused.finished
    assert times_s(refused, Start, 0)[0] > 5.0, "all wait for the last to register"
    assert 5.0 < times_s(refused, Start, 1)[0] < 7.0
    assert all(end.state == "left" for end in refused.ends)


def test_a_reset_while_connections_are_refused_ends_the_process() -> None:
    refused = run(write_every_second, Refuse(1, 1.0, 60.0), Reset(1, 3.0), heartbeat_timeout_s=2.0)
    (end,) = [end for end in refused.ends if end.process == 1]
    assert end.state == "crashed"
    assert "UNAVAILABLE" in end.cause


def test_a_limit_of_bytes_is_refused_as_messages_have_no_size() -> None:
    with pytest.raises(ScheduleError, match="bytes_per_s is for real processes"):
        run(write_every_second, Degrade(1, 1.0, 1.0, bytes_per_s=1000.0))


def test_a_paused_service_answers_late_and_may_blame_the_living() -> None:
    """On waking, its overdue tick races with the heartbeats that lie queued."""
    blamed = set()
    for seed in range(30):
        fault = Pause(SERVICE, 1.05, 2.15)
        paused = run(write_every_second, fault, seed=seed, heartbeat_timeout_s=2.0)
        assert not [time for time in times_s(paused, Ok, 0) if 1.1 < time < 3.2]
        blamed.add("declared dead while alive" in paused.reached)
    assert blamed == {False, True}


def test_a_slow_service_takes_its_calls_one_after_the_other() -> None:
    async def write(process: Process) -> None:
        await process.client.key_value_set(str(process.number), "x")

    slow = run(write, Slow(SERVICE, 0.0, 100.0, delay_s=0.5), processes=4, heartbeat_timeout_s=30.0)
    answered = sorted(time for process in range(4) for time in times_s(slow, Ok, process))
    # Each write comes after an error poll, which takes as long.
    gaps = [late - early for early, late in itertools.pairwise(answered)]
    assert gaps == pytest.approx([1.0] * 3, abs=0.02)


@pytest.mark.parametrize(("durable", "again"), [(False, "nothing"), (True, "7")])
def test_a_service_that_was_killed_knows_what_was_durable(durable: bool, again: str) -> None:
    """Its clients die with their polls; those that start again find it."""

    async def program(process: Process) -> None:
        if process.lifetime == 0:
            await process.client.key_value_set("k", "7")
            await process.sleep(60.0)
        try:
            process.disk["k"] = await process.client.key_value_try_get("k")
        except ServiceError:
            process.disk["k"] = "nothing"

    faults: list[Fault] = [Crash(SERVICE, 2.0), Restart(SERVICE, 2.5)]
    faults += [Restart(process, When("crash", process, plus_s=2.0)) for process in (0, 1)]
    killed = run(program, *faults, durable=durable)
    assert [disk["k"] for disk in killed.disks] == [again, again]
    first, second = (
        {e.incarnation for e in killed.history.events if isinstance(e, Start) and e.lifetime == n}
        for n in (0, 1)
    )
    assert not first & second


def test_the_service_dies_with_the_process_that_it_runs_in() -> None:
    inside = run(write_every_second, Crash(0, 2.0), service_in=0)
    assert "Connection reset" in inside.ends[1].cause
    assert inside.ends[1].at_s == pytest.approx(2.0)
    outside = run(write_every_second, Crash(0, 2.0))
    assert outside.ends[1].state == "left"


def test_processes_start_when_the_schedule_says_and_some_never() -> None:
    late = run(write_every_second, starts_s=(0.0, 5.0))
    assert times_s(late, Start, 0)[0] == pytest.approx(5.0, abs=0.1)  # The barrier of registration.
    missing = run(
        write_every_second, starts_s=(0.0, None), init_timeout_s=3.0, register_timeout_s=60.0
    )
    assert missing.ends[1].state == "never started"
    assert missing.ends[0].state == "crashed"
    assert missing.ends[0].at_s == pytest.approx(8.0)
    assert "RegisterTask" in missing.ends[0].cause


def test_a_stranger_with_another_task_is_refused_or_replaces() -> None:
    stranger = run(
        write_every_second,
        processes=3,
        tasks=2,
        places=(Place(process=2, task=7),),
    )
    assert "INVALID_ARGUMENT" in stranger.ends[2].cause
    assert [stranger.ends[p].state for p in (0, 1)] == ["left", "left"]


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2.5", 2.5),
        ("inside 1 live_processes#3", When("inside", 1, "live_processes", 3)),
        ("after 0 block#2 +0.5", When("after", 0, "block", 2, 0.5)),
        ("crash 1#1 +5", When("crash", 1, "", 1, 5.0)),
        ("inside 1 barrier", When("inside", 1, "barrier")),
    ],
)
def test_moments_are_read_from_text_and_written_again(text: str, moment: float | When) -> None:
    assert parse_moment(text) == moment
    assert parse_moment(str(moment)) == moment


@pytest.mark.parametrize("text", ["", "soon", "inside 1", "crash 1 block#1", "inside -1 block#1"])
def test_what_is_no_moment_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(ValueError, match="inside P OPERATION#K"):
        parse_moment(text)


def test_a_process_is_killed_inside_the_call_that_the_condition_names() -> None:
    when = When("inside", 1, "live_processes", 3)
    killed = run(training_loop(), Crash(1, when), Restart(1, When("crash", 1, plus_s=4.0)))
    calls = [
        event.id
        for event in killed.history.events
        if isinstance(event, Invoke) and event.process == 1 and event.operation == "live_processes"
    ]
    ended = {e.id for e in killed.history.events if isinstance(e, Ok | Fail | Info)}
    assert calls[2] not in ended
    assert set(calls[:2]) <= ended
    (crash, *_) = times_s(killed, CrashEvent, 1)
    assert times_s(killed, Start, 1)[1] == pytest.approx(crash + 4.0, abs=0.1)
    assert [fault.name for fault in killed.history.faults] == [
        "crash of process 1",
        "restart of process 1",
    ]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Pause(5, 1.0, 1.0), "processes are 0 to 1"),
        (lambda: Pause(1, 1.0, -1.0), "for_s must be at least 0"),
        (lambda: Reset(SERVICE, 1.0), "processes are 0 to 1"),  # type: ignore[arg-type]
        (lambda: Degrade(1, 1.0, 1.0, loss=1.0), "a partition lets nothing through"),
        (lambda: Degrade(1, 1.0, 1.0, reorder=2.0), "reorder is a probability"),
        (lambda: Slow(1, 1.0, 1.0, factor=0.5), "factor must be at least 1"),
        (lambda: Skew(1, 1.0, drift=3.0), "drift is from -0.5 to 1"),
        (lambda: Partition((), 1.0, 1.0), "nobody on its side"),
        (lambda: Crash(1, When("inside", 9, "barrier")), "processes are 0 to 1"),
        (lambda: Crash(1, When("under", 1, "barrier")), "never holds"),
    ],
)
def test_an_impossible_fault_is_refused(make: Callable[[], Fault], problem: str) -> None:
    with pytest.raises(ScheduleError, match=problem):
        Schedule(processes=2, faults=(make(),))


def test_a_quiet_phase_is_quiet() -> None:
    with pytest.raises(ScheduleError, match="reaches into the quiet phase"):
        Schedule(processes=2, faults=(Pause(1, 1.0, 5.0),), quiet_from_s=3.0)
    with pytest.raises(ScheduleError, match="the run decides"):
        Schedule(processes=2, faults=(Crash(1, When("inside", 1, "block")),), quiet_from_s=3.0)


def test_a_blocking_get_gives_up_after_its_time_out() -> None:
    seen: list[object] = []

    async def program(process: Process) -> None:
        try:
            await process.client.blocking_key_value_get("never", 1500)
        except ServiceError as error:
            seen.append((error.status.code, round(process.clock_s(), 1)))

    run(program, processes=1)
    assert seen == [(Code.DEADLINE_EXCEEDED, 1.5)]
