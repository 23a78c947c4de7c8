"""The hunt: draws, tries, and makes small what is invalid, until its time is over."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias

from jax_bridge.errors import LaunchFailed
from jax_bridge.hunt.drawing import draw_case
from jax_bridge.hunt.keeping import folder_name, keep
from jax_bridge.hunt.reducing import Reduced, reduce_trial
from jax_bridge.hunt.trying import NOT_RUN, Trial, Where, try_case
from jax_bridge.hunt.workers import WorkerLost, Workers

RUNS: Final = ".runs"
"""The folder, in that of the hunt, for what runs leave behind; removed at the end."""

_POLL_S: Final = 0.5
_IN_VAIN_MAX: Final = 3
"""After so many runs that did not begin, and none that did, nothing is to be expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hunt:
    """What to hunt.

    Attributes:
      where: Service, judge, and the folder of the hunt.
      semantics: Of the service.
      first_seed: Cases are drawn from this seed on.
      time_s: So long new runs are begun, in seconds.
      runs: At most so many; no limit if None.
      jobs: How many at a time.
      reduce_s: How long each kind may be made smaller, in seconds; 0: not at all.
    """

    where: Where
    semantics: str = "shipped"
    first_seed: int = 0
    time_s: float
    runs: int | None = None
    jobs: int = 4
    reduce_s: float = 120.0


@dataclass(slots=True)
class Sighting:
    """A kind of failure.

    Attributes:
      drawn: As it was met first.
      reduced: The smallest that is known.
      at_s, run: When it was met: seconds of the hunt, and the how manieth run that was.
      folder: Where it is kept.
      is_reduced: Whether it was made as small as the budget allowed.
    """

    drawn: Trial
    reduced: Reduced
    at_s: float
    run: int
    folder: Path
    is_reduced: bool = False


@dataclass(frozen=True, slots=True)
class _Reduce:
    """The task to make the failure of a trial smaller."""

    trial: Trial


_Task: TypeAlias = "int | _Reduce"
"""A seed to try, or something to reduce."""


@dataclass(frozen=True, slots=True)
class _Work:
    """What a worker does."""

    hunt: Hunt

    def __call__(self, task: _Task) -> Trial | Reduced:
        if isinstance(task, _Reduce):
            return reduce_trial(task.trial, self.hunt.where, budget_s=self.hunt.reduce_s)
        case = draw_case(task, semantics=self.hunt.semantics)
        return try_case(case, f"seed-{task}", self.hunt.where)


class Hunter:
    """Hunts; what it has found so far can be read at any time, also after an interrupt.

    Args:
      hunt: What.
      say: Told what is found, a sentence each.
      progress: Called now and then, with this hunter.

    Attributes:
      words: How often each word was said of a run: `valid`, `invalid`, `unknown`, `not run`.
      kinds: How often each kind of failure was met.
      unknown: How often each kind of what could not be judged.
      sightings: By kind.
      lost: Seeds of runs whose worker died.
      problem: Why the last run that did not begin did not.
      elapsed_s: How long it has hunted.
    """

    def __init__(
        self,
        hunt: Hunt,
        *,
        say: Callable[[str], None] = lambda _: None,
        progress: Callable[[Hunter], None] = lambda _: None,
    ) -> None:
        self.hunt = hunt
        self.words: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.sightings: dict[str, Sighting] = {}
        self.lost: list[int] = []
        self.problem = ""
        self._say = say
        self._progress = progress
        self._to_reduce: list[Trial] = []
        self._next_seed = hunt.first_seed
        self._began_s = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began_s

    @property
    def runs(self) -> int:
        """How many runs have come to an end."""
        return self.words.total()

    def run(self) -> None:
        """Hunts until the time is over and all that was found is small.

        Raises:
          LaunchFailed: no run begins at all.
          KeyboardInterrupt: all processes have ended, and what was found is kept.
        """
        runs = self.hunt.where.folder / RUNS
        runs.mkdir(parents=True, exist_ok=True)
        hunt = replace(self.hunt, where=replace(self.hunt.where, folder=runs))
        try:
            with Workers[_Task, Trial | Reduced](hunt.jobs, _Work(hunt)) as workers:
                while self._give(workers):
                    self._progress(self)
                    for task, result in workers.wait(_POLL_S):
                        self._take(task, result)
        finally:
            shutil.rmtree(runs, ignore_errors=True)

    def _give(self, workers: Workers[_Task, Trial | Reduced]) -> bool:
        """Gives everybody something to do; False if there is nothing left to wait for."""
        hunt = self.hunt
        while workers.idle:
            drawn = self._next_seed - hunt.first_seed
            if self._to_reduce:
                workers.give(_Reduce(self._to_reduce.pop(0)))
            elif self.elapsed_s < hunt.time_s and (hunt.runs is None or drawn < hunt.runs):
                workers.give(self._next_seed)
                self._next_seed += 1
            else:
                break
        return workers.idle < workers.count

    def _take(self, task: _Task, result: Trial | Reduced | WorkerLost) -> None:
        if isinstance(result, WorkerLost):
            if isinstance(task, int):
                self.lost.append(task)
                self._say(f"the worker that ran seed {task} died")
            else:
                self._say(f"the worker that made {task.trial.kind!r} smaller died")
        elif isinstance(result, Reduced):
            self._reduced(result)
        else:
            self._tried(result)
        vain = self.words[NOT_RUN] + len(self.lost)
        if vain >= _IN_VAIN_MAX and vain == self.runs + len(self.lost):
            raise LaunchFailed(self.problem or "the processes that run the cases die")

    def _tried(self, trial: Trial) -> None:
        self.words[trial.word] += 1
        if trial.word == NOT_RUN:
            self.problem = trial.explanation
        if not trial.is_failure:
            if trial.kind:
                self.unknown[trial.kind] += 1
            trial.clear()
            return
        kind = trial.kind
        self.kinds[kind] += 1
        if kind in self.sightings:
            trial.clear()
            return
        folder = self.hunt.where.folder / folder_name(kind)
        sighting = Sighting(trial, Reduced(trial), self.elapsed_s, self.runs, folder)
        self.sightings[kind] = sighting
        self._say(f"{kind}: run {self.runs}, seed {trial.case.schedule.seed}")
        self._keep(sighting)
        if self.hunt.reduce_s:
            self._to_reduce.append(trial)

    def _reduced(self, reduced: Reduced) -> None:
        sighting = self.sightings[reduced.trial.kind]
        sighting.reduced = reduced
        sighting.is_reduced = True
        self._keep(sighting)

    def _keep(self, sighting: Sighting) -> None:
        keep(sighting.folder, sighting.drawn, sighting.reduced, self.hunt.where.service)
