"""All recorded histories with known verdicts can be read, if the folder with them is there."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from checker.formats import read_operations
from tests.formats.samples import ROOT

PEERS = ROOT.parent / "shared" / "data" / "peers"
COUNTS = {"cas-register": 64, "etcd-register": 52, "kv": 5, "multi-register": 1, "mutex": 1}

pytestmark = pytest.mark.skipif(not PEERS.is_dir(), reason="the recorded histories are not here")


def files(folder: str) -> list[Path]:
    return sorted(path for path in (PEERS / folder).iterdir() if path.suffix != ".tsv")


@pytest.mark.parametrize("folder", COUNTS)
def test_every_history_is_read_whole(folder: str) -> None:
    paths = files(folder)
    assert len(paths) == COUNTS[folder]
    for path in paths:
        history = read_operations(path)
        text = path.read_text(encoding="utf-8")
        # Each call is one invocation in the text, in whichever notation.
        assert len(history) == text.count(":invoke"), path.name
        assert sum(event < 0 for event in history.events) == text.count(":ok") + text.count(":fail")


def test_the_logs_of_etcd_are_read_in_a_blink() -> None:
    """A tenth of a second on an idle machine; the limit is loose."""
    begin = time.process_time()
    for path in files("etcd-register"):
        read_operations(path)
    assert time.process_time() - begin < 5
