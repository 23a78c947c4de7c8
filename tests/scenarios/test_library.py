"""The scenarios that are shipped: each comes to what it expects, with any seed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from coord_sim.cli.scenarios import verdict_word
from coord_sim.scenarios import Scenario, names, run_scenario, scenario_named
from coord_sim.scenarios.shelf import LIBRARY
from coord_sim.sim.programs import PROGRAMS

SEEDS = range(5)

WANTED = {
    "missing-task",
    "staggered-start",
    "restart-into-live-session",
    "stale-endpoint",
    "two-jobs-one-coordinator",
    "single-reset",
    "stall",
    "alive-but-stuck",
    "leader-leaves-first",
    "late-leaver",
    "early-leaver",
    "barrier-id-drift",
    "preempt-one",
    "duplicate-id-child",
    "thundering-register",
    "blackhole-port",
    "late-dns",
    "service-stall",
    "service-killed",
    "service-restarted",
    "ghost-entry",
    "zombie-writes",
    "two-deaths-one-tick",
    "implicit-rendezvous",
    "mismatched-programs",
    "raise-in-block",
    "rank-raises-waits-in-exit-barrier",
    "one-way-partition",
    "host-loss",
    "clock-drift",
    "slow-process",
    "flapping",
    "long-compilation",
    "key-set-twice",
}

HARMLESS = {"short-stall", "short-partition", "lossy-network"}
"""Scenarios that say: this fault changes nothing."""


def run_with(scenario: Scenario, seed: int, semantics: str) -> list[str]:
    """What does not hold."""
    outcome = run_scenario(scenario, verdict_word, seed=seed, semantics=semantics)
    return [
        f"{finding.expected}: {finding.found}" for finding in outcome.findings if not finding.holds
    ]


@pytest.mark.parametrize("name", names())
def test_a_scenario_comes_to_what_it_expects_with_every_seed(name: str) -> None:
    scenario = scenario_named(name)
    for semantics in ("shipped", "published"):
        for seed in SEEDS:
            wrong = run_with(scenario, seed, semantics)
            assert not wrong, f"seed {seed}, {semantics}: {wrong}"


def without_its_cause(scenario: Scenario) -> Scenario:
    """The same job where all start at once, each in its place, and nothing goes wrong."""
    healthy = replace(
        scenario.schedule,
        faults=(),
        starts_s=(),
        places=(),
        tasks=None,
        services=1,
        client_heartbeat_timeout_s=None,
        service_in=None,
    )
    return replace(scenario, schedule=healthy)


@pytest.mark.parametrize("name", names())
def test_the_expectations_can_fail(name: str) -> None:
    scenario = scenario_named(name)
    healthy = without_its_cause(scenario)
    if healthy == scenario:
        return  # The program itself is what is wrong: see below.
    wrong = run_with(healthy, 0, "shipped")
    assert bool(wrong) != (name in HARMLESS), "it expects nothing that a healthy job does not show"


OTHER_ARGUMENTS: dict[str, dict[str, object]] = {
    "alive-but-stuck": {},
    "crossed-blocks": {},
    "mismatched-programs": {},
    "barrier-id-drift": {},
    "reported-error": {},
    "rank-raises-waits-in-exit-barrier": {},
    "never-announced": {"announcer": 0},
    "late-leaver": {"apart": 2},
    "early-leaver": {"apart": 2},
    "raise-in-block": {"raises": 1, "raises_at": 99},
    "stuck-in-live-devices": {"raises": 1},
    "barrier-reused-too-early": {"late": 2, "late_s": 1.0},
    "preempt-one": {"notified": 1, "notice_s": 99.0},
    "preempt-agreed": {"notified": 1, "notice_s": 99.0},
    "implicit-rendezvous": {},
    "key-replaced": {},
}
"""With these the programs of some scenarios are not wrong any more."""


@pytest.mark.parametrize("name", OTHER_ARGUMENTS)
def test_with_another_argument_of_its_program_a_scenario_does_not_come_to_the_same(
    name: str,
) -> None:
    scenario = replace(scenario_named(name), arguments=OTHER_ARGUMENTS[name])
    assert run_with(scenario, 0, "shipped")


def test_what_no_fault_causes_is_caused_by_the_program() -> None:
    by_program = {
        name for name in names() if without_its_cause(scenario_named(name)) == scenario_named(name)
    }
    assert by_program <= {*OTHER_ARGUMENTS, "key-set-twice"}


def test_the_library_has_what_was_asked_for() -> None:
    assert len(names()) >= 30
    assert set(names()) >= WANTED


@pytest.mark.parametrize("name", names())
def test_a_scenario_is_named_as_its_file_and_says_what_and_why(name: str) -> None:
    scenario = scenario_named(name)
    assert scenario.name == name
    assert len(scenario.title) <= 100
    assert len(scenario.what) > 60
    assert len(scenario.why) > 60
    assert scenario.sources
    for source in scenario.sources:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+", source)
    for line in (LIBRARY / f"{name}.toml").read_text(encoding="utf-8").split("\n"):
        assert len(line) <= 120


def test_no_program_has_an_argument_called_name() -> None:
    assert not [name for name, make in PROGRAMS.items() if "name" in make.__annotations__]
