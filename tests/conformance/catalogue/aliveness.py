"""GetAliveTasks: who is alive, as the callers of a round are told."""

from __future__ import annotations

from coord_sim.core.status import Code
from tests.conformance.scenario import ALL, CLIENTS, Job, scenario


@scenario("36", tasks=3, recoverable=True, callers=ALL)
async def a_round_is_its_set(job: Job) -> None:
    """A round is the set of its ids: order and repetitions do not matter, rounds do not mix."""
    a, b, c = await job.register_all()
    both = {0: a.incarnation, 1: b.incarnation}
    calls = [a.alive([0, 1]), a.alive([0, 1]), a.alive([0, 1, 2]), a.alive([1, 0, 0])]
    await job.waits("a, four times", *calls)
    await job.ok("b {1,0}", b.alive([1, 0]), alive=both)
    for number in (0, 1, 3):
        await job.ok(f"a, call {number}", calls[number], alive=both)
    await job.waits("a {0,1,2}", calls[2])
    second = b.alive([0, 1, 2])
    await job.waits("b {0,1,2}", second)
    everybody = both | {2: c.incarnation}
    await job.ok("c {2,1,0}", c.alive([2, 1, 0]), alive=everybody)
    await job.ok("a {0,1,2}", calls[2], alive=everybody)
    await job.ok("b {0,1,2}", second, alive=everybody)
    first = a.alive([0, 1, 55])
    plain = a.alive([0, 1])
    await job.waits("a {0,1,55} and {0,1}", first, plain)
    await job.ok("b {55,0,1}", b.alive([55, 0, 1]), alive=both)
    await job.ok("a {0,1,55}", first, alive=both)
    await job.waits("a {0,1}", plain)
    await job.fails("a {1,2}", a.alive([1, 2]), Code.INVALID_ARGUMENT, payloads="")
    await job.fails("a {}", a.alive([]), Code.INVALID_ARGUMENT, payloads="")
    await job.ok("a {0}", a.alive([0]), alive={0: a.incarnation})


@scenario("37", tasks=3, recoverable=True, hb=2, callers=ALL)
async def a_death_ends_the_waiting(job: Job) -> None:
    """A death that is declared ends the round; a dead caller waits for the living."""
    a, b, c = await job.register_all()
    both = {0: a.incarnation, 1: b.incarnation}
    calls = {"a": a.alive([0, 1, 2]), "b": b.alive([0, 1, 2])}
    await job.waits("a and b", *calls.values())
    since = await job.silence(c)
    window = (2, 3) if job.arm.raw else (1, 3)
    for name, call in calls.items():
        await job.ok(name, call, after=window, since=since, alive=both)
    if not job.arm.raw:
        return
    await job.ok("the dead c {2}", c.alive([2]), alive={})
    dead = c.alive([0, 1, 2])
    await job.waits("the dead c {0,1,2}", dead)
    first = a.alive([0, 1, 2])
    await job.ok("b {0,1,2}", b.alive([0, 1, 2]), alive=both)
    await job.ok("a {0,1,2}", first, alive=both)
    await job.ok("the dead c {0,1,2}", dead, alive=both)


@scenario("37b", tasks=3, recoverable=True, callers=ALL)
async def leaving_ends_the_waiting(job: Job) -> None:
    """A task that leaves ends the round at once."""
    a, b, c = await job.register_all()
    calls = {"a": a.alive([0, 1, 2]), "b": b.alive([0, 1, 2])}
    await job.waits("a and b", *calls.values())
    await job.ok("shutdown c", c.shutdown())
    for name, call in calls.items():
        await job.ok(name, call, alive={0: a.incarnation, 1: b.incarnation})


@scenario("37c", tasks=2, hb=2)
async def rounds_work_the_same_without_recoverability(job: Job) -> None:
    """Without recoverability a round is answered too, before everybody is told of the death."""
    a, b = await job.register_all()
    call = a.alive([0, 1])
    await job.waits("a", call)
    since = await b.silence()
    await job.ok("a", call, after=(2, 3), since=since, alive={0: a.incarnation})
    seen = (await job.ok("watch", a.watch())).answer["tasks"]
    assert seen[0].error.code is Code.INTERNAL


