"""Runs the catalogue: `python -m tests.conformance.run [ID ...] [--service both] [--caller all]`.

Prints what each arm observed and marks what its baseline observed differently. `--save` keeps the
results of the installed jaxlib in `tests/data/fidelity/`. Exit code 1 if a scenario fails, or differs in
a way that `known_differences.py` does not have.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.catalogue import SCENARIOS
from tests.conformance.comparison import baseline, differences, judge
from tests.conformance.scenario import Arm, Job, OutOfTime, Result, Scenario
from tests.conformance.services import (
    ForkServer,
    ModelProcess,
    ModelService,
    RealService,
    Service,
)

AT_ONCE = 16
"""Scenarios that run at the same time: most of their time is waiting."""

ATTEMPTS_WHEN_LATE = 3
SCENARIO_WITHIN_S = 90.0
FOLDER = Path(__file__).parents[1] / "data" / "fidelity"

Results = dict[tuple[str, Arm], Result]


def jaxlib_version() -> str:
    """Of the installed jaxlib."""
    return importlib.metadata.version("jaxlib")


def arms_of(scenario: Scenario) -> tuple[Arm, ...]:
    """Everything that a scenario can run on, baselines first."""
    return tuple(
        Arm(caller, service) for caller in scenario.callers for service in ("real", "model")
    )


async def run_one(scenario: Scenario, arm: Arm, forks: ForkServer) -> Result:
    """Runs a scenario on a fresh service; never raises for what the scenario finds."""
    service: Service
    if arm.service == "real":
        service = RealService(forks)
    else:
        service = ModelProcess() if scenario.process else ModelService()
    jaxlib = tuple(int(part) for part in jaxlib_version().split(".")[:3])
    problem, late = "", False
    job: Job | None = None
    try:
        address = await service.start(scenario.options)
        job = Job(
            arm, scenario.options, service=service, address=address, forks=forks, jaxlib=jaxlib
        )
        async with asyncio.timeout(SCENARIO_WITHIN_S):
            await scenario.run(job)
    except Exception as error:  # noqa: BLE001 - a failure is the result
        frames = traceback.extract_tb(error.__traceback__)
        where = next((f for f in reversed(frames) if "catalogue" in f.filename), frames[-1])
        problem = f"{type(error).__name__}: {error} ({Path(where.filename).name}:{where.lineno})"
        late = isinstance(error, OutOfTime | TimeoutError)
    finally:
        if job is not None:
            late |= job.was_late()
            await job.close()
        await service.stop()
    observations = () if job is None else job.observations
    return Result(
        tuple((each.name, each.text(job.names)) for each in observations if job is not None),
        problem,
        late,
    )


async def run_catalogue(
    scenarios: Iterable[Scenario], arms: Sequence[Arm] | None = None
) -> Results:
    """Runs scenarios on all their arms, several at a time.

    What went wrong is run again with nothing beside it, more than once if this process was late: on a
    busy machine heartbeats may be late, and tasks declared dead that should live. That a process of a
    client or a service was held up is seen by nobody; what differs for good differs again.

    Args:
      scenarios: To run.
      arms: Only these, if given.
    """
    results: Results = {}
    places = asyncio.Semaphore(AT_ONCE)
    wanted = [
        (scenario, arm)
        for scenario in scenarios
        for arm in arms_of(scenario)
        if arms is None or arm in arms
    ]
    async with ForkServer() as forks:

        async def run(scenario: Scenario, arm: Arm) -> None:
            async with places:
                results[scenario.id, arm] = await run_one(scenario, arm, forks)

        async with asyncio.TaskGroup() as group:
            for scenario, arm in wanted:
                if not scenario.alone:
                    group.create_task(run(scenario, arm))
        for scenario, arm in wanted:
            if scenario.alone:
                await run(scenario, arm)
        for attempt in range(ATTEMPTS_WHEN_LATE):
            for scenario, arm in wanted:
                may_pass = attempt == 0 or results[scenario.id, arm].late
                if may_pass and failures(scenario, results):
                    await run(scenario, arm)
    return results


def record(scenario: Scenario, results: Results) -> dict[str, Any]:
    """What is saved of a scenario: all that its baselines observed, and how the others differ."""
    recorded: dict[str, Any] = {"title": scenario.title, "observations": {}, "differences": {}}
    for arm in arms_of(scenario):
        result = results[scenario.id, arm]
        if arm == baseline(arm):
            recorded["observations"][str(arm)] = [f"{n}: {text}" for n, text in result.observations]
        else:
            found = differences(results[scenario.id, baseline(arm)], result)
            recorded["differences"][str(arm)] = [
                [each.observation, each.expected, each.found] for each in found
            ]
    return recorded


def saved_path(version: str) -> Path:
    """Where the results of a version of jaxlib are."""
    return FOLDER / f"jaxlib-{version}.json"


def load(version: str) -> dict[str, Any]:
    """The saved results of a version of jaxlib: scenario id to its record."""
    loaded: dict[str, Any] = json.loads(saved_path(version).read_text())
    return loaded


def save(records: dict[str, Any]) -> None:
    """Keeps records of the installed jaxlib, beside what is kept of other scenarios."""
    path = saved_path(jaxlib_version())
    kept = (load(jaxlib_version()) if path.exists() else {}) | records
    ordered = {number: kept[number] for number in SCENARIOS if number in kept}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def failures(scenario: Scenario, results: Results) -> list[str]:
    """What is wrong with the results of a scenario, one text for each arm; empty if nothing is."""
    wrong = []
    for arm in arms_of(scenario):
        result = results.get((scenario.id, arm))
        base = results.get((scenario.id, baseline(arm)))
        if result is None:
            continue
        lines = [result.problem] if result.problem else []
        if base is not None:
            judgement = judge(scenario.id, arm, jaxlib_version(), differences(base, result))
            for each in judgement.unexplained:
                lines.append(f"{each.observation}:")
                lines.append(f"  {baseline(arm)!s:18} {each.expected}")
                lines.append(f"  {arm!s:18} {each.found}")
            lines += [
                f"known difference does not occur any more: {entry.observation}"
                for entry in judgement.stale
            ]
        if lines:
            wrong.append("\n  ".join([f"[{arm}]", *lines]))
    return wrong


def main() -> None:
    """The command."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.run")
    parser.add_argument("ids", nargs="*", metavar="ID", help="scenarios (default: all)")
    parser.add_argument("--service", choices=["real", "model", "both"], default="both")
    parser.add_argument("--caller", choices=["stub", "jaxlib", "coord_sim", "all"], default="all")
    parser.add_argument("--save", action="store_true", help="write tests/data/fidelity")
    parser.add_argument("--quiet", action="store_true", help="print what is wrong, and no more")
    options = parser.parse_args()
    unknown = [each for each in options.ids if each not in SCENARIOS]
    if unknown:
        parser.error(f"no such scenario: {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    chosen = [SCENARIOS[each] for each in options.ids or SCENARIOS]
    arms = {
        arm
        for scenario in chosen
        for arm in arms_of(scenario)
        if options.service in (arm.service, "both") and options.caller in (arm.caller, "all")
    }
    if options.save and (options.service != "both" or options.caller != "all"):
        parser.error("--save needs all services and callers")
    results = asyncio.run(run_catalogue(chosen, list(arms)))
    bad = False
    for scenario in chosen:
        print(f"{scenario.id:4} {scenario.title}")
        for arm in () if options.quiet else arms_of(scenario):
            result = results.get((scenario.id, arm), Result())
            base = results.get((scenario.id, baseline(arm)), result)
            for observation in result.observations:
                mark = " " if observation in base.observations else "≠"
                print(f"  {mark} [{arm}] {': '.join(observation)}")
        for text in failures(scenario, results):
            bad = True
            print(f"  WRONG {text}")
    if options.save:
        save({scenario.id: record(scenario, results) for scenario in chosen})
    sys.exit(bad)


if __name__ == "__main__":
    main()
