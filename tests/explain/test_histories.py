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
from checker.history.gaps import Gap, with_gaps
from checker.history.parts import RECORDER_LANE
from coord_sim import faults as planned
from coord_sim.moments import SERVICE
from coord_sim.sim.injection import described
from jax_bridge.explain import Cause, Confidence, DifferentJobs, FailureClass, explain

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
        ("signal SIGINT", "interrupted", FailureClass.UNKNOWN),
        ("the program raised KeyboardInterrupt: ", "interrupted", FailureClass.UNKNOWN),
        ("killed: SIGKILL at 5 s", "killed", FailureClass.INFRASTRUCTURE),
        ("killed", "killed", FailureClass.INFRASTRUCTURE),
        ("the program raised KeyError: 'w'", "program-raised", FailureClass.USER_ERROR),
        ("the program raised E: no SIGTERM, no SIGABRT", "program-raised", FailureClass.USER_ERROR),
        ("signal SIGABRT: INTERNAL: what nobody knows", "ended-itself", FailureClass.UNKNOWN),
        ("client ended the process: UNAVAILABLE", "ended-itself", FailureClass.UNKNOWN),
        (
            "signal SIGABRT: INVALID_ARGUMENT: Unexpected task registered with task=8 RPC: /x",
            "two-jobs",
            FailureClass.USER_ERROR,
        ),
        (
            "the program raised E: GetKeyValue() timed out with key: a/b and duration: 5s",
            "key-timeout",
            FailureClass.USER_ERROR,
        ),
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


def test_a_leader_that_left_while_others_worked_has_not_finished(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        2,
        start(0),
        start(1),
        invoke(1, 4.0, 1, "key_value_get", {"key": "k/0/3"}),
        Leave(time_ns=5 * S, process=0, lifetime=0),
        crash(1, 5.2, "signal SIGABRT"),
    )
    assert first.name == "leader-left"
    assert first.failure_class is FailureClass.UNKNOWN
    assert first.sentence.endswith(
        "process 1 was at work then, so that it may have ended too early"
    )


ENDED = "process {}: the program has come to its end"


def recorded_by_hook(path: Path, *events: Event, ended: tuple[int, ...]) -> tuple[Cause, ...]:
    """The causes in a history whose processes recorded themselves, and of which these told their end."""
    faults = tuple(
        Fault(time_ns=round(9.1 * S), name=ENDED.format(process), lane="recorder")
        for process in ended
    )
    return causes(path, 3, *events, details={"merged": []}, faults=faults)


def answered(process: int, time_s: float, id: int, live: tuple[int, ...]) -> tuple[Event, Event]:  # noqa: A002
    """A call of the live processes and its answer."""
    called = invoke(process, time_s, id, "live_processes")
    result = dict.fromkeys(live)
    return called, Ok(time_ns=called.time_ns + S, process=process, lifetime=0, id=id, result=result)


STARTS = tuple(start(process) for process in range(3))


def test_a_recording_that_stops_and_live_sets_without_it_are_a_death(tmp_path: Path) -> None:
    first, *_ = recorded_by_hook(
        tmp_path,
        *STARTS,
        *(event for p in range(3) for event in answered(p, 1.0, p, (0, 1, 2))),
        *(event for p in range(2) for event in answered(p, 6.0, 3 + p, (0, 1))),
        ended=(0, 1),
    )
    assert (first.name, first.processes) == ("silent-death", (2,))
    assert first.failure_class is FailureClass.INFRASTRUCTURE
    assert (
        "the last of it is at 2.0 s, and from 7.0 s on the service leaves it out" in first.sentence
    )


def test_a_recording_that_stops_tells_nothing_of_the_end(tmp_path: Path) -> None:
    first, *_ = recorded_by_hook(tmp_path, *STARTS, ended=(0, 1))
    assert (first.name, first.processes) == ("recording-stops", (2,))
    assert first.failure_class is FailureClass.UNKNOWN
    assert not recorded_by_hook(tmp_path, *STARTS, ended=(0, 1, 2))


