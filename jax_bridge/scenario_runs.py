"""Scenarios on real processes: the simulator's files and programs, jaxlib's client, real signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from checker.history import History
from coord_sim.faults import Fault
from coord_sim.scenarios import (
    Answers,
    Blocks,
    Ends,
    Expectations,
    Judge,
    Logs,
    Outcome,
    Scenario,
    findings,
)
from coord_sim.scenarios.for_processes import not_for_processes
from coord_sim.scenarios.scenario import PROCESSES
from coord_sim.schedule import Schedule
from coord_sim.sim import Run
from coord_sim.sim.injection import described
from jax_bridge import workloads
from jax_bridge.errors import LaunchFailed
from jax_bridge.job import Job, JobResult, SimulatorProgram
from jax_bridge.launcher import run_job
from jax_bridge.services import model_service_command, real_service_command

T = TypeVar("T", Ends, Blocks, Answers, Logs)

REAL: Final = "real"
MODEL: Final = "model"

WORKLOADS: Final = {"ignore_the_dead": "train_ignoring_the_dead.py"}
"""Programs that compute on the simulator's data plane, and the real JAX program that does the same."""

TOLERANCE_S: Final = 1.0
"""Times of expectations are meant for the simulator's network; real processes take longer to die."""


DYING_S: Final = 3.0
"""A process that jaxlib ends prints its stack first, which takes seconds on a busy machine."""


@dataclass(frozen=True, slots=True)
class RealOutcome(Outcome):
    """What came of a scenario on real processes.

    Attributes:
      unmet: Faults whose conditions never held. Those of `run.missed` that are not among them were to
        come when the run was over.
    """

    unmet: tuple[Fault, ...] = ()


class NotForProcesses(LaunchFailed):
    """A schedule that real processes, or this service, cannot run; says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a schedule runs.

    Attributes:
      service: `real` (jaxlib's C++ service) or `model` (ours).
      out: The history file; see `Job`.
      limit_s: In place of the schedule's.
      say: Told what happens.
    """

    service: str = MODEL
    out: Path
    limit_s: float | None = None
    say: Callable[[str], None] = lambda _: None


def run_scenario_for_real(
    scenario: Scenario,
    judge: Judge,
    setting: Setting,
    *,
    seed: int | None = None,
    semantics: str | None = None,
) -> RealOutcome:
    """Runs a scenario on real processes and holds its expectations against what came of it.

    Args:
      scenario: What to run.
      judge: Gives the verdicts.
      setting: Where.
      seed: Of what the program draws, instead of the scenario's.
      semantics: Of our service, instead of the scenario's.

    Raises:
      NotForProcesses: it cannot be run so.
      LaunchFailed: the service did not come up.
    """
    if PROCESSES not in scenario.runs_on:
        raise NotForProcesses(
            f"{scenario.name} runs in the simulator only; coordlab scenarios {scenario.name} says why"
        )
    schedule = scenario.under(seed=seed, semantics=semantics)
    result = _result(scenario.program, dict(scenario.arguments), schedule, setting)
    run = _run(schedule, result)
    expect = with_tolerance(scenario.expectations(schedule.semantics), TOLERANCE_S)
    return RealOutcome(scenario, run, tuple(findings(expect, run, judge)), result.unmet)


def run_for_real(
    program: str, arguments: dict[str, object], schedule: Schedule, setting: Setting
) -> Run:
    """Runs a schedule on real processes.

    Args:
      program: A name of `coord_sim.sim.programs.PROGRAMS`.
      arguments: Of the program.
      schedule: The job and its faults.
      setting: Where.

    Returns:
      What came of it, as the simulator would tell; times count from the beginning of the run.

    Raises:
      NotForProcesses: it cannot be run so.
      LaunchFailed: the service did not come up.
      RunBroken: the service died by itself, or what carries out the faults; the history is kept.
    """
    return _run(schedule, _result(program, arguments, schedule, setting))


def _result(
    program: str, arguments: dict[str, object], schedule: Schedule, setting: Setting
) -> JobResult:
    problem = next(obstacles(schedule, setting.service), None)
    if problem is not None:
        raise NotForProcesses(problem)
    result = run_job(_job(program, arguments, schedule, setting), setting.say)
    if result.interrupted:
        raise KeyboardInterrupt
    if result.broken is not None:
        raise result.broken
    return result


def with_tolerance(expect: Expectations, by_s: float) -> Expectations:
    """The same expectations with spans of time wider at both ends, so that as much holds late as early.

    Where something must not be seen more often than so, they are narrower.
    """
    return replace(
        expect,
        ends=_wider(expect.ends, by_s),
        blocks=_wider(expect.blocks, by_s),
        answers=_wider(expect.answers, by_s),
        logs=_wider(expect.logs, by_s),
    )


