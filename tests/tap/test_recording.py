"""The histories of a tap: one a service, and what they lack is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker import Invalid, Valid, check, check_service, read
from checker.history import Info, Invoke, Ok
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Barrier,
    BarrierPassed,
    Caller,
    GetAliveTasks,
    GetKeyValueDir,
    Heartbeat,
    HeartbeatAccepted,
    InsertKeyValue,
    KeyValue,
    KeyValueDirectory,
    Registered,
    RegisterTask,
    TaskInfo,
    TaskState,
    TasksWatched,
    TryGetKeyValue,
)
from coord_sim.core.status import Code, Status
from coord_sim.recording.file import RecordingFile
from coord_sim.tap.calls import SERVICE_GONE
from coord_sim.tap.recording import TapRecording, bytes_of


class Script:
    """A recording that is told things, a nanosecond apart."""

    def __init__(self, folder: Path, tasks: int | None = None) -> None:
        self.first, self.second = folder / "run.jsonl", folder / "run-2.jsonl"
        self.recording = TapRecording(
            RecordingFile(self.first), lambda number: folder / f"run-{number}.jsonl", tasks
        )
        self.now_ns = 0
        self._calls = 0

    def tick(self) -> int:
        self.now_ns += 1
        return self.now_ns

    def registers(self, task: int, incarnation: int) -> CallId:
        self._calls += 1
        request = RegisterTask(task=TaskId(task), incarnation=Incarnation(incarnation))
        self.recording.request(CallId(self._calls), request, self.tick())
        return CallId(self._calls)

    def tries(self, incarnation: int, service: int) -> CallId:
        self._calls += 1
        caller = Caller(Incarnation(incarnation), Incarnation(service))
        self.recording.request(
            CallId(self._calls), TryGetKeyValue(caller=caller, key="k"), self.tick()
        )
        return CallId(self._calls)

    def asks_for_the_living(self, tasks: tuple[int, ...], incarnation: int, service: int) -> CallId:
        self._calls += 1
        request = GetAliveTasks(
            caller=Caller(Incarnation(incarnation), Incarnation(service)),
            task=TaskId(0),
            tasks=tuple(TaskId(task) for task in tasks),
        )
        self.recording.request(CallId(self._calls), request, self.tick())
        return CallId(self._calls)

    def waits_at_barrier(self, task: int, incarnation: int, service: int) -> CallId:
        self._calls += 1
        request = Barrier(
            caller=Caller(Incarnation(incarnation), Incarnation(service)),
            barrier_id="b",
            timeout_ms=1000,
            tasks=(),
            task=TaskId(task),
            counter=0,
        )
        self.recording.request(CallId(self._calls), request, self.tick())
        return CallId(self._calls)

    def registered(self, call: CallId, service: int) -> None:
        answer = Registered(service_incarnation=Incarnation(service))
        self.recording.reply(call, answer, self.tick())

    def close(self) -> None:
        self.recording.close(self.tick())


def calls(path: Path) -> list[tuple[int, str]]:
    return [
        (event.process, event.operation) for event in read(path).events if isinstance(event, Invoke)
    ]


@pytest.mark.parametrize("tasks", [None, 2])
def test_a_service_that_was_started_again_has_a_history_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, tasks: int | None
) -> None:
    script = Script(tmp_path, tasks)
    first, second = script.registers(0, 10), script.registers(1, 11)
    script.registered(first, 7)
    script.registered(second, 7)
    waiting = script.tries(10, 7)
    script.recording.reply(waiting, SERVICE_GONE, script.tick())
    # The service is killed, and all start again.
    script.recording.unreachable(script.tick())
    script.recording.unreachable(script.tick())
    script.recording.reachable()
    given_up = script.registers(1, 20)
    script.recording.hang_up(given_up, script.tick())
    first, second = script.registers(1, 21), script.registers(0, 20)
    script.registered(second, 8)
    script.registered(first, 8)
    script.recording.reply(script.tries(20, 8), KeyValue(key="k", value=b"v"), script.tick())
    script.close()
    old, new = read(script.first), read(script.second)
    assert calls(script.first)[2:] == [(0, "key_value_try_get")]
    registered = [(1, "register"), (1, "register"), (0, "register")]
    assert calls(script.second) == [*registered, (0, "key_value_try_get")]
    assert [event.code for event in old.events if isinstance(event, Info)] == ["UNAVAILABLE"]
    assert [event.code for event in new.events if isinstance(event, Info)] == ["CANCELLED"]
    assert [fault.name for fault in old.faults] == [
        "the service cannot be reached",
        "another service answers from now on; its history is in run-2.jsonl",
    ]
    assert new.header.details["service_incarnation"] == "8"
    assert old.header.details.get("service_incarnation") == (None if tasks else "7")
    assert old.header.participants == new.header.participants == (0, 1)
    assert sum(isinstance(event, Ok) for event in new.events) == 3
    assert caplog.text.count("another service answers") == 1


def test_a_service_that_only_lost_its_connections_goes_on_in_the_same_file(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.registered(script.registers(0, 10), 7)
    script.recording.lost()
    script.tries(10, 7)
    assert calls(script.first) == [(0, "register")], "in doubt"
    script.registered(script.registers(0, 11), 7)
    assert len(calls(script.first)) == 3
    script.recording.lost()
    script.tries(11, 7)
    script.close()
    assert len(calls(script.first)) == 4
    assert not script.second.exists()


def test_a_doubt_that_is_not_resolved_holds_only_so_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coord_sim.tap.recording._HELD_MAX", 10)
    script = Script(tmp_path)
    script.registered(script.registers(0, 10), 7)
    script.recording.lost()
    for _ in range(12):
        script.tries(10, 7)
    assert len(calls(script.first)) == 13


def test_a_doubt_that_is_not_resolved_holds_only_so_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coord_sim.tap.recording._HELD_BYTES_MAX", 1000)
    script = Script(tmp_path)
    script.registered(script.registers(0, 10), 7)
    script.recording.lost()
    call = script.tries(10, 7)
    script.recording.reply(call, KeyValue(key="k", value=b"v" * 998), script.tick())
    assert calls(script.first) == [(0, "register")], "in doubt"
    script.recording.reply(script.tries(10, 7), KeyValue(key="k", value=b"v"), script.tick())
    assert len(calls(script.first)) == 3
    script.recording.lost()  # The count begins anew.
    script.recording.reply(script.tries(10, 7), KeyValue(key="k", value=b"v"), script.tick())
    assert len(calls(script.first)) == 3


def test_all_that_may_be_large_counts_as_such() -> None:
    """No message that a client or the service may fill is held for nothing."""
    caller, text, many = Caller(Incarnation(1), Incarnation(2)), "x" * 5000, tuple(range(500))
    tasks = tuple(TaskId(task) for task in many)
    info = TaskInfo(TaskId(0), Incarnation(1), TaskState.CONNECTED, None)
    for message in (
        InsertKeyValue(caller=caller, key="k", value=text.encode()),
        InsertKeyValue(caller=caller, key=text, value=b""),
        TryGetKeyValue(caller=caller, key=text),
        GetKeyValueDir(caller=caller, directory=text),
        KeyValue(key="k", value=text.encode()),
        KeyValueDirectory(entries=(("a", b"x" * 2500), ("b", b"x" * 2500))),
        GetAliveTasks(caller=caller, task=TaskId(0), tasks=tasks),
        AliveTasks(alive=tuple((task, Incarnation(1)) for task in tasks)),
        TasksWatched(tasks=(info,) * 500, version=1),
        Status(code=Code.INTERNAL, message=text),
        Barrier(caller=caller, barrier_id=text, timeout_ms=1, tasks=(), task=TaskId(0), counter=0),
    ):
        assert bytes_of(message) >= 5000, type(message)


def test_who_waits_to_join_when_another_service_answers_waits_for_that(tmp_path: Path) -> None:
    """The former's host lost its power: nothing told that its connections are dead."""
    script = Script(tmp_path)
    script.registered(script.registers(0, 10), 7)
    first, second = script.registers(0, 20), script.registers(1, 21)
    script.registered(second, 8)
    script.registered(first, 8)
    script.close()
    assert calls(script.second) == [(0, "register"), (1, "register")]
    assert read(script.second).header.participants == (0, 1)


