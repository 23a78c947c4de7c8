"""Errors, and who is told of them."""

from __future__ import annotations

from coord_sim.core.status import Code
from tests.conformance.scenario import Job, scenario

REPORTS_SINCE = (0, 11)
"""jaxlib 0.10.2 has no ReportErrorToService."""


@scenario("9", tasks=3, hb=2)
async def one_death_is_told_to_all(job: Job) -> None:
    """Without recoverability a death is told to all, the dead included."""
    tasks = await job.register_all()
    polls = [task.poll() for task in tasks]
    await job.waits("polls", *polls)
    a, _, c = tasks
    since = await c.silence()
    for name, poll in zip("abc", polls, strict=True):
        await job.fails(
            f"poll {name}",
            poll,
            Code.UNAVAILABLE,
            "The following tasks are unhealthy",
            payloads=None,
            after=(2, 3),
            since=since,
        )
    await job.ok("heartbeat a", a.heartbeat())
    await job.fails("heartbeat c", c.heartbeat(), Code.ABORTED, payloads=None)
    await job.fails("reg c'", job.stub(2).register(), Code.ABORTED, payloads=None)
    await job.fails("later poll a", a.poll(), Code.UNAVAILABLE, payloads=None)


@scenario("9b", tasks=5, hb=2)
async def many_deaths_are_told_in_one_text(job: Job) -> None:
    """Two tasks die at the same tick: both are named."""
    tasks = await job.register_all()
    polls = [task.poll() for task in tasks[:3]]
    await job.waits("polls", *polls)
    tasks[3].stop_beating()
    await tasks[3].heartbeat().outcome()
    since = await tasks[4].silence()
    for name, poll in zip("abc", polls, strict=True):
        await job.fails(
            f"poll {name}", poll, Code.UNAVAILABLE, payloads=None, after=(2, 3), since=since
        )


@scenario("10", tasks=2)
async def a_reported_error_is_told_to_all(job: Job) -> None:
    """A reported error keeps its code and text, and is told to all."""
    a, b = await job.register_all()
    polls = {"a": a.poll(), "b": b.poll()}
    await job.waits("polls", *polls.values())
    report = b.report(9, "boom")
    if job.jaxlib < REPORTS_SINCE:
        await job.fails("report", report, Code.UNIMPLEMENTED, payloads="")
        return
    await job.ok("report", report)
    for name, poll in polls.items():
        await job.fails(
            f"poll {name}", poll, Code.FAILED_PRECONDITION, "boom", "CE{reported, source 1}"
        )
    await job.fails("report again", b.report(9, "boom"), Code.FAILED_PRECONDITION)
    await job.ok("watch", a.watch())


@scenario("11", tasks=2, hb=2)
async def errors_that_nobody_polls_for_fail_all(job: Job) -> None:
    """Without recoverability and without any poll, a death puts all tasks in error."""
    a, b = await job.register_all()
    await b.silence()
    await job.sleep(4)
    await job.fails("heartbeat a", a.heartbeat(), Code.ABORTED, payloads=None)
    await job.fails("heartbeat b", b.heartbeat(), Code.ABORTED, payloads=None)
    seen = (await job.ok("watch", a.watch())).answer["tasks"]
    assert seen[1].error.code is Code.UNAVAILABLE
    assert seen[0].error.code is Code.INTERNAL


@scenario("12", tasks=3, recoverable=True, hb=2)
async def recoverable_deaths_are_told_to_nobody(job: Job) -> None:
    """With recoverability a death is told to nobody, not even to the dead."""
    a, _, c = await job.register_all()
    healthy, dead = a.poll(), c.poll()
    await job.waits("polls", healthy, dead)
    await c.silence()
    await job.waits("polls for 4 s", healthy, dead, for_s=4)
    await job.fails("heartbeat c", c.heartbeat(), Code.ABORTED, payloads=None)
    await job.fails("new poll c", c.poll(), Code.FAILED_PRECONDITION, payloads=None)
    await job.waits("old polls", healthy, dead)


@scenario("13", tasks=2, recoverable=True)
async def only_unavailability_is_forgiven(job: Job) -> None:
    """A recoverable task comes back from UNAVAILABLE alone, or after a shutdown."""
    a, b = await job.register_all()
    report = a.report(13, "broken")
    if job.jaxlib < REPORTS_SINCE:
        await job.fails("report", report, Code.UNIMPLEMENTED, payloads="")
        return
    await job.ok("report", report)
    again = job.stub(0)
    await job.fails("reg a'", again.register(), Code.ABORTED, payloads=None)
    await job.ok("shutdown a", a.shutdown())
    await job.ok("reg a' after it", again.register())
    await job.ok("report by b", b.report(14, "gone"))
    await job.ok("reg b'", job.stub(1).register())
