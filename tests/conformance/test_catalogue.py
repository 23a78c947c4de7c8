"""Every scenario on every service and client, against each other and against the record.

The whole catalogue runs at once, before the first test: its scenarios wait for real time.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.catalogue import SCENARIOS
from tests.conformance.report import DOCUMENT, document, versions
from tests.conformance.run import Results, failures, jaxlib_version, load, record, run_catalogue


@pytest.fixture(scope="session")
def results(request: pytest.FixtureRequest) -> Results:
    """Of the scenarios whose tests were selected."""
    chosen = {
        item.callspec.params["number"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == CATALOGUE_TEST
    }
    return asyncio.run(
        run_catalogue([SCENARIOS[number] for number in SCENARIOS if number in chosen])
    )


@pytest.mark.jax
@pytest.mark.slow
@pytest.mark.parametrize("number", list(SCENARIOS))
def test_scenario_is_the_same_on_everything(number: str, results: Results) -> None:
    scenario = SCENARIOS[number]
    wrong = failures(scenario, results)
    replay = f"replay: python -m tests.conformance.run {number} --service both"
    if wrong:
        pytest.fail("\n".join([f"{number}: {scenario.title}", *wrong, replay]), pytrace=False)
    assert record(scenario, results) == load(jaxlib_version())[number], (
        f"the record in tests/data/fidelity is of another run; {replay}"
    )


CATALOGUE_TEST = test_scenario_is_the_same_on_everything.__name__


def test_every_supported_jaxlib_has_a_record_of_the_whole_catalogue() -> None:
    assert versions() == ["0.10.2", "0.12.0.1"]
    for version in versions():
        assert list(load(version)) == list(SCENARIOS)


def test_the_fidelity_page_is_what_the_records_say() -> None:
    assert DOCUMENT.read_text() == document(), "run: python -m tests.conformance.report"
