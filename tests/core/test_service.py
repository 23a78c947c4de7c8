"""The core against the catalogue of conformance scenarios (numbers are the catalogue's)."""

from __future__ import annotations

import pytest

from coord_sim.core.barriers import REGISTRATION_BARRIER
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.messages import Caller, KeyValue, Registered, TaskState, TryGetKeyValue
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import BarrierError, Code, ServiceError, Status, WrongService
from tests.core.driver import SERVICE, Driver

A, B, C = 100, 101, 102
"""Incarnations of tasks 0, 1, 2; a successor has 100 more."""


def test_01_registration_waits_for_all_and_a_wrong_service_incarnation_is_told_the_right_one() -> (
    None
):
    job = Driver()
    nobody = Caller(Incarnation(0), Incarnation(0))
    wrong = job.ask(TryGetKeyValue(caller=nobody, key="k"))
    assert job.code(wrong) is Code.INTERNAL
    assert job.status(wrong).wrong_service == WrongService(SERVICE)
    first = job.register(0, A)
    assert job.pending(first)
    second = job.register(1, B)
    assert job.answers[first] == job.answers[second] == Registered(service_incarnation=SERVICE)


def test_02_a_second_registration_replaces_a_pending_one() -> None:
    job = Driver()
    first = job.register(0, A)
    second = job.register(0, A + 100)
    assert job.code(first) is Code.ALREADY_EXISTS
    assert job.status(first).service_error == ServiceError()
    third = job.register(0, A + 100)
    assert job.code(second) is Code.ALREADY_EXISTS
    job.register(1, B)
    assert job.code(third) is Code.OK
    assert job.picture().version == 6
    assert job.picture().tasks[0].incarnation == A + 100


def test_03_registering_again_with_the_same_incarnation_is_harmless() -> None:
    job = Driver()
    job.register_all()
    version = job.picture().version
    assert job.code(job.register(0, A)) is Code.OK
    assert job.picture().version == version + 2
    assert job.heartbeat(0, A) is Code.OK


@pytest.mark.parametrize("recoverable", [True, False])
def test_04_a_failed_registration_spoils_the_service_for_ever(recoverable: bool) -> None:
    job = Driver(recoverable=recoverable, register_timeout_s=2.0)
    first = job.register(0, A)
    job.sleep(3.2)
    assert job.code(first) is Code.DEADLINE_EXCEEDED
    assert job.status(first).barrier_error == BarrierError(REGISTRATION_BARRIER, 0)
    assert job.code(job.register(0, A)) is Code.ABORTED
    assert job.code(job.register(1, B)) is Code.ABORTED
    states = {(info.state, info.error and info.error.code) for info in job.picture().tasks}
    assert states == {(TaskState.ERROR, Code.INTERNAL)}


def test_05_without_recoverability_a_restart_fails_the_job() -> None:
    job = Driver(recoverable=False)
    job.register_all()
    poll = job.poll(0, A)
    again = job.register(1, B + 100)
    assert job.code(again) is job.code(poll) is Code.ABORTED
    assert job.status(again).service_error == ServiceError(source_task=TaskId(1))
    assert [info.state for info in job.picture().tasks] == [TaskState.CONNECTED, TaskState.ERROR]


@pytest.mark.parametrize(("timeout_s", "before_s", "after_s"), [(1.0, 0.9, 2.2), (3.0, 2.9, 4.2)])
def test_06_a_silent_task_is_declared_dead_within_a_tick_of_the_timeout(
    timeout_s: float, before_s: float, after_s: float
) -> None:
    job = Driver(tasks=1, heartbeat_timeout_s=timeout_s)
    job.register_all()
    watch = job.watch(job.picture().version)
    job.sleep(before_s)
    assert job.pending(watch)
    job.sleep(after_s - before_s)
    info = job.picture().tasks[0]
    assert (info.state, info.error and info.error.code) == (TaskState.ERROR, Code.UNAVAILABLE)
    assert not job.pending(watch)


