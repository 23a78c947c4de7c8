"""Some seeds in a row, run in one place: what a worker is sent, and what it sends back."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from coord_sim.campaign.coverage import Coverage
from coord_sim.campaign.judgement import UNKNOWN, Judge, judged
from coord_sim.campaign.plan import Plan
from coord_sim.sim.case import digest_of
from coord_sim.sim.run import CRASHED, Run

FAILURES_MAX: Final = 100
"""Of one batch, so many failures are told in full; all are counted."""


Seen: TypeAlias = dict[str, tuple[int, int]]
"""In how many runs something was seen, and the first seed of these."""


def add_seen(seen: Seen, more: Seen) -> None:
    """Adds what was seen in later runs."""
    for what, (runs, seed) in more.items():
        before = seen.get(what)
        seen[what] = (runs, seed) if before is None else (before[0] + runs, before[1])


@dataclass(frozen=True, slots=True)
class Job:
    """What all batches of a campaign have in common. It can be pickled.

    Attributes:
      plan: Which cases.
      judge: Who judges the runs.
      coverage: Whether to watch which states are reached.
    """

    plan: Plan
    judge: Judge
    coverage: bool = True


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that failed.

    Attributes:
      seed: Which.
      kind: Of the failure.
      summary: The first line of its explanation.
    """

    seed: int
    kind: str
    summary: str


@dataclass(slots=True)
class Batch:
    """What came of some seeds in a row. All of it is the same wherever they are run.

    Attributes:
      first_seed: The seeds are this one and those that follow.
      runs: How many.
      digests: Of each run, in order (`digest_of`).
      failures: The first ones that failed.
      kinds: How many failures there are of each kind.
      unknown: How many runs nobody can judge, and why.
      faults: How many faults of each kind were drawn.
      reached: How often each condition was reached, and in how many runs.
      ends: How many processes ended in each way.
      states, transitions: In how many runs each was seen, and the first seed of these.
      events: Of the simulators' queues.
      history_events: Of the histories.
      virtual_ns: Time that was simulated.
    """

    first_seed: int
    runs: int = 0
    digests: list[bytes] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    states: Seen = field(default_factory=dict)
    transitions: Seen = field(default_factory=dict)
    events: int = 0
    history_events: int = 0
    virtual_ns: int = 0


def run_batch(job: Job, first_seed: int, runs: int) -> Batch:
    """Runs the cases of some seeds in a row and judges them.

    Raises:
      CaseError: there is no such program.
      ScheduleError: there cannot be such schedules.
    """
    batch = Batch(first_seed, runs)
    coverage = Coverage() if job.coverage else None
    for seed in range(first_seed, first_seed + runs):
        case = job.plan.case(seed)
        if coverage is not None:
            coverage.begin()
        run, judgement = judged(case, job.judge, coverage)
        if judgement.is_failure:
            batch.kinds[judgement.kind] += 1
            if len(batch.failures) < FAILURES_MAX:
                summary = judgement.explanation.partition("\n")[0]
                batch.failures.append(Failure(seed, judgement.kind, summary))
        elif judgement.word == UNKNOWN:
            batch.unknown[judgement.kind] += 1
        batch.faults.update(type(fault).__name__.lower() for fault in case.schedule.faults)
        if run is None:
            batch.digests.append(bytes(16))
            continue
        _add(batch, run)
        if coverage is not None:
            add_seen(batch.states, dict.fromkeys(coverage.states, (1, seed)))
            add_seen(batch.transitions, dict.fromkeys(coverage.transitions, (1, seed)))
    return batch


def _add(batch: Batch, run: Run) -> None:
    batch.digests.append(digest_of(run))
    batch.reached.update(run.reached)
    for end in run.ends:
        # Causes go on with messages that name tasks and times.
        cause = ":".join(end.cause.partition("\n")[0].split(":")[:2])
        batch.ends[f"{end.state}: {cause}" if end.state == CRASHED else end.state] += 1
    batch.events += run.events
    batch.history_events += len(run.history.events)
    batch.virtual_ns += round(run.end_s * 1e9)
