"""`coordlab merge`: jobs that follow one another at one port."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from checker import check_service, read
from checker.history import Event, Header, History, Invoke, Ok, Start, dumps
from tests.cli.test_merge import WALL_NS, merge_files, write_part

S = 1_000_000_000


def attempt(process: int, at_s: float, incarnation: int) -> History:
    """A start that sets one key."""
    at_ns = round(at_s * S)
    key = {"key": f"of {process}", "value": {"text": "x"}, "allow_overwrite": False}
    common = {"process": process, "lifetime": 0}
    events: list[Event] = [
        Start(time_ns=at_ns, incarnation=incarnation, since_ns=at_ns - 1, **common),
        Invoke(time_ns=at_ns + 1, id=0, operation="key_value_set", arguments=key, **common),
        Ok(time_ns=at_ns + 2, id=0, result=None, **common),
    ]
    return History(Header(source="processes", participants=(0, 1)), events)


def note_service(path: Path, at_s: float, *, host: str = "a") -> None:
    """What a program on this host notes that makes a service."""
    details = {
        "host": host,
        "clock_id": f"boot of {host}",
        "wall_clock_ahead_ns": WALL_NS,
        "address": "[::]:1234",
        "service_made_ns": round(at_s * S),
    }
    path.write_text(
        dumps(History(Header(source="processes", participants=(0,), details=details), []))
    )


def starts(path: Path) -> set[tuple[int, int, int | None]]:
    events = read(path).events
    return {(e.process, e.lifetime, e.incarnation) for e in events if isinstance(e, Start)}


def test_who_is_not_recorded_at_a_later_service_may_have_been_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Process 1 waits at a barrier of the second job, and was last recorded in the first."""
    parts = tmp_path / "parts"
    parts.mkdir()
    both: list[Event] = []
    for number, at_s in enumerate((100.0, 200.0)):
        note_service(parts / f"service-{number}.jsonl", at_s)
        by = {"process": 0, "lifetime": number}
        at_ns = round(at_s * S)
        barrier = {"barrier": "b", "processes": None}
        both += [
            Start(time_ns=at_ns + 1, incarnation=10 + number, **by),
            Invoke(time_ns=at_ns + 2, id=number, operation="barrier", arguments=barrier, **by),
            Ok(time_ns=at_ns + 9, id=number, result=None, **by),
        ]
    header = Header(source="processes", participants=(0, 1))
    other = [replace(e, process=1) for e in both if e.lifetime == 0]
    write_part(parts / "0.jsonl", History(header, both), (0,))
    write_part(parts / "1.jsonl", History(header, other), (1,))
    output, _ = merge_files(capsys, parts, "--out", tmp_path / "run.jsonl")
    for name in ("run.jsonl", "run-2.jsonl"):
        assert {row.word for row in check_service(read(tmp_path / name))} == {"valid"}
    assert "2 of 2 processes" in output
    assert "1 of 2 processes" in output
    assert "no recording is of process 1: what it called is not known" in output


def test_each_service_has_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of processes on several hosts, whose clocks are a second apart; done again, it is the same."""
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, at_s in enumerate((100.0, 200.0)):
        note_service(parts / f"service-{number}.jsonl", at_s)
        write_part(parts / f"0-{number}.jsonl", attempt(0, at_s + 0.1, 10 + number), (0,))
        write_part(
            parts / f"1-{number}.jsonl",
            attempt(1, at_s - 0.9, 20 + number),
            (1,),
            host="b",
            details={"wall_clock_ahead_ns": WALL_NS},
        )
    out = parts / "run.jsonl"
    for _ in range(2):
        output, errors = merge_files(capsys, parts, "--out", out, "--largest-clock-error", "2")
        assert errors == ""
        assert f"history: {parts}/run-2.jsonl (6 events; 2 of 2 processes, 2 starts" in output
        assert starts(out) == {(0, 0, 10), (1, 0, 20)}
        assert starts(parts / "run-2.jsonl") == {(0, 0, 11), (1, 0, 21)}


def test_a_second_history_does_not_replace_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, at_s in enumerate((100.0, 200.0), start=1):
        note_service(tmp_path / f"service-{number}.jsonl", at_s)
        write_part(tmp_path / f"run-{number}.jsonl", attempt(0, at_s + 1, number), (0,))
    recording = (tmp_path / "run-2.jsonl").read_text()
    _, errors = merge_files(capsys, tmp_path, "--out", tmp_path / "run.jsonl", code=2)
    assert "run-2.jsonl, which is one of the recordings; name another file" in errors
    assert (tmp_path / "run-2.jsonl").read_text() == recording
    assert not (tmp_path / "run.jsonl").exists()


def test_force_makes_one_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, at_s in enumerate((100.0, 200.0)):
        note_service(parts / f"service-{number}.jsonl", at_s)
        write_part(parts / f"{number}.jsonl", attempt(0, at_s + 1, number), (0,))
    out = tmp_path / "run.jsonl"
    merge_files(capsys, parts, "--out", out, "--force")
    assert starts(out) == {(0, 0, 0), (0, 1, 1)}
    assert not (tmp_path / "run-2.jsonl").exists()