def test_07_without_recoverability_a_stale_heartbeat_fails_its_task_and_tells_all() -> None:
    job = Driver(recoverable=False)
    job.register_all()
    polls = [job.poll(0, A), job.poll(1, B)]
    assert job.heartbeat(0, A + 1) is Code.ABORTED
    assert [job.code(poll) for poll in polls] == [Code.ABORTED, Code.ABORTED]
    assert job.heartbeat(0, A) is Code.ABORTED
    assert job.heartbeat(1, B) is Code.OK
    assert job.code(job.poll(0, A)) is Code.FAILED_PRECONDITION
    assert job.code(job.poll(1, B)) is Code.ABORTED


def test_08_a_task_that_left_may_beat_for_one_timeout() -> None:
    job = Driver()
    job.register_all()
    assert job.code(job.shutdown(1, B)) is Code.OK
    assert job.heartbeat(1, B) is Code.OK
    job.sleep(2.3, beating=[(0, A)])
    assert job.heartbeat(1, B) is Code.INVALID_ARGUMENT
    assert job.code(job.poll(1, B)) is Code.FAILED_PRECONDITION


def test_09_without_recoverability_a_death_is_told_to_every_poll() -> None:
    job = Driver(tasks=3, recoverable=False)
    job.register_all()
    polls = [job.poll(0, A), job.poll(1, B), job.poll(2, C)]
    job.sleep(3.2, beating=[(0, A), (1, B)])
    assert {job.code(poll) for poll in polls} == {Code.UNAVAILABLE}
    assert job.status(polls[0]).message.splitlines()[1] == "2"
    assert job.heartbeat(0, A) is Code.OK
    assert job.heartbeat(2, C) is Code.ABORTED
    assert job.code(job.register(2, C + 100)) is Code.ABORTED


def test_11_if_nobody_ever_polled_all_tasks_are_put_in_error() -> None:
    job = Driver(recoverable=False)
    job.register_all()
    job.sleep(4.0, beating=[(0, A)])
    assert job.heartbeat(0, A) is job.heartbeat(1, B) is Code.ABORTED
    codes = [info.error and info.error.code for info in job.picture().tasks]
    assert codes == [Code.INTERNAL, Code.UNAVAILABLE]


def test_12_with_recoverability_nobody_is_told_of_a_death() -> None:
    job = Driver(tasks=3)
    job.register_all()
    polls = [job.poll(0, A), job.poll(2, C)]
    job.sleep(4.0, beating=[(0, A), (1, B)])
    assert all(job.pending(poll) for poll in polls)
    assert job.heartbeat(2, C) is Code.ABORTED
    assert job.code(job.poll(2, C)) is Code.FAILED_PRECONDITION
    assert job.pending(polls[1])


def test_14_and_15_a_zombie_is_served_and_does_not_keep_its_successor_alive() -> None:
    job = Driver()
    job.register_all()
    assert job.code(job.register(1, B + 100)) is Code.OK
    assert job.picture().tasks[1].incarnation == B + 100
    assert job.heartbeat(1, B) is Code.OK
    assert job.code(job.insert("k", b"zombie", who=B)) is Code.OK
    job.sleep(3.2, beating=[(0, A), (1, B)])
    assert job.picture().tasks[1].state is TaskState.ERROR


def test_15_a_zombie_may_shut_its_successor_down() -> None:
    job = Driver()
    job.register_all()
    job.register(1, B + 100)
    assert job.code(job.shutdown(1, B)) is Code.OK
    assert job.picture().tasks[1].state is TaskState.DISCONNECTED


def value(job: Driver, call: CallId) -> tuple[str, bytes]:
    answer = job.answers[call]
    assert isinstance(answer, KeyValue)
    return answer.key, answer.value


