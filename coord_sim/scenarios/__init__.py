"""Scenarios: what happens to a job, why, and what must come of it.

Files (`library/*.toml`) and Python say the same: see `Scenario`, and `docs/scenarios.md` for the format.
"""

from coord_sim.scenarios.expectations import Answers, Blocks, Ends, Expectations, Logs
from coord_sim.scenarios.judging import Finding, Judge, findings
from coord_sim.scenarios.problems import Problem, ScenarioError
from coord_sim.scenarios.reading import parse_scenario, read_scenario
from coord_sim.scenarios.running import Outcome, run_scenario
from coord_sim.scenarios.scenario import Scenario
from coord_sim.scenarios.shelf import names, scenario_named
from coord_sim.scenarios.wording import explained

__all__ = [
    "Answers",
    "Blocks",
    "Ends",
    "Expectations",
    "Finding",
    "Judge",
    "Logs",
    "Outcome",
    "Problem",
    "Scenario",
    "ScenarioError",
    "explained",
    "findings",
    "names",
    "parse_scenario",
    "read_scenario",
    "run_scenario",
    "scenario_named",
]
