"""Many cases on both services, several at a time: real processes mostly wait."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path

from coord_sim.sim.case import Case
from coord_sim.sim.shrinking import size_of
from coord_sim.undisturbed import undisturbed
from jax_bridge.differential.arms import SERVICES, Arm, other_service, run_arm
from jax_bridge.differential.comparison import Verdict
from jax_bridge.differential.saving import first_difference, save_difference, story_of
from jax_bridge.differential.shrinking import RealBudget, shrink_arm
from jax_bridge.errors import LaunchFailed
from jax_bridge.parent_death import end_with_parent
from jax_bridge.scenario_runs import NotForProcesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to do with each case.

    Attributes:
      verdict: Judges histories; a function of a module, as workers get it by its name.
      out: Where folders of differences go.
      services: On which services real processes run.
      budget: What making one difference small may cost.
    """

    verdict: Verdict
    out: Path
    services: Sequence[str] = SERVICES
    budget: RealBudget = field(default_factory=RealBudget)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came of a case on one service, in words.

    Attributes:
      name: Of the case.
      service: `real` or `model`.
      size: How large the case is.
      took_s: Seconds, with all that shrinking took.
      skipped: Why it cannot be run on this service; empty if it was run.
      failed: Why it could not be run, though it should have been; empty if it was.
      is_same: Whether the simulator could have given it, explained differences aside.
      tried: How many timings were tried.
      level: The coarsest level of a difference.
      first: The earliest difference of that level.
      story: All differences.
      explained: Names of the known differences that were met.
      saved: The folder of the difference.
      note: How it was made small.
    """

    name: str
    service: str
    size: str
    took_s: float
    skipped: str = ""
    failed: str = ""
    is_same: bool = False
    tried: int = 0
    level: str = ""
    first: str = ""
    story: tuple[str, ...] = ()
    explained: tuple[str, ...] = ()
    saved: str = ""
    note: str = ""

    @property
    def differs(self) -> bool:
        """Whether a difference without an explanation was found."""
        return not (self.is_same or self.skipped or self.failed)


def run_cases(cases: Iterable[tuple[str, Case]], plan: Plan, jobs: int) -> Iterator[Result]:
    """Runs cases on the services of a plan; gives what came of each as it ends.

    Args:
      cases: Names (of folders, too) and cases.
      plan: What to do with them.
      jobs: How many runs at a time.
    """
    coming = ((name, case, service) for name, case in cases for service in plan.services)
    pool = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_end_with_pool,
        initargs=(os.getpid(),),
    )
    running: set[Future[Result]] = set()
    resource_tracker.ensure_running()  # When it starts it unblocks what is blocked below.
    try:
        for name, case, service in coming:
            with undisturbed(signal.SIGINT):  # Workers that are started here too.
                running.add(pool.submit(run_case, name, case, service, plan))
            if len(running) > jobs:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in multiprocessing.active_children():
            if worker.pid is not None:
                os.kill(worker.pid, signal.SIGTERM)  # Its launcher ends all that it started.
        raise
    finally:
        pool.shutdown()


def run_case(name: str, case: Case, service: str, plan: Plan) -> Result:
    """Runs a case on one service; what differs is made small and saved.

    Call it in the main thread of a process: the launcher forks.
    """
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="coordlab-diff-") as folder:
        scratch = Path(folder)
        try:
            arm = run_arm(case, service, scratch / "first", plan.verdict)
        except NotForProcesses as reason:
            return _result(name, case, service, began_s, skipped=str(reason))
        except LaunchFailed as error:
            return _result(name, case, service, began_s, failed=str(error))
        explained = tuple(sorted({known.name for _, known in arm.comparison.explained}))
        if arm.comparison.is_same:
            tried = arm.comparison.tried
            return _result(
                name, case, service, began_s, is_same=True, tried=tried, explained=explained
            )
        small, note = _made_small(arm, scratch, plan)
        saved = plan.out / f"{name}-{service}"
        other = _on_the_other(small, scratch / "other", plan)
        save_difference(saved, f"{name}-{service}", small, other, note)
        return _result(
            name,
            case,
            service,
            began_s,
            tried=small.comparison.tried,
            level=small.comparison.level,
            first=first_difference(small),
            story=tuple(story_of(small)),
            explained=explained,
            saved=str(saved),
            note=note,
        )


def _made_small(arm: Arm, scratch: Path, plan: Plan) -> tuple[Arm, str]:
    """The simplest arm that differs, and how that went, in words."""
    try:
        small = shrink_arm(arm, scratch / "tries", plan.verdict, plan.budget)
    except LaunchFailed as error:
        return arm, f"Not made smaller: {error}"
    if not small.runs:
        return arm, "Not made smaller, as was asked for."
    if not small.seen_again:
        return arm, f"Run again, it was not seen again ({small.runs} more)."
    size = f"{size_of(arm.case)} -> {size_of(small.arm.case)}"
    return small.arm, f"Seen again and made smaller: {size} ({small.runs} runs)."


def _on_the_other(arm: Arm, folder: Path, plan: Plan) -> Arm | None:
    """The same case on the other service; None if it cannot be run there."""
    try:
        return run_arm(arm.case, other_service(arm.service), folder, plan.verdict)
    except LaunchFailed:  # Also: not for this service.
        return None


def _result(name: str, case: Case, service: str, began_s: float, **fields: object) -> Result:
    return Result(
        name=name,
        service=service,
        size=f"{case.program}, {size_of(case)}",
        took_s=time.monotonic() - began_s,
        **fields,  # type: ignore[arg-type]
    )


def _end_with_pool(parent: int) -> None:
    """Workers do not outlive who started them, who tells them when to end: Ctrl-C hits all at once.

    When he is gone they are killed: one that is interrupted waits for its next case, for ever, at a pipe
    of which it holds the other end, too. What a launcher in it has started ends with it.
    """
    end_with_parent(signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)  # He died before we asked to die with him.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