def test_that_somebody_asks_for_a_process_does_not_make_it_one(tmp_path: Path) -> None:
    """Only its registration does, or an answer that names it; and what is understood stays so."""
    script = Script(tmp_path)
    script.registered(script.registers(0, 10), 7)
    asked = script.asks_for_the_living((0, 1, -3), 10, 7)
    script.recording.reply(asked, AliveTasks(alive=((TaskId(0), Incarnation(10)),)), script.tick())
    barrier = script.waits_at_barrier(0, 10, 7)
    script.recording.reply(barrier, BarrierPassed(counter=0), script.tick())
    history = read(script.first)
    assert history.header.participants == (0,)
    assert [
        event.arguments["participants"]
        for event in history.events
        if isinstance(event, Invoke) and event.operation == "live_processes"
    ] == [(0,)]
    assert isinstance(check(history), Valid)
    assert [found.verdict for found in check_service(history) if found.object == "barrier 'b'"]
    assert not any(isinstance(found.verdict, Invalid) for found in check_service(history))
    script.registered(script.registers(1, 11), 7)
    asked = script.asks_for_the_living((0, 1), 10, 7)
    script.close()
    history = read(script.first)
    assert history.header.participants == (0, 1)
    calls_ = [
        e for e in history.events if isinstance(e, Invoke) and e.operation == "live_processes"
    ]
    assert [call.arguments["participants"] for call in calls_] == [(0,), (0, 1)]


