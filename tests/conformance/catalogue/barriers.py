"""Named barriers."""

from __future__ import annotations

from typing import Any

from coord_sim.core.status import Code
from tests.conformance.scenario import ALL, Job, scenario


async def together(job: Job, name: str, tasks: list[Any], barrier_id: str, **options: Any) -> None:
    """All tasks pass a barrier."""
    calls = [task.barrier(barrier_id, **options) for task in tasks]
    for task, call in zip(tasks, calls, strict=True):
        await job.ok(f"{name}, task {task.number}", call)


@scenario("25", tasks=3)
async def instances_are_counted(job: Job) -> None:
    """Instances of a barrier are counted, and a wrong counter fails the instance for everybody."""
    a, b, c = tasks = await job.register_all()
    await together(job, "s at 0", tasks, "s")
    await job.ok("a at 0 again", a.barrier("s", counter=0), counter=0)
    await together(job, "s at 1", tasks, "s", counter=1)
    await job.fails(
        "a at 5", a.barrier("s", counter=5), Code.INTERNAL, "1-th instance", "CE BE{s, 1}"
    )
    for task, name in ((b, "b"), (c, "c")):
        await job.fails(
            f"{name} at 1 again",
            task.barrier("s", counter=1),
            Code.INTERNAL,
            "1-th instance",
            "CE BE{s, 1}",
        )
    await together(job, "s at 2", tasks, "s", counter=2)


@scenario("25c", tasks=3, callers=ALL)
async def a_barrier_is_used_again_and_again(job: Job) -> None:
    """All tasks pass one barrier id several times."""
    a, b, c = tasks = await job.register_all()
    for turn in range(3):
        first = a.barrier("s")
        second = b.barrier("s")
        await job.waits(f"a and b, turn {turn}", first, second)
        await job.ok(f"c, turn {turn}", c.barrier("s"), counter=turn)
        await job.ok(f"a, turn {turn}", first, counter=turn)
        await job.ok(f"b, turn {turn}", second, counter=turn)
    await together(job, "another id", tasks, "t")


@scenario("25d", tasks=2)
async def a_wrong_counter_fails_those_who_wait(job: Job) -> None:
    """A wrong counter fails an instance that others wait in, and a first use above 0 fails."""
    a, b = await job.register_all()
    waiting = a.barrier("s")
    await job.waits("a at 0", waiting)
    await job.fails("b at 3", b.barrier("s", counter=3), Code.INTERNAL, payloads="CE BE{s, 0}")
    await job.fails("a at 0", waiting, Code.INTERNAL, payloads="CE BE{s, 0}")
    await together(job, "s at 1", [a, b], "s", counter=1)
    await job.fails("first use at 4", a.barrier("new", counter=4), Code.INTERNAL, payloads=None)
    await job.fails("new at 0", a.barrier("new", counter=0), Code.INVALID_ARGUMENT, payloads=None)
    await together(job, "new at 1", [a, b], "new", counter=1)


@scenario("26", tasks=3, callers=ALL)
async def a_barrier_times_out(job: Job) -> None:
    """A barrier times out for those who wait and for those who come late; the next one works."""
    a, b, _ = tasks = await job.register_all()
    await job.fails(
        "a waits",
        a.barrier("t", timeout_s=1),
        Code.DEADLINE_EXCEEDED,
        "1/3",
        "CE BE{t, 0}",
        after=(1, 2),
    )
    await job.fails(
        "b is late",
        b.barrier("t", timeout_s=60),
        Code.DEADLINE_EXCEEDED,
        "1/3",
        "CE BE{t, 0}",
    )
    if job.arm.raw:
        await together(job, "t at 1", tasks, "t", counter=1)


@scenario("26b", tasks=2, callers=ALL)
async def the_first_timeout_counts(job: Job) -> None:
    """The first arrival's time-out counts for all, with one missing task named."""
    a, b = await job.register_all()
    first = a.barrier("t", timeout_s=1, tasks=[0, 1])
    await job.waits("a", first, for_s=0.1)
    await job.fails("a", first, Code.DEADLINE_EXCEEDED, payloads="CE BE{t, 0}", after=(1, 2))
    late = b.barrier("t", timeout_s=60, tasks=[0, 1])
    await job.fails("b", late, Code.DEADLINE_EXCEEDED, payloads="CE BE{t, 0}")
    short, long = a.barrier("u", timeout_s=30), b.barrier("u", timeout_s=0.001)
    await job.ok("a at u", short)
    await job.ok("b at u", long)


