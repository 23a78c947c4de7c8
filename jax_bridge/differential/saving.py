"""A difference as a folder: the scenario, the histories of all arms, and what differs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

from coord_sim.scenarios import Ends, Expectations, Scenario
from coord_sim.scenarios.scenario import PROCESSES, SIMULATOR
from coord_sim.scenarios.writing import to_toml
from coord_sim.sim.case import Case
from jax_bridge.differential.arms import Arm

SCENARIO: Final = "scenario.toml"
STORY: Final = "difference.txt"
_SHOWN_MAX: Final = 40


def save_difference(folder: Path, name: str, arm: Arm, other: Arm | None, note: str) -> None:
    """Writes the folder of a difference; what was there is replaced.

    Args:
      folder: To write.
      name: Of the scenario.
      arm: What differs.
      other: The same case on the other service, if it can be run there.
      note: How it was found and made small.
    """
    if folder.exists():
        shutil.rmtree(folder)
    shutil.copytree(arm.folder, folder)
    if other is not None:
        shutil.copytree(other.folder, folder, dirs_exist_ok=True)
    arm.comparison.simulated.history.save(folder / "simulator.jsonl")
    scenario = scenario_of(name, arm)
    (folder / SCENARIO).write_text(to_toml(scenario), encoding="utf-8")
    command = f"coordlab diff --service {arm.service} --scenario {folder / SCENARIO}"
    text = "\n".join([*story_of(arm), "", note, *_beside(other), f"again: {command}"])
    (folder / STORY).write_text(text + "\n", encoding="utf-8")


def _beside(other: Arm | None) -> list[str]:
    """What came of the same case on the other service."""
    if other is None:
        return []
    if other.comparison.is_same:
        return [f"On the {other.service} service: as in the simulator."]
    return ["", "On the other service:", *story_of(other), ""]


def scenario_of(name: str, arm: Arm) -> Scenario:
    """The case as a scenario, which expects the ends that the simulator shows."""
    case: Case = arm.case
    states: dict[str, list[int]] = {}
    for end in arm.comparison.simulated.ends:
        states.setdefault(end.state, []).append(end.process)
    return Scenario(
        name=name,
        title=f"Real processes on the {arm.service} service differ from the simulator",
        what="Found by `coordlab diff`. What is expected is what the simulator shows.\n",
        why=f"{first_difference(arm)}.\n",
        runs_on=(SIMULATOR, PROCESSES),
        schedule=case.schedule,
        program=case.program,
        arguments=dict(case.arguments),
        expect=Expectations(
            ends=tuple(
                Ends(processes=tuple(processes), state=state) for state, processes in states.items()
            )
        ),
    )


def first_difference(arm: Arm) -> str:
    """The earliest difference of the coarsest level, in words."""
    comparison = arm.comparison
    if not comparison.differences:
        real, simulated = comparison.verdicts
        return f"the checker calls the real run {real}, and the simulator's {simulated}"
    level = comparison.level
    return str(next(each for each in comparison.differences if each.level == level))


def story_of(arm: Arm) -> list[str]:
    """What differs, line by line, the first first."""
    comparison = arm.comparison
    lines = [
        f"{arm.service}: no simulated run of {comparison.tried} gave what the real processes saw.",
        f"The nearest departs in {comparison.level}:",
    ]
    for each in comparison.differences[:_SHOWN_MAX]:
        lines += [
            f"  {each.at_s:8.3f} s  {each.place}",
            f"              real: {each.found}",
            f"         simulator: {each.expected}",
        ]
    left = len(comparison.differences) - _SHOWN_MAX
    if left > 0:
        lines.append(f"  and {left} more")
    real, simulated = comparison.verdicts
    lines.append(f"verdict of the checker: real {real}, simulator {simulated}")
    for difference, known in comparison.explained:
        lines.append(f"explained ({known.name}): {difference}")
    return lines
