"""Exceptions that only say that something else has failed, torn tracebacks, and who left too early.

The logs are those of jobs that failed, cut to the lines that matter, with other names.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_bridge.explain import EXIT_CODES, Cause, FailureClass, explain
from jax_bridge.explain.messages import Role, find_known

UNKNOWN = EXIT_CODES[FailureClass.UNKNOWN]
INFRASTRUCTURE = EXIT_CODES[FailureClass.INFRASTRUCTURE]

FATAL = (
    "F1130 09:27:14.107865    6592 client.h:80] Terminating process because the JAX distributed service "
    "detected fatal errors. This most likely indicates that another task died; see the other task logs "
    "for more details. absl::Status: "
)
POLLED = (
    "E1130 09:27:14.107830    6592 coordination_service_agent.cc:289] Polled an error from coordination "
    "service (this can be an error from this or another task).\n"
)
GRPC = (
    "Additional GRPC error information from remote target coordination_service while calling "
    "/xla.coordination.CoordinationService/{}:\n"
    ':UNKNOWN:Error received from peer  {{grpc_message:"recvmsg:Connection reset by peer"}}\n'
)
SERVICE_LOST = (
    POLLED
    + FATAL
    + "UNAVAILABLE: Failed to send RPC to coordination service. Either the leader task was "
    "preempted/died/restarted unexpectedly or this task is experiencing network issues.\n"
    + GRPC.format("PollForError")
)
UNHEALTHY = (
    "UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):\n1\nThe tasks have "
    "crashed. Check the task logs for an earlier error.\n\n"
    "RPC: /xla.coordination.CoordinationService/PollForError\n"
)
STACK = (
    "*** Check failure stack trace: ***\n    @     0x7f3e27440634  absl::LogMessage::SendToLog()\n"
)
FRAME = 'Traceback (most recent call last):\n  File "/job/train.py", line 32, in <module>\n'
CALL = "    client.wait_at_barrier(name, 60_000)\n"
BARRIER_ECHO = (
    "jax.errors.JaxRuntimeError: INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: "
    "Task 1 heartbeat timeout. This indicates that the remote task has failed. Barrier Id: b3::0, Task: "
    "1\n\nRPC: /xla.coordination.CoordinationService/Barrier\n"
)
CALL_LOST = (
    FRAME
    + CALL
    + "jax.errors.JaxRuntimeError: UNAVAILABLE: recvmsg:Connection reset by peer\n"
    + GRPC.format("InsertKeyValue")
)


def explained(folder: Path, *logs: str) -> tuple[Cause, int]:
    """The first cause that the logs of processes 0, 1, ... show, and the exit code."""
    for process, text in enumerate(logs):
        (folder / f"rank-{process}.err").write_text(text)
    explanation = explain([folder], processes=len(logs))
    return explanation.causes[0], explanation.exit_code


def test_a_call_that_lost_the_service_is_an_echo_of_its_death(tmp_path: Path) -> None:
    cause, code = explained(tmp_path, "", SERVICE_LOST + STACK, SERVICE_LOST + CALL_LOST + STACK)
    assert (cause.name, cause.processes) == ("leader-lost", (0,))
    assert code == INFRASTRUCTURE
    assert cause.sentence.endswith("processes 1 and 2 ended at once because of it")


def test_the_exceptions_alone_show_that_the_service_was_lost(tmp_path: Path) -> None:
    cause, code = explained(tmp_path, "step 3\n", CALL_LOST, CALL_LOST)
    assert (cause.name, cause.processes, code) == ("leader-lost", (0,), INFRASTRUCTURE)


def test_an_exception_of_the_leader_explains_who_lost_it(tmp_path: Path) -> None:
    timed_out = (
        FRAME
        + CALL
        + "jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: b3::0. "
        "# of tasks that reached the barrier: 2/3.\nThe first task at the barrier: 1. Some timed out "
        "task names:\n2\n"
    )
    cause, _ = explained(tmp_path, timed_out, timed_out + SERVICE_LOST, SERVICE_LOST)
    assert (cause.name, cause.processes) == ("barrier-timeout", (2,))


def test_a_process_0_that_lost_the_service_has_not_run_it(tmp_path: Path) -> None:
    cause, code = explained(tmp_path, SERVICE_LOST, SERVICE_LOST)
    assert (cause.name, cause.processes, code) == ("leader-lost", (), INFRASTRUCTURE)
    assert "it ran elsewhere" in cause.sentence


@pytest.mark.parametrize(
    "words",
    [
        "UNAVAILABLE: recvmsg:Connection reset by peer",
        "UNAVAILABLE: Socket closed",
        "UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:8476",
        "CANCELLED: CANCELLED\n" + GRPC.format("GetKeyValue"),
        "INTERNAL: Coordination service has stopped. GetKeyValue() failed.",
        "FAILED_PRECONDITION: Agent must be in CONNECTED state. It is currently in ERROR.",
        "INTERNAL: Barrier failed because: task is set to ERROR: UNAVAILABLE: Task 1 heartbeat timeout.",
        "INTERNAL: Barrier failed because: Task 2 has disconnected.",
    ],
)
def test_what_only_says_that_the_job_has_failed_is_no_origin(words: str, tmp_path: Path) -> None:
    text = f"jaxlib._jax.JaxRuntimeError: {words}"
    roles = {found.message.role for found in find_known(text)}
    assert roles
    assert Role.ORIGIN not in roles
    own = FRAME + "ValueError: bad learning rate\n"
    cause, _ = explained(tmp_path, f"{FRAME}{text}\n", own)
    assert cause.sentence == "process 1 raised ValueError: bad learning rate, at /job/train.py:32"


@pytest.mark.parametrize(
    "words",
    [
        "UNAVAILABLE: TPU initialization failed",
        "INVALID_ARGUMENT: shapes do not fit",
        "UNKNOWN: Gloo AllReduce failed: [pair.cc:547] Connection reset by peer",
        "UNAVAILABLE: Gloo AllReduce failed: [pair.cc:547] Connection reset by peer",
    ],
)
def test_other_errors_of_the_runtime_are_no_lost_service(words: str) -> None:
    names = {found.message.name for found in find_known(f"jax.errors.JaxRuntimeError: {words}")}
    assert "call-lost-service" not in names


def test_echoes_alone_are_unknown(tmp_path: Path) -> None:
    text = (
        "jax.errors.JaxRuntimeError: INTERNAL: Barrier failed because: Task 2 has disconnected.\n"
    )
    cause, code = explained(tmp_path, "", FRAME + CALL + text)
    assert (cause.name, code) == ("only-echoes", UNKNOWN)


def test_a_traceback_goes_on_behind_messages_in_its_middle(tmp_path: Path) -> None:
    torn = FRAME + POLLED + FATAL + UNHEALTHY + CALL + BARRIER_ECHO + STACK
    cause, code = explained(tmp_path, POLLED + FATAL + UNHEALTHY, "", torn)
    assert (cause.name, cause.processes, code) == ("silent-death", (1,), INFRASTRUCTURE)


def test_a_torn_exception_of_the_program_is_read(tmp_path: Path) -> None:
    torn = FRAME + POLLED + '  File "/job/model.py", line 7, in loss\n    x\nmy.Problem: no data\n'
    cause, _ = explained(tmp_path, torn)
    assert cause.sentence == "process 0 raised my.Problem: no data, at /job/model.py:7"


def test_an_exception_whose_text_is_cut_off_is_no_text(tmp_path: Path) -> None:
    cause, code = explained(tmp_path, "", FRAME + CALL)
    assert cause.sentence == (
        "process 1 raised an exception whose text is cut off, at /job/train.py:32"
    )
    assert code == UNKNOWN


LEFT_ALONE = (
    FATAL
    + "INTERNAL: Shutdown barrier has failed.\nBarrier result: 'DEADLINE_EXCEEDED: Barrier timed "
    "out. Id: Shutdown::17058361224111297188::0. This usually happens because a task triggered the "
    "barrier too early or too slowly.\n# of tasks that reached the barrier: {}/3.\nThe first task at "
    "the barrier: 0. Some timed out task names:\n{}\n"
)


@pytest.mark.parametrize("said", ["", "step 3 done\n"])
def test_who_leaves_in_the_middle_of_the_work_is_no_teardown(said: str, tmp_path: Path) -> None:
    text = LEFT_ALONE.format(1, "2\n1")
    cause, code = explained(tmp_path, said + text, text, text)
    assert (cause.name, cause.processes, code) == ("late-leaver", (1, 2), UNKNOWN)
    assert "nothing shows that the work was done" in cause.sentence
    assert cause.details == ("process 0 was the first to leave",)


@pytest.mark.parametrize(("arrived", "said"), [(2, ""), (1, "training finished\n")])
def test_where_the_work_was_done_a_late_leaver_is_teardown(
    arrived: int, said: str, tmp_path: Path
) -> None:
    text = LEFT_ALONE.format(arrived, "2")
    cause, code = explained(tmp_path, said + text, text, text)
    assert (cause.name, code) == ("late-leaver", EXIT_CODES[FailureClass.TEARDOWN])


WAITED = (
    FATAL + "DEADLINE_EXCEEDED: Deadline Exceeded\n\n"
    "RPC: /xla.coordination.CoordinationService/RegisterTask\n"
)


def test_if_all_waited_to_register_some_did_not_reach_the_address(tmp_path: Path) -> None:
    cause, code = explained(tmp_path, WAITED, WAITED, WAITED)
    assert (cause.name, cause.processes, code) == ("service-not-reached", (), INFRASTRUCTURE)
    assert cause.sentence.startswith("processes 0-2, all there are, were started and waited")
    assert "--processes" not in cause.sentence