def ended(call: Invoke, result: object = None) -> tuple[Event, Event]:
    """A call and its answer, half a second later."""
    time_ns = call.time_ns + S // 2
    return call, Ok(time_ns=time_ns, process=call.process, lifetime=0, id=call.id, result=result)


STOPPED = Gap(1, 0)


def cut(path: Path, *events: Event, gap: Gap = STOPPED) -> tuple[Cause, ...]:
    """The causes in a history of two merged recordings, of which one stopped too early."""
    header = Header(source="processes", participants=(0, 1), details={"merged": []})
    ordered: list[Event] = sorted(events, key=lambda event: event.time_ns)
    filled = with_gaps(History(header, ordered), [gap], RECORDER_LANE)
    assert len(filled.faults) == 1
    filled.save(path / "run.jsonl")
    return explain([path / "run.jsonl"]).causes


BARRIER = {"barrier": "x", "timeout_ms": 1000, "processes": None}
LEFT = Leave(time_ns=40 * S, process=0, lifetime=0)
NEEDED_LATER = (
    *ended(invoke(0, 10.0, 20, "barrier", BARRIER)),
    *ended(invoke(0, 12.0, 21, "key_value_get", {"key": "a"}), {"text": "1"}),
)
"""Calls of process 0 that process 1 must have met."""


@pytest.mark.parametrize("gap", [STOPPED, Gap(1, None)])
def test_calls_that_were_not_recorded_are_no_other_start_and_no_wait(
    gap: Gap, tmp_path: Path
) -> None:
    left = Leave(time_ns=50 * S, process=1, lifetime=0)
    assert not cut(tmp_path, start(0), start(1), *NEEDED_LATER, LEFT, left, gap=gap)
    killed = crash(1, 30.0, "signal SIGKILL")
    (cause,) = cut(tmp_path, start(0), start(1), *NEEDED_LATER, LEFT, killed, gap=gap)
    assert cause.sentence == "process 1 was killed (signal SIGKILL) at 30.0 s"
    assert cause.details == ("process 0 ended in good order",)


def test_a_start_that_was_recorded_later_is_told_beside_them(tmp_path: Path) -> None:
    again = Start(time_ns=20 * S, process=1, lifetime=1)
    left = Leave(time_ns=50 * S, process=1, lifetime=1)
    killed = crash(1, 15.0, "signal SIGKILL")
    (cause,) = cut(tmp_path, start(0), start(1), *NEEDED_LATER, killed, again, left, LEFT)
    assert "process 1 was started again later" in cause.details


def test_a_recording_that_stopped_ends_with_what_was_recorded(tmp_path: Path) -> None:
    waits = invoke(1, 2.0, 9, "barrier", {**BARRIER, "barrier": "y"})
    rounds = [each for n in range(3) for each in answered(0, 4.0 + 2 * n, 10 + n, (0, 1))]
    (cause,) = cut(tmp_path, start(0), start(1), waits, *rounds, *NEEDED_LATER, LEFT)
    assert cause.sentence.startswith("the recording of process 1 stops at 2.0 s")
    line = cause.evidence[0].line
    assert '"y"' in (tmp_path / "run.jsonl").read_text().splitlines()[line - 1]


def test_who_may_have_left_after_its_recording_stopped_is_no_death(tmp_path: Path) -> None:
    rounds = [*answered(0, 4.0, 10, (0, 1)), *answered(0, 8.0, 11, (0,))]
    (cause,) = cut(tmp_path, start(0), start(1), *rounds, LEFT)
    assert (cause.name, cause.processes) == ("recording-stops", (1,))
    assert cause.sentence.startswith("the recording of process 1 stops at 0.0 s")


