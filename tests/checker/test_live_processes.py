"""The fast algorithms against the definition in executable form."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings

from checker import Invalid, LiveProcesses, Unknown, Valid, check
from checker.history import History
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from tests import executions
from tests.oracles.live_processes import is_valid
from tests.random_histories import histories, random_history

READINGS = [(d, f) for d in DEFINITIONS for f in FAILURE_MODELS]


def verdict(history: History, reading: tuple[str, str]) -> Valid | Invalid | Unknown:
    """The verdict of the fast algorithm."""
    definition, failures = reading
    return check(history, LiveProcesses(definition=definition, failures=failures))  # type: ignore[arg-type]


@pytest.mark.parametrize("execution", executions.load(), ids=lambda execution: execution.name)
def test_each_execution_of_the_guide_has_the_expected_verdict(
    execution: executions.Execution,
) -> None:
    for reading, expected in execution.expect.items():
        found = verdict(execution.history, reading)
        assert isinstance(found, Valid if expected else Invalid), found.explain()


@pytest.mark.parametrize("reading", READINGS, ids="-".join)
def test_the_checker_agrees_with_the_oracle_on_thousands_of_seeded_histories(
    reading: tuple[str, str],
) -> None:
    definition, failures = reading
    for seed in range(2500):
        history = random_history(random.Random(seed))
        expected = is_valid(history, definition=definition, failures=failures)
        found = verdict(history, reading)
        assert not isinstance(found, Unknown), f"seed {seed}: {found.explain()}"
        assert isinstance(found, Valid) is expected, f"seed {seed}: {found.explain()}"


@settings(deadline=None)
@given(histories())
def test_the_checker_agrees_with_the_oracle_on_drawn_histories(history: History) -> None:
    for definition, failures in READINGS:
        found = verdict(history, (definition, failures))
        expected = is_valid(history, definition=definition, failures=failures)
        assert isinstance(found, Valid if expected else Invalid), found.explain()
