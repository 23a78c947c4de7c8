"""Scenarios in which processes are stopped or killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from typing import Any

import grpc

from coord_sim.core.status import Code
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.conformance.interposer import Delay, Refuse
from tests.conformance.scenario import CLIENTS, Job, scenario
from tests.conformance.services import REPOSITORY

CPP = ("jaxlib",)
ABORT_S = 3.0
"""Aborting takes time of its own: the process writes a stack trace before."""
FATAL = "Terminating process because the JAX distributed service detected fatal errors"


async def stall(job: Job) -> None:
    """Stops the service for 4 s; its overdue tick then races with the heartbeats that lie queued."""
    tasks = await job.register_all()
    polls = [task.poll() for task in tasks]
    await job.waits("polls", *polls)
    service: Any = job.service
    service.signal(signal.SIGSTOP)
    await job.sleep(4)
    service.signal(signal.SIGCONT)
    await asyncio.sleep(1.2)
    seen = (await tasks[0].watch().outcome()).answer["tasks"]
    dead = {str(id_) for id_, task in seen.items() if task.state == "ERROR"}
    assert {task.state for task in seen.values()} <= {"CONNECTED", "ERROR"}
    for poll in polls:
        if dead and not job.options.recoverable:
            told = await poll.outcome()
            assert told.code is Code.UNAVAILABLE
            assert dead == {line for line in told.message.splitlines() if line.isdigit()}
        else:
            assert await poll.pending()
    job.note("after the stall", "dead and told, or alive: each task's heartbeat races for itself")


@scenario("47", tasks=2, hb=2, process=True)
async def a_stalled_service_may_blame_its_tasks(job: Job) -> None:
    """A service that was stopped declares its tasks dead, or not: a race of each heartbeat."""
    await stall(job)


@scenario("47r", tasks=2, hb=2, recoverable=True, process=True)
async def a_stalled_recoverable_service_may_blame_its_tasks(job: Job) -> None:
    """With recoverability a service that was stopped may do so too, and tells nobody."""
    await stall(job)


async def end_of(job: Job, client: Any, since: float, earliest: float, latest: float) -> None:
    """The client's process must abort in time, and say why."""
    status = await client.process.status()
    job.elapsed("the end of the process", since, earliest, latest + ABORT_S)
    assert status == -signal.SIGABRT, f"the process ended with status {status}"
    text = client.process.stderr.read_text(errors="replace")
    assert FATAL in text, text
    job.note("end of the process", f"status {status}")


@scenario("41", tasks=1, callers=CPP, process=True)
async def a_client_dies_with_its_service(job: Job) -> None:
    """When the service is killed, the client's process aborts at once."""
    (a,) = await job.register_all()
    service: Any = job.service
    service.signal(signal.SIGKILL)
    await end_of(job, a, time.monotonic(), 0, 1)


@scenario("41r", tasks=1, recoverable=True, callers=CPP, process=True)
async def a_recoverable_client_dies_with_its_service_too(job: Job) -> None:
    """With recoverability a client dies with its service too."""
    (a,) = await job.register_all()
    service: Any = job.service
    service.signal(signal.SIGKILL)
    await end_of(job, a, time.monotonic(), 0, 1)


@scenario("41b", tasks=1, callers=CPP)
async def a_cancelled_poll_is_not_repeated(job: Job) -> None:
    """A client whose error poll is answered with CANCELLED lives on, and never polls again."""
    between = await job.interpose()
    between.spoil("PollForError", [Refuse(grpc.StatusCode.CANCELLED)])
    (a,) = await job.register_all()
    await job.sleep(1.5)
    await job.ok("insert", a.insert("k", b"v"))
    assert len(between.requests("PollForError")) == 1


@scenario("41c", tasks=1, hb=2, callers=CPP)
async def three_lost_heartbeats_are_forgiven(job: Job) -> None:
    """A heartbeat is tried four times."""
    between = await job.interpose()
    (a,) = await job.register_all()
    between.spoil("Heartbeat", [Refuse(grpc.StatusCode.UNAVAILABLE)] * 3)
    await job.sleep(2.5)
    await job.ok("insert", a.insert("k", b"v"))
    assert len(between.requests("Heartbeat")) >= 4


@scenario("41d", tasks=1, hb=2, callers=CPP)
async def four_lost_heartbeats_are_fatal(job: Job) -> None:
    """A heartbeat that fails four times ends the process a second later."""
    between = await job.interpose()
    (a,) = await job.register_all()
    between.spoil("Heartbeat", [Refuse(grpc.StatusCode.UNAVAILABLE)] * 4)
    await a.process.status()
    beats = between.requests("Heartbeat")
    assert len(beats) == 4
    await end_of(job, a, beats[0].time_s, 1, 2.5)


