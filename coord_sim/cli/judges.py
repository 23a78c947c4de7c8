"""The judge of simulated runs: the checker's verdict on everything, programs that fail, no progress."""

from __future__ import annotations

from dataclasses import dataclass

from checker import Invalid, LiveProcesses, Unknown, check_service
from checker.live_processes.spec import Definition, FailureModel
from checker.service import ObjectVerdict
from coord_sim.campaign.judgement import INVALID, UNKNOWN, VALID, Judgement
from coord_sim.sim.run import RUNNING, Run


@dataclass(frozen=True, slots=True)
class ServiceJudge:
    """Judges all that a run shows.

    Attributes:
      definition, failures: Of the live sets, as in `LiveProcesses`.
      progress_s: So long after the last fault everybody who lives must have come to an end.
    """

    definition: Definition = "round"
    failures: FailureModel = "suspicion"
    progress_s: float = 20.0

    def __call__(self, run: Run) -> Judgement:
        """What is wrong, the worst first; else whether anything is unknown."""
        spec = LiveProcesses(definition=self.definition, failures=self.failures)
        rows = check_service(run.history, live=spec)
        for row in rows:
            if isinstance(row.verdict, Invalid):
                kind = f"{_sort_of(row)}: {row.verdict.anomaly.kind}"
                return Judgement(INVALID, kind, f"{row.object}: {row.verdict.explain()}")
        for judgement in (raised(run), self._progress(run)):
            if judgement is not None:
                return judgement
        for row in rows:
            if isinstance(row.verdict, Unknown):
                reason = f"{row.object}: {row.verdict.explain()}"
                return Judgement(UNKNOWN, f"{_sort_of(row)}: unknown", reason)
        return Judgement(VALID)

    def _progress(self, run: Run) -> Judgement | None:
        quiet_from_s = run.schedule.quiet_from_s
        if run.finished or quiet_from_s is None or run.end_s < quiet_from_s + self.progress_s:
            return None
        left = [end for end in run.ends if end.state == RUNNING]
        waits = sorted({_awaited(end.waits_for) for end in left})
        told = [f"process {end.process} waits for {end.waits_for or 'nothing'}" for end in left]
        return Judgement(
            INVALID,
            f"no progress: {', '.join(waits)}",
            f"Nothing was wrong any more from {quiet_from_s:g} s on, and yet at {run.end_s:g} s "
            f"{', '.join(told)}.",
        )


def _awaited(words: str) -> str:
    """What sort of thing: the first word of `key_value_get step/3`, `a collective ...`."""
    return words.removeprefix("a ").removeprefix("its ").partition(" ")[0]


def _sort_of(row: ObjectVerdict) -> str:
    """What sort of object: live set, blocks, key, keys, barrier."""
    return "live set" if row.is_live_sets else row.object.partition(" ")[0]


def raised(run: Run) -> Judgement | None:
    """The first program that raised what is no consequence of a fault; None if there is none."""
    found = run.unexpected_error()
    if found is None:
        return None
    process, error, story = found
    return Judgement(INVALID, f"the program raised {error}", f"Process {process}: {story}")
