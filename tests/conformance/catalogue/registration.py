"""Registration, heartbeats, and who takes over whose place."""

from __future__ import annotations

from coord_sim.core.status import Code
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.conformance.scenario import CLIENTS, Job, scenario

REGISTRATION = "[Init]Wait_for_all_tasks_to_register"


@scenario("1", tasks=2)
async def registration_waits_for_all(job: Job) -> None:
    """Registration waits for everybody, and calls before it are told the service's incarnation."""
    a, b = job.stub(0), job.stub(1)
    nobody = job.wire.call("TryGetKeyValue", pb.TryGetKeyValueRequest(key="k"))
    early = await job.fails(
        "no incarnations", nobody, Code.INTERNAL, "wrong service incarnation", payloads=None
    )
    assert early.wrong_service
    job.names[early.wrong_service] = "SI"
    first = a.register()
    await job.waits("reg a", first)
    second = b.register()
    for name, call in (("reg b", second), ("reg a", first)):
        await job.ok(name, call, service_incarnation=early.wrong_service)
    job.wire.service_incarnation ^= 1
    job.names[job.wire.service_incarnation] = "SI^1"
    await job.fails(
        "another service's incarnation",
        a.try_get("k"),
        Code.INTERNAL,
        "wrong service incarnation",
        "CE SE{<SI>}",
    )


@scenario("1b", tasks=2)
async def every_call_checks_the_service_incarnation(job: Job) -> None:
    """Every call but RegisterTask refuses another service's incarnation; the task's is not looked at."""
    a, _ = await job.register_all()
    a.stop_beating()
    a.incarnation += 77
    job.names[a.incarnation] = "nobody"
    await job.ok("insert with a wrong task incarnation", a.insert("k", b"v"))
    job.wire.service_incarnation ^= 1
    job.names[job.wire.service_incarnation] = "SI^1"
    calls = (
        a.heartbeat(),
        a.poll(),
        a.shutdown(),
        a.watch(),
        a.alive([0]),
        a.insert("k", b"v"),
        a.get("k"),
        a.increment("k", 1),
        a.directory("k"),
        a.delete("k"),
        a.barrier("b"),
        a.cancel_barrier("b"),
    )
    for call in calls:
        await job.fails(call.name, call, Code.INTERNAL, "wrong service", "CE SE{<SI>}")


@scenario("1c", tasks=2)
async def an_unknown_id_cannot_register(job: Job) -> None:
    """Registering an unknown id harms nobody else."""
    for number in (2, 7, -1):
        stranger = job.stub(number, f"stranger{number}")
        await job.fails(f"reg {number}", stranger.register(), Code.INVALID_ARGUMENT)
    a, _ = await job.register_all()
    await job.fails(
        "poll of an unknown id",
        a.call("PollForError", pb.PollForErrorRequest(source_task_id=7)),
        Code.INVALID_ARGUMENT,
    )
    await job.fails(
        "heartbeat of an unknown id",
        a.call("Heartbeat", pb.HeartbeatRequest(source_task_id=7, incarnation=a.incarnation)),
        Code.INVALID_ARGUMENT,
    )
    await job.ok("heartbeat a", a.heartbeat())


@scenario("2", tasks=2)
async def a_newer_registration_replaces_a_waiting_one(job: Job) -> None:
    """A second registration of a task replaces the one that waits, new incarnation or not."""
    first, second = job.stub(0), job.stub(0)
    one = first.register()
    await job.waits("reg a", one)
    two = second.register()
    await job.fails("reg a, replaced", one, Code.ALREADY_EXISTS)
    await job.waits("reg a'", two)
    three = second.register()
    await job.fails("reg a', replaced", two, Code.ALREADY_EXISTS)
    await job.waits("reg a' again", three)
    b = job.stub(1)
    four = b.register()
    await job.ok("reg a' again", three)
    await job.ok("reg b", four)
    job.names[job.wire.service_incarnation] = "SI"
    seen = await job.ok("watch", b.watch(), version=6)
    assert seen.answer["tasks"][0].incarnation == second.incarnation


@scenario("3", tasks=2)
@scenario("3r", tasks=2, recoverable=True)
async def the_same_incarnation_may_register_again(job: Job) -> None:
    """Registering again with the same incarnation is OK, and counts as two changes."""
    a, _ = await job.register_all()
    await job.ok("watch", a.watch(), version=4)
    await job.ok("reg a again", a.register())
    await job.ok("watch again", a.watch(), version=6)
    await job.ok("heartbeat a", a.heartbeat())