def test_a_start_that_only_others_tell_has_no_recording_that_stops(tmp_path: Path) -> None:
    first = Start(time_ns=0, process=1, lifetime=0, incarnation=6)
    killed = crash(1, 3.0, "signal SIGKILL")
    invoked, ok = ended(invoke(0, 8.0, 10, "live_processes"), {0: 5, 1: 7})
    events = (incarnated(5), first, killed, invoked, ok, LEFT)
    (cause,) = cut(tmp_path, *events, gap=Gap(1, None))
    assert cause.name == "killed"
    assert "process 1 was started again later" in cause.details


def test_a_wait_for_who_was_not_recorded_is_doubted(tmp_path: Path) -> None:
    first, second = cut(
        tmp_path,
        start(0),
        start(1),
        *ended(invoke(1, 1.0, 1, "key_value_set", {"key": "k"})),
        invoke(0, 3.0, 2, "barrier", BARRIER),
        *ended(invoke(0, 60.0, 3, "key_value_get", {"key": "k"})),
    )
    assert (first.name, second.name) == ("recording-stops", "alive-but-stuck")
    assert (second.processes, second.confidence) == ((1,), Confidence.LOW)
    assert second.failure_class is FailureClass.UNKNOWN
    assert second.details == ("what process 1 did at last was not recorded",)


def test_calls_that_were_not_recorded_bear_no_error(tmp_path: Path) -> None:
    key = {"key": "order/0"}
    refused = Fail(
        time_ns=3 * S,
        process=1,
        lifetime=0,
        id=1,
        code="ALREADY_EXISTS",
        message="ALREADY_EXISTS: key order/0 already exists.",
    )
    rounds = [each for n in range(9) for each in answered(0, 4.0 + 2 * n, 10 + n, (0, 1))]
    failed = invoke(1, 2.0, 1, "key_value_set", key)
    killed = crash(1, 30.0, "signal SIGKILL")
    found = cut(tmp_path, start(0), start(1), failed, refused, *rounds, killed, LEFT)
    assert [each.confidence for each in found if each.name == "key-exists"] == [Confidence.HIGH]


def test_a_leader_that_left_who_was_not_recorded_may_have_left_too_early(tmp_path: Path) -> None:
    echo = crash(1, 40.2, "signal SIGABRT: UNAVAILABLE")
    first, *_ = cut(tmp_path, start(0), start(1), *NEEDED_LATER, LEFT, echo)
    assert first.name == "leader-left"
    assert first.failure_class is FailureClass.UNKNOWN
    assert first.sentence.endswith("; what process 1 did then was not recorded")


@pytest.mark.parametrize("cause", ["signal SIGKILL", "signal SIGABRT: UNAVAILABLE"])
def test_a_remark_of_a_recorder_is_nothing_that_was_done(cause: str, tmp_path: Path) -> None:
    remark = Fault(
        time_ns=5 * S,
        name="process 0: the program gives its process to another one (exec)",
        lane=RECORDER_LANE,
    )
    first, *_ = causes(tmp_path, 1, start(0), crash(0, 5.1, cause), faults=(remark,))
    assert not first.details


def test_who_left_is_no_death_when_live_sets_leave_it_out(tmp_path: Path) -> None:
    left = invoke(2, 3.0, 9, "shutdown")
    done = Ok(time_ns=4 * S, process=2, lifetime=0, id=9, result=None)
    rounds = [event for p in range(2) for event in answered(p, 6.0, p, (0, 1))]
    assert not causes(tmp_path, 3, *STARTS, left, done, *rounds, source="server")
    asked = {"participants": (0, 1)}
    subset = invoke(0, 1.0, 1, "live_processes", asked)
    only = Ok(time_ns=2 * S, process=0, lifetime=0, id=1, result={0: None, 1: None})
    assert not causes(tmp_path, 3, *STARTS, subset, only, source="server")


def test_who_is_seen_later_is_no_death(tmp_path: Path) -> None:
    rounds = answered(0, 1.0, 1, (0, 1))
    assert not causes(
        tmp_path, 3, *STARTS, *rounds, invoke(2, 5.0, 2, "key_value_set"), source="server"
    )


