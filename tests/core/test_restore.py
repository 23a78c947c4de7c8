"""A service that was killed and goes on from what it remembered."""

from __future__ import annotations

import pytest

from coord_sim.core.messages import KeyValue, TaskState
from coord_sim.core.semantics import PUBLISHED
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import Code
from tests.core.driver import Driver

A, B = 100, 101


def test_keys_and_deletions_outlive_the_service() -> None:
    job = Driver(durable=True)
    job.register_all()
    for key in ("a", "a/b", "c", "d"):
        job.insert(key, b"1")
    job.insert("c", b"2", overwrite=True)
    job.increment("n", 7)
    job.delete("a")
    job.kill_and_restore()
    assert job.answers[job.try_get("c")] == KeyValue(key="c", value=b"2")
    assert job.answers[job.increment("n", 1)] == KeyValue(key="n", value=b"8")
    assert job.code(job.try_get("a")) is job.code(job.try_get("a/b")) is Code.NOT_FOUND
    assert job.code(job.insert("d", b"")) is Code.ALREADY_EXISTS


def test_tasks_stay_in_the_job_with_their_incarnations() -> None:
    job = Driver(3, durable=True, semantics=PUBLISHED)
    job.register_all()
    job.register(1, B + 100)
    job.shutdown(2, 102)
    before = job.picture()
    job.kill_and_restore()
    assert job.picture() == before
    assert job.heartbeat(0, A) is job.heartbeat(1, B + 100) is Code.OK
    assert job.heartbeat(1, B) is Code.ABORTED
    assert job.code(job.register(1, B)) is Code.FAILED_PRECONDITION
    assert job.code(job.register(2, 202)) is Code.OK


def test_a_dead_task_stays_dead_and_a_silent_one_gets_a_whole_time_out() -> None:
    job = Driver(2, durable=True)
    job.register_all()
    job.sleep(3.2, beating=[(0, A)])
    job.kill_and_restore()
    assert job.picture().tasks[1].state is TaskState.ERROR
    job.sleep(1.9)
    assert job.picture().tasks[0].state is TaskState.CONNECTED
    job.sleep(1.2)
    assert job.picture().tasks[0].state is TaskState.ERROR


def test_barrier_counters_go_on_and_an_open_instance_waits_for_all_arrivals_anew() -> None:
    job = Driver(2, durable=True, semantics=PUBLISHED)
    job.register_all()
    for task in (0, 1):
        job.barrier(task)
    job.barrier(0, counter=1)
    job.kill_and_restore()
    assert job.passed(job.barrier(1)) == 0
    waiting = job.barrier(1, counter=1)
    assert job.pending(waiting)
    assert job.passed(job.barrier(0, counter=1)) == job.passed(waiting) == 1


def test_a_registration_that_was_not_complete_begins_anew() -> None:
    job = Driver(2, durable=True)
    job.register(0, A)
    job.kill_and_restore()
    second = job.register(1, B)
    assert job.pending(second)
    assert job.code(job.register(0, A)) is job.code(second) is Code.OK


def test_the_first_error_of_a_job_is_told_by_its_successor_too() -> None:
    job = Driver(2, durable=True, recoverable=False)
    job.register_all()
    job.poll(0, A)
    job.report(1, 9)
    job.kill_and_restore()
    assert job.status(job.poll(0, A)).message == "boom"
    assert job.picture().tasks[1].state is TaskState.ERROR


def test_only_a_durable_service_asks_to_remember() -> None:
    job = Driver(2)
    job.register_all()
    job.insert("k", b"v")
    assert job.remembered == {}


def test_polls_are_dismissed_where_there_is_nothing_to_tell() -> None:
    job = Driver(2, dismisses_polls=True)
    job.register_all()
    assert job.code(job.poll(0, A)) is Code.CANCELLED
    with pytest.raises(ValueError, match="polls are how"):
        ServiceConfig(tasks=1, dismisses_polls=True)