def test_16_keys_are_normalised_and_echoed_as_sent() -> None:
    job = Driver()
    job.register_all()
    assert job.code(job.insert("a/b", b"1")) is Code.OK
    again = job.insert("/a//b/", b"1")
    assert job.code(again) is Code.ALREADY_EXISTS
    assert job.status(again).service_error is None
    assert job.status(again).message == "key a/b already exists."
    assert job.code(job.insert("a/b", b"2", overwrite=True)) is Code.OK
    assert value(job, job.try_get("//a///b")) == ("//a///b", b"2")


def test_18_a_delete_takes_everything_under_the_key_and_the_root_takes_only_the_empty_key() -> None:
    job = Driver()
    job.register_all()
    for key in ("a", "a/b", "a/b/c", "a/bb", "a!x"):
        job.insert(key, b"v")
    assert job.code(job.delete("a/b")) is job.code(job.delete("missing")) is Code.OK
    job.delete("")
    left = {key: job.code(job.try_get(key)) for key in ("a", "a/b", "a/b/c", "a/bb", "a!x")}
    gone = {"a/b", "a/b/c"}
    assert left == {key: Code.NOT_FOUND if key in gone else Code.OK for key in left}


def test_17_a_directory_is_what_is_under_it_in_order_and_not_itself() -> None:
    job = Driver()
    job.register_all()
    for key in ("a/bb", "a!x", "a/b/c", "a", "a/b"):
        job.insert(key, b"v")
    assert (
        job.directory("a") == job.directory("a/") == job.directory("/a") == ["a/b", "a/b/c", "a/bb"]
    )
    assert job.directory("a/b") == ["a/b/c"]
    assert job.directory("") == job.directory("/") == job.directory("none") == []
    job.delete("a/b")
    job.insert("a/b/d", b"v")
    job.insert("a/b/d", b"w", overwrite=True)
    assert job.directory("a") == ["a/b/d", "a/bb"]


def test_20_an_increment_counts_as_an_insert() -> None:
    job = Driver()
    job.register_all()
    waiting = job.get("n")
    assert value(job, job.increment("n", 5)) == value(job, waiting) == ("n", b"5")
    assert value(job, job.increment("n", -8)) == ("n", b"-3")


@pytest.mark.parametrize(
    ("stored", "by", "sum_"),
    [
        (b"2147483647", 1, b"2147483648"),
        (b"-2147483648", 0, b"-2147483648"),
        (b" +7 ", 1, b"8"),
        (b"007", 0, b"7"),
        (b"1", 2**63 - 1, b"-9223372036854775808"),
    ],
)
def test_21_numbers_are_texts_parsed_in_32_bits_and_summed_in_64(
    stored: bytes, by: int, sum_: bytes
) -> None:
    job = Driver()
    job.register_all()
    job.insert("n", stored)
    assert value(job, job.increment("n", by)) == ("n", sum_)


@pytest.mark.parametrize(
    "stored", [b"", b"abc", b"1.5", b"0x10", b"2147483648", b"-2147483649", b"1 2", b"-", b"\xff"]
)
def test_21_what_is_no_number_is_not_incremented(stored: bytes) -> None:
    job = Driver()
    job.register_all()
    job.insert("n", stored)
    assert job.code(job.increment("n", 0)) is Code.FAILED_PRECONDITION
    assert value(job, job.try_get("n")) == ("n", stored)


def test_a_key_ends_at_nul() -> None:
    job = Driver()
    job.register_all()
    job.insert("x\0y", b"1")
    assert job.code(job.insert("x", b"2")) is Code.ALREADY_EXISTS
    assert value(job, job.try_get("x\0z")) == ("x\0z", b"1")


