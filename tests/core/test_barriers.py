"""Named barriers against the catalogue of conformance scenarios (numbers are the catalogue's)."""

from __future__ import annotations

import pytest

from coord_sim.core.barriers import REGISTRATION_BARRIER, shutdown_barrier
from coord_sim.core.messages import TaskState
from coord_sim.core.semantics import PUBLISHED
from coord_sim.core.status import BarrierError, Code
from tests.core.driver import SERVICE, Driver

A, B, C = 100, 101, 102


def job_of(tasks: int, *, recoverable: bool = False, heartbeat_timeout_s: float = 60.0) -> Driver:
    job = Driver(tasks, recoverable=recoverable, heartbeat_timeout_s=heartbeat_timeout_s)
    job.register_all()
    return job


def test_25_counters_tell_instances_apart_and_a_wrong_one_fails_the_instance_for_all() -> None:
    job = job_of(3)
    first = [job.barrier(task) for task in range(3)]
    assert [job.passed(call) for call in first] == [0, 0, 0]
    assert job.passed(job.barrier(0)) == 0
    second = [job.barrier(task, counter=1) for task in range(3)]
    assert [job.passed(call) for call in second] == [1, 1, 1]
    wrong = job.barrier(0, counter=5)
    assert job.code(wrong) is Code.INTERNAL
    assert job.status(wrong).barrier_error == BarrierError("b", 1)
    assert job.status(job.barrier(0, counter=1)) == job.status(wrong)


def test_26_a_barrier_times_out_at_a_tick_for_all_and_for_who_is_late() -> None:
    job = job_of(3)
    first = job.barrier(0, timeout_s=1.0)
    job.barrier(1, timeout_s=30.0)
    job.sleep(0.9)
    assert job.pending(first)
    job.sleep(1.3)
    assert job.code(first) is Code.DEADLINE_EXCEEDED
    assert "2/3" in job.status(first).message
    assert job.status(job.barrier(2)) == job.status(first)
    again = [job.barrier(task, counter=1) for task in range(3)]
    assert [job.passed(call) for call in again] == [1, 1, 1]


@pytest.mark.parametrize(
    ("first", "second", "passes"),
    [
        ([0, 1], [1, 0], True),
        ([], [2, 1, 0], None),
        ([0, 1], [0, 1, 2], False),
        ([0, 1], [], False),
    ],
)
def test_27_participants_are_a_set_that_all_callers_name_alike(
    first: list[int], second: list[int], passes: bool | None
) -> None:
    job = job_of(3)
    calls = [job.barrier(0, tasks=first), job.barrier(1, tasks=second)]
    if passes is None:
        calls.append(job.barrier(2, tasks=first))
    expected = Code.INVALID_ARGUMENT if passes is False else Code.OK
    assert {job.code(call) for call in calls} == {expected}


def test_27_a_duplicate_or_an_unknown_participant_is_refused() -> None:
    job = job_of(3)
    assert job.code(job.barrier(0, "x", tasks=[0, 0, 1])) is Code.INVALID_ARGUMENT
    assert job.code(job.barrier(0, "y", tasks=[0, 9])) is Code.INVALID_ARGUMENT
    assert job.code(job.barrier(9, "z")) is Code.INVALID_ARGUMENT


def test_28_a_stranger_fails_a_barrier_for_its_participants() -> None:
    job = job_of(3)
    waiting = job.barrier(0, tasks=[0, 1])
    stranger = job.barrier(2, tasks=[0, 1])
    assert job.code(waiting) is job.code(stranger) is Code.INVALID_ARGUMENT
    assert job.status(job.barrier(1, tasks=[0, 1])) == job.status(waiting)


def test_28_a_newer_call_of_a_task_replaces_its_older_one() -> None:
    job = job_of(3)
    older, newer = job.barrier(0), job.barrier(0)
    assert job.code(older) is Code.CANCELLED
    assert job.status(older).service_error is None
    job.barrier(1)
    job.barrier(2)
    assert job.passed(newer) == 0


def test_28_anybody_may_cancel_an_open_instance_once() -> None:
    job = job_of(3)
    waiting = job.barrier(0)
    assert job.code(job.cancel_barrier("b", counter=3)) is Code.FAILED_PRECONDITION
    assert job.pending(waiting)
    assert job.code(job.cancel_barrier("b", task=1)) is Code.OK
    assert job.code(waiting) is Code.CANCELLED
    assert job.status(job.barrier(1)) == job.status(waiting)
    assert job.code(job.cancel_barrier("b", task=1)) is Code.FAILED_PRECONDITION


def test_a_barrier_cancelled_before_its_first_use_can_be_used_from_instance_1_on() -> None:
    job = job_of(2)
    assert job.code(job.cancel_barrier("b")) is Code.OK
    assert job.code(job.barrier(0)) is Code.INVALID_ARGUMENT
    calls = [job.barrier(0, counter=1), job.barrier(1, counter=1)]
    assert [job.passed(call) for call in calls] == [1, 1]


