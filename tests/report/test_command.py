"""`coordlab report`: options, files, exit codes."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from checker import check
from checker.report import report_of_history
from coord_sim.cli import report
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import INVALID, VALID
from tests.executions import load

HISTORIES = {execution.name: execution.history for execution in load()}
BAD = HISTORIES["ghost-entry-of-a-restarted-caller"]
GOOD = HISTORIES["three-processes-all-alive"]


def run(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    report.add_parser(parser.add_subparsers())
    options = parser.parse_args(["report", *arguments])
    return int(options.run(options))


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = tmp_path / "run.jsonl"
    BAD.save(path)
    return str(path)


@pytest.mark.parametrize("suffix", ["html", "svg", "json", "txt"])
def test_the_suffix_chooses_the_form(
    suffix: str, path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / f"report.{suffix}"
    assert run(path, "--out", str(out)) == INVALID
    assert capsys.readouterr().out == f"{out}: {path} is invalid\n"
    expected = report_of_history(BAD, check(BAD), name="run.jsonl")
    again = tmp_path / f"again.{suffix}"
    expected.save(again)
    assert out.read_text() == again.read_text()


def test_a_format_overrides_the_suffix(path: str, tmp_path: Path) -> None:
    out = tmp_path / "trace"
    run(path, "--out", str(out), "--format", "json")
    assert json.loads(out.read_text())["traceEvents"]


def test_standard_output_is_text_unless_asked_otherwise(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(path, "--out", "-") == INVALID
    assert capsys.readouterr().out.startswith("run.jsonl: invalid (live_processes, ")
    run(path, "--out", "-", "--format", "svg")
    assert capsys.readouterr().out.startswith("<svg ")


def test_a_valid_history_ends_with_zero(tmp_path: Path) -> None:
    path = tmp_path / "good.jsonl"
    GOOD.save(path)
    assert run(str(path), "--out", str(tmp_path / "report.html")) == VALID


def test_an_unknown_suffix_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"use one of \.html, \.svg, \.json, \.txt, or --format"):
        run("missing.jsonl", "--out", str(tmp_path / "report.pdf"))


def test_an_unknown_specification_is_refused_with_a_list(path: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="'regster'; there are register, "):
        run(path, "--spec", "regster", "--out", str(tmp_path / "report.html"))
