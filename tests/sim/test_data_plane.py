"""The data plane: what a collective gives, to whom, and what becomes of it when a member dies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

import pytest

from checker.history import Crash as CrashEvent
from checker.history import Exit, Invoke
from coord_sim.errors import CollectiveError, ProcessFailureError
from coord_sim.faults import Crash, Fault, Partition, Restart
from coord_sim.moments import When
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, Run, simulate
from coord_sim.sim.data_plane import WITHOUT_INCARNATIONS, DataPlane, plane
from coord_sim.sim.data_plane.values import Operation, Value
from coord_sim.sim.entropy import Entropy, Stream
from coord_sim.sim.event_queue import EventQueue

PSUM, GATHER, SYNC = Operation("psum"), Operation("all_gather"), Operation("sync")


class Job:
    """A data plane without a control plane: members that join collectives when a test says so."""

    def __init__(self, draws: Iterable[float] | None = None, **settings: object) -> None:
        source = Entropy(1).stream("test") if draws is None else Stream(iter(draws).__next__, int)
        self.queue = EventQueue()
        self.reached: Counter[str] = Counter()
        self.plane = DataPlane(
            self.queue,
            stream=source,
            latency_s=(0.1, 0.2),
            reached=lambda name: self.reached.update([name]),
            **settings,  # type: ignore[arg-type]
        )
        self.ends: dict[int, tuple[float, Value, str]] = {}

    def join(
        self, process: int, operation: Operation, value: Value, incarnations: dict[int, int]
    ) -> plane.Part:
        def end(result: Value, error: CollectiveError | None) -> None:
            assert process not in self.ends
            self.ends[process] = (self.queue.now_ns / 1e9, result, str(error or ""))

        member = (process, incarnations[process])
        roster = self.plane.roster(incarnations, tuple(incarnations))
        return self.plane.join(member, roster, operation, value, end)

    def drain(self) -> None:
        until_ns = self.queue.now_ns + 10**12
        while self.queue.step(until_ns):
            pass

    @property
    def results(self) -> dict[int, Value]:
        return {process: result for process, (_, result, _) in sorted(self.ends.items())}


# --- communicators and collectives --------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 2, 0)])
def test_all_get_the_same_bits_whoever_comes_first_each_at_a_time_of_its_own(
    order: tuple[int, ...],
) -> None:
    values = (0.1, 0.2, 0.3)
    job = Job()
    for process in order:
        assert job.ends == {}
        job.join(process, PSUM, (values[process], process), {0: 7, 1: 8, 2: 9})
    job.drain()
    assert set(job.results.values()) == {((0.1 + 0.2) + 0.3, 3)}  # 0.1 + (0.2 + 0.3) has other bits
    times = [time_s for time_s, _, _ in job.ends.values()]
    assert len(set(times)) == 3
    assert all(0.1 <= time_s <= 0.2 for time_s in times)


@pytest.mark.parametrize(
    ("operation", "result"),
    [
        (GATHER, ("a", "b", "c")),
        (Operation("broadcast_one_to_all", 1), "b"),
        (SYNC, None),
    ],
)
def test_each_operation_gives_its_result_to_all(operation: Operation, result: Value) -> None:
    job = Job()
    for process in range(3):
        job.join(process, operation, "abc"[process], {0: 7, 1: 8, 2: 9})
    job.drain()
    assert job.results == {0: result, 1: result, 2: result}


def test_the_kth_collective_of_a_member_meets_the_kth_of_the_others() -> None:
    job = Job()
    pair = {0: 7, 1: 8}
    job.join(0, PSUM, 1, pair)
    job.join(0, PSUM, 10, pair)
    job.join(1, PSUM, 2, pair).cancel()  # Process 1 gives up on its first one.
    job.drain()
    assert job.results == {0: 3}
    job.ends.clear()
    job.join(1, PSUM, 20, pair)
    job.drain()
    assert job.results == {0: 30, 1: 30}


def test_members_that_do_not_do_the_same_wait_for_ever() -> None:
    job = Job()
    job.join(0, PSUM, 1, {0: 7, 1: 8})
    job.join(1, GATHER, 1, {0: 7, 1: 8})
    job.drain()
    assert job.ends == {}
    assert job.reached == {plane.MISMATCH: 1}


def test_a_new_incarnation_has_a_communicator_of_its_own() -> None:
    job = Job()
    job.join(0, PSUM, 1, {0: 7, 1: 8})  # Waits for an incarnation that is gone.
    job.plane.died(1, 8)
    for process in (0, 1):
        job.join(process, PSUM, 5, {0: 7, 1: 9})
    job.drain()
    assert job.results == {0: 10, 1: 10}
    assert job.reached[plane.NEVER_JOINED] == 1


def test_without_incarnations_the_survivor_and_the_newcomer_miss_each_other() -> None:
    job = Job(mutant=WITHOUT_INCARNATIONS)
    for process in (0, 1):
        job.join(process, PSUM, 1, {0: 7, 1: 8})
    job.drain()
    assert job.results == {0: 2, 1: 2}
    job.ends.clear()
    job.plane.died(1, 8)
    for process in (0, 1):
        job.join(process, PSUM, 5, {0: 7, 1: 9})
    job.drain()
    assert job.ends == {}


def test_nothing_is_kept_of_what_is_over() -> None:
    job = Job()
    members = {0: 7, 1: 8}
    for _ in range(10):
        for process in members:
            job.join(process, PSUM, 1, members)
        job.drain()
        job.ends.clear()
    (communicator,) = job.plane._communicators.values()
    assert communicator._collectives == {}
    for member in members.items():
        job.plane.died(*member)
    assert job.plane._communicators == {}


def test_a_partition_holds_up_everybody_once_all_have_joined() -> None:
    def held_until_ns(sender: int, receiver: int, now_ns: int) -> int:
        return 5 * 10**9 if (sender, receiver) == (2, 0) and now_ns < 5 * 10**9 else now_ns

    job = Job(held_until_ns=held_until_ns)
    for process in range(3):
        job.join(process, SYNC, None, {0: 7, 1: 8, 2: 9})
    job.drain()
    assert all(5.1 <= time_s <= 5.2 for time_s, _, _ in job.ends.values())


# --- a member dies ------------------------------------------------------------------------------


def test_if_a_member_dies_before_it_joined_the_others_wait_for_ever() -> None:
    job = Job()
    members = {0: 7, 1: 8, 2: 9}
    job.join(0, PSUM, 1, members)
    job.plane.died(2, 9)
    job.join(1, PSUM, 1, members)
    job.drain()
    assert job.ends == {}
    assert job.reached == {plane.NEVER_JOINED: 1}
    job.join(0, PSUM, 1, members)  # The next one is no better.
    job.drain()
    assert job.ends == {}
    assert job.reached == {plane.NEVER_JOINED: 2}


LATENCIES = [0.5] * 5
FINISHES, WRONG, FAILS, STUCK = 0.2, 0.42, 0.6, 0.9


def test_if_a_member_dies_inside_each_of_the_others_draws_its_own_end() -> None:
    """The guide: the right result on some, an incorrect one on some, an exception on some; or stuck."""
    job = Job([*LATENCIES, FINISHES, WRONG, FAILS, 0.5, STUCK])
    members = {process: 10 + process for process in range(5)}
    parts = [job.join(process, PSUM, 2**process, members) for process in range(5)]
    job.plane.died(4, 14)
    job.drain()
    assert {process: end[1:] for process, end in job.ends.items()} == {
        0: (31, ""),
        1: (15, ""),  # What the dead brought is missing.
        2: (None, "UNAVAILABLE: the connection to another member broke"),
    }
    assert job.reached == {
        plane.DIED_INSIDE: 1,
        plane.NOT_ATOMIC: 1,
        plane.WRONG_RESULT: 1,
    }
    assert not parts[3].is_over


@pytest.mark.parametrize(("fate", "ends"), [(FINISHES, {0, 1}), (FAILS, {0}), (STUCK, set())])
def test_it_may_die_before_the_others_have_joined(fate: float, ends: set[int]) -> None:
    """Process 0 joins in any case; its end comes when all have joined, but for an error."""
    job = Job([fate, 0.2, *LATENCIES])
    members = {0: 7, 1: 8, 2: 9}
    job.join(2, PSUM, 4, members)
    job.join(0, PSUM, 1, members)
    job.plane.died(2, 9)
    job.drain()
    assert set(job.ends) == ({0} if fate == FAILS else set())
    job.join(1, PSUM, 2, members)
    job.drain()
    assert set(job.ends) == ends | {1}


def test_a_second_death_makes_nothing_better() -> None:
    job = Job([*LATENCIES[:4], STUCK, FINISHES, FINISHES, FINISHES])
    members = {process: 10 + process for process in range(4)}
    for process in range(4):
        job.join(process, PSUM, 1, members)
    job.plane.died(3, 13)  # 0 is stuck; 1 and 2 finish.
    job.plane.died(2, 12)  # 1 draws again; 0 does not.
    job.drain()
    assert job.results == {1: 4}


def test_who_has_the_result_already_keeps_it() -> None:
    job = Job([0.0, 0.9, 0.5, FAILS, 0.5])
    members = {0: 7, 1: 8, 2: 9}
    for process in range(3):
        job.join(process, PSUM, 1, members)
    while not job.ends:
        job.queue.step(10**12)
    job.plane.died(2, 9)
    job.drain()
    assert job.results == {0: 3, 1: None}
    assert job.reached[plane.NOT_ATOMIC] == 1


# --- programs -----------------------------------------------------------------------------------

Body = Callable[[Process, tuple[int, ...]], Awaitable[None]]


def run_block(body: Body, faults: tuple[Fault, ...] = (), **settings: object) -> Run:
    """Every process runs `body` in one block, then leaves."""

    async def program(process: Process) -> None:
        try:
            async with process.live_devices() as live:
                await body(process, live)
        except (ProcessFailureError, CollectiveError) as error:
            process.log(f"{type(error).__name__}: {error}")
        await process.client.shutdown()

    return simulate(program, Schedule(processes=3, faults=faults, **settings))  # type: ignore[arg-type]


def logged(run: Run) -> list[tuple[int, str]]:
    return sorted((line.process, line.text) for line in run.log)


def test_dispatch_returns_at_once_and_the_device_works_in_order() -> None:
    async def body(process: Process, live: tuple[int, ...]) -> None:
        devices = process.devices
        began_s = process.clock_s()
        one = devices.compute(lambda: process.number, takes_s=1.0)
        two = devices.psum(one, live)
        three = devices.compute(lambda total, more: total * more, two, 100, takes_s=1.0)
        assert process.clock_s() == began_s
        assert not any(array.is_settled for array in (one, two, three))
        value = await three.block_until_ready()
        assert one.is_settled
        assert two.is_settled
        process.log(f"{value} after {process.clock_s() - began_s:.1f} s")

    run = run_block(body)
    assert run.finished
    assert logged(run) == [(process, "300 after 2.0 s") for process in range(3)]


def test_an_array_computed_from_one_that_failed_fails_too_and_others_do_not() -> None:
    async def body(process: Process, live: tuple[int, ...]) -> None:
        devices = process.devices
        poisoned = devices.compute(lambda: 1 // 0)
        derived = devices.compute(lambda value: value + 1, poisoned)
        healthy = devices.psum(1, live)
        assert await healthy.block_until_ready() == 3
        assert derived.error is poisoned.error
        with pytest.raises(ZeroDivisionError):
            await derived.block_until_ready()
        process.log("seen")

    assert logged(run_block(body)) == [(process, "seen") for process in range(3)]


def test_mistakes_of_a_program_are_told_where_they_are_made() -> None:
    foreign = []

    async def body(process: Process, live: tuple[int, ...]) -> None:
        devices = process.devices
        foreign.append(devices.compute(lambda: 1))
        with pytest.raises(ValueError, match=r"process \d is not among the members"):
            devices.psum(1, [p for p in live if p != process.number])
        with pytest.raises(ValueError, match="the source 7 is not among the members"):
            devices.broadcast_one_to_all(1, live, source=7)
        await process.sleep(1.0)
        with pytest.raises(ValueError, match="an array of another process"):
            devices.psum(foreign[(process.number + 1) % 3], live)
        process.log("seen")

    assert logged(run_block(body)) == [(process, "seen") for process in range(3)]


def test_a_collective_needs_a_live_set_to_know_the_incarnations() -> None:
    """The guide's first example calls `_live_devices` for nothing but this."""

    async def program(process: Process) -> None:
        everybody = process.participants
        early = process.devices.sync(everybody)
        with pytest.raises(
            CollectiveError, match="latest live set of this process does not name 0, 1"
        ):
            await early.block_until_ready()
        await process.client.get_live_nodes(everybody)
        await process.devices.sync(everybody).block_until_ready()
        process.log("seen")

    run = simulate(program, Schedule(processes=2))
    assert logged(run) == [(0, "seen"), (1, "seen")]