def test_29_without_recoverability_a_death_fails_the_barriers_of_the_dead() -> None:
    job = job_of(3, heartbeat_timeout_s=2.0)
    job.poll(0, A)
    waiting = job.barrier(0)
    others = job.barrier(1, "others", tasks=[0, 1])
    job.sleep(3.2, beating=[(0, A), (1, B)])
    assert job.code(waiting) is Code.INTERNAL
    assert job.status(waiting).barrier_error == BarrierError("b", 0)
    assert job.pending(others)
    assert job.code(job.barrier(0, "new")) is Code.INTERNAL


def test_30_with_recoverability_a_restarted_task_is_unarrived_and_may_arrive_again() -> None:
    job = job_of(3, recoverable=True)
    waiting, stale = job.barrier(0), job.barrier(2)
    job.register(2, C + 100)
    assert job.code(stale) is Code.CANCELLED
    assert job.status(stale).barrier_error == BarrierError("b", 0)
    assert job.pending(waiting)
    calls = [job.barrier(2, incarnation=C + 100), job.barrier(1)]
    assert [job.passed(call) for call in (*calls, waiting)] == [0, 0, 0]


def test_31_with_recoverability_a_barrier_waits_for_the_dead() -> None:
    job = job_of(2, recoverable=True, heartbeat_timeout_s=1.0)
    job.sleep(3.0, beating=[(0, A)])
    assert job.picture().tasks[1].state is TaskState.ERROR
    waiting = job.barrier(0, timeout_s=5.0)
    job.sleep(2.0, beating=[(0, A)])
    assert job.pending(waiting)
    job.register(1, B + 100)
    job.barrier(1, incarnation=B + 100)
    assert job.passed(waiting) == 0


def test_32_instance_0_of_a_restarted_task_is_the_next_one() -> None:
    job = job_of(2, recoverable=True)
    for counter in (0, 1):
        calls = [job.barrier(task, counter=counter) for task in (0, 1)]
        assert [job.passed(call) for call in calls] == [counter, counter]
    job.register(1, B + 100)
    calls = [job.barrier(1, counter=0, incarnation=B + 100), job.barrier(0, counter=2)]
    assert [job.passed(call) for call in calls] == [2, 2]
    alone = job.barrier(0, counter=0, timeout_s=0.5)
    job.sleep(2.0, beating=[(0, A), (1, B + 100)])
    assert job.code(alone) is Code.DEADLINE_EXCEEDED
    assert job.status(alone).barrier_error == BarrierError("b", 3)


@pytest.mark.parametrize("recoverable", [True, False])
def test_as_published_who_passed_a_barrier_is_told_so_again(recoverable: bool) -> None:
    job = Driver(2, semantics=PUBLISHED, recoverable=recoverable)
    job.register_all()
    calls = [job.barrier(task) for task in (0, 1)]
    assert [job.passed(call) for call in calls] == [0, 0]
    assert job.passed(job.barrier(1)) == 0
    ahead = job.barrier(0, counter=1)
    assert job.passed(job.barrier(1)) == 0
    assert job.pending(ahead)
    assert job.passed(job.barrier(1, counter=1)) == job.passed(ahead) == 1


def test_as_published_too_a_restarted_task_joins_the_next_instance() -> None:
    job = Driver(2, semantics=PUBLISHED)
    job.register_all()
    for task in (0, 1):
        job.barrier(task)
    job.register(1, B + 100)
    opened = job.barrier(1, incarnation=B + 100)
    assert job.passed(job.barrier(0, counter=1)) == job.passed(opened) == 1


def test_a_hung_up_arrival_still_counts() -> None:
    job = job_of(2)
    job.service.hang_up(job.barrier(0))
    assert job.passed(job.barrier(1)) == 0


def test_reserved_ids_are_barriers_like_any_other() -> None:
    job = Driver(2, recoverable=False)
    job.register(0, A)
    named = job.barrier(1, REGISTRATION_BARRIER)
    assert job.passed(named) == 0
    states = [info.state for info in job.picture().tasks]
    assert states == [TaskState.CONNECTED, TaskState.DISCONNECTED]
    job.register(1, B)
    named = job.barrier(0, shutdown_barrier(SERVICE))
    assert job.code(job.shutdown(1, B)) is Code.OK
    assert job.passed(named) == 0
    assert {info.state for info in job.picture().tasks} == {TaskState.DISCONNECTED}


@pytest.mark.parametrize("timeout_s", [0.0, -5.0])
def test_a_barrier_without_time_has_until_the_next_tick(timeout_s: float) -> None:
    job = job_of(2)
    waiting = job.barrier(0, timeout_s=timeout_s)
    assert job.pending(waiting)
    job.sleep(1.0)
    assert job.code(waiting) is Code.DEADLINE_EXCEEDED
