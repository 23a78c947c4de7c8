"""Whatever the file holds: one line that says what is wrong and where, and exit code 2."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from checker.history.jsonl_reader import LINE_BYTES_MAX
from coord_sim.cli.main import main

Line: TypeAlias = dict[str, object] | str
Refusal: TypeAlias = Callable[..., str]

HEADER: dict[str, object] = {
    "coordlab_history": 0,
    "source": "manual",
    "clock": "abstract",
    "participants": [0, 1],
}
NO_INCARNATION = (
    "field 'incarnation': an incarnation is a decimal string of a 64-bit number, or null"
)
TYPES = "start, crash, leave, invoke, ok, fail, info, enter, exit, fault, answer"


def event(kind: str, time_ns: int, process: int = 0, **fields: object) -> dict[str, object]:
    return {"type": kind, "time_ns": time_ns, "process": process, "lifetime": 0, **fields}


def call(time_ns: int, process: int = 0, *, number: int = 0, **fields: object) -> dict[str, object]:
    return event("invoke", time_ns, process, id=number, operation="live_processes", **fields)


START = event("start", 0)


@pytest.fixture
def refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refusal:
    """Writes the lines (or bytes) to run.jsonl; returns what `coordlab check` says against it."""
    monkeypatch.chdir(tmp_path)

    def refuse(*lines: Line, raw: bytes | None = None, path: str = "run.jsonl") -> str:
        if raw is None:
            texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
            raw = "".join(f"{text}\n" for text in texts).encode()
        if path == "run.jsonl":
            Path(path).write_bytes(raw)
        assert main(["check", path]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.endswith("\n")
        assert err.count("\n") == 1
        assert err.startswith("coordlab: error: ")
        assert main(["show", path]) == 2
        assert capsys.readouterr().err == err
        return err.removeprefix("coordlab: error: ").removesuffix("\n")

    return refuse


# --- files ---


def test_an_unknown_file_is_named(refusal: Refusal) -> None:
    assert refusal(path="nowhere.jsonl") == "nowhere.jsonl: No such file or directory"


def test_a_directory_is_no_history(refusal: Refusal, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert refusal(path="folder") == "folder: Is a directory"


def test_a_file_name_cannot_break_the_line(refusal: Refusal) -> None:
    assert refusal(path="a\nb\x1b[2J") == r"a\nb\x1b[2J: No such file or directory"


def test_an_empty_file_has_no_header(refusal: Refusal) -> None:
    expected = "run.jsonl: the file is empty; a history begins with a header line"
    assert refusal(raw=b"") == expected


def test_a_blank_first_line_is_no_header(refusal: Refusal) -> None:
    expected = "run.jsonl:1: the first line is blank; a history begins with a header line"
    assert refusal("", HEADER) == expected


def test_a_binary_file_is_not_text(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:1: not UTF-8 text (invalid start byte); if it is compressed, unpack it first"
    )
    assert refusal(raw=b"\xff\xfe\x00\x01\n") == expected


def test_a_line_of_a_gzip_file_is_blamed_as_if_it_were_unpacked(refusal: Refusal) -> None:
    packed = gzip.compress(json.dumps(HEADER).encode() + b"\n{}\n", mtime=0)
    assert refusal(raw=packed).startswith("run.jsonl:2: field 'type': is missing; one of start")


def test_a_bad_byte_is_blamed_on_its_own_line(refusal: Refusal) -> None:
    raw = json.dumps(HEADER).encode() + b"\n" * 5001 + b'"\xff"\n'
    expected = (
        "run.jsonl:5002: not UTF-8 text (invalid start byte); if it is compressed, unpack it first"
    )
    assert refusal(raw=raw) == expected


def test_a_file_without_line_breaks_is_not_read_to_its_end(
    refusal: Refusal, tmp_path: Path
) -> None:
    with (tmp_path / "zeros").open("wb") as file:
        file.truncate(LINE_BYTES_MAX + 1)
    expected = "zeros:1: the line is longer than 67108864 bytes; is this a history file?"
    assert refusal(path="zeros") == expected


# --- the header ---


def test_a_file_of_another_kind_has_no_header(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:1: not a JSON object: Expecting value at column 1; "
        "a history begins with a header line"
    )
    assert refusal("# Notes") == expected


def test_a_missing_header_is_named(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:1: field 'coordlab_history': the first line is no header; "
        "it must have 'coordlab_history', the format's version"
    )
    assert refusal(START) == expected


@pytest.mark.parametrize(
    ("version", "shown"), [(1, "1"), ("0", "'0'"), (False, "False"), (0.0, "0.0")]
)
def test_another_version_is_refused(refusal: Refusal, version: object, shown: str) -> None:
    expected = (
        f"run.jsonl:1: field 'coordlab_history': format version {shown} is not supported; "
        "this coordlab reads version 0: use the coordlab that wrote the file"
    )
    assert refusal(HEADER | {"coordlab_history": version}) == expected


def test_an_unknown_clock_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:1: field 'clock': must be one of monotonic, virtual, wall, abstract; "
        "found 'sundial'"
    )
    assert refusal(HEADER | {"clock": "sundial"}) == expected


def test_a_header_without_a_source_is_refused(refusal: Refusal) -> None:
    header = {name: value for name, value in HEADER.items() if name != "source"}
    expected = (
        "run.jsonl:1: field 'source': is missing; one of processes, server, simulator, manual"
    )
    assert refusal(header) == expected


@pytest.mark.parametrize(
    ("participants", "shown"),
    [([], "[]"), ([0, 0], "[0, 0]"), ([-1], "[-1]"), ([True], "[True]"), ("01", "'01'")],
)
def test_participants_are_different_numbers(
    refusal: Refusal, participants: object, shown: str
) -> None:
    expected = (
        "run.jsonl:1: field 'participants': must be a list of different process numbers, "
        f"not empty; found {shown}"
    )
    assert refusal(HEADER | {"participants": participants}) == expected


# --- lines ---


def test_broken_json_in_the_middle_is_an_error(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:3: not a JSON object: Expecting value at column 9; "
        "every line must be a whole one"
    )
    assert refusal(HEADER, START, '{"type":', event("leave", 1)) == expected


def test_a_line_that_is_no_object_is_refused(refusal: Refusal) -> None:
    expected = "run.jsonl:2: not a JSON object: it is an array; every line must be a whole one"
    assert refusal(HEADER, "[1, 2]") == expected


def test_nan_is_not_json(refusal: Refusal) -> None:
    expected = "run.jsonl:2: not a JSON object: NaN is not JSON; every line must be a whole one"
    assert refusal(HEADER, '{"type": "start", "time_ns": NaN}') == expected


def test_deeply_nested_json_is_refused(refusal: Refusal) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    expected = (
        "run.jsonl:2: not a JSON object: it is nested too deeply; every line must be a whole one"
    )
    assert refusal(HEADER, f'{{"type": "start", "time_ns": {deep}}}') == expected


def test_json_nested_nearly_too_deeply_does_not_break_the_message(refusal: Refusal) -> None:
    for depth in range(800, 1000, 3):
        deep = "[" * depth + "]" * depth
        problem = refusal(HEADER, f'{{"type": "start", "time_ns": {deep}}}')
        assert problem.partition(": ")[2] in (
            "field 'time_ns': must be an integer, found [[[...]]]",
            "not a JSON object: it is nested too deeply; every line must be a whole one",
        )


def test_an_unknown_type_is_refused(refusal: Refusal) -> None:
    expected = f"run.jsonl:2: field 'type': unknown type 'begin'; one of {TYPES}"
    assert refusal(HEADER, event("begin", 0)) == expected


def test_a_missing_type_is_refused(refusal: Refusal) -> None:
    expected = f"run.jsonl:2: field 'type': is missing; one of {TYPES}"
    assert refusal(HEADER, {"time_ns": 0}) == expected


def test_an_unknown_field_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:2: field 'incarnaton': lines of type 'start' have no such field; is it misspelt?"
    )
    assert refusal(HEADER, event("start", 0, incarnaton="7")) == expected


def test_a_field_name_cannot_break_the_line(refusal: Refusal) -> None:
    expected = (
        r"run.jsonl:2: field 'a\nb': lines of type 'start' have no such field; is it misspelt?"
    )
    assert refusal(HEADER, event("start", 0, **{"a\nb": 1})) == expected


def test_a_missing_field_is_named(refusal: Refusal) -> None:
    line = {"type": "start", "time_ns": 0, "process": 0}
    assert refusal(HEADER, line) == "run.jsonl:2: field 'lifetime': is missing"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"time_ns": "0"}, "field 'time_ns': must be an integer, found '0'"),
        ({"time_ns": 1.5}, "field 'time_ns': must be an integer, found 1.5"),
        ({"lifetime": True}, "field 'lifetime': must be an integer, found True"),
        (
            {"incarnation": 7},
            f"{NO_INCARNATION}; found 7",
        ),
        (
            {"incarnation": str(2**64)},
            f"{NO_INCARNATION}; found '18446744073709551616'",
        ),
    ],
)
def test_a_wrong_type_is_refused(refusal: Refusal, fields: dict[str, object], problem: str) -> None:
    assert refusal(HEADER, START | fields) == f"run.jsonl:2: {problem}"


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (-1, "-1"),
        (2**63, "9223372036854775808"),
        (10**400, "100000000000000000...0000000000000000000"),
    ],
)
def test_absurdly_big_integers_are_refused(refusal: Refusal, number: int, shown: str) -> None:
    expected = "run.jsonl:2: field 'time_ns': must be from 0 to 9223372036854775807, found " + shown
    assert refusal(HEADER, event("start", number)) == expected


def test_integers_that_python_will_not_read_are_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:2: not a JSON object: a number has too many digits; "
        "every line must be a whole one"
    )
    assert refusal(HEADER, f'{{"type": "start", "time_ns": {"9" * 5000}}}') == expected


# --- answers ---


def test_an_answer_that_names_an_unknown_process_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:4: field 'result': the answer names process 7, which is not among the "
        "header's participants; add it there"
    )
    answer = event("ok", 2, id=0, result={"0": None, "7": None})
    assert refusal(HEADER, START, call(1), answer) == expected


@pytest.mark.parametrize("key", ["-1", "01", "one", "", "٣", "1" * 5000])
def test_an_answer_must_name_processes_by_number(refusal: Refusal, key: str) -> None:
    problem = refusal(HEADER, START, call(1), event("ok", 2, id=0, result={key: None}))
    assert problem.startswith("run.jsonl:4: field 'result': '")
    assert problem.endswith("' is not a process number")


def test_an_answer_must_be_there(refusal: Refusal) -> None:
    expected = "run.jsonl:4: field 'result': is missing"
    assert refusal(HEADER, START, call(1), event("ok", 2, id=0)) == expected


def test_an_answer_must_be_a_mapping(refusal: Refusal) -> None:
    expected = "run.jsonl:4: field 'result': must map processes to incarnations, found [0, 1]"
    assert refusal(HEADER, START, call(1), event("ok", 2, id=0, result=[0, 1])) == expected


def test_an_undefined_shared_answer_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:4: field 'answer': answer 3 is not defined; its answer line must come first"
    )
    assert refusal(HEADER, START, call(1), event("ok", 2, id=0, answer=3)) == expected


def test_a_shared_answer_is_defined_once(refusal: Refusal) -> None:
    answer = {"type": "answer", "answer": 0, "live": {"0": None}}
    expected = (
        "run.jsonl:3: field 'answer': answer 0 is defined a second time; "
        "give it a number of its own"
    )
    assert refusal(HEADER, answer, answer) == expected


def test_a_shared_answer_has_no_other_fields(refusal: Refusal) -> None:
    answer = {"type": "answer", "answer": 0, "live": {"0": None}, "time_ns": 4}
    expected = (
        "run.jsonl:2: field 'time_ns': lines of type 'answer' have no such field; is it misspelt?"
    )
    assert refusal(HEADER, answer) == expected


# --- events among each other ---


def test_an_unknown_process_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:2: field 'process': process 5 is not among the header's participants; "
        "add it there or remove the event"
    )
    assert refusal(HEADER, event("start", 0, 5)) == expected


def test_an_unknown_participant_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:3: field 'arguments.participants': process 9 is not among the header's "
        "participants; add it there"
    )
    assert refusal(HEADER, START, call(1, arguments={"participants": [0, 9]})) == expected


@pytest.mark.parametrize("participants", [None, "everybody", {"0": 1}])
def test_participants_of_a_call_must_be_a_list(refusal: Refusal, participants: object) -> None:
    expected = (
        "run.jsonl:3: field 'arguments.participants': must be a list of process numbers; "
        "leave it out to mean all participants"
    )
    assert refusal(HEADER, START, call(1, arguments={"participants": participants})) == expected


def test_events_out_of_order_are_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:3: field 'time_ns': events are out of order: 4 comes after 5; "
        "sort the lines by time"
    )
    assert refusal(HEADER, event("start", 5), event("start", 4, 1)) == expected


def test_a_response_without_an_invocation_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:3: field 'id': response to operation 8, which was never invoked; "
        "the invoke event must come first"
    )
    assert refusal(HEADER, START, event("ok", 1, id=8)) == expected


def test_a_second_response_is_refused(refusal: Refusal) -> None:
    failure = event("fail", 2, id=0, code="ABORTED")
    expected = "run.jsonl:5: field 'id': operation 0 has ended already; a call ends once"
    assert refusal(HEADER, START, call(1), failure, failure) == expected


def test_a_reused_operation_id_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:4: field 'id': operation id 0 is used a second time; every call needs its own"
    )
    assert refusal(HEADER, START, call(1), call(2)) == expected


def test_a_response_to_somebody_else_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:5: field 'process': operation 0 was invoked by process 0 in lifetime 0, "
        "but is answered to process 1 in lifetime 0"
    )
    failure = event("fail", 2, 1, id=0, code="ABORTED")
    assert refusal(HEADER, START, event("start", 0, 1), call(1), failure) == expected


def test_a_double_start_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:3: field 'lifetime': process 0 starts its lifetime 0 a second time; "
        "number the starts of a process 0, 1, 2, …"
    )
    assert refusal(HEADER, START, event("start", 1)) == expected


def test_an_act_after_a_crash_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:4: field 'lifetime': process 0 acts after its lifetime 0 has ended; "
        "a restart needs a start event with the next lifetime"
    )
    assert refusal(HEADER, START, event("crash", 1), call(2)) == expected


def test_a_second_crash_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:4: field 'type': process 0 ends its lifetime 0 a second time; "
        "a restart needs a start event with the next lifetime"
    )
    assert refusal(HEADER, START, event("crash", 1), event("crash", 2)) == expected


def test_a_live_processes_call_before_the_start_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:2: field 'lifetime': process 0 calls live_processes in lifetime 0, "
        "which has no start event before it"
    )
    assert refusal(HEADER, call(0)) == expected


def test_two_incarnations_of_one_lifetime_are_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:3: field 'incarnation': lifetime 0 of process 0 has incarnation 7 and here 8; "
        "a lifetime has one incarnation"
    )
    assert refusal(HEADER, START | {"incarnation": "7"}, call(1, incarnation="8")) == expected


def test_one_incarnation_of_two_lifetimes_is_refused(refusal: Refusal) -> None:
    restart = event("start", 2, incarnation="7") | {"lifetime": 1}
    expected = (
        "run.jsonl:4: field 'incarnation': incarnation 7 of process 0 belongs to lifetime 0; "
        "every start draws a new one"
    )
    crash = event("crash", 1)
    assert refusal(HEADER, START | {"incarnation": "7"}, crash, restart) == expected


def test_an_interval_must_not_end_before_it_begins(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:2: field 'since_ns': the event lies between since_ns and time_ns, "
        "but 9 is after 5"
    )
    assert refusal(HEADER, event("start", 5, since_ns=9)) == expected


def test_an_exit_from_a_block_that_was_not_entered_is_refused(refusal: Refusal) -> None:
    expected = "run.jsonl:3: field 'block': process 0 leaves block 2, which it has not entered"
    assert refusal(HEADER, START, event("exit", 1, block=2, outcome="completed")) == expected


def test_an_unknown_outcome_of_a_block_is_refused(refusal: Refusal) -> None:
    expected = (
        "run.jsonl:4: field 'outcome': unknown outcome 'fine'; one of completed, failed, raised"
    )
    enter = event("enter", 1, block=0, live={"0": None})
    assert refusal(HEADER, START, enter, event("exit", 2, block=0, outcome="fine")) == expected