def test_a_late_answer_of_the_former_service_does_not_go_back_to_it(tmp_path: Path) -> None:
    script = Script(tmp_path)
    script.registered(script.registers(0, 10), 7)
    beat = Heartbeat(
        caller=Caller(Incarnation(10), Incarnation(7)),
        task=TaskId(0),
        incarnation=Incarnation(10),
    )
    script.recording.request(CallId(99), beat, script.tick())
    script.registered(script.registers(0, 11), 8)
    script.recording.reply(
        CallId(99), HeartbeatAccepted(service_incarnation=Incarnation(7)), script.tick()
    )
    script.registered(script.registers(0, 12), 8)
    script.close()
    assert calls(script.second) == [(0, "register"), (0, "register")]
    assert not (tmp_path / "run-3.jsonl").exists()


def test_what_cannot_be_recorded_is_told_once_a_kind_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(tmp_path)
    for _ in range(3):
        script.recording.gap("TLS connections", "they are encrypted", script.tick())
    script.recording.gap("calls with large messages", "a request", script.tick())
    script.close()
    assert [(fault.name, fault.lane) for fault in read(script.first).faults] == [
        ("TLS connections: from here on some are left out (they are encrypted)", "recorder"),
        ("calls with large messages: from here on some are left out (a request)", "recorder"),
        ("TLS connections: 3 in all were left out", "recorder"),
    ]
    assert caplog.text.count("TLS connections") == 1


def test_a_second_file_that_cannot_be_opened_ends_the_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(tmp_path)
    script.second.mkdir()
    script.registered(script.registers(0, 10), 7)
    script.registered(script.registers(0, 11), 8)
    assert not script.recording.is_open
    script.registers(0, 12)
    script.close()
    assert calls(script.first) == [(0, "register"), (0, "register")]
    assert "run-2.jsonl: Is a directory; the relay goes on" in caplog.text
