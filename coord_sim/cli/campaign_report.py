"""What a campaign says: in text, as JSON, and in the files of its failures."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coord_sim.campaign import Job, Statistics
from coord_sim.campaign.conditions import OF_THE_SIMULATOR, declared_conditions
from coord_sim.campaign.failures import ShrunkFailure
from coord_sim.cli.judges import ServiceJudge
from coord_sim.cli.simulate import command_of
from coord_sim.scenarios import Expectations, Scenario, ScenarioError
from coord_sim.scenarios.writing import to_toml
from coord_sim.sim import Tape, simulate
from coord_sim.sim.case import function_of
from coord_sim.sim.programs import PROGRAMS
from coord_sim.sim.tapes import save_tape

CASE: Final = "case.json"
DRAWN: Final = "drawn.json"
HISTORY: Final = "history.jsonl"
EXPLANATION: Final = "explanation.txt"
SCENARIO: Final = "scenario.toml"
TAPE: Final = "run.tape"

_LATE: Final = 0.9
"""What was seen first after this part of the runs says whether more runs are worth it."""

_WORTH_IT: Final = 0.01
_MANY: Final = 12
_LIVE_SET: Final = "live set:"


@dataclass(frozen=True, slots=True)
class Finding:
    """A failure that was looked into.

    Attributes:
      failure: Shrunk.
      folder: Where it is kept, if it is.
    """

    failure: ShrunkFailure
    folder: Path | None


def duration(seconds: float) -> str:
    """A time in the two largest units that it has."""
    whole = round(seconds)
    for unit, length, smaller, part in (("d", 86400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= length:
            return f"{whole // length} {unit} {whole % length // part} {smaller}"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"


# --- text --------------------------------------------------------------------------------------


def report_lines(
    job: Job, known: Statistics, findings: Sequence[Finding], *, runs_now: int, wall_s: float
) -> Iterator[str]:
    """The report of a campaign.

    Args:
      job: What was run.
      known: What came of it.
      findings: The failures that were looked into.
      runs_now: Runs of this call; more are known if it resumed.
      wall_s: How long they took.
    """
    if not known.runs:
        yield "no run was completed"
        return
    base = job.plan.base
    mutant = f", mutant {base.mutant}" if base.mutant else ""
    last_seed = known.first_seed + known.runs - 1
    yield (
        f"{known.runs:,} runs of {job.plan.program}, {base.processes} processes, {base.semantics} "
        f"semantics{mutant}, seeds {known.first_seed} to {last_seed}"
    )
    verdict = f"{known.failed:,} failed" if known.failed else "none failed"
    unknown = f", {known.unknown.total():,} unknown" if known.unknown else ""
    yield f"  {verdict}{unknown}; {_speed(known, runs_now, wall_s)}"
    for kind, count in (*known.kinds.most_common(), *known.unknown.most_common()):
        yield f"    {count:,} x {kind}"
    yield f"  faults drawn: {_counts(known.faults)}"
    yield f"  processes {_counts(known.ends)}"
    if known.states:
        yield from _coverage_lines(known)
    yield f"  reached: {_counts(known.reached) or 'nothing that is noted'}"
    never = never_reached(job, known)
    if never:
        yield f"  never reached: {', '.join(never)}"
    yield f"  digest {known.digest}"
    for finding in findings:
        yield from _finding_lines(job, finding)


def _speed(known: Statistics, runs_now: int, wall_s: float) -> str:
    rate = f" ({runs_now / wall_s:,.0f} runs/s)" if runs_now and wall_s > 0 else ""
    return (
        f"{known.events:,} events, {duration(known.virtual_ns / 1e9)} of virtual time, "
        f"{duration(wall_s)}{rate}"
    )


def _counts(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    told = [f"{name} {count:,}" for name, count in most[:_MANY]]
    if len(most) > _MANY:
        told.append(f"{len(most) - _MANY} more")
    return ", ".join(told)


def _coverage_lines(known: Statistics) -> Iterator[str]:
    for name, seen in (("states", known.states), ("transitions", known.transitions)):
        new = known.new_since(seen, _LATE)
        yield (
            f"  {name} of the service: {len(seen):,}, {known.seen_once(seen):,} of them in one run "
            f"only, {new:,} new in the last tenth"
        )
    if known.new_since(known.transitions, _LATE) > _WORTH_IT * len(known.transitions):
        yield "  more runs are worth it: new transitions are still found"
    else:
        yield "  more runs of this kind will find little that is new"


def never_reached(job: Job, known: Statistics) -> list[str]:
    """Conditions that the simulator or the program knows, and no run reached."""
    declared = declared_conditions(function_of(job.plan.program))
    return [name for name in (*OF_THE_SIMULATOR, *declared) if name not in known.reached]


def _finding_lines(job: Job, finding: Finding) -> Iterator[str]:
    failure = finding.failure
    yield f"seed {failure.seed}: {failure.judgement.kind}"
    for line in failure.judgement.explanation.splitlines():
        yield f"  {line}"
    yield f"  shrunk: {failure.shrunk}"
    yield f"  {failure.shrunk.after.schedule!r}"
    if failure.judgement.kind.startswith(_LIVE_SET) and isinstance(job.judge, ServiceJudge):
        yield f"  without a file: {command_of(failure.shrunk.after, job.judge.failures)}"
    if finding.folder is not None:
        yield f"  replay: {replay_command(job, finding.folder / CASE)}"
    else:
        yield "  with --out DIR, the case, its history and a command that replays it are kept"


def replay_command(job: Job, case: Path) -> str:
    """The command that runs a case again, and judges it as the campaign did."""
    words = ["coordlab", "campaign", "--replay", str(case)]
    if isinstance(job.judge, ServiceJudge):
        usual = ServiceJudge()
        if job.judge.definition != usual.definition:
            words += ["--definition", job.judge.definition]
        if job.judge.failures != usual.failures:
            words += ["--failures", job.judge.failures]
    return shlex.join(words)


# --- JSON --------------------------------------------------------------------------------------


def fields_of(job: Job, known: Statistics, findings: Sequence[Finding]) -> dict[str, Any]:
    """The report as plain data."""
    told = known.to_json()
    for name in ("states", "transitions"):
        seen = getattr(known, name)
        told[name] = {
            "seen": len(seen),
            "seen_once": known.seen_once(seen),
            "new_in_last_tenth": known.new_since(seen, _LATE),
        }
    return {
        "program": job.plan.program,
        "schedule": repr(job.plan.base),
        **told,
        "failed": known.failed,
        "never_reached": never_reached(job, known),
        "shrunk": [
            {
                "seed": finding.failure.seed,
                "kind": finding.failure.judgement.kind,
                "explanation": finding.failure.judgement.explanation,
                "schedule": repr(finding.failure.shrunk.after.schedule),
                "arguments": dict(finding.failure.shrunk.after.arguments),
                "runs": finding.failure.shrunk.runs,
                "folder": None if finding.folder is None else str(finding.folder),
            }
            for finding in findings
        ],
    }


# --- files -------------------------------------------------------------------------------------


def keep(finding: Finding, job: Job) -> None:
    """Writes the files of a failure.

    Raises:
      OSError: they cannot be written.
    """
    folder, failure = finding.folder, finding.failure
    assert folder is not None, "there is a place to keep it"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CASE).write_text(failure.shrunk.after.to_text(), encoding="utf-8")
    (folder / DRAWN).write_text(failure.shrunk.before.to_text(), encoding="utf-8")
    lines = "\n".join(_finding_lines(job, finding))
    (folder / EXPLANATION).write_text(f"{lines}\n", encoding="utf-8")
    if failure.run is not None:
        failure.run.history.save(folder / HISTORY)
    scenario = as_scenario(failure, job)
    if scenario is not None:
        (folder / SCENARIO).write_text(to_toml(scenario), encoding="utf-8")
    if failure.run is not None:
        tape = Tape()
        simulate(failure.shrunk.after.make_program(), failure.shrunk.after.schedule, tape=tape)
        save_tape(folder / TAPE, failure.shrunk.after, tape)


def as_scenario(failure: ShrunkFailure, job: Job) -> Scenario | None:
    """A scenario that expects what did not hold; None where scenarios cannot say it."""
    case, kind = failure.shrunk.after, failure.judgement.kind
    if case.program not in PROGRAMS:
        return None
    if kind.startswith(_LIVE_SET) and isinstance(job.judge, ServiceJudge):
        judgement = f"{job.judge.definition}-{job.judge.failures}"
        expect = Expectations(verdicts={judgement: "valid"})
    elif kind.startswith("no progress"):
        expect = Expectations(finished=True)
    else:
        return None
    try:
        return Scenario(
            name=f"seed-{failure.seed}",
            title=f"A failure that a campaign found: {kind}",
            what=failure.judgement.explanation,
            why=f"Found with seed {failure.seed}, and shrunk.",
            schedule=case.schedule,
            program=case.program,
            arguments=dict(case.arguments),
            expect=expect,
        )
    except ScenarioError:
        return None
