"""The service as published: an incarnation that is over is over."""

from __future__ import annotations

from coord_sim.core.membership import NEVER
from coord_sim.core.messages import TaskState
from coord_sim.core.semantics import NAIVE, PUBLISHED
from coord_sim.core.status import Code
from tests.core.driver import Driver

A, B, C = 100, 101, 102


def test_a_restarted_task_loses_its_place_in_the_round() -> None:
    job = Driver(tasks=3, semantics=PUBLISHED)
    job.register_all()
    old = job.live(2, C, [0, 1, 2])
    job.register(2, C + 100)
    assert job.code(old) is Code.ABORTED
    first = job.live(0, A, [0, 1, 2])
    job.live(1, B, [0, 1, 2])
    assert job.pending(first)
    job.live(2, C + 100, [0, 1, 2])
    assert job.alive(first) == {0: A, 1: B, 2: C + 100}


def test_a_task_declared_dead_is_told_and_refused_from_then_on() -> None:
    job = Driver(tasks=2, semantics=PUBLISHED)
    job.register_all()
    poll, entry, waiting = job.poll(1, B), job.live(1, B, [0, 1]), job.watch(job.picture().version)
    job.sleep(3.2, beating=[(0, A)])
    assert not job.pending(waiting)
    assert job.code(poll) is Code.UNAVAILABLE
    assert job.code(entry) is Code.ABORTED
    assert job.heartbeat(1, B) is Code.ABORTED
    for refused in (
        job.live(1, B, [0, 1]),
        job.insert("k", b"v", who=B),
        job.try_get("k", who=B),
        job.register(1, B),
    ):
        assert job.code(refused) is Code.FAILED_PRECONDITION
        assert job.status(refused).service_error is not None, "else clients take it for transport"
    assert job.code(job.register(1, B + 100)) is Code.OK


def test_a_stale_incarnation_is_refused_everywhere() -> None:
    job = Driver(tasks=2, semantics=PUBLISHED)
    job.register_all()
    poll = job.poll(1, B)
    job.register(1, B + 100)
    assert job.code(poll) is Code.ABORTED
    assert job.heartbeat(1, B) is Code.ABORTED
    for refused in (
        job.live(1, B, [0, 1]),
        job.insert("k", b"v", who=B),
        job.get("k", who=B),
        job.try_get("k", who=B),
        job.shutdown(1, B),
        job.poll(1, B),
        job.register(1, B),
    ):
        assert job.code(refused) is Code.FAILED_PRECONDITION
    assert job.picture().tasks[1].state is TaskState.CONNECTED


def test_who_is_nobody_may_look_and_no_more() -> None:
    job = Driver(tasks=2, semantics=PUBLISHED)
    job.register(0, A)
    for _ in range(2):
        assert job.code(job.watch(who=NEVER)) is Code.OK
        assert job.directory("", who=NEVER) == []
        for refused in (job.insert("k", b"v", who=NEVER), job.try_get("k", who=NEVER)):
            assert job.code(refused) is Code.FAILED_PRECONDITION
        job.register(1, B)


def test_deaths_of_one_tick_are_one_event() -> None:
    job = Driver(tasks=4, semantics=PUBLISHED, heartbeat_timeout_s=1.0)
    job.register_all()
    calls = [job.live(task, 100 + task, [0, 1, 2, 3]) for task in (0, 1, 3)]
    job.sleep(2.2, beating=[(0, A), (1, B)])
    assert job.alive(calls[0]) == {0: A, 1: B}
    assert job.code(calls[2]) is Code.ABORTED


def test_the_naive_service_answers_at_once() -> None:
    job = Driver(tasks=2, semantics=NAIVE)
    job.register_all()
    assert job.alive(job.live(0, A, [0, 1])) == {0: A, 1: B}
