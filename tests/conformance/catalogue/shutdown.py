"""Leaving."""

from __future__ import annotations

from coord_sim.core.status import Code
from tests.conformance.scenario import ALL, Job, scenario


@scenario("33", tasks=2, shutdown_timeout_s=2)
async def all_leave_together(job: Job) -> None:
    """Without recoverability all leave together; a task may come back afterwards."""
    a, b = tasks = await job.register_all()
    polls = [task.poll() for task in tasks]
    await job.waits("polls", *polls)
    leaving = a.shutdown()
    await job.waits("shutdown a", leaving)
    await job.ok("shutdown b", b.shutdown())
    await job.ok("shutdown a", leaving)
    for name, poll in zip("ab", polls, strict=True):
        await job.fails(f"poll {name}", poll, Code.CANCELLED)
    seen = await job.ok("watch", a.watch())
    assert {task.state for task in seen.answer["tasks"].values()} == {"DISCONNECTED"}
    await job.fails("shutdown a again", a.shutdown(), Code.INTERNAL, "already disconnected")
    await job.ok("reg a", a.register())


@scenario("33c", tasks=2, shutdown_timeout_s=5, callers=ALL)
async def clients_leave_together(job: Job) -> None:
    """A shutdown waits for all others."""
    a, b = await job.register_all()
    leaving = a.shutdown()
    await job.waits("shutdown a", leaving)
    await job.ok("shutdown b", b.shutdown())
    await job.ok("shutdown a", leaving)


@scenario("34", tasks=2, shutdown_timeout_s=2)
async def one_who_stays_fails_the_shutdown(job: Job) -> None:
    """A shutdown that times out is an error of all."""
    a, b = tasks = await job.register_all()
    polls = [task.poll() for task in tasks]
    await job.waits("polls", *polls)
    leaving = a.shutdown()
    await job.fails(
        "shutdown a", leaving, Code.INTERNAL, "Shutdown barrier has failed", after=(2, 3)
    )
    for name, poll in zip("ab", polls, strict=True):
        await job.fails(f"poll {name}", poll, Code.INTERNAL, "Shutdown barrier has failed", None)
    b.stop_beating()
    await job.fails("shutdown b", b.shutdown(), Code.INTERNAL, "Shutdown barrier has failed")
    seen = (await job.ok("watch", a.watch())).answer["tasks"]
    assert seen[1].state == "DISCONNECTED"
    assert (seen[0].state, seen[0].error.code) == ("ERROR", Code.INTERNAL)


@scenario("34b", tasks=2, hb=1)
async def a_death_fails_the_shutdown(job: Job) -> None:
    """A death while others wait to leave fails the shutdown."""
    a, b = await job.register_all()
    poll = a.poll()
    await job.waits("poll a", poll)
    leaving = a.shutdown()
    since = await b.silence()
    await job.fails(
        "shutdown a",
        leaving,
        Code.INTERNAL,
        "Shutdown barrier has failed",
        None,
        after=(1, 2),
        since=since,
    )
    told = await poll.outcome()
    job.note("poll a", told.code.name)
    await job.ok("watch", a.watch())


@scenario("35", tasks=2, recoverable=True, callers=ALL)
async def each_leaves_alone(job: Job) -> None:
    """With recoverability each leaves alone and at once."""
    a, _ = await job.register_all()
    await job.ok("shutdown a", a.shutdown())
    if job.arm.raw:
        await job.fails("again", a.shutdown(), Code.FAILED_PRECONDITION, "already disconnected")
    else:
        await job.ok("again, which sends nothing", a.shutdown())


@scenario("35b", tasks=2, shutdown_timeout_s=0)
async def without_a_timeout_each_leaves_alone(job: Job) -> None:
    """With a shutdown time-out of 0 each leaves alone, recoverable or not."""
    a, b = await job.register_all()
    poll = a.poll()
    await job.waits("poll a", poll)
    a.stop_beating()
    await job.ok("shutdown a", a.shutdown())
    await job.fails("poll a", poll, Code.CANCELLED)
    await job.fails("again", a.shutdown(), Code.FAILED_PRECONDITION, "already disconnected")
    await job.ok("watch", b.watch())
    await job.ok("reg a", a.register())


@scenario("46", tasks=2)
async def a_foreign_id_ends_the_job(job: Job) -> None:
    """Without recoverability a ShutdownTask of an unknown id fails everybody."""
    a, b = tasks = await job.register_all()
    polls = [task.poll() for task in tasks]
    await job.waits("polls", *polls)
    stranger = job.stub(9, "stranger")
    await job.fails("shutdown 9", stranger.shutdown(), Code.INTERNAL, "INVALID_ARGUMENT")
    for name, poll in zip("ab", polls, strict=True):
        await job.fails(f"poll {name}", poll, Code.INTERNAL, payloads=None)
    seen = await job.ok("watch", a.watch())
    for task in seen.answer["tasks"].values():
        assert (task.state, task.error.code) == ("ERROR", Code.INTERNAL)
    for name, task in (("a", a), ("b", b)):
        await job.fails(f"heartbeat {name}", task.heartbeat(), Code.ABORTED, payloads=None)


@scenario("46r", tasks=2, recoverable=True)
async def a_foreign_id_harms_nobody_recoverable(job: Job) -> None:
    """With recoverability a ShutdownTask of an unknown id harms nobody."""
    a, _ = await job.register_all()
    stranger = job.stub(9, "stranger")
    await job.fails("shutdown 9", stranger.shutdown(), Code.INVALID_ARGUMENT)
    seen = await job.ok("watch", a.watch())
    assert {task.state for task in seen.answer["tasks"].values()} == {"CONNECTED"}
