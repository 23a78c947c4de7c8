"""`coordlab convert`."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from checker.formats import read_operations
from coord_sim.cli import convert
from coord_sim.cli.ending import exit_code_of
from tests.formats.samples import PEERS, WRITTEN, calls


def run(*arguments: object) -> int:
    return _run([str(argument) for argument in arguments])


def _run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser()
    convert.add_parser(parser.add_subparsers(required=True))
    options = parser.parse_args(["convert", *arguments])
    return exit_code_of(lambda: int(options.run(options)))


@pytest.mark.parametrize("format_", convert.FORMATS)
def test_a_history_is_converted(format_: str, tmp_path: Path) -> None:
    source, target = PEERS / "etcd_038.log", tmp_path / "out"
    assert run(source, target, "--to", format_) == 0
    assert calls(read_operations(target)) == calls(read_operations(source))


def test_to_standard_output(capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress((WRITTEN / "operations.json").read_bytes()))
    assert run(packed, "-", "--to", "porcupine") == 0
    written, said = capsysbinary.readouterr()
    assert [operation["ClientId"] for operation in json.loads(written)] == [0, 1, 2, 1]
    assert said == b""


def test_independent_keys(tmp_path: Path) -> None:
    target = tmp_path / "out"
    assert run(WRITTEN / "maelstrom.edn", target, "--to", "jsonl") == 0
    assert read_operations(target).at(0).key == 0
    assert run(WRITTEN / "maelstrom.edn", target, "--to", "jsonl", "--no-independent") == 0
    assert read_operations(target).at(0).key is None


def test_notes_of_the_reader_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(WRITTEN / "history.txt", tmp_path / "out", "--to", "edn") == 0
    assert "history.txt: 1 line of the log is no event" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "{:process 0, :type :ok, :f :read}\n",
            "history:1: field 'process': process 0 has no open",
        ),
        ("noise\n", "history: this is no history that can be read here"),
        (
            "{:process 0, :type :invoke, :f :write, :value ##Inf}\n",
            "history cannot be written as jsonl: inf cannot be written as JSON",
        ),
        (
            "{:process 0, :type :invoke, :f :live_processes}\n",
            "needs lifetimes",
        ),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    text: str, problem: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = tmp_path / "history"
    source.write_text(text, encoding="utf-8")
    assert run(source, tmp_path / "out", "--to", "jsonl") == 2
    output, said = capsys.readouterr()
    assert output == ""
    (line,) = said.splitlines()
    assert line.startswith("coordlab: error: ")
    assert problem in line
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_opened(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(tmp_path / "none", "-", "--to", "edn") == 2
    assert "No such file or directory" in capsys.readouterr().err
    missing = tmp_path / "none" / "out"
    assert run(WRITTEN / "history.edn", missing, "--to", "edn") == 2
    assert "No such file or directory" in capsys.readouterr().err
