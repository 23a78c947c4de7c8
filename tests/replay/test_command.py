"""`coordlab replay`: output, exit codes, bad input."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checker.history import History, Ok
from coord_sim.cli.main import main
from tests.replay.test_service_side import a_death, changed_value, stored_and_read

FINDINGS = Path(__file__).parents[1] / "data" / "findings"
GHOST = str(FINDINGS / "ghost-entry-jaxlib-0.12.0.1.jsonl")


@pytest.fixture
def death(tmp_path: Path) -> str:
    path = tmp_path / "death.jsonl"
    a_death().history().save(path)
    return str(path)


def as_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_that_the_model_could_have_had(
    death: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", death]) == 0
    output = capsys.readouterr().out
    assert output.startswith(f"{death}: the service as shipped could have given these answers\n")
    assert "events/s)" in output


def test_an_answer_that_it_could_not_give_is_told_with_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, read = stored_and_read()
    path = tmp_path / "wrong.jsonl"
    History(history.header, changed_value(history, read)).save(path)
    assert main(["replay", str(path)]) == 1
    output = capsys.readouterr().out
    lines = path.read_text().splitlines()
    asked = next(i for i, line in enumerate(lines, 1) if "key_value_try_get" in line)
    answered = next(i for i, line in enumerate(lines, 1) if '"9"' in line)
    assert f"request:  line {asked}: key_value_try_get of process 1" in output
    assert 'model:    OK, {"text": "1"}' in output
    assert f'recorded: line {answered}: OK, {{"text": "9"}}' in output


def test_lines_that_are_no_events_count_as_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, read = stored_and_read()
    text = History(history.header, changed_value(history, read)).to_text()
    head, rest = text.split("\n", 1)
    time_ns = history.events[0].time_ns
    fault = json.dumps({"type": "fault", "time_ns": time_ns, "name": "nothing of note"})
    path = tmp_path / "wrong.jsonl.gz"
    path.write_bytes(gzip.compress(f"{head}\n{fault}\n\n{rest}".encode()))
    assert main(["replay", str(path), "--json"]) == 1
    answer_line = as_json(capsys)["finding"]["answer_line"]
    assert answer_line == len(history.events) + 3
    assert isinstance(history.events[-1], Ok)


def test_what_callers_saw_is_held_against_either_face(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", GHOST, "--json"]) == 0
    assert as_json(capsys)["side"] == "callers"
    assert main(["replay", GHOST, "--semantics", "published"]) == 1
    assert "live_processes of process 1" in capsys.readouterr().out
    assert main(["replay", GHOST, "--semantics", "published", "--steps-max", "3"]) == 3
    assert "unknown whether" in capsys.readouterr().out


def test_other_time_outs_are_a_table_with_advice(
    death: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", death, "--heartbeat-timeout"]) == 0
    output = capsys.readouterr().out
    assert "the recorded service had a time-out of 2 s" in output
    assert "advice: the worst delay of a heartbeat was" in output
    assert main(["replay", death, "--heartbeat-timeout", "1..3", "--json"]) == 0
    rows = as_json(capsys)["timeouts"]
    assert [row["timeout_s"] for row in rows] == [1.0, 2.0, 3.0]
    assert [row["deaths_noticed"] for row in rows] == [{"sure": 1, "possible": 0}] * 3
    assert [row["noticed_after_s"] for row in rows] == [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    assert {alarm["process"] for row in rows for alarm in row["alarms"]} == {1}


def test_a_named_time_out_tells_who_and_when(
    death: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["replay", death, "--heartbeat-timeout", "3", "--no-recoverable"]
    assert main(arguments) == 0
    output = capsys.readouterr().out
    assert (
        "process 1, start 0, silent from 0.000 s on, is declared dead at 3.000 s to 4.000 s"
        in output
    )
    assert "it was dead" in output
    assert "  1 + 0 of 1    3 to 4 s\n" in output
    assert "not recoverable: the first of these, at 3.000 s or later, ends the job" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--heartbeat-timeout", "0"], "is no time-out"),
        (["--heartbeat-timeout", "soon"], "is no time-out"),
        (["--heartbeat-timeout", "5..1"], "is no time-out"),
        (["--heartbeat-timeout", "1..2..nan"], "is no time-out"),
        (["--heartbeat-timeout", "1..100000"], "at most 1000"),
    ],
)
def test_time_outs_that_are_none(
    arguments: list[str], words: str, death: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", death, *arguments]) == 2
    assert words in capsys.readouterr().err


def test_a_history_without_heartbeats_says_what_to_record(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["replay", GHOST, "--heartbeat-timeout"]) == 2
    error = capsys.readouterr().err
    assert "has no heartbeats" in error
    assert "coordlab tap" in error


def _header(text: str, **fields: object) -> str:
    head, rest = text.split("\n", 1)
    told = json.loads(head)
    told["details"].update(fields)
    return f"{json.dumps(told)}\n{rest}"


BAD: dict[str, tuple[Callable[[str], str], str]] = {
    "another version": (
        lambda text: text.replace('"coordlab_history":0', '"coordlab_history":7', 1),
        "format version 7",
    ),
    "two jobs": (lambda text: text + text, "field 'type': is missing"),
    "no history": (lambda _: "hello\n", "not a JSON object"),
    "a wrong argument": (
        lambda text: text.replace('"arguments":{"key":"k"}', '"arguments":{"key":7}', 1),
        "must be a string, found 7",
    ),
    "no face": (lambda text: _header(text, semantics="odd"), "no face of the service"),
    "no time": (lambda text: _header(text, heartbeat_timeout_s="5"), "which is no time"),
    "no truth": (lambda text: _header(text, recoverable="yes"), "no truth value"),
    "no incarnation": (lambda text: _header(text, service_incarnation=5), "no incarnation"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, words = BAD[name]
    path = tmp_path / "bad.jsonl"
    path.write_text(spoil(stored_and_read()[0].to_text()))
    assert main(["replay", str(path)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert str(path) in error
    assert error.count("\n") == 1


def test_a_file_that_is_cut_is_replayed_as_far_as_it_goes(
    death: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cut.jsonl"
    path.write_text(Path(death).read_text()[:-20])
    assert main(["replay", str(path)]) == 0
    captured = capsys.readouterr()
    assert "is cut off" in captured.err
    assert "could have given these answers" in captured.out
