"""`coordlab campaign`: many seeds on many cores, what they reached, and their failures shrunk."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Final

from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from coord_sim.campaign import (
    Campaign,
    CheckpointError,
    Job,
    Plan,
    SerialExecutor,
    Statistics,
    WorkersDied,
    dask_cluster,
    judged,
    process_pool,
)
from coord_sim.campaign.failures import first_of_each_kind, shrink_failure
from coord_sim.cli.campaign_report import Finding, duration, fields_of, keep, report_lines
from coord_sim.cli.cases import add_case_options, named_program, settings_of
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import INTERRUPTED, INVALID, UNKNOWN, VALID
from coord_sim.cli.extras import require
from coord_sim.cli.judges import ServiceJudge
from coord_sim.cli.numbers import positive_int
from coord_sim.cli.terminal import Progress, plain
from coord_sim.core.semantics import SHIPPED
from coord_sim.errors import ScheduleError
from coord_sim.schedule import Schedule
from coord_sim.sim.case import CaseError, read_case
from coord_sim.sim.nemesis import KINDS
from coord_sim.sim.shrinking import Budget

EXAMPLES = """\
examples:
  coordlab campaign --runs 2000 --semantics published --jobs 2
      every kind of fault, drawn anew for each seed; what was reached, and that nothing failed
  coordlab campaign --runs 2000 --out found
      on the service as shipped: stops at the first failure, shrinks it, keeps it in found/
  coordlab campaign --replay found/seed-1/case.json
      that failure again
  coordlab campaign --runs 1000000 --jobs 16 --semantics published --out long --resume
      goes on where it was interrupted
  coordlab campaign --runs 1000000 --semantics published --dask tcp://scheduler:8786
      on a cluster; docs/campaigns.md says how
  coordlab campaign --runs 500 --program mine.py:train --stop-after 0
      a program of your own; all failures counted, the first of each kind shrunk

Exit code: 0 nothing failed, 1 something did, 2 bad input, 3 nothing failed but some runs are unknown.
"""

CHECKPOINT: Final = "campaign.json"
_KINDS_SHRUNK_MAX: Final = 10


def _count(text: str) -> int:
    """A whole number from 0 on."""
    return 0 if text == "0" else positive_int(text)


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "campaign",
        help="run many seeds, with statistics, and shrink what fails",
        description="Runs simulated jobs with drawn faults from many seeds, judges each, and says what "
        "they reached. What comes of it does not depend on how many workers run it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=positive_int, default=1000, metavar="N", help="(1000)")
    parser.add_argument("--first-seed", type=_count, default=0, metavar="S", help="(0)")
    parser.add_argument(
        "--stop-after",
        type=_count,
        default=1,
        metavar="K",
        help="end after so many failures; 0: never (1)",
    )
    add_case_options(parser)
    faults = parser.add_argument_group("faults")
    faults.add_argument(
        "--no-stalls",
        action="store_true",
        help="nobody stands still, or is cut off, for longer than the heartbeat time-out",
    )
    faults.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        metavar="KIND",
        help=f"only these kinds, of: {', '.join(KINDS)}",
    )
    judging = parser.add_argument_group("judging")
    judging.add_argument("--definition", choices=DEFINITIONS, default="round")
    judging.add_argument("--failures", choices=FAILURE_MODELS, default="suspicion")
    where = parser.add_argument_group("where it runs")
    workers = where.add_mutually_exclusive_group()
    workers.add_argument("--jobs", type=positive_int, default=1, metavar="J", help="processes (1)")
    workers.add_argument("--dask", metavar="ADDRESS", help="of the scheduler of a Dask cluster")
    parser.add_argument("--no-coverage", action="store_true", help="do not watch states; faster")
    parser.add_argument("--no-shrink", action="store_true", help="keep failures as they were drawn")
    parser.add_argument("--out", metavar="DIR", help="keep the state and the failures there")
    parser.add_argument("--resume", action="store_true", help="go on with what --out holds")
    parser.add_argument("--replay", metavar="FILE", help="run the case of a failure again")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs a campaign, or a case again."""
    judge = ServiceJudge(definition=options.definition, failures=options.failures)
    try:
        if options.replay is not None:
            return _replay(options, judge)
        return _run_campaign(options, judge)
    except (CaseError, ScheduleError, CheckpointError, WorkersDied) as error:
        raise CommandError(str(error)) from None


# --- one case ----------------------------------------------------------------------------------


def _replay(options: argparse.Namespace, judge: ServiceJudge) -> int:
    case = read_case(options.replay)
    found, judgement = judged(case, judge)
    if options.json:
        told = {
            "case": options.replay,
            "verdict": judgement.word,
            "kind": judgement.kind,
            "explanation": judgement.explanation,
        }
        print(json.dumps(told))
    else:
        kind = f" ({judgement.kind})" if judgement.kind else ""
        print(plain(f"{options.replay}: {judgement.word}{kind}"))
        for line in judgement.explanation.splitlines():
            print(f"  {plain(line)}")
        print(f"  {plain(repr(case.schedule))}")
    if options.out is not None and found is not None:
        Path(options.out).mkdir(parents=True, exist_ok=True)
        found.history.save(Path(options.out) / "history.jsonl")
    return {"valid": VALID, "invalid": INVALID}.get(judgement.word, UNKNOWN)