def test_10_a_reported_error_is_told_to_all_with_its_own_words() -> None:
    job = Driver(recoverable=False)
    job.register_all()
    polls = [job.poll(0, A), job.poll(1, B)]
    assert job.code(job.report(1, 9)) is Code.OK
    for poll in polls:
        status = job.status(poll)
        assert (status.code, status.message) == (Code.FAILED_PRECONDITION, "boom")
        assert status.service_error == ServiceError(reported=True, source_task=TaskId(1))
    assert job.code(job.report(1, 9)) is Code.FAILED_PRECONDITION
    assert job.code(job.report(7, 9)) is Code.INVALID_ARGUMENT
    assert job.code(job.report(0, 0)) is Code.INVALID_ARGUMENT
    assert job.code(job.report(0, 99)) is Code.OK
    assert job.picture().tasks[0].error == Status(
        code=Code.UNKNOWN, message="boom", service_error=ServiceError(source_task=TaskId(0))
    )


def test_13_with_recoverability_only_silence_is_forgiven() -> None:
    job = Driver()
    job.register_all()
    job.report(0, 13)
    assert job.code(job.register(0, A + 100)) is Code.ABORTED
    assert job.code(job.shutdown(0, A)) is Code.OK
    assert job.code(job.register(0, A + 100)) is Code.OK
    job.report(1, 14)
    assert job.code(job.register(1, B + 100)) is Code.OK


def test_19_a_deleted_key_is_still_waited_for() -> None:
    job = Driver()
    job.register_all()
    waiting = job.get("w")
    job.delete("w")
    assert job.pending(waiting)
    job.insert("w", b"x")
    assert value(job, waiting) == ("w", b"x")


def test_19_a_get_waits_for_its_key() -> None:
    job = Driver()
    job.register_all()
    waiting = job.get("w")
    assert job.pending(waiting)
    job.insert("/w/", b"x")
    assert value(job, waiting) == ("w", b"x")


def test_22_the_empty_key_and_any_bytes_are_fine() -> None:
    job = Driver()
    job.register_all()
    job.insert("", bytes(range(256)))
    assert value(job, job.try_get("/")) == ("/", bytes(range(256)))
    assert job.code(job.try_get("none")) is Code.NOT_FOUND


def test_24_a_task_that_left_may_use_the_store_as_shipped() -> None:
    job = Driver()
    job.register_all()
    job.shutdown(1, B)
    assert job.code(job.insert("k", b"v", who=B)) is Code.OK


def test_33_without_recoverability_all_leave_together() -> None:
    job = Driver(recoverable=False, shutdown_timeout_s=2.0)
    job.register_all()
    polls = [job.poll(0, A), job.poll(1, B)]
    first = job.shutdown(0, A)
    assert job.pending(first)
    assert job.code(job.shutdown(1, B)) is job.code(first) is Code.OK
    assert {job.code(poll) for poll in polls} == {Code.CANCELLED}
    again = job.shutdown(0, A)
    assert job.code(again) is Code.INTERNAL
    assert "already disconnected" in job.status(again).message
    assert job.code(job.register(0, A + 100)) is Code.OK


def test_34_a_shutdown_that_times_out_fails_the_job() -> None:
    job = Driver(recoverable=False, shutdown_timeout_s=2.0)
    job.register_all()
    polls = [job.poll(0, A), job.poll(1, B)]
    first = job.shutdown(0, A)
    job.sleep(3.2, beating=[(0, A), (1, B)])
    assert job.code(first) is Code.INTERNAL
    assert {job.code(poll) for poll in polls} == {Code.INTERNAL}
    assert job.code(job.shutdown(1, B)) is Code.INTERNAL
    states = [info.state for info in job.picture().tasks]
    assert states == [TaskState.ERROR, TaskState.DISCONNECTED]


@pytest.mark.parametrize("death", ["restart", "stale heartbeat", "silence"])
def test_a_waiting_shutdown_fails_with_any_death(death: str) -> None:
    job = Driver(recoverable=False)
    job.register_all()
    job.poll(0, A)
    waiting = job.shutdown(0, A)
    if death == "restart":
        job.register(1, B + 100)
    elif death == "stale heartbeat":
        job.heartbeat(1, B + 100)
    else:
        job.sleep(3.2, beating=[(0, A)])
    assert job.code(waiting) is Code.INTERNAL
    assert "Shutdown barrier has failed" in job.status(waiting).message