@scenario("26c", tasks=3)
async def a_longer_timeout_extends_nothing(job: Job) -> None:
    """A later arrival's longer time-out does not extend the first one's; two of three came."""
    a, b, _ = await job.register_all()
    first = a.barrier("t", timeout_s=1)
    await job.waits("a", first, for_s=0.2)
    second = b.barrier("t", timeout_s=60)
    for name, call in (("a", first), ("b", second)):
        await job.fails(
            name,
            call,
            Code.DEADLINE_EXCEEDED,
            "2/3",
            "CE BE{t, 0}",
            after=(1, 2),
            since=first.started,
        )


@scenario("26d", tasks=2)
async def no_time_is_some_time(job: Job) -> None:
    """A time-out of 0 or less lasts to the next tick."""
    a, b = await job.register_all()
    for timeout_s in (0.0, -5.0):
        name = f"t{timeout_s}"
        await job.fails(
            name,
            a.barrier(name, timeout_s=timeout_s),
            Code.DEADLINE_EXCEEDED,
            "1/2",
            None,
            after=(0, 1),
        )
    first = a.barrier("quick", timeout_s=0)
    await job.ok("b completes it", b.barrier("quick", timeout_s=0))
    await job.ok("a", first)


@scenario("27", tasks=3, callers=ALL)
async def participants_must_agree(job: Job) -> None:
    """Participants are a set, and all callers must give the same one."""
    a, b, c = await job.register_all()
    first = a.barrier("order", tasks=[0, 1])
    await job.waits("{0,1} by a", first)
    await job.ok("{1,0} by b", b.barrier("order", tasks=[1, 0]))
    await job.ok("{0,1} by a", first)
    for name, tasks in (("more", [0, 1, 2]), ("none", [])):
        first = a.barrier(name, tasks=[0, 1])
        await job.waits(f"{name}: {{0,1}} by a", first)
        for caller, call in (("b", b.barrier(name, tasks=tasks)), ("a", first)):
            await job.fails(
                f"{name}: {caller}", call, Code.INVALID_ARGUMENT, payloads=f"CE BE{{{name}, 0}}"
            )
    await job.fails(
        "{0,0,1} by a", a.barrier("twice", tasks=[0, 0, 1]), Code.INVALID_ARGUMENT, payloads=None
    )
    calls = {
        "a": a.barrier("all", tasks=[0, 1, 2]),
        "b": b.barrier("all"),
        "c": c.barrier("all", tasks=[2, 1, 0]),
    }
    for name, call in calls.items():
        await job.ok(f"all: {name}", call)


@scenario("27b", tasks=3)
async def an_unknown_participant_spoils_the_id(job: Job) -> None:
    """An unknown participant is refused, and the id is spoilt for counter 0."""
    a, b, _ = await job.register_all()
    await job.fails(
        "{0,9} by a", a.barrier("x", tasks=[0, 9]), Code.INVALID_ARGUMENT, payloads=None
    )
    await job.fails(
        "{0,1} by b", b.barrier("x", tasks=[0, 1]), Code.INVALID_ARGUMENT, payloads=None
    )
    await job.ok("another id", a.barrier("y", tasks=[0]))


@scenario("27c", tasks=3)
async def participants_are_fixed_by_the_first_instance(job: Job) -> None:
    """The participants of the first instance stay in force for later ones."""
    a, b, _ = await job.register_all()
    first = a.barrier("p", tasks=[0, 1])
    await job.ok("b at 0", b.barrier("p", tasks=[0, 1]))
    await job.ok("a at 0", first)
    await job.fails(
        "a at 1 for all", a.barrier("p", counter=1), Code.INVALID_ARGUMENT, payloads=None
    )
    second = a.barrier("p", tasks=[0, 1], counter=2)
    await job.ok("b at 2", b.barrier("p", tasks=[1, 0], counter=2), counter=2)
    await job.ok("a at 2", second, counter=2)


@scenario("28", tasks=3, callers=ALL)
async def outsiders_fail_a_barrier(job: Job) -> None:
    """A task that does not take part fails the barrier, also for those who come later."""
    a, b, c = await job.register_all()
    first = a.barrier("even", tasks=[0, 1])
    await job.waits("a", first)
    for name, call in (("c", c.barrier("even", tasks=[0, 1])), ("a", first)):
        await job.fails(
            name, call, Code.INVALID_ARGUMENT, "A non-participating task", "CE BE{even, 0}"
        )
    await job.fails(
        "b later",
        b.barrier("even", tasks=[0, 1]),
        Code.INVALID_ARGUMENT,
        "A non-participating task",
        "CE BE{even, 0}",
    )
    await job.fails(
        "c first",
        c.barrier("odd", tasks=[0, 1]),
        Code.INVALID_ARGUMENT,
        "A non-participating task",
        "CE BE{odd, 0}",
    )
    await job.fails(
        "a after it",
        a.barrier("odd", tasks=[0, 1]),
        Code.INVALID_ARGUMENT,
        payloads="CE BE{odd, 0}",
    )