# --- a campaign --------------------------------------------------------------------------------


def _run_campaign(options: argparse.Namespace, judge: ServiceJudge) -> int:
    job = Job(_plan(options), judge, coverage=not options.no_coverage)
    if options.failures == "crash-stop" and not options.no_stalls:
        _note("crash-stop takes nobody for dead who lives, and stalls do that; see --no-stalls")
    campaign = Campaign(
        job,
        options.runs,
        first_seed=options.first_seed,
        stop_after=options.stop_after,
        checkpoint=_checkpoint(options),
    )
    known = campaign.resumed()
    runs_before, began_s = known.runs, time.monotonic()
    with Progress("run", options.runs) as progress, _interrupts_stop(campaign.stopped):
        campaign.report = _Meter(progress, options.runs, runs_before).step
        with _executor(options) as (executor, workers):
            campaign.run(executor, workers=workers, known=known)
        wall_s = time.monotonic() - began_s
        found = list(_look_into(options, job, known, progress, campaign.stopped))
    is_interrupted = campaign.stopped.is_set()
    if options.json:
        print(json.dumps(fields_of(job, known, found) | {"interrupted": is_interrupted}))
    else:
        for line in report_lines(
            job, known, found, runs_now=known.runs - runs_before, wall_s=wall_s
        ):
            print(plain(line))
    if is_interrupted:
        go_on = "; --resume goes on" if options.out is not None else ""
        _note(f"interrupted after {known.runs:,} of {options.runs:,} runs{go_on}")
        return INTERRUPTED
    if known.failed:
        return INVALID
    return UNKNOWN if known.unknown else VALID


def _plan(options: argparse.Namespace) -> Plan:
    named_program(options)  # Says what is wrong with its arguments, before workers do.
    base = Schedule(
        processes=options.processes,
        semantics=options.semantics or SHIPPED.name,
        mutant=options.mutant,
        heartbeat_timeout_s=options.heartbeat_timeout,
        loss=options.loss,
        **settings_of(options),
    )
    return Plan(
        options.program,
        base,
        dict(options.argument),
        stalls=not options.no_stalls,
        kinds=None if options.kind is None else tuple(options.kind),
    )


def _checkpoint(options: argparse.Namespace) -> Path | None:
    if options.out is None:
        if options.resume:
            raise CommandError("--resume needs the --out of the campaign to go on with")
        return None
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / CHECKPOINT
    if path.exists() and not options.resume:
        raise CommandError(
            f"{path} is there already; go on with it by --resume, or use another --out"
        )
    return path


@contextlib.contextmanager
def _executor(options: argparse.Namespace) -> Iterator[tuple[Executor, int]]:
    if options.dask is not None:
        require("distributed", "dask", "campaign --dask")
        with dask_cluster(options.dask) as cluster:
            yield cluster
    elif options.jobs == 1:
        yield SerialExecutor(), 1
    else:
        with process_pool(options.jobs) as pool:
            yield pool, options.jobs


@contextlib.contextmanager
def _interrupts_stop(stopped: threading.Event) -> Iterator[None]:
    """Makes an interrupt end the campaign after what runs now; a second one ends it at once."""

    def stop(number: int, frame: object) -> None:
        del number, frame
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


class _Meter:
    """Says how far a campaign is, how fast, and for how much longer."""

    def __init__(self, progress: Progress, runs: int, known: int) -> None:
        self._progress = progress
        self._runs = runs
        self._known = known
        self._began_s = time.monotonic()

    def step(self, statistics: Statistics) -> None:
        rate = (statistics.runs - self._known) / max(time.monotonic() - self._began_s, 1e-3)
        left_s = (self._runs - statistics.runs) / max(rate, 1e-3)
        failed = f", {statistics.failed:,} failed" if statistics.failed else ""
        self._progress.say(
            f"run {statistics.runs:,} of {self._runs:,}, {rate:,.0f}/s, {duration(left_s)} left{failed}"
        )


def _note(text: str) -> None:
    print(f"coordlab: note: {plain(text)}", file=sys.stderr)


# --- failures ----------------------------------------------------------------------------------


def _look_into(
    options: argparse.Namespace,
    job: Job,
    known: Statistics,
    progress: Progress,
    stopped: threading.Event,
) -> Iterator[Finding]:
    """The first failure of each kind, shrunk, and kept in files if that is asked for."""
    first = list(first_of_each_kind(known.failures))[:_KINDS_SHRUNK_MAX]
    for number, failure in enumerate(first):
        progress.say(f"shrinking failure {number + 1} of {len(first)} (seed {failure.seed})")
        runs = 1 if options.no_shrink else Budget().runs
        budget = Budget(runs=runs, is_stopped=stopped.is_set)
        shrunk = shrink_failure(job, failure, budget)
        folder = None if options.out is None else Path(options.out) / f"seed-{failure.seed}"
        finding = Finding(shrunk, folder)
        if folder is not None:
            keep(finding, job)
        yield finding
