"""What is written can be read again, and is what was read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checker.formats import read_operations, write_operations
from checker.operations import Failed, Operation, Operations, Recorder, show
from tests.formats.samples import FILES, PEERS, WRITTEN, calls

FORMATS = ("jsonl", "edn", "porcupine")


def again(operations: Operations, folder: Path, format_: str) -> Operations:
    path = folder / "again"
    write_operations(operations, path, format_)
    return read_operations(path)


def as_json(operation: Operation) -> Operation:
    """What our format makes of an operation: codes of errors are text."""
    error = operation.result.error if isinstance(operation.result, Failed) else None
    if error is None or isinstance(error, str):
        return operation
    return operation._replace(result=Failed(show(error)))


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_history_survives(path: Path, format_: str, tmp_path: Path) -> None:
    history = read_operations(path)
    copy = again(history, tmp_path, format_)
    assert copy.events == history.events
    if format_ == "jsonl":
        assert calls(copy) == [(process, as_json(kind)) for process, kind in calls(history)]
    else:
        assert [kind for _, kind in calls(copy)] == [kind for _, kind in calls(history)]
    if format_ == "porcupine":
        assert copy.faults == ()
    else:
        assert [(f.lane, f.name) for f in copy.faults] == [(f.lane, f.name) for f in history.faults]
    if format_ == "jsonl":
        assert copy.clock == history.clock
        assert [f.position for f in copy.faults] == [f.position for f in history.faults]


def test_keywords_are_written_as_keywords(tmp_path: Path) -> None:
    write_operations(read_operations(PEERS / "multi-register.edn"), tmp_path / "copy", "edn")
    first = (tmp_path / "copy").read_text(encoding="utf-8").splitlines()[0]
    assert first.startswith(
        "{:index 0, :time 7686455705, :type :invoke, :process 3, :f :txn, :value "
    )
    assert first.endswith("[[:read :x nil]]}")


def test_a_process_that_goes_on_after_a_crash_gets_a_new_number_in_edn(tmp_path: Path) -> None:
    recorder = Recorder()
    first = recorder.invoke(0, "write", 1)
    recorder.ok(recorder.invoke(1, "read"), None)
    recorder.info(first)
    recorder.ok(recorder.invoke(0, "read"), 1)
    copy = again(recorder.operations(), tmp_path, "edn")
    assert [process for process, _ in calls(copy)] == [0, 1, 2]


def test_order_survives_where_times_are_equal(tmp_path: Path) -> None:
    recorder = Recorder(clock="monotonic")
    for value in range(3):
        recorder.ok(recorder.invoke(0, "write", value, time_ns=5), None, time_ns=5)
    history = recorder.operations()
    for format_ in FORMATS:
        assert again(history, tmp_path, format_).events == history.events, format_


def test_porcupine_gets_what_its_go_structures_hold(tmp_path: Path) -> None:
    write_operations(read_operations(WRITTEN / "history.json"), tmp_path / "out.json", "porcupine")
    written = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert written[0] == {
        "ClientId": 0,
        "Input": {"f": "write", "value": 1},
        "Call": 100,
        "Output": {"type": "ok", "value": 1},
        "Return": 300,
    }
    assert written[2]["Output"] == {"type": "info"}
    assert written[2]["Return"] > max(operation["Call"] for operation in written)


def test_a_file_is_replaced_in_one_step_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text("old", encoding="utf-8")
    recorder = Recorder()
    recorder.invoke(0, "write", float("inf"))
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        write_operations(recorder.operations(), path, "porcupine")
    assert path.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_unknown_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="one of jsonl, edn, porcupine"):
        write_operations(Recorder().operations(), tmp_path / "x", "xml")


@pytest.mark.parametrize("format_", FORMATS)
def test_an_empty_history_survives(format_: str, tmp_path: Path) -> None:
    write_operations(Recorder().operations(), tmp_path / "empty", format_)
    if format_ == "edn":
        assert (tmp_path / "empty").read_bytes() == b""  # As many maps as events: none.
    else:
        assert len(read_operations(tmp_path / "empty")) == 0