@scenario("28b", tasks=3)
async def a_newer_arrival_replaces_an_older_one(job: Job) -> None:
    """A second arrival of a task cancels its first, and the task counts once."""
    a, b, c = await job.register_all()
    first = a.barrier("s")
    await job.waits("a", first)
    second = a.barrier("s", counter=0)
    await job.fails("a, replaced", first, Code.CANCELLED, "more recent barrier call", "")
    await job.waits("a again", second)
    third = b.barrier("s")
    await job.waits("a and b", second, third)
    await job.ok("c", c.barrier("s"))
    await job.ok("a again", second)
    await job.ok("b", third)


@scenario("28c", tasks=3)
async def barriers_can_be_cancelled(job: Job) -> None:
    """CancelBarrier ends an instance for all; wrong counters and passed instances are refused."""
    a, b, c = await job.register_all()
    waiting = a.barrier("s")
    await job.waits("a", waiting)
    await job.fails(
        "cancel at 3", b.cancel_barrier("s", counter=3), Code.FAILED_PRECONDITION, "", "CE BE{s, 0}"
    )
    await job.waits("a still", waiting)
    await job.ok("cancel by b", b.cancel_barrier("s"))
    await job.fails("a", waiting, Code.CANCELLED, "is cancelled by task", "CE BE{s, 0}")
    await job.fails("c later", c.barrier("s"), Code.CANCELLED, "", "CE BE{s, 0}")
    await job.fails(
        "cancel again", b.cancel_barrier("s"), Code.FAILED_PRECONDITION, "", "CE BE{s, 0}"
    )
    await job.ok("cancel an unknown id", b.cancel_barrier("unknown"))
    await job.fails("the id is spoilt", a.barrier("unknown"), Code.INVALID_ARGUMENT, payloads=None)
    await together(job, "but not at 1", [a, b, c], "unknown", counter=1)


@scenario("28d", tasks=3)
async def hanging_up_leaves_the_arrival(job: Job) -> None:
    """A task that gives up its call has arrived all the same."""
    a, b, c = await job.register_all()
    gone = a.barrier("s")
    await job.waits("a", gone)
    gone.cancel()
    await gone.outcome()
    second = b.barrier("s")
    await job.waits("b", second)
    await job.ok("c", c.barrier("s"))
    await job.ok("b", second)


@scenario("29", tasks=3, hb=2)
async def a_death_fails_a_barrier(job: Job) -> None:
    """Without recoverability a participant's death fails the barrier, and the next ones."""
    a, _, c = await job.register_all()
    waiting = a.barrier("s")
    # Were there no poll, all would be in error, and the next barrier name any of them.
    poll = a.poll()
    await job.waits("a", waiting, poll)
    since = await c.silence()
    await job.fails(
        "a",
        waiting,
        Code.INTERNAL,
        "Barrier failed because",
        "CE BE{s, 0}",
        after=(2, 3),
        since=since,
    )
    await job.fails(
        "a at a new id", a.barrier("new"), Code.INTERNAL, "already in error", "CE BE{new, 0}"
    )


@scenario("29b", tasks=2, shutdown_timeout_s=0)
async def leaving_fails_a_barrier_that_waits(job: Job) -> None:
    """Without recoverability, leaving fails a barrier that waits, but a new one waits for the task."""
    a, b = await job.register_all()
    waiting = a.barrier("s")
    await job.waits("a", waiting)
    b.stop_beating()
    await job.ok("shutdown b", b.shutdown())
    await job.fails("a", waiting, Code.INTERNAL, "Barrier failed because", "CE BE{s, 0}")
    await job.fails(
        "a at a new id",
        a.barrier("new", timeout_s=1),
        Code.DEADLINE_EXCEEDED,
        "1/2",
        "CE BE{new, 0}",
        after=(1, 2),
    )
    first = a.barrier("both")
    await job.ok("b, though it left", b.barrier("both"))
    await job.ok("a at both", first)


