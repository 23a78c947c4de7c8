"""What the jaxlib that is installed prints when jobs fail is understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_bridge.explain import explain
from jax_bridge.explain.logs import read_log
from tests.explain.failures import FAILURES, Failure, record_all

QUICK = [failure for failure in FAILURES if failure.is_quick]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of all these jobs, a folder each; they mostly wait, so that they run together."""
    folder = tmp_path_factory.mktemp("logs")
    problems = record_all(QUICK, folder)
    assert problems == {}
    return folder


@pytest.mark.jax
@pytest.mark.slow
@pytest.mark.parametrize("failure", QUICK, ids=lambda failure: failure.name)
def test_the_origin_is_ranked_first_and_every_error_known(failure: Failure, logs: Path) -> None:
    folder = logs / failure.name
    explanation = explain([folder], processes=failure.processes)
    found = explanation.causes[0] if explanation.causes else None
    assert (found.name if found else None) == failure.cause, explanation.to_json()
    if found is not None:
        assert found.processes == failure.culprits
    assert not [
        error for log in folder.glob("*.log") for one in read_log(log).logs for error in one.errors
    ]