def test_thousands_of_collectives_can_be_dispatched_at_once() -> None:
    async def body(process: Process, live: tuple[int, ...]) -> None:
        chain = process.devices.compute(lambda: 1 // (process.number + 1))
        for _ in range(3000):
            chain = process.devices.compute(lambda value: value, chain)
        await chain.block_until_ready()
        failed = process.devices.compute(lambda: 1 // 0, takes_s=1.0)
        for _ in range(3000):
            failed = process.devices.psum(failed, live)
        with pytest.raises(ZeroDivisionError):
            await failed.block_until_ready()
        process.log("seen")

    assert logged(run_block(body)) == [(process, "seen") for process in range(3)]


async def sum_after_a_second(process: Process, live: tuple[int, ...]) -> None:
    devices = process.devices
    total = devices.psum(devices.compute(lambda: 1, takes_s=1.0), live)
    process.log(f"the sum is {await total.block_until_ready()}")


KILL = Crash(2, When("inside", 2, "block", 1, 0.5))


def test_a_death_that_the_service_declares_cancels_the_collectives_with_the_dead() -> None:
    run = run_block(sum_after_a_second, (KILL,))
    assert run.finished
    assert logged(run) == [
        (process, "ProcessFailureError: processes failed: 2") for process in (0, 1)
    ]
    assert run.reached[plane.CANCELLED] == 2
    raised = [event.message for event in run.history.events if isinstance(event, Exit)]
    assert len(raised) == 2
    assert all("CollectiveError: FAILED_PRECONDITION: incarnation" in message for message in raised)


def test_without_cancelling_the_survivors_are_stuck_for_ever() -> None:
    run = run_block(sum_after_a_second, (KILL,), abort_collectives=False)
    assert not run.finished
    waiting = {end.process: end.waits_for for end in run.ends if end.state == "running"}
    assert waiting == dict.fromkeys((0, 1), "collective psum over 0, 1, 2")


def test_a_restart_cancels_before_any_time_out() -> None:
    run = run_block(sum_after_a_second, (KILL, Restart(2, When("crash", 2, "", 1, 0.1))))
    failed_s = [line.time_s for line in run.log if line.process != 2]
    crashed_s = next(e.time_ns for e in run.history.events if isinstance(e, CrashEvent)) / 1e9
    assert len(failed_s) == 2
    assert max(failed_s) < crashed_s + 2.0  # The heartbeat time-out is 3 s.


def test_a_collective_with_somebody_who_is_known_to_be_dead_is_refused_at_once() -> None:
    async def body(process: Process, live: tuple[int, ...]) -> None:
        await process.devices.sync(live).block_until_ready()
        await process.sleep(10.0)  # Process 2 dies meanwhile.
        before_s = process.clock_s()
        late = process.devices.psum(1, live)
        assert isinstance(late.error, CollectiveError)
        assert late.error.failed == (2,)
        with pytest.raises(CollectiveError):
            await late.block_until_ready()
        process.log(f"refused after {process.clock_s() - before_s:g} s")

    run = run_block(body, (KILL,))
    assert [text for _, text in logged(run) if text.startswith("refused")] == [
        "refused after 0 s"
    ] * 2


def test_who_stays_away_alive_blocks_all_without_any_failure() -> None:
    """No failure, no progress: heartbeats go on, nobody is declared dead, nothing is cancelled."""

    async def body(process: Process, live: tuple[int, ...]) -> None:
        while process.number == 1:
            await process.sleep(1.0)
        await process.devices.sync(live).block_until_ready()

    run = run_block(body, limit_s=60.0)
    assert [(end.state, end.waits_for) for end in run.ends] == [
        ("running", "collective sync over 0, 1, 2"),
        ("running", "its sleep"),
        ("running", "collective sync over 0, 1, 2"),
    ]


def test_a_partition_between_two_processes_holds_up_collectives_and_nothing_else() -> None:
    async def body(process: Process, live: tuple[int, ...]) -> None:
        await process.sleep(1.0)
        await process.client.key_value_set(f"key/{process.number}", "here")
        process.log("control")
        await process.devices.sync(live).block_until_ready()
        process.log("data")

    run = run_block(body, (Partition((0,), 0.5, 20.0, other=(1,)),))
    assert run.finished
    assert all(line.time_s < 3.0 for line in run.log if line.text == "control")
    assert all(20.5 < line.time_s < 21.0 for line in run.log if line.text == "data")
    assert len(run.log) == 6


def test_the_watch_of_the_tasks_is_no_operation_of_the_program_and_keeps_nobody() -> None:
    run = run_block(sum_after_a_second)
    assert run.finished
    assert run.events < 150  # It waits for changes; it does not ask again and again.
    assert {e.operation for e in run.history.events if isinstance(e, Invoke)} == {
        "live_processes",
        "shutdown",
    }