def test_who_never_registered_is_named(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        8,
        *(invoke(p, 0.1 * p, p, "register") for p in range(8) if p != 3),
        source="server",
    )
    assert first.sentence == "7 of 8 registered; process 3 was never seen"


def registering(path: Path, header: tuple[int, ...], *asked: int) -> Path:
    """A tap's history in which these asked to register, and got no answer."""
    file = path / "run.jsonl"
    details = {"observer": "tap"}
    events = [invoke(process, 0.1 * process, process, "register") for process in asked]
    History(Header(source="server", participants=header, details=details), events).save(file)
    return file


ONE_ASKED = (
    "process 0 asked to register and was never let in; how many there should be is not known"
)
OTHER_ASKED = (
    "process 1 asked to register and was never let in; process 0 was never seen, and how many there "
    "should be is not known"
)
BOTH_ASKED = "processes 0 and 1 asked to register and were never let in; how many there should be"
ALL_ASKED = "processes 0 and 1, all there are, asked to register, and nobody was let in"


@pytest.mark.parametrize(
    ("asked", "told", "missing", "sentence"),
    [
        ((0,), None, (), ONE_ASKED),
        ((0,), 2, (1,), "1 of 2 registered; process 1 was never seen"),
        ((1,), None, (0,), OTHER_ASKED),
        ((0, 1), None, (), BOTH_ASKED),
        ((0, 1), 2, (), ALL_ASKED),
    ],
)
def test_a_tap_that_saw_nobody_let_in_tells_who_asked(
    asked: tuple[int, ...],
    told: int | None,
    missing: tuple[int, ...],
    sentence: str,
    tmp_path: Path,
) -> None:
    seen = tuple(sorted({0, *asked}))
    (cause,) = explain([registering(tmp_path, seen, *asked)], processes=told).causes
    assert cause.sentence.startswith(sentence)
    assert cause.processes == missing
    assert cause.failure_class is FailureClass.INFRASTRUCTURE


def test_a_tap_that_was_told_how_many_there_are_names_the_missing(tmp_path: Path) -> None:
    (cause,) = explain([registering(tmp_path, (0, 1, 2), 0)]).causes
    assert cause.sentence == "1 of 3 registered; processes 1 and 2 were never seen"


def test_a_tap_that_saw_some_does_not_tell_a_log_that_they_are_all(tmp_path: Path) -> None:
    registering(tmp_path, (0,), 0)
    (tmp_path / "process-0-0.log").write_text(
        "F1130 06:05:49.327543   31572 client.h:86] DEADLINE_EXCEEDED: Deadline Exceeded\n"
        "RPC: /xla.coordination.CoordinationService/RegisterTask\n"
    )
    (cause,) = explain([tmp_path]).causes
    assert (cause.name, cause.processes) == ("never-seen", ())
    (cause,) = explain([tmp_path], processes=2).causes
    assert (cause.name, cause.processes) == ("never-seen", (1,))
    assert cause.sentence.startswith("1 of 2 registered")


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


def test_who_does_not_know_whose_doing_it_was_tells_of_no_other_cause(tmp_path: Path) -> None:
    shutdown = "Barrier timed out. Id: Shutdown::94::0. This usually happens because of a"
    named = f"{shutdown}. Some timed out task names:\n1\n"
    (tmp_path / "process-0-0.log").write_text(
        f"F1130 06:05:49.327543   31572 client.h:86] DEADLINE_EXCEEDED: {named}"
    )
    words = f"signal SIGABRT: DEADLINE_EXCEEDED: {shutdown}"
    found = causes(tmp_path, 2, start(0), start(1), crash(0, 5.0, words))
    assert [cause.processes for cause in found if cause.name == "late-leaver"] == [()]
    (joined,) = (cause for cause in explain([tmp_path]).causes if cause.name == "late-leaver")
    assert joined.processes == (1,)
    assert {Path(evidence.path).suffix for evidence in joined.evidence} == {".log", ".jsonl"}


