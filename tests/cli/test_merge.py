"""`coordlab merge` and `checker.clocks.join`: recordings of many hosts as one history."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from checker import Valid, check, read
from checker.clocks import InconsistentClocksError, Message, estimate_drifting, within
from checker.history import (
    Crash,
    Event,
    Header,
    History,
    Invoke,
    Leave,
    Ok,
    Start,
    dumps,
)
from checker.history.parts import BAD_LINES_MAX, read_part
from coord_sim.cli.main import main
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate

MS = 1_000_000
WALL_NS = 1_700_000_000_000_000_000
"""What wall clocks show when the simulation begins."""

Clock = Callable[[int], int]


async def train(process: Process) -> None:
    """Reads what others set, so that hosts hear of one another all the time."""
    everybody = len(process.participants)
    for step in range(20):
        async with process.live_devices():
            await process.client.key_value_set(f"{process.number}/{step}", "x", True)
        other = (process.number + 1) % everybody
        await process.client.blocking_key_value_get(f"{other}/{step}", 60_000)
        await process.sleep(0.05)


@pytest.fixture(scope="module")
def job() -> History:
    """Three processes and a few rounds, by one true clock."""
    return simulate(train, Schedule(processes=3, seed=5, semantics="published")).history


def shifted(event: Event, clock: Clock) -> Event:
    event = replace(event, time_ns=clock(event.time_ns))
    if isinstance(event, Start | Crash) and event.since_ns is not None:
        event = replace(event, since_ns=clock(event.since_ns))
    return event


def write_part(
    path: Path,
    history: History,
    processes: tuple[int, ...],
    *,
    host: str = "a",
    clock: Clock = lambda time_ns: time_ns,
    details: Mapping[str, object] | None = None,
) -> None:
    """What the recorder inside a program would have written, with its host's monotonic clock."""
    events = [shifted(e, clock) for e in history.events if e.process in processes]
    told = {
        "host": host,
        "clock_id": f"boot of {host}",
        "wall_clock_ahead_ns": WALL_NS - clock(0),
        "pid": 100 + processes[0],
        "parent_pid": 1,
        "process": processes[0],
        "processes": len(history.header.participants),
        "address": f"service-as-{host}-calls-it:1234",
        **(details or {}),
    }
    header = replace(
        history.header, source="processes", clock="monotonic", cannot_know=(), details=told
    )
    path.write_text(dumps(History(header, events)))


def merge_files(
    capsys: pytest.CaptureFixture[str], *arguments: str | Path, code: int = 0
) -> tuple[str, str]:
    """The outputs of the command."""
    found = main(["merge", *map(str, arguments)])
    output, errors = capsys.readouterr()
    assert found == code, output + errors
    return output, errors


# --- clocks --------------------------------------------------------------------------------------------


