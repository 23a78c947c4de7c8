"""Our own histories as columns: clocks with errors, keys, deaths and faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from checker import MalformedHistory
from checker.formats import history_of, operations_of, read_operations
from checker.history import Event, Header, History, HistoryReader, Invoke, Ok, dumps, loads, merge
from checker.history import Fault as FaultLine
from checker.operations import OPEN_NS, Failed, Fault, FrozenMap, Operation, Recorder
from tests.formats.samples import ROOT, WRITTEN, calls

SAMPLE = WRITTEN / "coordlab.jsonl"


def test_the_sample() -> None:
    history = read_operations(SAMPLE)
    assert calls(history) == [
        (
            0,
            Operation(
                "key_value_set",
                "a",
                FrozenMap((("allow_overwrite", False), ("value", FrozenMap((("text", "1"),))))),
                None,
            ),
        ),
        (1, Operation("key_value_try_get", "a", None, Failed("NOT_FOUND"))),
        (0, Operation("barrier", "b", FrozenMap((("processes", None), ("timeout_ms", 10))))),
        (1, Operation("write", None, (1, 2))),
    ]
    assert (history.clock, history.uncertainty_ns) == ("wall", 60)
    assert list(history.line) == [3, 6, 9, 10]
    assert list(history.ended_ns[2:]) == [1400, OPEN_NS]


def test_errors_of_the_clock_make_calls_overlap_that_may_have() -> None:
    history = read_operations(SAMPLE)
    # The first call ends at 1020 ± 50, and the second begins at 1100 ± 60.
    assert list(history.events[:3]) == [0, 1, ~0]
    assert (history.ended_ns[0], history.invoked_ns[1]) == (1070, 1040)


def test_births_deaths_and_faults_are_in_order() -> None:
    assert read_operations(SAMPLE).faults == (
        Fault("process 0", "start", 700, 900, 0),
        Fault("nemesis", "partition", 1010, 5000, 1),
        Fault("host 2", "disk full", 1150, None, 3),
        Fault("process 0", "crash", 1500, None, 6),
    )


def test_reading_a_file_and_a_history_is_the_same() -> None:
    history = loads(SAMPLE.read_text(encoding="utf-8"))
    read, made = read_operations(SAMPLE), operations_of(history)
    assert (read.events, calls(read), read.faults) == (made.events, calls(made), made.faults)


def test_a_torn_last_line_is_noted(tmp_path: Path) -> None:
    torn = tmp_path / "run.jsonl"
    torn.write_bytes(SAMPLE.read_bytes() + b'{"type":"invoke","time_ns":\xc3')
    assert "line 13 is cut off" in read_operations(torn).notes[0]


def test_a_response_without_its_call_is_refused() -> None:
    lonely = Ok(time_ns=1, process=0, lifetime=0, id=4, result=None)
    history = History(Header(source="manual", participants=(0,)), [lonely])
    with pytest.raises(MalformedHistory, match="never invoked"):
        operations_of(history)


def test_the_latest_times_do_not_overflow() -> None:
    end = 2**63 - 1
    events: list[Event] = [
        Invoke(
            time_ns=0,
            process=0,
            lifetime=0,
            id=0,
            operation="read",
            arguments={},
            uncertainty_ns=end,
        ),
        Ok(time_ns=end, process=0, lifetime=0, id=0, result=1, uncertainty_ns=end),
    ]
    operations = operations_of(History(Header(source="manual", participants=(0,)), events))
    assert (operations.invoked_ns[0], operations.ended_ns[0]) == (-end, end)
    with pytest.raises(ValueError, match="too far apart"):
        history_of(operations)


def test_live_processes_cannot_be_made_of_operations_again() -> None:
    recorder = Recorder()
    recorder.ok(recorder.invoke(0, "live_processes"), {0: None})
    with pytest.raises(ValueError, match="needs lifetimes"):
        history_of(recorder.operations())


# --- the line `fault` ---------------------------------------------------------------------------


def test_faults_survive_being_written() -> None:
    history = loads(SAMPLE.read_text(encoding="utf-8"))
    assert history.faults == (
        FaultLine(time_ns=1010, name="partition", until_ns=5000),
        FaultLine(time_ns=1150, name="disk full", lane="host 2"),
    )
    again = loads(dumps(history))
    assert (again.faults, list(again.events)) == (history.faults, list(history.events))
    late = History(history.header, [], (), history.faults)
    assert loads(dumps(late)).faults == history.faults


def test_faults_of_parts_are_merged_in_order() -> None:
    header = Header(source="manual", participants=(0,))
    late, early = FaultLine(time_ns=9, name="b"), FaultLine(time_ns=2, name="a")
    parts = [History(header, [], (), (late,)), History(header, [], (), (early,))]
    assert merge(parts, header).faults == (early, late)


def test_faults_are_no_events() -> None:
    reader = HistoryReader(SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True))
    assert len(list(reader)) == 9
    assert [fault.name for fault in reader.faults] == ["partition", "disk full"]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ('"time_ns":5', "field 'name': is missing"),
        ('"time_ns":5,"name":"x","until_ns":4', "ends before it begins"),
        ('"time_ns":5,"name":"x","process":0', "field 'process'"),
        ('"time_ns":5,"name":"x","lane":3', "must be a string"),
        ('"name":"x"', "field 'time_ns': is missing"),
        ('"time_ns":2,"name":"x"', "out of order"),
    ],
)
def test_a_malformed_fault_is_refused(fields: str, problem: str) -> None:
    header = '{"coordlab_history":0,"source":"manual","clock":"abstract","participants":[0]}\n'
    text = (
        header + '{"type":"fault","time_ns":3,"name":"first"}\n' + f'{{"type":"fault",{fields}}}\n'
    )
    with pytest.raises(MalformedHistory, match=re.escape(problem)) as caught:
        loads(text)
    assert caught.value.line == 3


def test_the_page_of_the_format_names_the_fields_of_a_fault() -> None:
    page = (ROOT / "docs" / "history-format.md").read_text(encoding="utf-8")
    section = page.split("\n## Faults\n")[1].split("\n## ")[0]
    told = set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE))
    assert told == {"type", *FaultLine.__dataclass_fields__}
