"""`coordlab campaign`: output, files, exit codes, interruptions."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from checker import read
from coord_sim.cli.main import main

SMALL = ["--argument", "step_s=0.2", "--steps", "2"]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    code = main(["campaign", *SMALL, "--json", *words])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A campaign on the service as shipped: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("campaign") / "found"
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert main(["campaign", *SMALL, "--runs", "200", "--out", str(folder)]) == 1
    return folder, printed.getvalue()


def test_failures_are_shrunk_kept_and_replayed(
    found: tuple[Path, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder, printed = found
    commands = [line for line in printed.splitlines() if "replay: " in line]
    kept = sorted(folder.glob("seed-*"))
    assert len(commands) == len(kept) >= 1
    for command in commands:
        words = shlex.split(command.partition("replay: ")[2])
        assert words[:2] == ["coordlab", "campaign"]
        assert main(words[1:]) == 1
        again = capsys.readouterr().out
        case = Path(words[words.index("--replay") + 1])
        explanation = (case.parent / "explanation.txt").read_text()
        assert again.splitlines()[1] in explanation
        assert command.strip() in explanation
        assert main([*words[1:], "--out", str(tmp_path / "again"), "--json"]) == 1
        assert json.loads(capsys.readouterr().out)["kind"] in explanation
        kept_history = case.parent / "history.jsonl"
        assert (tmp_path / "again" / "history.jsonl").read_bytes() == kept_history.read_bytes()
        assert read(kept_history).events


def test_failures_of_live_sets_become_scenarios_and_commands(
    found: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    commands = re.findall(r"^ +without a file: coordlab (.*)", found[1], re.MULTILINE)
    assert commands
    for command in commands:
        assert main(shlex.split(command)) == 1
    scenarios = list(found[0].glob("seed-*/scenario.toml"))
    assert scenarios
    for scenario in scenarios:
        assert main(["scenarios", "--check", str(scenario)]) == 0
        assert main(["simulate", "--scenario", str(scenario)]) == 1
        assert "FAILS  round under suspicion: valid" in capsys.readouterr().out
        assert main(["simulate", "--replay", str(scenario.parent / "run.tape")]) == 1
        assert "the code has changed" not in capsys.readouterr().out


def test_what_was_reached_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["campaign", *SMALL, "--runs", "50", "--semantics", "published"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "50 runs of training_loop, 3 processes, published semantics, seeds 0 to 49",
        "none failed; ",
        "states of the service: ",
        "of them in one run only, ",
        "round with all ",
        "never reached: killed in barrier",
        "faults drawn: crash ",
    ):
        assert words in printed


def test_json_tells_the_same_with_more_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", "60", "--stop-after", "0", "--no-shrink"]
    code, alone = told(capsys, *words)
    assert (code, told(capsys, *words, "--jobs", "2")) == (1, (1, alone))
    assert alone["runs"] == 60
    assert alone["failed"] == sum(alone["kinds"].values()) > 0
    assert {each["kind"] for each in alone["shrunk"]} == set(alone["kinds"])
    assert alone["states"]["seen"] >= alone["states"]["seen_once"]


def test_a_program_of_ones_own_is_blamed_for_its_bugs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "async def train(process):\n"
        "    live = await process.client.get_live_nodes(process.participants)\n"
        "    if len(live) < 3:\n"
        "        raise LookupError('who is it that is missing?')\n"
        "    await process.client.shutdown()\n"
    )
    folder = str(tmp_path / "found")
    words = ["campaign", "--program", f"{file}:train", "--semantics", "published", "--runs", "100"]
    assert main([*words, "--out", folder]) == 1
    printed = capsys.readouterr().out
    assert "the program raised LookupError" in printed
    assert "mine.py:4 in train" in printed
    assert main(["campaign", "--replay", str(next(Path(folder).glob("*/case.json")))]) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--program", "trainig_loop"], "trainig_loop"),
        (["--program", "no_such_module:train"], "cannot import no_such_module"),
        (["--argument", "stepz=3"], "stepz"),
        (["--resume"], "--resume needs the --out"),
        (["--replay", "no-such-file.json"], "no-such-file.json"),
        (["--replay", "pyproject.toml"], "pyproject.toml: no JSON"),
        (["--loss", "2"], "loss"),
        (["--job", "durabel=true"], "durable"),
        (["--kind", "earthquake"], "invalid choice: 'earthquake'"),
        (["--runs", "0"], "whole number from 1 on"),
        (["--dask", "tcp://127.0.0.1:9", "--jobs", "2"], "not allowed with"),
    ],
)
def test_bad_input_is_one_line(
    words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["campaign", *words])
    except SystemExit as exit_:  # From the parser.
        code = int(str(exit_.code))
    captured = capsys.readouterr()
    assert code == 2
    assert complaint in captured.err
    assert "Traceback" not in captured.err
    assert not captured.out


def test_a_campaign_does_not_overwrite_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["campaign", *SMALL, "--runs", "10", "--out", str(tmp_path), "--semantics", "published"]
    assert main(words) == 0
    assert main(words) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*words, "--processes", "2", "--resume"]) == 2
    assert "is another campaign" in capsys.readouterr().err
    assert main([*words, "--runs", "20", "--resume"]) == 0
    assert "20 runs" in capsys.readouterr().out


def test_crash_stop_with_stalls_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["campaign", *SMALL, "--runs", "5", "--failures", "crash-stop"]
    main([*words, "--semantics", "published", "--no-stalls"])
    assert "note" not in capsys.readouterr().err
    main(words)
    assert "see --no-stalls" in capsys.readouterr().err


# --- interruptions -------------------------------------------------------------------------------


@contextmanager
def campaign(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "coord_sim.cli.main", "campaign", *SMALL, *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.05)


def members(session: int) -> list[int]:
    """The processes of a session, from /proc; those that are dead already do not count."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdigit():
            try:
                fields = (each / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(each.name))
    return found


def test_a_killed_campaign_leaves_nobody_and_is_resumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "long"
    words = ["--semantics", "published", "--stop-after", "0"]
    endless = [*words, "--runs", "1000000", "--jobs", "2", "--out", str(folder)]
    with campaign(*endless) as process:
        wait_until((folder / "campaign.json").exists, "nothing was saved")
        assert len(members(process.pid)) >= 3
        process.kill()
        process.wait()
        wait_until(lambda: not members(process.pid), "its workers live on")
    known = json.loads((folder / "campaign.json").read_text())["statistics"]["runs"]
    runs = str(known + 20)
    code, resumed = told(capsys, *words, "--runs", runs, "--out", str(folder), "--resume")
    assert (code, resumed) == (0, told(capsys, *words, "--runs", runs)[1])


def test_an_interrupted_campaign_says_what_it_knows(tmp_path: Path) -> None:
    folder = tmp_path / "long"
    words = ["--semantics", "published", "--runs", "1000000", "--jobs", "2", "--out", str(folder)]
    with campaign(*words) as process:
        wait_until((folder / "campaign.json").exists, "nothing was saved")
        os.killpg(process.pid, signal.SIGINT)  # As Ctrl-C does: the workers too.
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "interrupted after" in err
    assert "runs of training_loop" in out
    assert "digest" in out
    wait_until(lambda: not members(process.pid), "its workers live on")
    known = json.loads((folder / "campaign.json").read_text())["statistics"]
    assert known["digest"] in out