def test_a_second_shutdown_of_a_task_replaces_its_first() -> None:
    job = Driver(recoverable=False)
    job.register_all()
    first, second = job.shutdown(0, A), job.shutdown(0, A)
    assert job.code(first) is Code.INTERNAL
    assert "CANCELLED" in job.status(first).message
    job.shutdown(1, B)
    assert job.code(second) is Code.OK


def test_35_with_recoverability_each_leaves_alone() -> None:
    job = Driver()
    job.register_all()
    assert job.code(job.shutdown(0, A)) is Code.OK
    assert job.code(job.shutdown(0, A)) is Code.FAILED_PRECONDITION


def test_38_calls_that_are_given_up_leave_one_entry_and_no_more() -> None:
    job = Driver()
    job.register_all()
    for _ in range(100):
        job.service.hang_up(job.live(0, A, [0, 1]))
    (round_,) = job.service._rounds._rounds.values()
    assert len(round_.entries) == 1
    assert job.service.survey(0).rounds[0].entered == (0,)
    assert job.alive(job.live(1, B, [0, 1])) == {0: A, 1: B}


def test_36_a_round_is_its_set_of_ids() -> None:
    job = Driver(tasks=3)
    job.register_all()
    calls = [job.live(0, A, ids) for ids in ([0, 1], [0, 1], [0, 1, 2], [1, 0, 0])]
    assert all(job.pending(call) for call in calls)
    job.live(1, B, [1, 0])
    assert [job.pending(call) for call in calls] == [False, False, True, False]
    assert job.alive(calls[0]) == {0: A, 1: B}
    job.live(1, B, [0, 1, 2])
    job.live(2, C, [0, 1, 2])
    assert job.alive(calls[2]) == {0: A, 1: B, 2: C}
    foreign = job.live(0, A, [0, 1, 55])
    job.live(1, B, [0, 1, 55])
    assert job.alive(foreign) == {0: A, 1: B}
    for ids in ([1, 2], []):
        refused = job.live(0, A, ids)
        assert job.code(refused) is Code.INVALID_ARGUMENT
        assert job.status(refused).service_error is None


def test_37_a_round_goes_on_without_the_dead_who_may_call_themselves() -> None:
    job = Driver(tasks=3)
    job.register_all()
    first = [job.live(0, A, [0, 1, 2]), job.live(1, B, [0, 1, 2])]
    job.sleep(3.2, beating=[(0, A), (1, B)])
    assert [job.alive(call) for call in first] == [{0: A, 1: B}] * 2
    assert job.alive(job.live(2, C, [2])) == {}
    third = job.live(2, C, [0, 1, 2])
    assert job.pending(third)
    job.live(0, A, [0, 1, 2])
    job.live(1, B, [0, 1, 2])
    assert job.alive(third) == {0: A, 1: B}


def test_37_a_round_goes_on_at_once_without_one_who_leaves() -> None:
    job = Driver(tasks=2)
    job.register_all()
    call = job.live(0, A, [0, 1])
    job.shutdown(1, B)
    assert job.alive(call) == {0: A}


def test_38_a_call_that_hung_up_stays_entered() -> None:
    job = Driver(tasks=2)
    job.register_all()
    job.service.hang_up(job.live(0, A, [0, 1]))
    assert job.alive(job.live(1, B, [0, 1])) == {0: A, 1: B}


def test_39_a_task_that_connects_is_waited_for() -> None:
    job = Driver(tasks=3)
    job.register_all()
    job.shutdown(2, C)
    first = job.live(0, A, [0, 1, 2])
    job.register(2, C + 100)
    second = job.live(1, B, [0, 1, 2])
    assert job.pending(first)
    assert job.pending(second)
    third = job.live(2, C + 100, [0, 1, 2])
    assert job.alive(first) == job.alive(third) == {0: A, 1: B, 2: C + 100}


