"""What jaxlib printed when jobs failed, as it was recorded, is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_bridge.explain import KNOWN_MESSAGES, explain
from jax_bridge.explain.logs import read_log
from tests.explain.failures import FAILURES, KEPT, Failure

VERSIONS = sorted(path.name for path in KEPT.iterdir() if path.is_dir())


def known_in(folder: Path) -> set[str]:
    """The names of all messages that the logs in a folder show."""
    return {
        name for log in folder.rglob("*.log") for one in read_log(log).logs for name in one.counts
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_the_origin_is_ranked_first(failure: Failure, version: str) -> None:
    explanation = explain([KEPT / version / failure.name], processes=failure.processes)
    found = explanation.causes[0] if explanation.causes else None
    assert (found.name if found else None) == failure.cause
    if found is not None:
        assert found.processes == failure.culprits
        assert found.evidence


def test_exactly_the_rows_that_are_marked_recorded_stand_in_a_log() -> None:
    recorded = {message.name for message in KNOWN_MESSAGES if message.recorded}
    assert known_in(KEPT) == recorded


@pytest.mark.parametrize("version", VERSIONS)
def test_no_error_of_jaxlib_is_unknown(version: str) -> None:
    unknown = [
        error.text
        for log in (KEPT / version).rglob("*.log")
        for one in read_log(log).logs
        for error in one.errors
    ]
    assert unknown == []


def test_evidence_is_the_line_of_the_file_that_it_quotes() -> None:
    folder = KEPT / VERSIONS[0] / "killed-peer"
    for cause in explain([folder]).causes:
        for evidence in cause.evidence:
            lines = Path(evidence.path).read_text().split("\n")
            quote = evidence.text.lstrip("…").rstrip("…")
            assert quote in " ".join(" ".join(lines[evidence.line - 1 :]).split())
