"""Runs scenarios in the simulator."""

from __future__ import annotations

from dataclasses import dataclass

from coord_sim.errors import ScheduleError
from coord_sim.scenarios.judging import Finding, Judge, findings
from coord_sim.scenarios.scenario import SIMULATOR, Scenario
from coord_sim.sim import Run, simulate


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a scenario.

    Attributes:
      scenario: What was run.
      run: What happened.
      findings: One for each expectation and process.
    """

    scenario: Scenario
    run: Run
    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether all expectations were met."""
        return all(finding.holds for finding in self.findings)


def run_scenario(
    scenario: Scenario, judge: Judge, *, seed: int | None = None, semantics: str | None = None
) -> Outcome:
    """Runs a scenario and holds its expectations against the run.

    Args:
      scenario: What to run.
      judge: Gives the verdicts.
      seed: Instead of the scenario's.
      semantics: Of the service, instead of the scenario's.

    Raises:
      ScheduleError: it does not run in the simulator, or there are no such semantics.
    """
    if SIMULATOR not in scenario.runs_on:
        raise ScheduleError(
            f"{scenario.name} runs on real processes only (runs_on); coordlab run --scenario runs it"
        )
    schedule = scenario.under(seed=seed, semantics=semantics)
    run = simulate(scenario.make_program(), schedule)
    expect = scenario.expectations(schedule.semantics)
    return Outcome(scenario, run, tuple(findings(expect, run, judge)))
