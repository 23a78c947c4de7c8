"""Recordings that stopped before their processes did: what others tell of these is no violation."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

from checker import Invalid, LiveProcesses, check_service, read, verdict
from checker.history import (
    LIVE_PROCESSES,
    Crash,
    Event,
    Header,
    History,
    Info,
    Invoke,
    Ok,
    Start,
)
from checker.history.gaps import NOT_RECORDED, RECORDING_STOPPED, ROUNDS_MAX, Gap, with_gaps
from checker.history.parts import RECORDER_LANE, STOPPED
from coord_sim.cli.main import main
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate
from jax_bridge.recorder.processes import clock_id, state_of
from tests.cli.test_merge import write_part

SPECS = (
    LiveProcesses(),
    LiveProcesses(failures="crash-stop"),
    LiveProcesses(definition="published"),
)


async def train(process: Process) -> None:
    """Blocks, keys of its own, and one that all write."""
    for step in range(8):
        async with process.live_devices():
            await process.client.key_value_set(f"{process.number}/{step}", "x", True)
            await process.client.key_value_set("last", f"{process.number} {step}", True)
        other = (process.number + 1) % len(process.participants)
        await process.client.blocking_key_value_get(f"{other}/{step}", 60_000)
        await process.client.blocking_key_value_get("last", 60_000)
        await process.sleep(0.05)


@pytest.fixture(scope="module")
def job() -> History:
    """Three processes, on a service that keeps its promises."""
    return simulate(train, Schedule(processes=3, seed=5, semantics="published")).history


def verdicts(history: History, spec: LiveProcesses | None = None) -> dict[str, verdict.Verdict]:
    rows = check_service(history, live=spec)
    return {row.object: row.verdict for row in rows if row.verdict is not None}


def violations(history: History) -> list[str]:
    found = [(name, each) for spec in SPECS for name, each in verdicts(history, spec).items()]
    return [f"{name}: {each}" for name, each in found if isinstance(each, Invalid)]


def merged(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[History, str]:
    out = folder / "out" / "merged.jsonl"
    out.parent.mkdir(exist_ok=True)
    code = main(["merge", str(folder), "--out", str(out), *options])
    errors = capsys.readouterr().err
    assert code == 0, errors
    return read(out), errors


def write_parts(folder: Path, job: History) -> list[Path]:
    paths = []
    for process in range(3):
        path = folder / f"h-{process}-process-{process}.jsonl"
        write_part(path, job, (process,))
        paths.append(path)
    return paths


@pytest.mark.parametrize("stopped", [(1,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_who_is_not_recorded_to_the_end_breaks_nothing(
    job: History,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stopped: Sequence[int],
    share: float,
) -> None:
    """Wherever the recordings stop; also before their processes have connected."""
    paths = write_parts(tmp_path, job)
    for process in stopped:
        path = paths[process]
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: 1 + round(share * (len(lines) - 1))]))
        path.with_name(path.name + STOPPED).touch()
    history, errors = merged(tmp_path, capsys)
    assert violations(history) == []
    for process in range(3):
        is_stopped = process in stopped
        assert (f"the recording of process {process} stopped" in errors) == is_stopped
        told = f"process {process}: {RECORDING_STOPPED}"
        faults = [fault for fault in history.faults if fault.name.startswith(told)]
        assert len(faults) == is_stopped
        told = f"{NOT_RECORDED}: process {process} "
        assert any(gap.startswith(told) for gap in history.header.cannot_know) == is_stopped


@pytest.mark.parametrize("bytes_left", [0, 20, 5000])
def test_a_copy_that_is_cut_is_told_by_its_last_line(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], bytes_left: int
) -> None:
    """A process that is killed leaves no such line, and an empty recording tells whose it was."""
    path = write_parts(tmp_path, job)[1]
    path.write_bytes(path.read_bytes()[:bytes_left])
    assert not path.read_bytes().endswith(b"\n")
    history, errors = merged(tmp_path, capsys)
    assert str(path) in errors
    assert violations(history) == []


def test_what_others_tell_of_one_another_is_judged_all_the_same(job: History) -> None:
    """Process 2 called no more, and its recording did not stop: that is a violation still."""
    last: dict[int, int] = {}
    for index, event in enumerate(job.events):
        if isinstance(event, Ok) and isinstance(event.result, dict):
            last.setdefault(event.process, index)
    events = [
        event
        for index, event in enumerate(job.events)
        if event.process == 0 or index <= last[event.process]
    ]
    history = replace(job, events=events)
    one = with_gaps(history, [Gap(1, 0)], RECORDER_LANE)
    assert violations(one)
    assert violations(with_gaps(one, [Gap(2, 0)], RECORDER_LANE)) == []


def test_a_process_that_runs_still_may_call_on(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its recording is read before those of others, which then tell more."""
    paths = write_parts(tmp_path, job)
    state = state_of(os.getpid())
    assert state is not None
    details = {"pid": os.getpid(), "pid_started": state.started, "clock_id": clock_id()}
    begun = replace(job, events=[e for e in job.events if e.process == 1][:9])
    write_part(paths[1], begun, (1,), details=details)
    history, errors = merged(tmp_path, capsys, "--host-of", "*=a")
    assert violations(history) == []
    assert "process 1 runs still; what it calls from here on is not known" in errors