@scenario("4", tasks=2, register_timeout_s=2)
@scenario("4r", tasks=2, register_timeout_s=2, recoverable=True)
async def a_failed_registration_is_for_ever(job: Job) -> None:
    """A registration that times out poisons the service."""
    a, b = job.stub(0), job.stub(1)
    lost = job.wire.call("TryGetKeyValue", pb.TryGetKeyValueRequest(key="k"))
    told = (await lost.outcome()).wrong_service
    assert told
    job.wire.service_incarnation = told
    job.names[told] = "SI"
    await job.fails(
        "reg a",
        a.register(),
        Code.DEADLINE_EXCEEDED,
        "1/2",
        f"CE BE{{{REGISTRATION}, 0}}",
        after=(2, 3),
    )
    await job.fails("reg a again", a.register(), Code.ABORTED, "already in error", None)
    await job.fails("reg b", b.register(), Code.ABORTED, "already in error", None)
    seen = await job.ok("watch", a.watch())
    for task in seen.answer["tasks"].values():
        assert (task.state, task.error.code) == ("ERROR", Code.INTERNAL)
    await job.fails("heartbeat a", a.heartbeat(), Code.ABORTED, payloads=None)


@scenario("5", tasks=2)
async def another_incarnation_is_an_error_of_the_task(job: Job) -> None:
    """Without recoverability, another incarnation of a connected task fails it, and all are told."""
    a, _ = await job.register_all()
    poll = a.poll()
    await job.waits("poll a", poll)
    other = job.stub(1)
    await job.fails(
        "reg b'",
        other.register(),
        Code.ABORTED,
        "tried to connect with a different incarnation",
        "CE{source 1}",
    )
    await job.fails("poll a", poll, Code.ABORTED, payloads="CE{source 1}")
    seen = (await job.ok("watch", a.watch())).answer["tasks"]
    assert (seen[0].state, seen[1].state) == ("CONNECTED", "ERROR")


@scenario("6", tasks=1, recoverable=True, hb=1)
@scenario("6b", tasks=1, recoverable=True, hb=3)
async def silence_is_noticed_at_a_tick_after_the_timeout(job: Job) -> None:
    """Death is declared between the heartbeat time-out and a second later."""
    (a,) = await job.register_all()
    version = (await job.ok("watch", a.watch())).answer["version"]
    since = await a.silence()
    hb = job.options.heartbeat_timeout_s
    seen = await job.ok("watch on", a.watch(version), after=(hb, hb + 1), since=since)
    task = seen.answer["tasks"][0]
    assert (task.state, task.error.code) == ("ERROR", Code.UNAVAILABLE)
    assert "heartbeat timeout" in task.error.message


@scenario("6c", tasks=2, recoverable=True, hb=1)
async def a_task_that_died_while_it_registered_is_connected_first(job: Job) -> None:
    """A task that died while its registration waited is connected, and then dies by time-out."""
    a, b = job.stub(0), job.stub(1)
    register = a.register()
    await job.waits("reg a", register, for_s=2.5)
    await job.registered(b)
    await job.ok("reg a", register)
    assert register.answered
    seen = await job.ok("watch", b.watch())
    assert seen.answer["tasks"][0].state == "CONNECTED"
    seen = await job.ok(
        "watch on", b.watch(seen.answer["version"]), after=(1, 2), since=register.answered
    )
    assert seen.answer["tasks"][0].state == "ERROR"


@scenario("7", tasks=2)
async def a_heartbeat_of_another_incarnation_fails_the_task(job: Job) -> None:
    """Without recoverability, a heartbeat of another incarnation fails the task, and all are told."""
    a, b = await job.register_all()
    polls = {"a": a.poll(), "b": b.poll()}
    await job.waits("polls", *polls.values())
    a.stop_beating()
    job.names[a.incarnation + 10**6] = "stranger"
    await job.fails(
        "heartbeat of a stranger",
        a.heartbeat(a.incarnation + 10**6),
        Code.ABORTED,
        "Incarnation ID mismatch",
        payloads=None,
    )
    for name, poll in polls.items():
        await job.fails(f"poll {name}", poll, Code.ABORTED, payloads=None)
    await job.fails("heartbeat a", a.heartbeat(), Code.ABORTED, "already-in-error", payloads=None)
    await job.ok("heartbeat b", b.heartbeat())
    await job.fails("next poll a", a.poll(), Code.FAILED_PRECONDITION, payloads=None)
    await job.fails("next poll b", b.poll(), Code.ABORTED, payloads=None)


@scenario("8", tasks=2, recoverable=True, hb=2)
async def heartbeats_after_leaving_are_forgiven_for_a_while(job: Job) -> None:
    """A task that left may beat on for a heartbeat time-out."""
    _, b = await job.register_all()
    b.stop_beating()
    await job.ok("shutdown b", b.shutdown())
    await job.ok("heartbeat b", b.heartbeat())
    await job.sleep(2.3)
    await job.fails(
        "heartbeat b later", b.heartbeat(), Code.INVALID_ARGUMENT, "must be registered before"
    )
    await job.fails("poll b", b.poll(), Code.FAILED_PRECONDITION)