def test_one_host_has_one_clock(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for process in range(3):
        write_part(tmp_path / f"{process}.jsonl", job, (process,))
    out = tmp_path / "run.jsonl"
    for _ in range(
        2
    ):  # The second time, the result of the first is in the folder, and no recording.
        output, errors = merge_files(capsys, tmp_path, "--out", out)
        assert "3 of 3 processes, 3 starts, 3 recordings of one host" in output
        assert (output.count("\n"), errors) == (1, "")
    history = read(out)
    assert history.header.clock == "monotonic"
    times = [(e.process, e.time_ns) for e in job.events]
    assert sorted((e.process, e.time_ns) for e in history.events) == sorted(times)
    assert all(event.uncertainty_ns == 0 for event in history.events)
    assert isinstance(check(history), Valid)


def test_clocks_of_several_hosts_are_compared_by_messages(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Monotonic clocks begin anywhere, wall clocks are wrong, and true times are within the error."""
    wrong_ns = {"a": 0, "b": 700 * MS, "c": -350 * MS}
    boot_ns = {"a": 10**15, "b": 77 * 10**12, "c": 5}
    for process, host in enumerate("abc"):

        def clock(time_ns: int, host: str = host) -> int:
            return time_ns + boot_ns[host]

        ahead_ns = WALL_NS - clock(0) + wrong_ns[host]
        write_part(
            tmp_path / f"{host}.jsonl",
            job,
            (process,),
            host=host,
            clock=clock,
            details={"wall_clock_ahead_ns": ahead_ns},
        )
    out = tmp_path / "run.jsonl"
    output, _ = merge_files(capsys, tmp_path, "--out", out)
    assert "3 recordings of 3 hosts" in output
    assert "messages between hosts, compared with the clock of a, that of" in output
    history = read(out)
    assert history.header.clock == "wall"
    for process in range(3):
        mine = [event for event in history.events if event.process == process]
        truth = sorted(event.time_ns for event in job.events if event.process == process)
        for event, time_ns in zip(mine, truth, strict=True):
            assert abs(event.time_ns - WALL_NS - time_ns) <= event.uncertainty_ns
    errors = {event.process: event.uncertainty_ns for event in history.events}
    assert errors[0] == 0
    assert all(0 < errors[process] < 300 * MS for process in (1, 2))
    assert isinstance(check(history), Valid)


def test_clocks_that_drift_get_the_error_for_it(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No constant offset fits: the clock of b runs 20 % fast."""
    write_part(tmp_path / "a.jsonl", job, (0, 2), host="a")
    write_part(tmp_path / "b.jsonl", job, (1,), host="b", clock=lambda t: 10**12 + t + t // 5)
    out = tmp_path / "run.jsonl"
    output, _ = merge_files(capsys, tmp_path / "a.jsonl", tmp_path / "b.jsonl", "--out", out)
    assert "and each moved meanwhile, by up to" in output
    assert isinstance(check(read(out)), Valid)


def test_the_least_slack_is_found_that_makes_messages_fit() -> None:
    # Host 1 is 100 ahead at first and 110 later; messages take 1.
    messages = [
        Message(0, 0, 1, 101, ""), Message(1, 102, 0, 3, ""),
        Message(0, 1_000, 1, 1_111, ""), Message(1, 1_112, 0, 1_003, ""),
    ]  # fmt: skip
    clocks, drift_ns = estimate_drifting(messages, (0, 1))
    assert clocks.messages == 4
    assert 4 <= drift_ns <= 10
    offset = clocks.offsets[1]
    assert offset.low_ns is not None
    assert offset.high_ns is not None
    assert offset.low_ns - drift_ns <= 100
    assert offset.high_ns + drift_ns >= 110
    constant, none = estimate_drifting(messages[:2], (0, 1))
    assert (none, constant.offsets[1].width_ns) == (0, 2)
    with pytest.raises(InconsistentClocksError):
        estimate_drifting([], (0, 1), largest_ns=-1)
    assert within((0, 1), 5).uncertainty_ns == 10


def test_without_messages_the_largest_error_must_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = Header(source="manual", participants=(0, 1))
    starts = [Start(time_ns=10**12 + p, process=p, lifetime=0, incarnation=7 + p) for p in (0, 1)]
    for process, host in enumerate("ab"):
        write_part(tmp_path / f"{host}.jsonl", History(header, starts), (process,), host=host)
    out = tmp_path / "run.jsonl"
    _, errors = merge_files(capsys, tmp_path, "--out", out, code=2)
    assert "nothing bounds the clock of b against that of a on both sides: 0 messages" in errors
    assert "--largest-clock-error SECONDS" in errors
    assert not out.exists()
    merge_files(capsys, tmp_path, "--out", out, "--largest-clock-error", "0.5")
    assert [e.uncertainty_ns for e in read(out).events] == [0, 500 * MS]


def test_a_process_may_come_back_on_another_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its lifetimes are numbered throughout, and each has the clock of its host."""
    header = Header(source="manual", participants=(0, 1))

    def starts(process: int, incarnation: int, at_ns: int) -> History:
        common = {"process": process, "lifetime": 0}
        key = {"key": f"{process}/{incarnation}", "value": {"text": "x"}}
        events: list[Event] = [
            Start(time_ns=at_ns, incarnation=incarnation, **common),
            Invoke(time_ns=at_ns + 1, id=0, operation="key_value_set", arguments=key, **common),
            Ok(time_ns=at_ns + 2, id=0, result=None, **common),
        ]
        return History(header, events)

    write_part(tmp_path / "1.jsonl", starts(0, 1, 10**12), (0,), host="a")
    write_part(tmp_path / "2.jsonl", starts(1, 2, 10**12), (1,), host="a")
    again = starts(1, 3, 2 * 10**12)
    write_part(tmp_path / "0.jsonl", again, (1,), host="b")
    out = tmp_path / "run.jsonl"
    output, _ = merge_files(capsys, tmp_path, "--out", out, "--largest-clock-error", "1", "--force")
    assert "3 starts, 3 recordings of 2 hosts" in output
    found = [
        (e.process, e.lifetime, e.incarnation) for e in read(out).events if isinstance(e, Start)
    ]
    assert found == [(0, 0, 1), (1, 0, 2), (1, 1, 3)]


def test_a_recording_of_the_service_bounds_the_clocks(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call arrives in the middle; the service's clock is another one."""
    answered = {e.id: e for e in job.events if isinstance(e, Ok)}
    events: list[Event] = []
    for event in job.events:
        if isinstance(event, Start):
            events.append(event)
        if isinstance(event, Invoke) and event.id in answered:
            middle_ns = (event.time_ns + answered[event.id].time_ns) // 2
            events += [replace(event, time_ns=middle_ns)]
            events += [replace(answered[event.id], time_ns=middle_ns)]
    # What a service sees besides: calls of the protocol, and of code that is not recorded.
    begun = next(e for e in events if isinstance(e, Start))
    common = {"process": begun.process, "lifetime": 0, "time_ns": begun.time_ns}
    events += [
        Invoke(id=10**6, operation="heartbeat", arguments={}, **common),
        Invoke(id=10**6 + 1, operation="key_value_get", arguments={"key": "of XLA"}, **common),
    ]
    events.sort(key=lambda event: event.time_ns)
    header = replace(job.header, source="server", clock="monotonic")
    server = tmp_path / "server.jsonl"
    History(header, [shifted(e, lambda t: t + 10**13) for e in events]).save(server)
    for process in range(3):
        write_part(tmp_path / f"{process}.jsonl", job, (process,))
    out = tmp_path / "run.jsonl"
    output, _ = merge_files(capsys, tmp_path, "--out", out)
    assert f"  the service in {server} is between 99" in output
    assert sum(isinstance(e, Invoke) for e in read(out).events) == sum(
        isinstance(e, Invoke) for e in job.events
    )
    _, errors = merge_files(capsys, server, "--out", out, code=2)
    assert "those of services are complete as they are" in errors


# --- recordings that are not as they should be ---------------------------------------------------------


def test_files_that_cannot_be_used_are_named_and_the_rest_is(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for process in range(3):
        write_part(tmp_path / f"{process}.jsonl", job, (process,))
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "cut.jsonl").write_text('{"coordlab_hist')
    first, *rest = (tmp_path / "2.jsonl").read_text().splitlines(keepends=True)
    torn = "".join([first, *rest, '{"type":"invoke","time_'])
    (tmp_path / "2.jsonl").write_text(torn)
    out = tmp_path / "out.json"
    output, errors = merge_files(capsys, tmp_path, "--out", out)
    assert "3 of 3 processes" in output
    assert f"{tmp_path}/empty.jsonl: nothing was recorded in it" in errors
    assert f"{tmp_path}/cut.jsonl: its first line is cut off" in errors
    assert f"2.jsonl: line {len(rest) + 2} is cut off" in errors

    (tmp_path / "later.jsonl").write_text(
        first.replace('"coordlab_history":0', '"coordlab_history":9')
    )
    (tmp_path / "noise.jsonl").write_bytes(b"\x00\xff\x80\n" * 9)
    (tmp_path / "packed.jsonl").write_bytes(b"\x1f\x8b\x08\n")
    write_part(tmp_path / "virtual.jsonl", job, (0,))
    text = (tmp_path / "virtual.jsonl").read_text()
    (tmp_path / "virtual.jsonl").write_text(text.replace('"monotonic"', '"virtual"'))
    output, errors = merge_files(capsys, tmp_path, "--out", out, code=2)
    assert "3 of 3 processes" in output, "what can be used is"
    assert "later.jsonl:1: field 'coordlab_history': format version 9 is not supported" in errors
    assert "noise.jsonl:1: the first line is no header of a history" in errors
    assert "packed.jsonl: the file is packed; unpack it first" in errors
    assert "virtual.jsonl: its times are of the clock 'virtual'" in errors


def test_bad_lines_in_the_middle_are_passed_over(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "0.jsonl"
    write_part(path, job, (0,))
    whole = read_part(path)
    lines = path.read_bytes().splitlines(keepends=True)
    answer = next(i for i, line in enumerate(lines) if b'"ok"' in line)
    noisy = [*lines[:answer], b"\x00\xffnoise\n", b'{"type":"unheard of"}\n', *lines[answer:]]
    path.write_bytes(b"".join(noisy))
    part = read_part(path)
    assert part.history.events == whole.history.events
    assert [note.split(":")[0] for note in part.notes] == [
        f"line {answer + 1} is not used",
        f"line {answer + 2} is not used",
    ]
    # The answer is lost, and what depends on it is not.
    path.write_bytes(b"".join([*lines[:answer], b"\xff\n", *lines[answer + 1 :]]))
    lost = read_part(path)
    assert len(lost.history.events) == len(whole.history.events) - 1
    path.write_bytes(b"".join([*lines[:answer], b"\xff\n" * 30, *lines[answer:]]))
    cut = read_part(path)
    assert len(cut.notes) == BAD_LINES_MAX + 2
    assert "too many bad lines" in cut.notes[-1]
    assert len(cut.history.events) == answer - 1
    _, errors = merge_files(capsys, path, "--out", tmp_path / "run.jsonl")
    assert "too many bad lines" in errors


def test_a_recording_that_does_not_know_the_job_is_completed(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bare client knows its own number alone; others are named in what it asks and is told."""
    for process in range(3):
        path = tmp_path / f"{process}.jsonl"
        write_part(path, job, (process,), details={"processes": None})
        header, *rest = path.read_text().splitlines(keepends=True)
        fields = {**json.loads(header), "participants": [process]}
        every = [
            line.replace('"live_processes","arguments":{}', '"live_processes","arguments":'
                         '{"participants":[2,1,0]}')
            for line in rest
        ]  # fmt: skip
        path.write_text("".join([json.dumps(fields) + "\n", *every]))
    out = tmp_path / "run.jsonl"
    output, _ = merge_files(capsys, tmp_path, "--out", out)
    assert "note: no recording tells how many processes the job has; they name 3" in output
    history = read(out)
    assert history.header.participants == (0, 1, 2)
    assert any("how many processes" in sentence for sentence in history.header.cannot_know)
    calls = [e for e in history.events if isinstance(e, Invoke) and e.operation == "live_processes"]
    assert calls
    assert not any("participants" in call.arguments for call in calls), "all is what is understood"
    assert isinstance(check(history), Valid)


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"address": "service:99"}, "the service has port 1234 in"),
        ({"processes": 4}, "the number of processes is 3 in"),
        ({"wall_clock_ahead_ns": WALL_NS + 3600 * 10**9}, "after all before it have ended"),
    ],
)
def test_recordings_of_different_runs_are_refused(
    job: History,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    details: dict[str, object],
    words: str,
) -> None:
    write_part(tmp_path / "0.jsonl", job, (0,))
    write_part(tmp_path / "1.jsonl", job, (1,), details=details)
    out = tmp_path / "run.jsonl"
    _, errors = merge_files(capsys, tmp_path, "--out", out, code=2)
    assert "these are not recordings of one run: " in errors
    assert words in errors
    assert not out.exists()
    output, _ = merge_files(capsys, tmp_path, "--out", out, "--force")
    assert "2 recordings" in output


def test_the_same_start_told_twice_counts_once(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_part(tmp_path / "0.jsonl", job, (0,))
    text = (tmp_path / "0.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "copy.jsonl").write_text("".join(text[:5]))
    output, _ = merge_files(capsys, tmp_path, "--out", tmp_path / "run.jsonl")
    assert "copy.jsonl tells the same start of process 0 as" in output
    assert "1 starts" in output


@pytest.mark.parametrize(
    ("details", "words"),
    [
        ({"pid": 7, "host": "z", "clock_id": "z"}, "at once: 100 on a and 7 on z; two programs"),
        ({"pid": 7, "parent_pid": 100}, "a child of it (pid 7, started by 100) did so"),
        ({"pid": 7, "forked_from_pid": 100}, "a child of it (pid 7, a fork of 100) did so"),
    ],
)
def test_a_process_that_two_programs_were_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], details: dict[str, object], words: str
) -> None:
    header = Header(source="manual", participants=(0,))
    for name, begin_ns, more in (("0", 10, {}), ("1", 15, details)):
        common = {"process": 0, "lifetime": 0}
        events: list[Event] = [
            Start(time_ns=begin_ns, incarnation=15, **common),  # The service names the latest.
            Leave(time_ns=begin_ns + 10, **common),
        ]
        write_part(tmp_path / f"{name}.jsonl", History(header, events), (0,), details=more)
    out = tmp_path / "run.jsonl"
    output, _ = merge_files(capsys, tmp_path, "--out", out, "--largest-clock-error", "1")
    assert (
        f"note: process 0 registered from two pids{'' if words[0:2] == 'at' else ':'} {words}"
        in output
    )
    merged = read(out).events
    assert [e.lifetime for e in merged] == [0, 1, 0, 1]
    assert [e.incarnation for e in merged] == [None, 15, None, None]


def test_files_that_do_not_say_their_host_need_it_said(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for process in range(3):
        path = tmp_path / f"{process}.jsonl"
        write_part(path, job, (process,), details={"host": None, "clock_id": None})
    out = tmp_path / "run.jsonl"
    _, errors = merge_files(capsys, tmp_path, "--out", out, code=2)
    assert "0.jsonl does not say by which host's clock it is" in errors
    _, errors = merge_files(capsys, tmp_path, "--out", out, "--host-of", "nonsense", code=2)
    assert "--host-of nonsense: must be PATTERN=HOST" in errors
    output, _ = merge_files(capsys, tmp_path, "--out", out, "--host-of", "*.jsonl=a")
    assert "of one host" in output


@pytest.mark.parametrize("named", ["file", "folder", "link"])
def test_a_recording_is_never_replaced_by_the_result(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], named: str
) -> None:
    for process in range(3):
        write_part(tmp_path / f"{process}.jsonl", job, (process,))
    first = tmp_path / "0.jsonl"
    before = first.read_bytes()
    out = first
    if named == "link":
        out = tmp_path / "elsewhere"
        out.symlink_to(first)
    _, errors = merge_files(capsys, first if named == "file" else tmp_path, "--out", out, code=2)
    assert f"--out {out} would replace {first}, which is one of the recordings" in errors
    assert first.read_bytes() == before
    first.write_bytes(b"damaged\n" + before)
    merge_files(capsys, tmp_path, "--out", out, code=2)
    assert first.read_bytes() == b"damaged\n" + before


def test_the_result_of_an_earlier_merge_is_replaced_and_no_input(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_part(tmp_path / "0.jsonl", job, (0,))
    out = tmp_path / "run.jsonl"
    out.touch()
    merge_files(capsys, tmp_path, "--out", out)
    write_part(tmp_path / "1.jsonl", job, (1,))
    output, errors = merge_files(capsys, tmp_path, "--out", out)
    assert "2 recordings of one host" in output
    assert errors == ""
    _, errors = merge_files(capsys, tmp_path / "0.jsonl", out, "--out", out, code=2)
    assert "would replace" in errors


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("participants", [10**15]),
        ("details.processes", 10**12),
        ("details.processes", 10**8),
        ("details.processes", -1),
        ("details.processes", 0),
        ("details.process", -1),
        ("details.wall_clock_ahead_ns", -(10**30)),
        ("details.wall_clock_ahead_ns", 10**30),
    ],
)
def test_numbers_that_damage_has_made_are_refused(
    job: History,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    field: str,
    value: object,
) -> None:
    """The rest is used. Taken for true, some would fill the memory."""
    for process in range(3):
        write_part(tmp_path / f"{process}.jsonl", job, (process,))
    path = tmp_path / "2.jsonl"
    header, rest = path.read_text().split("\n", maxsplit=1)
    fields = json.loads(header)
    name = field.removeprefix("details.")
    (fields if name == field else fields["details"])[name] = value
    path.write_text(json.dumps(fields) + "\n" + rest)
    out = tmp_path / "run.jsonl"
    output, errors = merge_files(capsys, tmp_path, "--out", out, code=2)
    assert f"{path}:1: field '{field}': must be from " in errors
    assert "2 of 3 processes" in output


@pytest.mark.parametrize(
    ("place", "words"),
    [("/dev/full", "No space left on device"), ("/proc/run.jsonl", "could not be written: ")],
)
def test_places_that_take_nothing_are_named(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str, words: str
) -> None:
    write_part(tmp_path / "0.jsonl", job, (0,))
    _, errors = merge_files(capsys, tmp_path, "--out", place, code=2)
    assert errors.startswith(f"coordlab: error: {place} could not be written: ")
    assert words in errors
    assert "/proc/." not in errors


def test_two_recordings_of_one_process_are_not_two_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = Header(source="manual", participants=(0,))
    for name, begin_ns in (("0", 10), ("1", 15)):
        common = {"process": 0, "lifetime": 0}
        events: list[Event] = [
            Start(time_ns=begin_ns, incarnation=begin_ns, **common),
            Leave(time_ns=begin_ns + 10, **common),
        ]
        told = {"pid": 100, "pid_started": 7}
        write_part(tmp_path / f"{name}.jsonl", History(header, events), (0,), details=told)
    output, _ = merge_files(capsys, tmp_path, "--out", tmp_path / "run.jsonl")
    assert "2 starts" in output
    assert "two pids" not in output


def test_places_that_hold_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in [
        ((tmp_path, "--out", tmp_path / "run.jsonl"), "no recording is in it"),
        ((tmp_path / "no", "--out", tmp_path / "run.jsonl"), "there is no such file or folder"),
        ((tmp_path, "--out", tmp_path), "is a folder; name a file in it"),
        ((tmp_path, "--out", tmp_path / "no" / "run.jsonl"), "there is no such folder"),
    ]:
        _, errors = merge_files(capsys, *arguments, code=2)
        assert words in errors
    (tmp_path / "noise.jsonl").write_bytes(b"\x00\n")
    _, errors = merge_files(capsys, tmp_path, "--out", tmp_path / "run.jsonl", code=2)
    assert "none of the files can be used" in errors
