"""Failures of a campaign: run again, shrunk, and kept in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coord_sim.campaign.batch import Failure, Job
from coord_sim.campaign.judgement import Judge, Judgement, judged
from coord_sim.sim.case import Case
from coord_sim.sim.run import Run
from coord_sim.sim.shrinking import Budget, Shrunk, shrink


@dataclass(frozen=True, slots=True)
class ShrunkFailure:
    """A failure, as small as it can be made.

    Attributes:
      seed: Of the campaign.
      judgement: On the shrunk case.
      shrunk: The case that was drawn, and the shrunk one.
      run: Of the shrunk case; None if the program does what the simulator cannot follow.
    """

    seed: int
    judgement: Judgement
    shrunk: Shrunk
    run: Run | None


def first_of_each_kind(failures: Iterable[Failure]) -> Iterator[Failure]:
    """The failures that are worth a look: others of their kinds have the same causes, mostly."""
    kinds: dict[str, None] = {}
    for failure in failures:
        if failure.kind not in kinds:
            kinds[failure.kind] = None
            yield failure


def shrink_failure(job: Job, failure: Failure, budget: Budget | None = None) -> ShrunkFailure:
    """Finds the simplest case that fails as the one of a seed does.

    Args:
      job: Of the campaign.
      failure: What it found.
      budget: How long to try.

    Raises:
      ValueError: the seed does not fail in that way any more.
    """
    case = job.plan.case(failure.seed)
    shrunk = shrink(case, _Fails(job.judge, failure.kind), budget)
    run, judgement = judged(shrunk.after, job.judge)
    return ShrunkFailure(failure.seed, judgement, shrunk, run)


@dataclass(frozen=True, slots=True)
class _Fails:
    """Whether a case fails in a certain way."""

    judge: Judge
    kind: str

    def __call__(self, case: Case) -> bool:
        _, judgement = judged(case, self.judge)
        return judgement.is_failure and judgement.kind == self.kind