@scenario("30", tasks=3, recoverable=True)
async def a_new_incarnation_must_arrive_itself(job: Job) -> None:
    """A task that registers again is un-arrived; the others wait for its new incarnation."""
    a, b, c = await job.register_all()
    first, second = a.barrier("q"), c.barrier("q")
    await job.waits("a and c", first, second)
    again = job.stub(2)
    await job.ok("reg c'", again.register())
    await job.fails("c", second, Code.CANCELLED, "Stale barrier invocation", "CE BE{q, 0}")
    await job.waits("a", first)
    third = again.barrier("q")
    await job.waits("c'", third)
    await job.ok("b", b.barrier("q"))
    await job.ok("a", first)
    await job.ok("c'", third)


@scenario("31", tasks=2, recoverable=True, hb=1)
async def a_barrier_waits_for_the_dead(job: Job) -> None:
    """With recoverability a barrier waits for a dead participant, who may come back."""
    a, b = await job.register_all()
    version = (await job.ok("watch", a.watch())).answer["version"]
    since = await b.silence()
    await job.ok("b dies", a.watch(version), after=(1, 2), since=since)
    waiting = a.barrier("s", timeout_s=5)
    await job.waits("a", waiting, for_s=1.5)
    again = job.stub(1)
    await job.registered(again)
    await job.waits("a, after reg b'", waiting)
    await job.ok("b'", again.barrier("s"))
    await job.ok("a", waiting)


@scenario("31b", tasks=2, recoverable=True, hb=1)
async def a_barrier_for_the_dead_times_out(job: Job) -> None:
    """A participant that dies while it waits is un-arrived, and the barrier times out."""
    a, b = await job.register_all()
    dying = b.barrier("s", timeout_s=4)
    since = await b.silence()
    await job.fails(
        "b",
        dying,
        Code.CANCELLED,
        "Stale barrier invocation",
        "CE BE{s, 0}",
        after=(1, 2),
        since=since,
    )
    await job.fails(
        "a",
        a.barrier("s", timeout_s=60),
        Code.DEADLINE_EXCEEDED,
        "1/2",
        "CE BE{s, 0}",
        after=(4, 5),
        since=dying.started,
    )


@scenario("32", tasks=2, recoverable=True)
async def counter_0_is_always_welcome(job: Job) -> None:
    """With recoverability counter 0 joins or opens the current instance."""
    a, b = await job.register_all()
    await together(job, "s at 0", [a, b], "s")
    await together(job, "s at 1", [a, b], "s")
    again = job.stub(1)
    await job.registered(again)
    waiting = again.barrier("s")
    await job.waits("b' at 0", waiting)
    await job.ok("a at 2", a.barrier("s"), counter=2)
    await job.ok("b' at 0", waiting, counter=2)
    await job.fails(
        "a alone at 0",
        a.barrier("s", counter=0, timeout_s=0.5),
        Code.DEADLINE_EXCEEDED,
        "1/2",
        "CE BE{s, 3}",
        after=(0.5, 1.5),
    )


@scenario("32c", tasks=2, recoverable=True, callers=ALL)
async def a_restarted_client_catches_up(job: Job) -> None:
    """A restarted task counts from 0 again, and is in step after one barrier."""
    a, b = await job.register_all()
    await together(job, "s, first", [a, b], "s")
    await together(job, "s, second", [a, b], "s")
    await job.silence(b)
    again = await job.start(1)
    await job.registered(again)
    await together(job, "s with b'", [a, again], "s")
    await together(job, "s with b' again", [a, again], "s")


@scenario("b1", tasks=2, callers=ALL)
async def a_barrier_nobody_else_comes_to(job: Job) -> None:
    """A barrier of all that one task never reaches, and one of a part that others stay away from."""
    a, b = await job.register_all()
    await job.ok("a alone", a.barrier("mine", tasks=[0], timeout_s=1))
    await job.fails(
        "a waits for b",
        a.barrier("ours", timeout_s=1),
        Code.DEADLINE_EXCEEDED,
        "Barrier timed out",
        "CE BE{ours, 0}",
        after=(1, 2),
    )
    await together(job, "all", [a, b], "all", timeout_s=1)


@scenario("b2", tasks=2)
async def an_unknown_caller_is_refused(job: Job) -> None:
    """A caller whose id is unknown fails the barrier that it names participants for."""
    a, b = await job.register_all()
    stranger = job.stub(7, "stranger")
    await job.fails(
        "task 7",
        stranger.barrier("s", tasks=[0, 1]),
        Code.INVALID_ARGUMENT,
        "A non-participating task",
        "CE BE{s, 0}",
    )
    await job.ok("another id", a.barrier("t", tasks=[0]))
    await job.ok("a third id", b.barrier("u", tasks=[1]))
