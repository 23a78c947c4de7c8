"""Runs a campaign on an executor. What comes of it depends on the campaign alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Final

from coord_sim.campaign import checkpoint
from coord_sim.campaign.batch import Batch, Job, run_batch
from coord_sim.campaign.executors import WorkersDied
from coord_sim.campaign.statistics import Statistics

BATCH_RUNS: Final = 50
"""Runs of a batch. A campaign that stops early stops at the end of one."""

_AHEAD: Final = 3
"""Batches submitted for each worker: enough that none waits for the next."""

_SAVE_EVERY_S: Final = 5.0
_LOOK_EVERY_S: Final = 0.2
"""How often it is looked whether the campaign is to stop."""


@dataclass(slots=True)
class Campaign:
    """Many runs of one job.

    Attributes:
      job: What is run, and who judges it.
      runs: How many, those of a campaign that is resumed included.
      first_seed: The seeds are this one and those that follow.
      stop_after: So many failures end it, at the end of their batch; 0: it always runs to the end.
      batch_runs: Runs of a batch; part of what determines the campaign.
      checkpoint: The file that keeps what is known; None: it is not kept.
      report: Is told what is known after each batch.
      stopped: Set by whoever wants it to end soon.
    """

    job: Job
    runs: int
    first_seed: int = 0
    stop_after: int = 1
    batch_runs: int = BATCH_RUNS
    checkpoint: Path | None = None
    report: Callable[[Statistics], None] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)

    @property
    def identity(self) -> str:
        """All that determines the campaign, but for how long it is, as text."""
        job = self.job
        judge: object = job.judge
        if isinstance(judge, FunctionType):  # Its text would name its place in memory.
            judge = f"{judge.__module__}.{judge.__qualname__}"
        return (
            f"{job.plan!r} judged by {judge}, seeds from {self.first_seed}, "
            f"{self.batch_runs} a batch, {'with' if job.coverage else 'without'} coverage"
        )

    def resumed(self) -> Statistics:
        """What the checkpoint holds; nothing if there is none.

        Raises:
          CheckpointError: the file is no campaign, or another one.
        """
        if self.checkpoint is None or not self.checkpoint.exists():
            return Statistics()
        return checkpoint.load(self.checkpoint, self.identity)

    def run(
        self, executor: Executor, *, workers: int = 1, known: Statistics | None = None
    ) -> Statistics:
        """Runs all that is not known yet.

        Set `stopped` to end it early, with what is known then.

        Args:
          executor: Runs the batches. It is left open.
          workers: How many batches it can run at a time.
          known: What is known already; batches are added to it.

        Raises:
          CaseError: there is no such program.
          ScheduleError: there cannot be such schedules.
          WorkersDied: the executor has lost its processes.
        """
        statistics = Statistics() if known is None else known
        waiting: dict[int, Future[Batch]] = {}
        to_come = self._batches(statistics.runs)
        ahead = 1 if workers == 1 else _AHEAD * workers
        saved_s: float | None = None
        is_saved = True
        try:
            while not self._is_over(statistics):
                while len(waiting) < ahead and (following := next(to_come, None)) is not None:
                    first_run, runs = following
                    waiting[first_run] = executor.submit(
                        run_batch, self.job, self.first_seed + first_run, runs
                    )
                # Others may be done before it; the order of the seeds is what makes results equal.
                following_batch = waiting[statistics.runs]
                if not self._wait_for(following_batch):
                    break
                del waiting[statistics.runs]
                statistics.add(following_batch.result())
                is_saved = False
                if saved_s is None or time.monotonic() - saved_s >= _SAVE_EVERY_S:
                    self._save(statistics)
                    is_saved = True
                    saved_s = time.monotonic()
                if self.report is not None:
                    self.report(statistics)
        except (BrokenExecutor, CancelledError):
            raise WorkersDied(
                f"the workers are gone (killed, or out of memory) after {statistics.runs:,} runs"
            ) from None
        finally:
            for future in waiting.values():
                future.cancel()
            if not is_saved:
                self._save(statistics)
        return statistics

    def _wait_for(self, batch: Future[Batch]) -> bool:
        """Waits until a batch is done; False if the campaign is to stop."""
        while not self.stopped.is_set():
            if wait([batch], timeout=_LOOK_EVERY_S).done:
                return True
        return False

    def _batches(self, known: int) -> Iterator[tuple[int, int]]:
        first = known
        while first < self.runs:
            # A campaign that was shorter may have ended in the middle of a batch.
            upto = min(self.runs, (first // self.batch_runs + 1) * self.batch_runs)
            yield first, upto - first
            first = upto

    def _is_over(self, statistics: Statistics) -> bool:
        if statistics.runs >= self.runs:
            return True
        return 0 < self.stop_after <= statistics.failed

    def _save(self, statistics: Statistics) -> None:
        if self.checkpoint is not None:
            checkpoint.save(self.checkpoint, self.identity, statistics)
