"""Recorded histories of real systems get the verdicts that other checkers agree on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coord_sim.cli.main import main

PEERS = Path(__file__).parents[3] / "shared" / "data" / "peers"
SPECS = {
    "cas-register": "cas-register",
    "etcd-register": "cas-register",
    "kv": "kv",
    "multi-register": "multi-register",
    "mutex": "mutex",
}
SAMPLES = (
    ("bad-analysis.edn", "cas-register", "invalid"),
    ("c01-bad.txt", "kv", "invalid"),
    ("cas-failure.edn", "cas-register", "invalid"),
    ("etcd_000.log", "cas-register", "invalid"),
    ("etcd_038.log", "cas-register", "valid"),
    ("etcd_100.log", "cas-register", "valid"),
    ("immediate-failure.edn", "cas-register", "invalid"),
    ("memstress3-98.edn", "cas-register", "valid"),
    ("mongodb-v0-ack-rollback-.edn", "cas-register", "valid"),
    ("multi-register.edn", "multi-register", "valid"),
    ("rethink-fail-minimal.edn", "cas-register", "invalid"),
)
"""File, specification and verdict of those that a clone has."""

WORDS = {"linearizable": "valid", "not-linearizable": "invalid"}

SAMPLE_FOLDER = Path(__file__).parents[1] / "data" / "formats" / "peers"


def verdicts(
    spec: str, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> dict[str, dict[str, object]]:
    main(["check", "--json", "--spec", spec, *map(str, files)])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {Path(each["file"]).name: each for each in found}


@pytest.mark.skipif(not PEERS.is_dir(), reason="the recorded histories are not here")
@pytest.mark.parametrize("folder", SPECS)
def test_each_history_gets_its_expected_verdict(
    folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = (PEERS / folder / "expected.tsv").read_text().splitlines()
    expected = {name: WORDS[word] for name, word in (line.split("\t") for line in lines)}
    found = verdicts(SPECS[folder], [PEERS / folder / name for name in expected], capsys)
    assert {name: each["verdict"] for name, each in found.items()} == expected


@pytest.mark.parametrize(("name", "spec", "word"), SAMPLES)
def test_each_sample_gets_its_expected_verdict(
    name: str, spec: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = verdicts(spec, [SAMPLE_FOLDER / name], capsys)
    assert found[name]["verdict"] == word