def _wider(expected: tuple[T, ...] | None, by_s: float) -> tuple[T, ...] | None:
    if expected is None:
        return None
    return tuple(
        _later_or_earlier(each, -by_s if _is_upper_bound(each) else by_s) for each in expected
    )


def _later_or_earlier(expected: T, by_s: float) -> T:
    before_s = expected.before_s
    dying_s = DYING_S if isinstance(expected, Ends) else 0.0
    return replace(
        expected,
        # From the beginning on is from the beginning on.
        after_s=max(0.0, expected.after_s - by_s) if expected.after_s else 0.0,
        before_s=None if before_s is None else before_s + by_s + dying_s,
    )


def _is_upper_bound(expected: T) -> bool:
    return not isinstance(expected, Ends) and expected.at_most is not None and not expected.at_least


def obstacles(schedule: Schedule, service: str) -> Iterator[str]:
    """Why a schedule cannot be run on real processes with a service; nothing if it can.

    Args:
      schedule: Of a simulated job.
      service: `real` (jaxlib's) or `model` (ours).
    """
    if schedule.mutant:
        yield f"real processes have no mutants ({schedule.mutant})"
    for fault in schedule.faults:
        reason = not_for_processes(fault, schedule.processes)
        if reason is not None:
            yield f"{described(fault)}: {reason}"
    if schedule.death_order:
        yield "real services declare deaths in an order of their own; leave out death_order"
    if schedule.loss:
        yield "no packets are lost between real processes; use a degrade fault"
    if service == MODEL:
        if schedule.semantics not in ("shipped", "published"):
            yield f"our server has no {schedule.semantics} semantics"
        return
    if schedule.semantics != "shipped":
        yield f"jaxlib's service is as shipped, not {schedule.semantics}"
    if schedule.durable:
        yield "jaxlib's service keeps nothing when it dies"
    for name in ("heartbeat_timeout_s", "register_timeout_s", "shutdown_timeout_s"):
        if not float(getattr(schedule, name)).is_integer():
            yield f"jaxlib's service takes whole seconds; {name} is {getattr(schedule, name):g}"


def _job(program: str, arguments: dict[str, object], schedule: Schedule, setting: Setting) -> Job:
    tasks = schedule.task_count
    if setting.service == MODEL:
        state = Path("{folder}/service-{service}.state") if schedule.durable else None
        command = model_service_command(
            tasks,
            heartbeat_timeout_s=schedule.heartbeat_timeout_s,
            recoverable=schedule.recoverable,
            semantics=schedule.semantics,
            register_timeout_s=schedule.register_timeout_s,
            shutdown_timeout_s=schedule.shutdown_timeout_s,
            state=state,
        )
        name = f"model, {schedule.semantics}"
    else:
        command = real_service_command(
            tasks,
            heartbeat_timeout_s=int(schedule.heartbeat_timeout_s),
            recoverable=schedule.recoverable,
            register_timeout_s=int(schedule.register_timeout_s),
            shutdown_timeout_s=int(schedule.shutdown_timeout_s),
        )
        name = REAL
    limit_s = schedule.limit_s if setting.limit_s is None else setting.limit_s
    client_timeout_s = schedule.client_heartbeat_timeout_s or schedule.heartbeat_timeout_s
    what: dict[str, Any]
    if program in WORKLOADS:
        words = "{process}", "{processes}", "{address}", "--heartbeat-timeout"
        script = Path(workloads.__file__).with_name(WORKLOADS[program])
        what = {"script": script, "arguments": (*words, str(math.ceil(client_timeout_s)))}
    else:
        what = {
            "program": SimulatorProgram(
                name=program,
                arguments=arguments,
                seed=schedule.seed,
                tasks=tasks,
                heartbeat_timeout_s=math.ceil(client_timeout_s),
                init_timeout_s=math.ceil(schedule.init_timeout_s or limit_s),
                shutdown_timeout_s=math.ceil(schedule.shutdown_timeout_s),
            )
        }
    return Job(
        **what,
        processes=schedule.processes,
        service_command=command,
        service=name,
        services=schedule.services,
        places=schedule.places,
        service_in=schedule.service_in,
        out=setting.out,
        faults=schedule.faults,
        starts_s=schedule.starts_s,
        timeout_s=limit_s,
        settings={
            "heartbeat_timeout_s": schedule.heartbeat_timeout_s,
            "recoverable": schedule.recoverable,
        },
    )


def _run(schedule: Schedule, result: JobResult) -> Run:
    return Run(
        schedule=schedule,
        history=_with_schedule(result.history, schedule),
        finished=result.finished,
        ends=result.ends,
        log=result.log,
        reached=result.reached,
        missed=result.missed,
        events=len(result.history.events),
        end_s=result.end_s,
    )


def _with_schedule(history: History, schedule: Schedule) -> History:
    details = {**history.header.details, "schedule": repr(schedule)}
    return replace(history, header=replace(history.header, details=details))
