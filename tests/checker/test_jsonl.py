"""Histories survive a file; what a killed recorder leaves can be read; reading streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checker import MalformedHistory
from checker.history import (
    LIVE_PROCESSES,
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Header,
    History,
    HistoryReader,
    HistoryWriter,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
    dumps,
    loads,
    merge,
    read,
)
from tests.random_histories import histories

BIG = 2**64 - 1

HEADER = Header(source="manual", participants=(0, 1), clock="abstract")


def invoke(time_ns: int, number: int, process: int = 0) -> Invoke:
    return Invoke(
        time_ns=time_ns,
        process=process,
        lifetime=0,
        id=number,
        operation=LIVE_PROCESSES,
        arguments={},
    )


def ok(time_ns: int, number: int, live: dict[int, int | None], process: int = 0) -> Ok:
    return Ok(time_ns=time_ns, process=process, lifetime=0, id=number, result=live)


EVERYTHING = History(
    Header(
        source="processes",
        participants=(0, 1, 4),
        clock="monotonic",
        cannot_know=("when a process crashed", "why — „so“"),
        details={"seed": 7, "versions": {"jaxlib": "0.10.2"}, "command": ["python", "x"]},
    ),
    [
        Start(time_ns=5, process=0, lifetime=0, incarnation=BIG, since_ns=2, uncertainty_ns=1),
        Start(time_ns=6, process=1, lifetime=0),
        Invoke(
            time_ns=7,
            process=1,
            lifetime=0,
            id=3,
            operation="key_value_set",
            arguments={"key": "a\n", "value": {"text": "\u2603"}, "allow_overwrite": False},
        ),
        Ok(time_ns=8, process=1, lifetime=0, id=3, result=None),
        Invoke(
            time_ns=8,
            process=0,
            lifetime=0,
            id=4,
            operation=LIVE_PROCESSES,
            arguments={"participants": (0, 1)},
        ),
        Ok(time_ns=9, process=0, lifetime=0, id=4, result={0: BIG, 1: None}),
        Enter(time_ns=9, process=0, lifetime=0, block=2, live={0: BIG, 1: 0}),
        Exit(
            time_ns=10,
            process=0,
            lifetime=0,
            block=2,
            outcome="failed",
            failed=(1,),
            message="1 died",
        ),
        Enter(time_ns=10, process=0, lifetime=0, block=3, live={}),
        Exit(time_ns=10, process=0, lifetime=0, block=3, outcome="completed"),
        Invoke(
            time_ns=11,
            process=0,
            lifetime=0,
            id=5,
            operation="key_value_get",
            arguments={"key": "k"},
        ),
        Fail(time_ns=12, process=0, lifetime=0, id=5, code="NOT_FOUND", message="no such key"),
        invoke(13, 6),
        Info(time_ns=14, process=0, lifetime=0, id=6, code="DEADLINE_EXCEEDED"),
        Crash(time_ns=20, process=1, lifetime=0, since_ns=15, cause="SIGKILL"),
        Leave(time_ns=20, process=0, lifetime=0, incarnation=BIG),
    ],
)


def test_every_kind_of_event_survives_a_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "run.jsonl"
    EVERYTHING.save(path)
    assert read(path) == EVERYTHING
    assert path.read_text() == EVERYTHING.to_text()


@settings(deadline=None)
@given(histories())
def test_any_history_survives_a_file(history: History) -> None:
    assert loads(dumps(history)) == history


@settings(deadline=None)
@given(st.text(), st.text(), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_any_text_survives_a_file(cause: str, operation: str, result: dict[str, object]) -> None:
    history = History(
        HEADER,
        [
            replace(invoke(0, 0), operation=f"x{operation}"),
            Ok(time_ns=1, process=0, lifetime=0, id=0, result=result),
            Crash(time_ns=2, process=0, lifetime=0, cause=cause),
        ],
    )
    assert loads(dumps(history)) == history


def test_a_file_has_one_line_per_event_and_no_byte_beyond_ascii() -> None:
    lines = EVERYTHING.to_text().split("\n")
    assert len(lines) == 1 + len(EVERYTHING.events) + 1
    assert lines[-1] == ""
    assert EVERYTHING.to_text().isascii()


# --- live sets ---


def many_answers(processes: int, answers: list[dict[int, int | None]]) -> History:
    header = Header(source="manual", participants=tuple(range(processes)), clock="abstract")
    events: list[Event] = [Start(time_ns=0, process=p, lifetime=0) for p in range(processes)]
    for number, live in enumerate(answers):
        events += [invoke(number, number), ok(number, number, live)]
    return History(header, sorted(events, key=lambda event: event.time_ns))


def test_a_large_live_set_is_written_once_and_read_as_one_object() -> None:
    live: dict[int, int | None] = dict.fromkeys(range(20), 7)
    history = many_answers(20, [live, dict(live), {**live, 3: None}, dict(live)])
    text = dumps(history)
    assert text.count('"type":"answer"') == 2
    back = loads(text)
    assert back == history
    results = [event.result for event in back.events if isinstance(event, Ok)]
    assert results[0] is results[1] is results[3]
    assert results[0] is not results[2]


def test_a_small_live_set_stands_in_its_response() -> None:
    live: dict[int, int | None] = dict.fromkeys(range(8), 7)
    text = dumps(many_answers(8, [live, live]))
    assert '"type":"answer"' not in text
    assert text.count('"result"') == 2


def test_the_writer_forgets_old_answers_and_never_reuses_a_number() -> None:
    answers: list[dict[int, int | None]] = [dict.fromkeys(range(9), n) for n in range(100)]
    history = many_answers(9, [*answers, *answers])
    text = dumps(history)
    assert loads(text) == history
    numbers = [
        json.loads(line)["answer"] for line in text.splitlines() if '"type":"answer"' in line
    ]
    assert numbers == list(range(200))


# --- recorders that were killed ---


@settings(deadline=None)
@given(st.data())
def test_a_torn_last_line_is_skipped_with_a_note(data: st.DataObject) -> None:
    text = EVERYTHING.to_text()
    last_line = text[text.rindex("\n", 0, -1) + 1 :]
    cut = data.draw(st.integers(2, len(last_line) - 1))
    back = loads(text[:-cut])
    assert back.events == EVERYTHING.events[:-1]
    number = 1 + len(EVERYTHING.events)
    assert back.notes == (f"line {number} is cut off (the recorder was killed?) and was skipped",)


def test_a_last_line_that_lacks_only_its_end_is_whole() -> None:
    assert loads(EVERYTHING.to_text().removesuffix("\n")) == EVERYTHING


def test_a_line_torn_inside_a_character_is_skipped_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(
        dumps(History(HEADER, [])).encode() + '{"type":"crash","cause":"ü'.encode()[:-1]
    )
    back = read(path)
    assert back.events == []
    assert back.notes == ("line 2 is cut off (the recorder was killed?) and was skipped",)


def test_only_the_last_line_may_be_torn() -> None:
    text = EVERYTHING.to_text()
    with pytest.raises(MalformedHistory, match="line 17: not a JSON object"):
        loads(text[:-5] + "\n" + text.splitlines()[-1] + "\n")


def test_a_history_without_events_is_one() -> None:
    assert loads(dumps(History(HEADER, []))) == History(HEADER, [])


# --- reading ---


def test_the_reader_hands_on_an_event_before_it_takes_the_next_line() -> None:
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        for line in EVERYTHING.to_text().splitlines(keepends=True):
            taken += 1
            yield line

    reader = HistoryReader(lines())
    assert taken == 1
    assert reader.header == EVERYTHING.header
    for number, event in enumerate(reader):
        assert event == EVERYTHING.events[number]
        assert taken == 2 + number


def test_reading_can_be_interrupted_and_continued() -> None:
    reader = HistoryReader(iter(EVERYTHING.to_text().splitlines(keepends=True)))
    first = next(iter(reader))
    assert [first, *reader] == EVERYTHING.events


def test_reading_reports_how_far_it_is(tmp_path: Path) -> None:
    EVERYTHING.save(tmp_path / "run.jsonl")
    counts: list[int] = []
    assert read(tmp_path / "run.jsonl", report=counts.append) == EVERYTHING
    assert counts == [len(EVERYTHING.events)]


def test_blank_lines_and_line_ends_of_other_systems_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(EVERYTHING.to_text().replace("\n", "\r\n\r\n").encode())
    assert read(path) == EVERYTHING


def test_a_later_recorder_may_say_more_in_the_header() -> None:
    line, newline, rest = EVERYTHING.to_text().partition("\n")
    header = {**json.loads(line), "weather": "fine"}
    assert loads(json.dumps(header) + newline + rest) == EVERYTHING


# --- writing ---


def test_every_call_of_the_writer_holds_whole_lines() -> None:
    written: list[bytes] = []
    writer = HistoryWriter(written.append, EVERYTHING.header)
    for event in EVERYTHING.events:
        writer.append(event)
    assert len(written) == 1 + len(EVERYTHING.events)
    assert all(chunk.endswith(b"\n") for chunk in written)


def test_saving_replaces_a_file_wholly_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    EVERYTHING.save(path)
    impossible = Ok(time_ns=1, process=0, lifetime=0, id=0, result=object())
    with pytest.raises(TypeError):
        History(HEADER, [invoke(0, 0), impossible]).save(path)
    assert read(path) == EVERYTHING
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.jsonl"]


def test_merging_sorts_by_time_and_numbers_operations_anew() -> None:
    parts = [
        History(HEADER, [invoke(3, 0), ok(6, 0, {0: None})], ("torn",)),
        History(HEADER, [invoke(1, 0, process=1), ok(6, 0, {1: None}, process=1)]),
    ]
    merged = merge(parts, HEADER)
    assert [(event.time_ns, event.process) for event in merged.events] == [
        (1, 1),
        (3, 0),
        (6, 0),
        (6, 1),
    ]
    assert [event.id for event in merged.events if isinstance(event, Invoke | Ok)] == [0, 1, 1, 0]
    assert merged.notes == ("torn",)


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    header = '{"coordlab_history":0,"source":"manual","clock":"abstract","participants":[0]}\n'
    path.write_bytes(b"\xef\xbb\xbf" + header.encode())
    assert read(path).header.participants == (0,)


def test_a_round_of_ten_thousand_processes_takes_a_line_of_constant_size_each() -> None:
    """Neither answers nor arguments may list everybody in every line."""
    from coord_sim.schedule import Schedule
    from coord_sim.sim import Process, simulate

    async def program(process: Process) -> None:
        await process.client.get_live_nodes(process.participants)

    sizes = {}
    for processes in (200, 400):
        schedule = Schedule(processes=processes, seed=1, semantics="published")
        sizes[processes] = len(simulate(program, schedule).history.to_text())
    assert sizes[400] < 2.5 * sizes[200]
