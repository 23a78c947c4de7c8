"""What conditions of real runs wait for, read from recordings while they are written."""

from __future__ import annotations

from pathlib import Path

from checker.history import Enter, Exit, Fail, Header, HistoryWriter, Invoke, Ok, Start
from jax_bridge.watching import Happening, Recording


def test_operations_and_blocks_are_told_once_each_as_they_are_written(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    recording = Recording(1, path)
    assert list(recording.news()) == [], "there is no file yet"
    with path.open("wb", buffering=0) as file:
        writer = HistoryWriter(file.write, Header(source="processes", participants=(0, 1)))
        writer.append(Start(time_ns=1, process=1, lifetime=0))
        called = Invoke(
            time_ns=2, process=1, lifetime=0, id=0, operation="live_processes", arguments={}
        )
        writer.append(called)
        assert list(recording.news()) == [Happening("inside", 1, "live_processes")]
        assert list(recording.news()) == []
        assert recording.open_call() == "live_processes"
        writer.append(Ok(time_ns=3, process=1, lifetime=0, id=0, result={1: 5}))
        writer.append(Enter(time_ns=4, process=1, lifetime=0, block=0, live={1: 5}))
        writer.append(
            Invoke(
                time_ns=5,
                process=1,
                lifetime=0,
                id=1,
                operation="key_value_get",
                arguments={"key": "a/b", "timeout_ms": 5},
            )
        )
        assert list(recording.news()) == [
            Happening("after", 1, "live_processes"),
            Happening("inside", 1, "block"),
            Happening("inside", 1, "key_value_get"),
        ]
        assert recording.open_call() == "key_value_get a/b"
        writer.append(Fail(time_ns=6, process=1, lifetime=0, id=1, code="DEADLINE_EXCEEDED"))
        writer.append(Exit(time_ns=7, process=1, lifetime=0, block=0, outcome="completed"))
    assert list(recording.news()) == [
        Happening("after", 1, "key_value_get"),
        Happening("after", 1, "block"),
    ]
    assert recording.open_call() is None


def test_a_line_that_is_not_whole_yet_waits_for_its_rest(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    line = b'{"type":"invoke","time_ns":1,"process":0,"lifetime":0,"id":0,"operation":"barrier"}\n'
    path.write_bytes(line[:30])
    recording = Recording(0, path)
    assert list(recording.news()) == []
    with path.open("ab") as file:
        file.write(line[30:])
    assert list(recording.news()) == [Happening("inside", 0, "barrier")]