def test_a_fault_before_the_first_event_is_at_no_negative_time(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        1,
        start(0, 20.0),
        crash(0, 25.0, "signal SIGABRT: UNAVAILABLE"),
        faults=(Fault(time_ns=5 * S, name=described(planned.Crash(SERVICE, 5.0))),),
    )
    assert first.sentence.startswith(
        "the service was killed at 0.0 s; process 0 ended itself 20.0 s"
    )


def test_the_json_is_plain_data(tmp_path: Path) -> None:
    causes(tmp_path, 1, start(0), crash(0, 2.0, "exit code 1"))
    told = json.loads(json.dumps(explain([tmp_path / "run.jsonl"]).to_json()))
    assert told["class"] == "user-error"
    assert told["exit_code"] == 10
    assert told["causes"][0]["evidence"][0]["line"] == 3


KILLED = crash(1, 5.01, "killed: SIGKILL at 5 s")
UNHEALTHY = (
    "signal SIGABRT: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats): 1 The "
    "tasks have crashed."
)
GLOO = "the program raised ValueError: UNKNOWN: Gloo all-reduce failed: Connection closed by peer"


@pytest.mark.parametrize("echo", [UNHEALTHY, GLOO, "client ended the process: UNAVAILABLE: ..."])
def test_the_words_of_coordlab_run_tell_origin_from_echo(echo: str, tmp_path: Path) -> None:
    first, *_ = causes(tmp_path, 2, start(0), start(1), KILLED, crash(0, 8.0, echo))
    assert first.sentence == (
        "process 1 was killed (SIGKILL at 5 s) at 5.0 s; all others ended themselves 3.0 s later "
        "because of it"
    )


def test_what_jaxlib_said_is_quoted_with_what_was_done_before(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        2,
        start(0),
        crash(0, 9.2, "signal SIGABRT: DEADLINE_EXCEEDED: no answer"),
        faults=(Fault(time_ns=5 * S, name="partition: the service to process 0"),),
    )
    assert first.sentence == (
        "process 0 was the first to end itself, at 9.2 s: DEADLINE_EXCEEDED: no answer"
    )
    assert first.details == (
        "something was done to the system before: partition: the service to process 0 at 5.0 s",
    )


def test_times_count_from_the_beginning_of_the_run_if_that_is_told(tmp_path: Path) -> None:
    events: list[Event] = [start(0, 1.5), crash(0, 2.7, "killed: SIGKILL at 2.7 s")]
    (told,) = causes(tmp_path, 1, *events, details={"zero_monotonic_ns": 77})
    assert "at 2.7 s" in told.sentence.removeprefix("process 0 was killed (SIGKILL at 2.7 s) ")
    assert explain([tmp_path]).files[0].times_since == "the beginning of the run"
    (untold,) = causes(tmp_path, 1, *events)
    assert untold.sentence.endswith(") at 1.2 s")
    assert explain([tmp_path]).files[0].times_since == "its first event"


def test_a_planned_kill_of_the_service_explains_who_ended_after_it(tmp_path: Path) -> None:
    first, *_ = causes(
        tmp_path,
        2,
        start(0),
        start(1),
        crash(0, 5.5, "signal SIGABRT: UNAVAILABLE"),
        crash(1, 5.6, "signal SIGABRT: UNAVAILABLE"),
        faults=(Fault(time_ns=5 * S, name=described(planned.Crash(SERVICE, 5.0))),),
    )
    assert first.name == "leader-lost"
    assert first.sentence == (
        "the service was killed at 5.0 s; processes 0 and 1 ended themselves 0.5 s later because of it"
    )


