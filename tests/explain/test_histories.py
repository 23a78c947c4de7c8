"""Causes that histories show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from checker.history import (
    Crash,
    Event,
    Fail,
    Fault,
    Header,
    History,
    Invoke,
    Leave,
    Ok,
    Start,
)
from jax_bridge.explain import Cause, FailureClass, explain

S = 1_000_000_000


def start(process: int, time_s: float = 0.0) -> Start:
    return Start(time_ns=round(time_s * S), process=process, lifetime=0)


def crash(process: int, time_s: float, cause: str) -> Crash:
    return Crash(time_ns=round(time_s * S), process=process, lifetime=0, cause=cause)


def invoke(
    process: int,
    time_s: float,
    id: int,  # noqa: A002 - the field's name
    operation: str,
    arguments: Mapping[str, object] | None = None,
) -> Invoke:
    return Invoke(
        time_ns=round(time_s * S),
        process=process,
        lifetime=0,
        id=id,
        operation=operation,
        arguments=arguments or {},
    )


def causes(
    path: Path,
    processes: int,
    *events: Event,
    source: str = "processes",
    details: Mapping[str, object] | None = None,
    faults: tuple[Fault, ...] = (),
) -> tuple[Cause, ...]:
    header = Header(source=source, participants=tuple(range(processes)), details=details or {})
    file = path / "run.jsonl"
    ordered: list[Event] = sorted(events, key=lambda event: event.time_ns)
    History(header, ordered, faults=faults).save(file)
    return explain([file]).causes


def test_a_kill_is_told_from_those_who_end_themselves_for_it(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        3,
        *(start(process) for process in range(3)),
        crash(2, 12.3, "signal SIGKILL"),
        crash(0, 16.4, "signal SIGABRT"),
        crash(1, 16.5, "signal SIGABRT"),
        faults=(Fault(time_ns=round(12.3 * S), name="kill process 2"),),
    )
    assert first.sentence == (
        "process 2 was killed (signal SIGKILL) at 12.3 s; "
        "all others ended themselves 4.1 s later because of it"
    )
    assert first.failure_class is FailureClass.INFRASTRUCTURE
    assert first.processes == (2,)
    assert any("kill process 2" in detail for detail in first.details)


@pytest.mark.parametrize(
    ("cause", "name", "failure_class"),
    [
        ("exit code 1", "program-raised", FailureClass.USER_ERROR),
        ("signal SIGTERM", "preempted", FailureClass.PREEMPTION),
        ("signal SIGSEGV", "killed", FailureClass.INFRASTRUCTURE),
    ],
)
def test_the_way_a_process_ended_gives_the_class(
    tmp_path: Path, cause: str, name: str, failure_class: FailureClass
) -> None:
    first, *_ = causes(tmp_path, 1, start(0), crash(0, 2.0, cause))
    assert (first.name, first.failure_class) == (name, failure_class)


def test_a_leader_that_left_first_is_teardown(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        2,
        start(0),
        start(1),
        Leave(time_ns=5 * S, process=0, lifetime=0),
        crash(1, 5.2, "signal SIGABRT"),
    )
    assert first.name == "leader-left"
    assert first.failure_class is FailureClass.TEARDOWN
    assert "0.2 s later" in first.sentence


def test_who_never_registered_is_named(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        8,
        *(invoke(p, 0.1 * p, p, "register") for p in range(8) if p != 3),
        source="server",
    )
    assert first.sentence == "7 of 8 registered; process 3 was never seen"


def test_alive_but_stuck_says_who_is_awaited_and_since_when(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        3,
        *(start(process) for process in range(3)),
        invoke(0, 1.0, 1, "live_processes"),
        invoke(2, 2.0, 2, "live_processes"),
        invoke(1, 42.0, 3, "key_value_try_get", {"key": "a"}),
        Ok(time_ns=42 * S, process=1, lifetime=0, id=3, result=None),
    )
    assert first.name == "alive-but-stuck"
    assert first.processes == (1,)
    assert first.sentence.startswith(
        "alive but stuck: everyone else waits for process 1 in live_processes since 40.0 s"
    )


def test_a_wait_that_ends_is_no_finding(tmp_path: Path) -> None:
    live = {0: None, 1: None}
    assert not causes(
        tmp_path,
        2,
        start(0),
        start(1),
        invoke(0, 1.0, 1, "live_processes"),
        invoke(1, 90.0, 2, "live_processes"),
        Ok(time_ns=91 * S, process=0, lifetime=0, id=1, result=live),
        Ok(time_ns=91 * S, process=1, lifetime=0, id=2, result=live),
    )


def test_a_stall_is_measured_against_the_time_out(tmp_path: Path) -> None:
    beats = [invoke(0, t, round(t * 10), "heartbeat") for t in (1.0, 2.0, 9.0, 10.0)]
    first, *_ = causes(
        tmp_path, 1, start(0), *beats, source="server", details={"heartbeat_timeout_s": 5}
    )
    assert first.name == "stall"
    assert "7.0 s without a heartbeat, until 9.0 s, against a time-out of 5 s" in first.sentence


def test_barrier_names_that_drift_apart_are_found_in_errors_of_calls(tmp_path: Path) -> None:
    def timed_out(process: int, barrier: str) -> list[Event]:
        message = (
            f"Barrier timed out. Id: {barrier}::0. This usually happens because a task triggered the "
            "barrier too early or too slowly.\n# of tasks that reached the barrier: 1/2.\n"
            f"The first task at the barrier: {process}. Some timed out task names:\n{1 - process}\n"
        )
        arguments = {"barrier": barrier, "timeout_ms": 1000, "processes": None}
        return [
            start(process),
            invoke(process, 1.0, process, "barrier", arguments),
            Fail(
                time_ns=2 * S,
                process=process,
                lifetime=0,
                id=process,
                code="DEADLINE_EXCEEDED",
                message=message,
            ),
        ]

    first, *_ = causes(tmp_path, 2, *timed_out(0, "sync_3"), *timed_out(1, "sync_4"))
    assert first.name == "barrier-drift"
    assert "process 0 at 'sync_3'; process 1 at 'sync_4'" in first.sentence


def test_a_call_for_another_start_of_the_service_is_a_stale_endpoint(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        1,
        start(0),
        invoke(0, 1.0, 1, "key_value_get", {"key": "a", "service_incarnation": "77"}),
        source="server",
    )
    assert first.name == "stale-endpoint"


def test_a_history_that_is_cut_in_the_middle_is_used_up_to_there(tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    header = Header(source="processes", participants=(0, 1))
    events: list[Event] = [
        start(0),
        start(1),
        crash(1, 2.0, "signal SIGKILL"),
        crash(0, 6.0, "signal SIGABRT"),
    ]
    History(header, events).save(file)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:4]) + "garbage\n" + "".join(lines[4:]))
    explanation = explain([file])
    assert explanation.causes[0].processes == (1,)
    assert "read up to line 4 only" in explanation.files[0].notes[0]


def test_a_history_and_logs_about_one_death_are_one_cause(tmp_path: Path) -> None:
    from tests.explain.failures import KEPT

    history = tmp_path / "run.jsonl"
    header = Header(source="processes", participants=(0, 1, 2))
    events: list[Event] = [start(2), crash(2, 3.0, "signal SIGKILL")]
    History(header, events).save(history)
    first, *others = explain([history, KEPT / "jaxlib-0.12.0.1" / "killed-peer"]).causes
    assert first.name == "killed"
    assert {Path(evidence.path).name for evidence in first.evidence} >= {
        "run.jsonl",
        "process-2-0.log",
    }
    assert not [cause for cause in others if cause.name == "silent-death"]


def test_the_json_is_plain_data(tmp_path: Path) -> None:
    causes(tmp_path, 1, start(0), crash(0, 2.0, "exit code 1"))
    told = json.loads(json.dumps(explain([tmp_path / "run.jsonl"]).to_json()))
    assert told["class"] == "user-error"
    assert told["exit_code"] == 10
    assert told["causes"][0]["evidence"][0]["line"] == 3
