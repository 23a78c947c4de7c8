"""`coordlab check`: verdict lines, explanations, JSON, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from checker import check, read
from coord_sim.cli.ending import exit_code_of
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import worst
from coord_sim.cli.main import main
from tests.executions import load

VALID = "three-processes-all-alive"
INVALID = "overlapping-callers-told-different-sets"
ROUND_ONLY = "one-failure-cannot-serve-two-replies"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The executions of the guide as files, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for execution in load():
        execution.history.save(f"{execution.name}.jsonl")
    return tmp_path


AMBIGUOUS = """\
{"coordlab_history":0,"source":"manual","clock":"abstract","participants":[0,1],\
"cannot_know":["incarnations\\u001b[2J"]}
{"type":"start","time_ns":0,"process":1,"lifetime":0}
{"type":"start","time_ns":1,"process":0,"lifetime":0}
{"type":"invoke","time_ns":2,"process":0,"lifetime":0,"id":0,"operation":"live_processes"}
{"type":"leave","time_ns":3,"process":0,"lifetime":0}
{"type":"invoke","time_ns":4,"process":1,"lifetime":0,"id":1,"operation":"live_processes"}
{"type":"start","time_ns":5,"process":0,"lifetime":1}
{"type":"invoke","time_ns":6,"process":0,"lifetime":1,"id":2,"operation":"live_processes"}
{"type":"ok","time_ns":7,"process":1,"lifetime":0,"id":1,"result":{"0":null,"1":null}}
{"type":"ok","time_ns":8,"process":0,"lifetime":1,"id":2,"result":{"0":null,"1":null}}
"""
"""The answers do not tell which lifetime of process 0 they mean; only its second makes sense."""


def test_a_valid_history_gets_a_line_its_witness_and_exit_code_0(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", f"{VALID}.jsonl"]) == 0
    assert capsys.readouterr() == (f"{VALID}.jsonl: valid\n  1 round placed.\n", "")


def test_an_invalid_history_gets_its_explanation_and_exit_code_1(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = f"{INVALID}.jsonl"
    assert main(["check", path]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{path}: invalid (published: valid)"
    assert rest == [f"  {line}" for line in check(read(path)).explain().splitlines()]


FORGOTTEN = """\
{"coordlab_history":0,"source":"manual","clock":"abstract","participants":[0]}
{"type":"start","time_ns":0,"process":0,"lifetime":0,"incarnation":"5"}
{"type":"invoke","time_ns":1,"process":0,"lifetime":0,"id":0,"operation":"key_value_set",\
"arguments":{"key":"k","value":{"text":"1"}}}
{"type":"ok","time_ns":2,"process":0,"lifetime":0,"id":0,"result":null}
{"type":"invoke","time_ns":3,"process":0,"lifetime":0,"id":1,"operation":"key_value_try_get",\
"arguments":{"key":"k"}}
{"type":"fail","time_ns":4,"process":0,"lifetime":0,"id":1,"code":"NOT_FOUND","message":""}
"""


def test_without_live_sets_their_definitions_are_not_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "forgotten.jsonl"
    path.write_text(FORGOTTEN, encoding="utf-8")
    assert main(["check", str(path)]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{path}: invalid"
    assert sum("cannot have happened" in line for line in rest) == 1


def test_the_definition_can_be_chosen(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = f"{INVALID}.jsonl"
    assert main(["check", "--definition", "published", "--quiet", path]) == 0
    assert capsys.readouterr().out == f"{path}: valid\n"


def test_the_failure_model_can_be_chosen(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = "falsely-suspected-process-lives-on.jsonl"
    assert main(["check", "--quiet", path]) == 0
    assert main(["check", "--quiet", "--failures", "crash-stop", path]) == 1
    assert capsys.readouterr().out == f"{path}: valid\n{path}: invalid (published: invalid)\n"


def test_what_the_recorder_cannot_know_is_said_with_the_explanation_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(AMBIGUOUS)
    gap = r"  The recorder cannot know incarnations\x1b[2J."
    main(["check", str(path)])
    assert capsys.readouterr().out.splitlines()[-1] == gap
    main(["check", "--quiet", str(path)])
    assert gap not in capsys.readouterr().out


def test_an_unknown_verdict_has_exit_code_3_and_an_option_that_helps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(AMBIGUOUS)
    assert main(["check", "--matchings-max", "1", str(path)]) == 3
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: unknown (published: ")
    assert "raise matchings_max" in out
    assert main(["check", str(path)]) == 0


def test_every_file_is_checked_whatever_becomes_of_the_others(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = ["nowhere.jsonl", f"{VALID}.jsonl", f"{INVALID}.jsonl"]
    assert main(["check", "--quiet", *paths]) == 2
    out, err = capsys.readouterr()
    assert out == f"{paths[1]}: valid\n{paths[2]}: invalid (published: valid)\n"
    assert err == "coordlab: error: nowhere.jsonl: No such file or directory\n"
    assert main(["check", "--quiet", *paths[1:]]) == 1


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 0], 0), ([0, 3], 3), ([3, 1, 0], 1), ([1, 2, 3], 2), ([3, 2], 2)],
)
def test_the_worst_code_counts(codes: list[int], code: int) -> None:
    assert worst(codes) == code


def test_json_is_one_object_per_file(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [f"{VALID}.jsonl", f"{ROUND_ONLY}.jsonl", "nowhere.jsonl"]
    assert main(["check", "--json", *paths]) == 2
    out, err = capsys.readouterr()
    valid, invalid, unreadable = (json.loads(line) for line in out.splitlines())
    [live] = valid.pop("objects")
    assert live.pop("seconds") >= 0
    assert live == {
        "object": "live set",
        "operations": 3,
        "verdict": "valid",
        "algorithm": "rounds",
        "reason": "",
    }
    assert valid == {
        "file": paths[0],
        "verdict": "valid",
        "definition": "round",
        "failures": "suspicion",
        "published": "valid",
        "events": 9,
        "explanation": "1 round placed.",
        "notes": [],
        "cannot_know": [],
        "clocks": [],
    }
    assert invalid["verdict"] == "invalid"
    anomaly = invalid["anomaly"]
    assert anomaly["kind"] == "left-out-while-alive"
    assert anomaly["processes"] == [0, 1, 2]
    assert anomaly["operations"] == [2, 3, 7]
    assert all(reason.keys() == {"before", "after", "because"} for reason in anomaly["cycle"])
    assert unreadable == {
        "file": "nowhere.jsonl",
        "error": "nowhere.jsonl: No such file or directory",
    }
    assert err == "coordlab: error: nowhere.jsonl: No such file or directory\n"


def test_json_and_quiet_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["check", "--json", "--quiet", "run.jsonl"])
    assert caught.value.code == 2
    assert "not allowed with argument" in capsys.readouterr().err


def test_a_torn_last_line_is_a_note_on_standard_error(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(f"{VALID}.jsonl")
    path.write_text(path.read_text()[:-5])
    assert main(["check", "--quiet", str(path)]) == 0
    assert capsys.readouterr() == (
        f"{path}: valid\n",
        f"coordlab: {path}: line 10 is cut off (the recorder was killed?) and was skipped\n",
    )


def test_names_from_the_file_cannot_command_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a\x1b[31m\nb.jsonl"
    path.write_text(AMBIGUOUS)
    main(["check", str(path)])
    main(["show", str(path)])
    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert out.startswith(f"{tmp_path}/a\\x1b[31m\\nb.jsonl: ")


@pytest.mark.parametrize("command", ["check", "show"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    assert f"  coordlab {command} " in capsys.readouterr().out


def test_a_command_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2


def test_an_interrupted_command_has_exit_code_130(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert exit_code_of(interrupted) == 130
    assert capsys.readouterr() == ("", "coordlab: interrupted\n")


def test_a_command_error_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def failing() -> int:
        raise CommandError("no\nway")

    assert exit_code_of(failing) == 2
    assert capsys.readouterr() == ("", "coordlab: error: no\\nway\n")


# --- as a process of its own ---


def coordlab(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "coord_sim.cli.main", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


def test_the_installed_command_tells_its_version() -> None:
    done = coordlab("--version")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        f"coordlab {metadata.version('coordlab')}\n",
        "",
    )


def test_an_output_that_knows_only_ascii_gets_ascii(files: Path) -> None:
    for command in ("check", "show"):
        done = coordlab(command, f"{INVALID}.jsonl", PYTHONIOENCODING="ascii")
        assert done.stderr == ""
        assert done.stdout.isascii()
        assert "invalid" in done.stdout


def test_a_reader_that_is_gone_before_the_verdict_is_no_error_of_the_file(files: Path) -> None:
    command = [sys.executable, "-m", "coord_sim.cli.main", "check", f"{INVALID}.jsonl"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=files
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 141


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    invoke = '"type":"invoke","time_ns":9,"process":1,"lifetime":0,"operation":"x"'
    calls = [f'{{{invoke},"id":{number}}}' for number in range(10, 10_000)]
    path.write_text(AMBIGUOUS + "\n".join(calls))
    process = subprocess.Popen(
        [sys.executable, "-m", "coord_sim.cli.main", "show", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline().startswith("time  process 0")
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141
    process.stderr.close()
