"""`coordlab explain` as its users run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from checker.history import Crash, Header, History, Start
from coord_sim.cli.main import main
from jax_bridge.explain import EXIT_CODES, FailureClass
from tests.explain.failures import KEPT

LOGS = KEPT / "jaxlib-0.12.0.1"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("all-is-well", 0),
        ("rank-raises", EXIT_CODES[FailureClass.USER_ERROR]),
        ("single-reset", EXIT_CODES[FailureClass.INFRASTRUCTURE]),
        ("jax-preempted", EXIT_CODES[FailureClass.PREEMPTION]),
        ("leader-leaves-first", EXIT_CODES[FailureClass.TEARDOWN]),
    ],
)
def test_the_exit_code_is_the_class_of_the_first_cause(
    name: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(LOGS / name)]) == code
    assert capsys.readouterr().err == ""


def test_errors_that_nobody_knows_are_of_an_unknown_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "rank-0.err"
    log.write_text("E1130 05:26:00.000000  77 engine.cc:12] the \x1b[31mengine\x1b[0m is on fire\n")
    assert main(["explain", str(log)]) == EXIT_CODES[FailureClass.UNKNOWN]
    assert f"{log}:1: the engine is on fire" in capsys.readouterr().out


def test_origin_and_echoes_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    main(["explain", str(LOGS / "single-reset")])
    out = capsys.readouterr().out
    assert out.startswith("infrastructure: process 2 lost its connection to the service")
    assert "echoes: processes 0 and 1 ended themselves" in out
    assert "process-2-0.log:3: " in out


def test_json_names_class_causes_and_files(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--json", str(LOGS / "full-disk")]) == 11
    told = json.loads(capsys.readouterr().out)
    assert told["class"] == "infrastructure"
    assert told["causes"][0]["name"] == "disk-full"
    assert [file["processes"] for file in told["files"]] == [[0], [1]]


@pytest.mark.parametrize("given", ["absent.log", "empty"])
def test_nothing_to_read_is_bad_input(
    given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    assert main(["explain", str(tmp_path / given)]) == 2
    assert given in capsys.readouterr().err


def test_a_history_with_a_bad_header_is_named_and_the_logs_are_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "run.jsonl"
    bad.write_text('{"coordlab_history":99,"source":"processes"}\n')
    assert main(["explain", str(bad), str(LOGS / "killed-peer")]) == 11
    assert "not used" in capsys.readouterr().err
    assert main(["explain", str(bad)]) == 2


def test_histories_of_two_jobs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, script in enumerate(("a.py", "b.py")):
        details = {"script": script, "zero_monotonic_ns": number}
        header = Header(source="processes", participants=(0,), details=details)
        History(header, []).save(tmp_path / f"{number}.jsonl")
    assert main(["explain", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "0.jsonl and " in error
    assert (
        "are of two jobs: they are of two starts of `coordlab run`; script a.py and b.py" in error
    )
    assert error.count("\n") == 1


def test_it_is_said_from_when_times_of_a_history_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    header = Header(source="processes", participants=(0,), details={"zero_monotonic_ns": 77})
    crash = Crash(time_ns=2_709_000_000, process=0, lifetime=0, cause="killed: SIGKILL at 2.7 s")
    History(header, [Start(time_ns=1_500_000_000, process=0, lifetime=0), crash]).save(path)
    assert main(["explain", str(path)]) == 11
    out = capsys.readouterr().out
    assert out.startswith("infrastructure: process 0 was killed (SIGKILL at 2.7 s) at 2.7 s\n")
    assert f"note: times in {path} count from the beginning of the run" in out


SIGTERM = "W1130 09:30:22.889402  19022 preemption_notifier.cc:94] SIGTERM caught at 2026-11-30\n"


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (SIGTERM, 12, "preemption: a process was told to end (SIGTERM): a preemption"),
        (
            SIGTERM
            + "slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2026-11-30T09:30:22 DUE TO TIME "
            "LIMIT ***\n",
            10,
            "user-error: the job ran into its time limit",
        ),
    ],
)
def test_a_process_without_a_number_is_a_process(
    text: str, code: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "train.log"
    log.write_text(text)
    assert main(["explain", str(log)]) == code
    assert capsys.readouterr().out.startswith(words)


@pytest.mark.parametrize("folder", sorted(LOGS.iterdir()), ids=lambda folder: folder.name)
def test_no_rule_needs_to_know_whose_a_log_is(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, log in enumerate(sorted(folder.iterdir())):
        (tmp_path / f"{'abcd'[number]}.log").write_text(log.read_text())
    code = main(["explain", "--json", str(tmp_path)])
    told = json.loads(capsys.readouterr().out)
    assert (code == 0) == folder.name.startswith("all-is-well")
    assert "processes ()" not in json.dumps(told)