@scenario("8b", tasks=2)
async def nobody_who_never_registered_is_heard(job: Job) -> None:
    """Heartbeat, poll and shutdown of a task that never registered."""
    a = job.stub(0)
    lost = job.wire.call("TryGetKeyValue", pb.TryGetKeyValueRequest(key="k"))
    told = (await lost.outcome()).wrong_service
    assert told
    job.wire.service_incarnation = told
    job.names[told] = "SI"
    await job.fails("heartbeat", a.heartbeat(), Code.INVALID_ARGUMENT, "must be registered before")
    await job.fails("poll", a.poll(), Code.FAILED_PRECONDITION)
    seen = await job.ok("watch", a.watch(), version=0)
    assert {task.state for task in seen.answer["tasks"].values()} == {"DISCONNECTED"}


@scenario("14", tasks=2, recoverable=True)
async def a_new_incarnation_takes_over_at_once(job: Job) -> None:
    """A new incarnation of a connected recoverable task is welcome at once."""
    a, _ = await job.register_all()
    again = job.stub(1)
    await job.ok("reg b'", again.register())
    seen = (await job.ok("watch", a.watch())).answer["tasks"][1]
    assert (seen.state, seen.incarnation) == ("CONNECTED", again.incarnation)


@scenario("14c", tasks=2, recoverable=True, callers=CLIENTS)
async def a_new_process_takes_over_at_once(job: Job) -> None:
    """A killed process that starts again before its death is declared is let in at once."""
    a, b = await job.register_all()
    await job.silence(b)
    again = await job.start(1)
    await job.ok("reg b'", again.register())
    seen = await job.ok("alive of b'", again.alive([1]))
    (incarnation,) = seen.answer["alive"].values()
    assert incarnation != b.incarnation
    job.names[incarnation] = "b'"
    await job.ok("key of a", a.insert("k", b"v"))
    await job.ok("key seen by b'", again.try_get("k"), value=b"v")


@scenario("15", tasks=2, recoverable=True, hb=2)
async def a_zombie_is_answered_but_keeps_nobody_alive(job: Job) -> None:
    """A replaced incarnation's heartbeats are OK, and do not keep the new one alive."""
    a, b = await job.register_all()
    again = job.stub(1)
    await job.ok("reg b'", again.register())
    await job.ok("heartbeat b", b.heartbeat())
    version = (await job.ok("watch", a.watch())).answer["version"]
    seen = await job.ok("watch on", a.watch(version), after=(1.5, 3))
    task = seen.answer["tasks"][1]
    assert (task.incarnation, task.state) == (again.incarnation, "ERROR")
    assert task.error.code is Code.UNAVAILABLE


@scenario("15b", tasks=2, recoverable=True, hb=2)
async def a_zombie_is_a_full_member(job: Job) -> None:
    """A replaced incarnation writes keys and even shuts the new one down."""
    a, b = await job.register_all()
    again = job.stub(1)
    await job.registered(again)
    await job.ok("insert by b", b.insert("k", b"zombie"))
    b.stop_beating()
    again.stop_beating()
    await job.ok("shutdown by b", b.shutdown())
    seen = (await job.ok("watch", a.watch())).answer["tasks"][1]
    assert seen.state == "DISCONNECTED"
    await job.ok("heartbeat b'", again.heartbeat())
    await job.sleep(2.3)
    await job.fails("heartbeat b' later", again.heartbeat(), Code.INVALID_ARGUMENT)


@scenario("48", tasks=2, recoverable=True)
async def a_newer_poll_replaces_an_older_one(job: Job) -> None:
    """One error poll per task: a zombie silences the new incarnation."""
    _, b = await job.register_all()
    old = b.poll()
    await job.waits("poll b", old)
    again = job.stub(1)
    await job.ok("reg b'", again.register())
    await job.waits("poll b, after reg b'", old)
    new = again.poll()
    await job.fails("poll b, replaced", old, Code.CANCELLED)
    await job.waits("poll b'", new)
    zombie = b.poll()
    await job.fails("poll b', replaced", new, Code.CANCELLED)
    await job.waits("poll b again", zombie)


@scenario("w1", tasks=2, recoverable=True)
async def watchers_wait_for_the_next_change(job: Job) -> None:
    """WatchTasks with the current version waits; an older one is answered at once."""
    a, b = await job.register_all()
    await job.ok("version 0", a.watch(0), version=4)
    first, second = a.watch(4), b.watch(4)
    await job.waits("version 4", first, second)
    await job.ok("insert", a.insert("k", b"v"))
    arrival = a.barrier("b")
    await job.ok("barrier", b.barrier("b"))
    await job.ok("barrier of a", arrival)
    await job.waits("version 4, after a key and a barrier", first, second)
    b.stop_beating()
    await job.ok("shutdown b", b.shutdown())
    await job.ok("version 5", first, version=5)
    await job.ok("version 5 too", second, version=5)
