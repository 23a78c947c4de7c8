"""Every known-wrong variant is caught, by the check that should; what is right is not."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields

import pytest

from checker import Invalid, LiveProcesses, check
from checker.live_processes.spec import FailureModel
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.service import CoordinationService
from coord_sim.explore import Bounds
from coord_sim.mutants import CATALOGUE, find, service_mutants
from coord_sim.mutants.catalogue import LIVE_SETS, NOTHING
from coord_sim.sim.data_plane import WITHOUT_INCARNATIONS
from coord_sim.sim.wrong_blocks import wrong_blocks
from tests.mutants.campaigns import CAMPAIGNS
from tests.mutants.catches import (
    CAMPAIGN_CATCHES,
    EXPLORER_CATCHES,
    HARMLESS,
    HARMLESS_CAMPAIGNS,
    RETRYING,
    SMALL,
)
from tests.mutants.exploring import explored


@pytest.mark.parametrize("name", CAMPAIGN_CATCHES)
def test_the_campaign_catches_it_within_its_seeds(name: str) -> None:
    expected = CAMPAIGN_CATCHES[name]
    campaign = CAMPAIGNS[expected.campaign]
    for seed in range(expected.seeds):
        for check_, words in campaign.complaints(seed, name):
            if check_ == expected.check:
                assert expected.words in words, f"seed {seed}"
                return
    pytest.fail(f"not caught by {expected.check} within {expected.seeds} seeds")


@pytest.mark.parametrize("name", CAMPAIGNS)
def test_the_same_campaign_finds_no_fault_with_the_published_service(name: str) -> None:
    limits = [each.seeds for each in CAMPAIGN_CATCHES.values() if each.campaign == name]
    for seed in range(max([*limits, HARMLESS_CAMPAIGNS.get(name, 0)])):
        assert list(CAMPAIGNS[name].complaints(seed)) == [], f"seed {seed}"


@pytest.mark.parametrize("name", EXPLORER_CATCHES)
def test_the_explorer_catches_it_and_the_checker_agrees(name: str) -> None:
    expected = EXPLORER_CATCHES[name]
    found = explored(service_mutants[name], expected.bounds, failures=expected.failures).violation
    assert found is not None
    assert found.kind == expected.kind
    if expected.words:
        verdict = check(found.history, LiveProcesses(failures=expected.failures))
        assert isinstance(verdict, Invalid)
        assert expected.words in verdict.explain()


@pytest.mark.parametrize("bounds", [SMALL, RETRYING], ids=["crash-stop", "suspicion"])
def test_the_explorer_finds_no_fault_with_the_published_service(bounds: Bounds) -> None:
    failures: FailureModel = "suspicion" if bounds.suspicions else "crash-stop"
    found = explored(CoordinationService, bounds, failures=failures)
    assert found.is_exhausted
    assert found.violation is None


@pytest.mark.parametrize("name", HARMLESS)
def test_a_deviation_that_is_called_harmless_shows_in_no_history(name: str) -> None:
    found = explored(service_mutants[name], RETRYING)
    assert found.is_exhausted
    assert found.violation is None
    for campaign, seeds in HARMLESS_CAMPAIGNS.items():
        for seed in range(seeds):
            assert list(CAMPAIGNS[campaign].complaints(seed, name)) == [], (campaign, seed)


# --- the catalogue -------------------------------------------------------------------------------


def test_every_mutant_is_caught_somehow_by_the_check_that_the_catalogue_names() -> None:
    assert {*CAMPAIGN_CATCHES, *EXPLORER_CATCHES, *HARMLESS} == set(CATALOGUE)
    for name, mutant in CATALOGUE.items():
        assert (mutant.breaks == NOTHING) == (name in HARMLESS)
        if name in CAMPAIGN_CATCHES:
            assert mutant.breaks == CAMPAIGN_CATCHES[name].check
        elif name in EXPLORER_CATCHES:
            assert mutant.breaks == LIVE_SETS


def test_the_catalogue_has_the_mutants_of_client_and_data_plane_and_no_others() -> None:
    by_side = Counter(mutant.side for mutant in CATALOGUE.values())
    assert set(by_side) == {"service", "client", "data plane"}
    of = {side: {m.name for m in CATALOGUE.values() if m.side == side} for side in by_side}
    assert of["client"] == set(wrong_blocks)
    assert of["data plane"] == {WITHOUT_INCARNATIONS}
    assert of["service"] == set(service_mutants)


def test_there_is_a_mutant_for_each_deviation_of_the_service_as_shipped() -> None:
    deviations = {
        field.name
        for field in fields(Semantics)
        if field.name != "name" and getattr(SHIPPED, field.name) != field.default
    }
    assert {mutant.switch for mutant in CATALOGUE.values() if mutant.switch} == deviations


def test_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(LookupError, match="did you mean 'keeps-ghost-entries'"):
        find("keep-ghost-entry")
    assert find("answers-differ").service is service_mutants["answers-differ"]