@scenario("42", tasks=1, callers=CPP)
async def registration_is_tried_again(job: Job) -> None:
    """A registration that is refused as by a transport is tried again with the same incarnation."""
    between = await job.interpose()
    between.spoil("RegisterTask", [Refuse(grpc.StatusCode.UNAVAILABLE)] * 4)
    await job.register_all()
    attempts = between.requests("RegisterTask")
    assert len(attempts) == 5
    assert attempts[4].time_s - attempts[0].time_s < 0.5
    incarnations = {
        pb.RegisterTaskRequest.FromString(each.request).incarnation for each in attempts
    }
    assert len(incarnations) == 1


@scenario("42b", tasks=1, callers=CPP)
async def a_final_refusal_ends_the_process(job: Job) -> None:
    """A registration that the service refuses for good ends the process."""
    between = await job.interpose()
    between.spoil("RegisterTask", [Refuse(grpc.StatusCode.ALREADY_EXISTS, service_error=True)])
    a = await job.start(0)
    began = time.monotonic()
    call = a.register()
    await end_of(job, a, began, 0, 1)
    assert len(between.requests("RegisterTask")) == 1
    await call.outcome()


@scenario("44", tasks=1, callers=CLIENTS)
async def requests_are_compressed_and_answers_are_not(job: Job) -> None:
    """Requests are compressed, answers are not."""
    relay = await job.relay()
    (a,) = await job.register_all()
    value = b"x" * 2_000_000
    sent, received = relay.sent, relay.received
    await job.ok("insert 2 MB of one letter", a.insert("k", value), patience_s=10)
    await job.ok("get it", a.get("k"), patience_s=10, value=value)
    assert relay.sent - sent < 10_000, f"{relay.sent - sent} bytes were sent"
    assert relay.received - received > 2_000_000, f"{relay.received - received} bytes came back"


@scenario("49", tasks=1, hb=4, callers=CPP)
async def one_late_heartbeat_is_fatal(job: Job) -> None:
    """A heartbeat answered later than half the time-out ends the process a second later."""
    between = await job.interpose()
    between.spoil("Heartbeat", [Delay(2.3)])
    (a,) = await job.register_all()
    since = time.monotonic()
    await end_of(job, a, since, 4.7, 5.3)
    assert len(between.requests("Heartbeat")) == 1


@scenario("49b", tasks=1, hb=30, callers=CPP, process=True)
async def a_stalled_service_is_fatal(job: Job) -> None:
    """A service that is stopped for more than half a client's time-out kills the client."""
    a = await job.start(0, hb=4)
    await job.registered(a)
    since = time.monotonic()
    service: Any = job.service
    await job.sleep(1.7)
    service.signal(signal.SIGSTOP)
    await job.sleep(2.6)
    service.signal(signal.SIGCONT)
    await end_of(job, a, since, 4.7, 5.3)


@scenario("43", tasks=3, recoverable=True, hb=3, callers=CPP, alone=True)
async def the_exit_of_a_block_is_the_entry_of_the_next(job: Job) -> None:
    """JAX's `live_devices`: k blocks make k+1 calls, and a death inside one is raised by all others."""
    between = await job.interpose()
    programs = [await _start_program(job, number) for number in range(3)]
    try:
        reports = [[await _report(program) for _ in range(3)] for program in programs]
        for block in range(3):
            for told in reports:
                assert told[block] == {"block": block, "live": [0, 1, 2]}, told[block]
        programs[2].kill()
        killed = time.monotonic()
        for number in (0, 1):
            job.note(f"process {number}, block 2", await _report(programs[number]))
            # The last heartbeat was sent up to half of the time-out before.
            job.elapsed("the failure", killed, 1.5, 4 + 1)
            job.note(f"process {number}, block 3", await _report(programs[number]))
            assert await _report(programs[number]) == {"left": True}
    finally:
        for program in programs:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            await program.wait()
    calls = [
        pb.GetAliveTasksRequest.FromString(each.request).requesting_task_id
        for each in between.requests("GetAliveTasks")
    ]
    job.note("calls of processes 0, 1, 2", [calls.count(number) for number in range(3)])
    assert [calls.count(number) for number in range(3)] == [5, 5, 3]


async def _start_program(job: Job, number: int) -> asyncio.subprocess.Process:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    # Process 0 starts a service of its own, which idles.
    environment["JAX_COORDINATOR_BIND_ADDRESS"] = "127.0.0.1:0"
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.conformance.live_program", str(number), "3", job.address),
        cwd=REPOSITORY,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )


async def _report(program: asyncio.subprocess.Process) -> dict[str, Any]:
    assert program.stdout is not None
    async with asyncio.timeout(60):
        while not (line := await program.stdout.readline()).startswith(b"{"):
            assert line, "the program has ended"
    report: dict[str, Any] = json.loads(line)
    return report