def test_a_job_in_which_nobody_connected_is_not_well(tmp_path: Path) -> None:
    (left,) = causes(
        tmp_path, 2, *(Leave(time_ns=S, process=process, lifetime=0) for process in range(2))
    )
    assert left.sentence.startswith(
        "nobody connected to the service: processes 0 and 1 ended in good"
    )
    assert left.failure_class is FailureClass.USER_ERROR
    (nothing,) = causes(tmp_path, 2)
    assert nothing.sentence == "nobody connected to the service"
    assert nothing.failure_class is FailureClass.UNKNOWN
    first, other = causes(tmp_path, 1, crash(0, 1.0, "exit code 1"))
    assert (first.name, other.name) == ("program-raised", "nobody-connected")


def test_errors_that_a_program_bears_are_no_cause_while_others_are_there(tmp_path: Path) -> None:
    def refused(id: int, time_s: float) -> list[Event]:  # noqa: A002 - the field's name
        message = "key order/0 already exists."
        fail = Fail(
            time_ns=round(time_s * S) + 1,
            process=0,
            lifetime=0,
            id=id,
            code="ALREADY_EXISTS",
            message=f"ALREADY_EXISTS: {message}",
        )
        return [invoke(0, time_s, id, "key_value_set", {"key": "order/0"}), fail]

    reads = [invoke(0, 2 + n / 10, 10 + n, "key_value_try_get", {"key": "a"}) for n in range(7)]
    borne = [start(0), *refused(1, 1.0), *reads, *refused(2, 4.0)]
    (doubted,) = causes(tmp_path, 1, *borne)
    assert doubted.confidence is Confidence.LOW
    assert "the program went on afterwards" in doubted.details[-1]
    first, *_ = causes(tmp_path, 1, *borne, crash(0, 5.0, "signal SIGABRT: UNAVAILABLE"))
    assert first.name == "ended-itself"
    many = [event for n in range(300) for event in refused(100 + n, 10 + n)]
    raised = crash(0, 500.0, "the program raised E: ALREADY_EXISTS: key order/0 already exists.")
    found = causes(tmp_path, 1, start(0), *many, raised)
    assert [cause.confidence for cause in found if cause.name == "key-exists"] == [Confidence.HIGH]
    (last,) = causes(tmp_path, 1, start(0), *refused(1, 1.0))
    assert last.confidence is Confidence.HIGH


def incarnated(incarnation: int, process: int = 0) -> Start:
    return Start(time_ns=0, process=process, lifetime=0, incarnation=incarnation)


@pytest.mark.parametrize(
    ("details", "incarnations", "why"),
    [
        (
            ({"zero_monotonic_ns": 1}, {"zero_monotonic_ns": 2}),
            ((), ()),
            "two starts of `coordlab run`",
        ),
        (({"script": "a.py"}, {"script": "b.py"}), ((), ()), "script a.py and b.py"),
        (
            ({"service_incarnation": "1"}, {"service_incarnation": "2"}),
            ((), ()),
            "two starts of a service",
        ),
        (({}, {}), ((11, 12), (21, 22)), "no incarnation of processes 0 and 1 is in both"),
        (({}, {}), ((11,), (21,)), "no incarnation of process 0 is in both"),
        (({}, {"script": "b.py"}), ((11, 12), (11, 13)), ""),
        (({"pid": 1}, {"pid": 2}), ((11,), (21,)), ""),
    ],
)
def test_histories_of_two_jobs_are_not_mixed(
    details: tuple[Mapping[str, object], Mapping[str, object]],
    incarnations: tuple[tuple[int, ...], tuple[int, ...]],
    why: str,
    tmp_path: Path,
) -> None:
    for name, told, numbers in zip("ab", details, incarnations, strict=True):
        header = Header(source="processes", participants=(0, 1), details=told)
        events: list[Event] = [incarnated(number, p) for p, number in enumerate(numbers)]
        History(header, events).save(tmp_path / f"{name}.jsonl")
    if why:
        with pytest.raises(DifferentJobs, match=why):
            explain([tmp_path])
    else:
        assert len(explain([tmp_path]).files) == 2