def test_40_as_shipped_a_ghost_entry_is_counted_for_the_successor() -> None:
    job = Driver(tasks=3)
    job.register_all()
    old = job.live(2, C, [0, 1, 2])
    job.register(2, C + 100)
    first = job.live(0, A, [0, 1, 2])
    second = job.live(1, B, [0, 1, 2])
    told = {0: A, 1: B, 2: C + 100}
    assert job.alive(old) == job.alive(first) == job.alive(second) == told
    assert job.pending(job.live(2, C + 100, [0, 1, 2]))


@pytest.mark.parametrize(
    ("death_order", "told"),
    [
        # Task 2 is declared first, which ends the round with task 3 in it.
        ((), {0: A, 1: B, 3: 103}),
        ((2,), {0: A, 1: B, 3: 103}),
        ((3,), {0: A, 1: B}),
        ((3, 2, 1, 0), {0: A, 1: B}),
    ],
)
def test_45_as_shipped_two_deaths_of_one_tick_are_declared_one_by_one(
    death_order: tuple[int, ...], told: dict[int, int]
) -> None:
    job = Driver(tasks=4, heartbeat_timeout_s=1.0)
    job.register_all()
    calls = [job.live(task, 100 + task, [0, 1, 2, 3]) for task in (0, 1, 3)]
    job.sleep(2.2, beating=[(0, A), (1, B)], death_order=death_order)
    assert job.alive(calls[0]) == told


def test_46_an_unknown_task_that_shuts_down_fails_a_fate_sharing_job() -> None:
    job = Driver(recoverable=False)
    job.register_all()
    polls = [job.poll(0, A), job.poll(1, B)]
    assert job.code(job.shutdown(9, 1)) is Code.INTERNAL
    assert {job.code(poll) for poll in polls} == {Code.INTERNAL}
    assert job.heartbeat(0, A) is Code.ABORTED
    recoverable = Driver()
    recoverable.register_all()
    assert recoverable.code(recoverable.shutdown(9, 1)) is Code.INVALID_ARGUMENT
    assert recoverable.heartbeat(0, A) is Code.OK


def test_48_a_poll_replaces_an_older_one_of_its_task() -> None:
    job = Driver()
    job.register_all()
    old = job.poll(1, B)
    job.register(1, B + 100)
    new = job.poll(1, B + 100)
    assert job.code(old) is Code.CANCELLED
    job.poll(1, B)
    assert job.code(new) is Code.CANCELLED


def test_unknown_ids_are_refused_and_harm_nobody() -> None:
    job = Driver()
    job.register_all()
    assert job.code(job.register(7, 1)) is Code.INVALID_ARGUMENT
    assert job.heartbeat(7, 1) is Code.INVALID_ARGUMENT
    assert job.code(job.poll(7, 1)) is Code.INVALID_ARGUMENT
    assert job.heartbeat(0, A) is Code.OK


def test_a_version_from_the_future_is_an_error_and_not_the_end_of_the_service() -> None:
    job = Driver()
    job.register_all()
    assert job.code(job.watch(10_000)) is Code.INVALID_ARGUMENT


def test_a_late_driver_gets_one_tick_and_the_grid_stays() -> None:
    job = Driver(tasks=1, heartbeat_timeout_s=100.0)
    job.service.advance(3_400_000_000)
    assert job.service.next_deadline_ns() == 4_000_000_000


def test_stopping_answers_every_waiting_call() -> None:
    job = Driver(tasks=2)
    waiting = job.register(0, A)
    job.register(1, B)
    calls = [job.poll(0, A), job.get("k"), job.live(0, A, [0, 1]), job.watch(job.picture().version)]
    job._take(job.service.stop())
    assert not job.pending(waiting)
    assert {job.code(call) for call in calls} == {Code.UNAVAILABLE}


@pytest.mark.parametrize("tasks", [0, -1])
def test_a_job_without_tasks_is_refused(tasks: int) -> None:
    with pytest.raises(ValueError, match="at least 1 task"):
        ServiceConfig(tasks=tasks)
