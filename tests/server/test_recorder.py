"""The recorder of the service's side, fed by the core itself: no sockets, and times as we like."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from checker import LiveProcesses, check, read
from checker.history import Fail, History, Info, Invoke, Ok, Start
from checker.live_processes.spec import FailureModel
from checker.service.check import check_service
from coord_sim.core.effects import Reply
from coord_sim.core.identifiers import NS_PER_S, CallId, Incarnation, TaskId
from coord_sim.core.messages import (
    Barrier,
    Caller,
    GetAliveTasks,
    Heartbeat,
    InsertKeyValue,
    PollForError,
    RegisterTask,
    Request,
    TryGetKeyValue,
)
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.recording.file import RecordingFile
from coord_sim.recording.service_recorder import ServiceRecorder
from coord_sim.server.recorder import server_recorder

SERVICE = Incarnation(7)
PROTOCOL = ("register", "heartbeat", "poll_for_error")


class Recorded:
    """A service and its recorder; every call takes a second."""

    def __init__(self, path: Path, tasks: int, *, knows_tasks: bool = True) -> None:
        config = ServiceConfig(tasks=tasks, recoverable=True, heartbeat_timeout_ns=100 * NS_PER_S)
        self.now_ns = 0
        self.core = CoordinationService(config, SERVICE, 0)
        file = RecordingFile(path)
        self.recorder = (
            server_recorder(file, config, SERVICE)
            if knows_tasks
            else ServiceRecorder(file, observer="tap", details={}, tasks=None)
        )
        self._calls = 0
        self._path = path

    def ask(self, request: Request) -> CallId:
        self.now_ns += NS_PER_S
        call = CallId(self._calls)
        self._calls += 1
        self.recorder.request(call, request, self.now_ns)
        for effect in self.core.handle(call, request, self.now_ns):
            if isinstance(effect, Reply):
                self.recorder.reply(effect.call, effect.answer, self.now_ns)
        return call

    def register(self, *tasks: int, start: int = 1) -> None:
        for task in tasks:
            self.ask(RegisterTask(task=TaskId(task), incarnation=incarnation(task, start)))

    def history(self) -> History:
        self.recorder.close(self.now_ns)
        return read(self._path)


def incarnation(task: int, start: int = 1) -> Incarnation:
    return Incarnation(start * 100 + task)


def caller(task: int, start: int = 1, service: int = SERVICE) -> Caller:
    return Caller(incarnation(task, start), Incarnation(service))


def beat(task: int, start: int = 1, told: int | None = None) -> Heartbeat:
    own = incarnation(task, start)
    return Heartbeat(
        caller=caller(task, start),
        task=TaskId(task),
        incarnation=own if told is None else Incarnation(told),
    )


def live(task: int, *tasks: int, start: int = 1) -> GetAliveTasks:
    return GetAliveTasks(
        caller=caller(task, start), task=TaskId(task), tasks=tuple(map(TaskId, tasks))
    )


def operations(history: History) -> list[tuple[int, int, str, dict[str, object]]]:
    return [
        (event.process, event.lifetime, event.operation, dict(event.arguments))
        for event in history.events
        if isinstance(event, Invoke)
    ]


def test_every_call_is_an_operation_and_a_start_follows_its_registration(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "h", 2)
    run.register(0, 1)
    run.ask(beat(0))
    run.ask(beat(1, told=5))
    run.ask(PollForError(caller=caller(0), task=TaskId(0)))
    history = run.history()
    assert operations(history) == [
        (0, 0, "register", {"incarnation": "100"}),
        (1, 0, "register", {"incarnation": "101"}),
        (0, 0, "heartbeat", {}),
        (1, 0, "heartbeat", {"incarnation": "5"}),
        (0, 0, "poll_for_error", {}),
    ]
    kinds = [type(event).__name__ for event in history.events]
    assert kinds[:6] == ["Invoke", "Invoke", "Ok", "Start", "Ok", "Start"]
    starts = [event for event in history.events if isinstance(event, Start)]
    assert [(start.since_ns, start.time_ns) for start in starts] == [
        (NS_PER_S, 2 * NS_PER_S),
        (2 * NS_PER_S, 2 * NS_PER_S),
    ]
    assert history.header.details == {
        "records": "all calls",
        "observer": "server",
        "semantics": "shipped",
        "recoverable": True,
        "heartbeat_timeout_s": 100.0,
        "service_incarnation": "7",
    }


def test_registrations_that_fail_or_wait_are_told_and_have_a_lifetime(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "h", 2)
    run.register(0)
    run.register(0, start=2)
    history = run.history()
    assert [call[:3] for call in operations(history)] == [(0, 0, "register"), (0, 1, "register")]
    (failed,) = (event for event in history.events if isinstance(event, Fail))
    assert (failed.lifetime, failed.code) == (0, "ALREADY_EXISTS")
    assert not [event for event in history.events if isinstance(event, Start)]


def test_one_incarnation_that_registers_twice_starts_once(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "h", 1)
    run.register(0, 0)
    history = run.history()
    assert [call[:3] for call in operations(history)] == [(0, 0, "register")] * 2
    assert [type(event).__name__ for event in history.events].count("Start") == 1


def test_a_call_to_another_service_says_so(tmp_path: Path) -> None:
    run = Recorded(tmp_path / "h", 1)
    run.register(0)
    run.ask(TryGetKeyValue(caller=caller(0, service=9), key="k"))
    history = run.history()
    assert operations(history)[-1] == (
        0,
        0,
        "key_value_try_get",
        {"key": "k", "service_incarnation": "9"},
    )
    assert isinstance(history.events[-1], Info | Fail)


def test_calls_of_strangers_are_counted_and_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Recorded(tmp_path / "h", 1)
    run.register(0)
    run.ask(RegisterTask(task=TaskId(9), incarnation=Incarnation(1)))
    for task in (0, 3):
        run.ask(TryGetKeyValue(caller=caller(task, start=8), key="k"))
    warned = "not recorded: calls of strangers (task 9 registers, of a job of 1)"
    assert caplog.messages == [warned]
    history = run.history()
    assert len(operations(history)) == 1
    assert [fault.name for fault in history.faults] == [
        "calls of strangers: from here on some are left out",
        "calls of strangers: 3 in all were left out",
    ]


def test_a_live_set_call_before_the_registration_was_answered_is_left_out(tmp_path: Path) -> None:
    """The format has no such call, and a file that cannot be read would help nobody."""
    run = Recorded(tmp_path / "h", 2)
    run.register(0)
    run.ask(live(0, 0, 1))
    history = run.history()
    assert [call[2] for call in operations(history)] == ["register"]
    assert history.faults


def test_without_a_number_of_tasks_the_header_grows_with_who_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "h"
    run = Recorded(path, 4, knows_tasks=False)
    run.register(0, 2)
    assert read(path).header.participants == (0, 2)
    run.register(1, 3)
    run.recorder.learn_service(SERVICE)
    for task in range(4):
        run.ask(live(task, 0, 1, 2, 3))
    history = run.history()
    assert history.header.participants == (0, 1, 2, 3)
    assert history.header.details["service_incarnation"] == "7"
    assert operations(history)[-1][3] == {"participants": (0, 1, 2, 3)}
    assert sum(isinstance(event, Ok) for event in history.events) == 8
    assert list(tmp_path.iterdir()) == [path]


def test_a_header_that_cannot_be_written_again_ends_the_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    run = Recorded(folder / "h", 2, knows_tasks=False)
    run.register(0)
    (folder / "h").rename(tmp_path / "h")
    folder.rmdir()
    run.register(1)
    assert not run.recorder.file.is_open
    assert "what was written before is kept" in caplog.text
    assert [call[:3] for call in operations(read(tmp_path / "h"))] == [(0, 0, "register")]


def ghost(run: Recorded) -> None:
    """Conformance scenario 40: the survivors are told of a new incarnation that never called."""
    run.ask(live(2, 0, 1, 2))
    run.register(2, start=2)
    run.ask(live(0, 0, 1, 2))
    run.ask(live(1, 0, 1, 2))


def good(run: Recorded) -> None:
    for task in range(3):
        run.ask(live(task, 0, 1, 2))
    for task in range(3):
        run.ask(
            Barrier(
                caller=caller(task),
                barrier_id="b",
                timeout_ms=60_000,
                tasks=(),
                task=TaskId(task),
                counter=0,
            )
        )


@pytest.mark.parametrize(("body", "word"), [(good, "valid"), (ghost, "invalid")])
@pytest.mark.parametrize("failures", ["suspicion", "crash-stop"])
def test_the_protocols_own_calls_change_no_verdict(
    tmp_path: Path, body: Callable[[Recorded], None], word: str, failures: FailureModel
) -> None:
    run = Recorded(tmp_path / "h", 3)
    run.register(0, 1, 2)
    for task in range(3):
        run.ask(PollForError(caller=caller(task), task=TaskId(task)))
        run.ask(beat(task))
    run.ask(InsertKeyValue(caller=caller(0), key="k", value=b"v"))
    body(run)
    run.ask(TryGetKeyValue(caller=caller(1), key="k"))
    for task in range(2):
        run.ask(beat(task))
    history = run.history()
    own = {
        event.id
        for event in history.events
        if isinstance(event, Invoke) and event.operation in PROTOCOL
    }
    assert len(own) >= 11
    without = History(
        history.header, tuple(e for e in history.events if getattr(e, "id", -1) not in own)
    )
    spec = LiveProcesses(failures=failures)
    assert check(history, spec).word == check(without, spec).word == word
    before = [(row.object, row.word) for row in check_service(without, live=spec)]
    after = [(row.object, row.word) for row in check_service(history, live=spec)]
    assert [row for row in after if row[0] not in PROTOCOL] == before
    assert {word for name, word in after if name in PROTOCOL} == {"not checked"}


@pytest.mark.parametrize("failures", ["suspicion", "crash-stop"])
def test_the_protocols_own_calls_are_no_signs_of_life(
    tmp_path: Path, failures: FailureModel
) -> None:
    """The service ends the poll of a predecessor, whose heartbeat may arrive late."""
    run = Recorded(tmp_path / "h", 2)
    run.register(0, 1)
    run.ask(PollForError(caller=caller(1), task=TaskId(1)))
    for task in range(2):
        run.ask(live(task, 0, 1))
    run.register(1, start=2)
    run.ask(PollForError(caller=caller(1, 2), task=TaskId(1)))
    run.ask(beat(1))
    run.ask(live(0, 0, 1))
    run.ask(live(1, 0, 1, start=2))
    assert check(run.history(), LiveProcesses(failures=failures)).word == "valid"


def test_a_file_is_recorded_to_by_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = RecordingFile(path)
    for _ in range(2):
        first.write(b"of the first\n")
        with pytest.raises(OSError, match="another process is recording to it"):
            RecordingFile(path)
        assert path.read_bytes() == b"of the first\n"
        first.replace_head(b"")  # Now it is another file of that name.
    first.close()
    RecordingFile(path).close()
    assert path.read_bytes() == b"", "it is written anew"