@scenario("38", tasks=3, recoverable=True)
async def hanging_up_leaves_the_entry(job: Job) -> None:
    """A task that gives up its call has entered all the same."""
    a, b, _ = await job.register_all()
    gone = a.alive([0, 1])
    await job.waits("a", gone)
    gone.cancel()
    await gone.outcome()
    await job.ok("b", b.alive([0, 1]), alive={0: a.incarnation, 1: b.incarnation})


@scenario("39", tasks=3, recoverable=True)
async def newcomers_are_awaited(job: Job) -> None:
    """A task that connects while a round is open is awaited."""
    a, b, c = await job.register_all()
    c.stop_beating()
    await job.ok("shutdown c", c.shutdown())
    first = a.alive([0, 1, 2])
    await job.waits("a", first)
    again = job.stub(2)
    await job.registered(again)
    second = b.alive([0, 1, 2])
    await job.waits("a and b", first, second)
    alive = {0: a.incarnation, 1: b.incarnation, 2: again.incarnation}
    await job.ok("c'", again.alive([0, 1, 2]), alive=alive)
    await job.ok("a", first, alive=alive)
    await job.ok("b", second, alive=alive)


@scenario("40", tasks=3, recoverable=True)
async def a_ghost_enters(job: Job) -> None:
    """The ghost: a restarted task's old entry counts for its new incarnation, which never called."""
    a, b, c = await job.register_all()
    ghost = c.alive([0, 1, 2])
    await job.waits("c", ghost)
    again = job.stub(2)
    await job.registered(again)
    first = a.alive([0, 1, 2])
    await job.waits("c and a", ghost, first)
    alive = {0: a.incarnation, 1: b.incarnation, 2: again.incarnation}
    await job.ok("b", b.alive([0, 1, 2]), alive=alive)
    await job.ok("a", first, alive=alive)
    await job.ok("the old call of c", ghost, alive=alive)
    late = again.alive([0, 1, 2])
    await job.waits("c'", late)
    second = a.alive([0, 1, 2])
    await job.waits("c' and a", late, second)
    await job.ok("b again", b.alive([0, 1, 2]), alive=alive)
    await job.ok("a again", second, alive=alive)
    await job.ok("c'", late, alive=alive)


@scenario("40c", tasks=3, recoverable=True, callers=CLIENTS)
async def a_ghost_enters_with_processes(job: Job) -> None:
    """The ghost with real processes: killed inside the call, and restarted at once."""
    a, b, c = await job.register_all()
    call = c.alive([0, 1, 2])
    await job.waits("c", call)
    await job.silence(c)
    again = await job.start(2)
    await job.registered(again)
    first = a.alive([0, 1, 2])
    await job.waits("a", first)
    alive = {0: a.incarnation, 1: b.incarnation, 2: again.incarnation}
    await job.ok("b", b.alive([0, 1, 2]), alive=alive)
    await job.ok("a", first, alive=alive)
    late = again.alive([0, 1, 2])
    await job.waits("c', one round behind", late)


@scenario("45", tasks=4, recoverable=True, hb=1)
async def deaths_of_one_tick_are_declared_one_by_one(job: Job) -> None:
    """Two deaths at one tick: the round may name the second as alive."""
    tasks = await job.register_all()
    calls = [task.alive([0, 1, 2, 3]) for task in tasks[:3]]
    await job.waits("a, b and c", *calls)
    tasks[3].stop_beating()
    tasks[2].stop_beating()
    last = [tasks[2].heartbeat(), tasks[3].heartbeat()]
    for beat in last:
        await beat.outcome()
    told = []
    for call in calls:
        outcome = await call.outcome()
        assert call.answered is not None
        told.append(frozenset(outcome.answer["alive"]))
    assert len(set(told)) == 1
    assert told[0] in ({0, 1}, {0, 1, 2})
    job.note("answer", "{0,1}, or {0,1,2} if task 2 is declared dead after task 3")