@pytest.mark.parametrize("size", [4096, 4097])
def test_a_copy_that_was_cut_is_told_wherever_it_was_cut(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """A disk that fills up cuts it at the end of a block."""
    paths = write_parts(tmp_path, job)
    whole = paths[1].read_bytes()
    assert len(whole) > size
    paths[1].write_bytes(whole[: whole.index(b"\n", size - 200)].ljust(size, b"x"))
    history, errors = merged(tmp_path, capsys)
    assert violations(history) == []
    assert "the recording of process 1 stopped" in errors


def test_an_empty_file_beside_a_whole_recording_explains_nothing(
    job: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may be a copy that was interrupted; a recorder that stopped at once leaves its mark."""
    write_parts(tmp_path, job)
    empty = tmp_path / "h-99-process-1.jsonl"
    empty.touch()
    history, _ = merged(tmp_path, capsys)
    assert not any(gap.startswith(NOT_RECORDED) for gap in history.header.cannot_know)
    empty.with_name(empty.name + STOPPED).touch()
    history, _ = merged(tmp_path, capsys)
    assert any(gap.startswith(NOT_RECORDED) for gap in history.header.cannot_know)


def test_with_too_many_rounds_the_live_sets_are_not_judged() -> None:
    events: list[Event] = [
        Start(time_ns=1 + process, process=process, lifetime=0, incarnation=5 + process)
        for process in range(2)
    ]
    for number in range(ROUNDS_MAX + 1):
        by = {"time_ns": 10 + number, "process": 0, "lifetime": 0, "id": number}
        events.append(Invoke(operation=LIVE_PROCESSES, arguments={}, **by))
        events.append(Ok(result={0: 5, 1: 6}, **by))
    history = History(Header(source="processes", participants=(0, 1)), events)
    assert isinstance(verdicts(history)["live set"], Invalid)
    assert verdicts(with_gaps(history, [Gap(1, 0)], RECORDER_LANE))["live set"].word == "unknown"


def test_calls_on_barriers_and_keys_are_explained() -> None:
    """A process that left no trace passes barriers, sets, deletes and counts."""
    calls: list[tuple[str, dict[str, object], object]] = [
        ("barrier", {"barrier": "b", "processes": None}, None),
        ("barrier", {"barrier": "b", "processes": []}, None),
        ("key_value_set", {"key": "a/x", "value": {"text": "1"}, "allow_overwrite": False}, None),
        ("key_value_set", {"key": "a/x", "value": {"text": "2"}, "allow_overwrite": False}, None),
        ("key_value_try_get", {"key": "a//x"}, {"base64": "/w=="}),
        ("key_value_dir_get", {"key": "a"}, [["a/y", {"text": "3"}]]),
        ("key_value_increment", {"key": "n", "increment": 2}, 2),
        ("key_value_increment", {"key": "n", "increment": 2}, 7),
        ("key_value_get", {"key": "n"}, {"text": "7"}),
        ("key_value_delete", {"key": "n"}, None),
        ("key_value_get", {"key": "n"}, {"text": "7"}),
    ]
    events: list[Event] = [Start(time_ns=1, process=0, lifetime=0, incarnation=5)]
    for number, (operation, arguments, result) in enumerate(calls):
        by = {"process": 0, "lifetime": 0, "id": number}
        time_ns = 10 + 2 * number
        events.append(Invoke(time_ns=time_ns, operation=operation, arguments=arguments, **by))
        events.append(Ok(time_ns=time_ns + 1, result=result, **by))
    history = History(Header(source="processes", participants=(0, 1)), events)
    assert len(violations(history)) == 3 * len(verdicts(history)) == 9
    filled = with_gaps(history, [Gap(1, None)], RECORDER_LANE)
    assert violations(filled) == []
    added = [event for event in filled.events if event.process == 1]
    assert {type(event) for event in added} == {Invoke}, "none has a known outcome"


def test_an_incarnation_that_only_others_tell_has_started() -> None:
    """Its process connected again after its recording had stopped."""
    by = {"process": 0, "lifetime": 0}
    events: list[Event] = [
        Start(time_ns=1, incarnation=5, **by),
        Start(time_ns=2, process=1, lifetime=0, incarnation=6),
        Invoke(time_ns=10, id=0, operation=LIVE_PROCESSES, arguments={}, **by),
        Ok(time_ns=20, id=0, result={0: 5, 1: 7}, **by),
    ]
    history = History(Header(source="processes", participants=(0, 1)), events)
    assert violations(history)
    filled = with_gaps(history, [Gap(1, 0)], RECORDER_LANE)
    assert violations(filled) == []
    assert any(isinstance(e, Start) and e.incarnation == 7 for e in filled.events)
    assert any(isinstance(event, Info) for event in filled.events)


_Call: TypeAlias = tuple[str, dict[str, object], object]

ALIVE: _Call = (LIVE_PROCESSES, {}, {0: 5, 1: 6})
STRANGE: _Call = (LIVE_PROCESSES, {}, {0: 5, 1: 77})
PASSED: _Call = ("barrier", {"barrier": "b", "processes": None}, None)


def found(value: str) -> _Call:
    return "key_value_get", {"key": "k"}, {"text": value}


@pytest.mark.parametrize(
    ("end", "calls", "is_explained"),
    [
        ("crash", (ALIVE,), True),  # It may have ended inside the barrier.
        ("crash", (ALIVE, ALIVE, ALIVE), False),
        ("restart", (ALIVE,), False),  # As above, and its successor is there.
        *(
            (end, calls, is_explained)
            for end in ("crash", "restart")
            for calls, is_explained in (
                ((STRANGE,), False),
                ((PASSED,), True),
                ((PASSED, PASSED, PASSED), False),
                ((found("its last"), found("its last")), True),
                ((found("its last"), found("another")), False),
            )
        ),
    ],
)
def test_who_has_ended_explains_no_more_than_what_was_under_way(
    end: str, calls: Sequence[_Call], is_explained: bool
) -> None:
    """Its recording stopped before; its end, or the start of its successor, is recorded."""
    by = {"process": 0, "lifetime": 0}
    ended: Event = Crash(time_ns=30, process=1, lifetime=0, cause="signal SIGKILL")
    if end == "restart":
        ended = Start(time_ns=30, process=1, lifetime=1, incarnation=8)
    events: list[Event] = [
        Start(time_ns=1, incarnation=5, **by),
        Start(time_ns=2, process=1, lifetime=0, incarnation=6),
        ended,
    ]
    for number, (operation, arguments, result) in enumerate(calls):
        time_ns = 100 + 10 * number
        call = {"id": number, **by}
        events.append(Invoke(time_ns=time_ns, operation=operation, arguments=arguments, **call))
        events.append(Ok(time_ns=time_ns + 1, result=result, **call))
    history = History(Header(source="processes", participants=(0, 1)), events)
    filled = with_gaps(history, [Gap(1, 0)], RECORDER_LANE)
    assert (
        not any(isinstance(each, Invalid) for each in verdicts(filled).values())
    ) == is_explained
    assert all(event.time_ns <= 30 for event in filled.events if event.process == 1)
