"""The arms of a comparison: one case on one service, held against the simulator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from coord_sim.sim import Run
from coord_sim.sim.case import Case
from jax_bridge.differential.comparison import VARIATIONS, Comparison, Verdict, compare
from jax_bridge.scenario_runs import MODEL, REAL, WORKLOADS, NotForProcesses, Setting, run_for_real

SERVICES = (MODEL, REAL)


@dataclass(frozen=True, slots=True)
class Arm:
    """A case on a service of real processes.

    Attributes:
      case: What was run.
      service: `real` (jaxlib's) or `model` (ours).
      run: What came of it.
      comparison: Of the run with the simulator.
      folder: With the history, and what the processes printed.
    """

    case: Case
    service: str
    run: Run
    comparison: Comparison
    folder: Path


def run_arm(
    case: Case, service: str, folder: Path, verdict: Verdict, *, variations: int = VARIATIONS
) -> Arm:
    """Runs a case on real processes and looks for it in the simulator.

    Call it in the main thread of a process: the launcher forks.

    Args:
      case: What to run.
      service: `real` or `model`.
      folder: For the history `SERVICE.jsonl`, and `SERVICE.run` with what the processes printed.
      verdict: Judges histories.
      variations: How many timings to try.

    Raises:
      NotForProcesses: the case cannot be run so.
      LaunchFailed: the service did not come up.
    """
    if case.program in WORKLOADS:
        raise NotForProcesses(
            f"real processes run {WORKLOADS[case.program]} in place of {case.program}, which makes "
            "other calls"
        )
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{service}.jsonl"
    setting = Setting(service=service, out=out)
    run = run_for_real(case.program, dict(case.arguments), case.schedule, setting)
    comparison = compare(case, run, verdict, variations=variations)
    return Arm(case, service, run, comparison, folder)


def other_service(service: str) -> str:
    """The service that is not this one."""
    return MODEL if service == REAL else REAL


def cut_at(case: Case, limit_s: float) -> Case:
    """The case with a shorter time; both sides are cut at the same one."""
    schedule = case.schedule
    return replace(case, schedule=replace(schedule, limit_s=min(schedule.limit_s, limit_s)))
