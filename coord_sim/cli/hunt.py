"""`coordlab hunt`: random scenarios on real processes; what is invalid is made small and kept."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from coord_sim.campaign.judgement import Judgement
from coord_sim.cli.campaign_report import duration
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import BAD_INPUT, INTERRUPTED, INVALID, UNKNOWN, VALID
from coord_sim.cli.extras import require
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm
from coord_sim.cli.judges import ServiceJudge
from coord_sim.cli.numbers import positive_int
from coord_sim.cli.terminal import Progress, plain
from coord_sim.sim.case import CaseError, read_case
from coord_sim.sim.run import Run
from jax_bridge.errors import LaunchFailed
from jax_bridge.hunt import Hunt, Hunter, Sighting, Where, try_case
from jax_bridge.hunt.trying import HISTORY
from jax_bridge.launcher import run_folder

EXAMPLES = """\
examples:
  coordlab hunt --minutes 10 --out found
      jaxlib's C++ service: what is invalid, made small; a folder in found/ for each kind
  coordlab hunt --minutes 60 --service model --semantics published --jobs 8
      our service as published: nothing should be found
  sh found/live-set-no-common-instant-a-ghost-entry/reproduce.sh
      one of them again
  coordlab hunt --replay found/live-set-not-in-own-answer/case.json
      one run of a case, judged; exit code 1: it shows again

A run takes some ten seconds and mostly waits, so that several go at a time. What was found is made
smaller beside the hunt, and after it for --reduce seconds at most. Ctrl-C keeps what was found.
docs/hunt.md says more.

Exit code: 0 nothing invalid, 1 something was, 2 bad input, or no run began.
"""

SUMMARY: Final = "hunt.json"
_GHOST: Final = "(a ghost entry)"
_TWO_PROCESSES: Final = "(a task has two processes)"


@dataclass(frozen=True, slots=True)
class HuntJudge:
    """The judge of all that a run shows; kinds also tell a ghost entry, and tasks with two processes.

    Attributes:
      judge: Gives the judgement.
    """

    judge: ServiceJudge = field(default_factory=ServiceJudge)

    def __call__(self, run: Run) -> Judgement:
        """The judgement."""
        found = self.judge(run)
        kind = found.kind
        if _GHOST in found.explanation:
            kind += f" {_GHOST}"
        if kind and run.schedule.places:
            kind += f" {_TWO_PROCESSES}"
        return replace(found, kind=kind)


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "hunt",
        help="run random scenarios on real processes, and keep what is invalid",
        description="Draws random scenarios, runs them with real processes on a service, checks what "
        "was recorded, and makes what is invalid as small as it can.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=_minutes, metavar="M", help="begin runs for so long (10)")
    parser.add_argument("--runs", type=positive_int, metavar="N", help="at most so many runs")
    parser.add_argument("--service", choices=("real", "model"), default="real", help="(real)")
    parser.add_argument(
        "--semantics", choices=("shipped", "published"), help="of our service (shipped)"
    )
    parser.add_argument(
        "--seed", type=_natural, default=0, metavar="S", help="scenarios are drawn from here on (0)"
    )
    parser.add_argument(
        "--jobs", type=positive_int, default=4, metavar="J", help="runs at a time (4)"
    )
    parser.add_argument(
        "--reduce",
        type=_seconds,
        default=120.0,
        metavar="S",
        help="make each kind smaller for so long, in seconds; 0: not at all (120)",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep what is found there")
    parser.add_argument(
        "--replay", metavar="FILE", help="run a case.json of a hunt once, and judge"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Hunts, or runs one case again."""
    require("jax", "jax", "hunt")
    if options.service == "model":
        require("google.protobuf", "server", "hunt --service model")
        require("hpack", "server", "hunt --service model")
    elif options.semantics not in (None, "shipped"):
        raise CommandError("--semantics is a setting of our service; the real one is as shipped")
    end_like_ctrl_c_on_sigterm()
    try:
        return _hunt(options) if options.replay is None else _replay(options)
    except (LaunchFailed, CaseError) as error:
        raise CommandError(str(error)) from None


# --- one case --------------------------------------------------------------------------------------


def _replay(options: argparse.Namespace) -> int:
    case = read_case(options.replay)
    if options.semantics is not None:
        case = replace(case, schedule=replace(case.schedule, semantics=options.semantics))
    case.make_program()  # Says what is wrong with it, before its processes do.
    with tempfile.TemporaryDirectory(prefix="coordlab-") as folder:
        where = Where(
            options.service,
            HuntJudge(),
            Path(folder) if options.out is None else options.out,
            lambda line: print(plain(line), flush=True),
        )
        trial = try_case(case, "replay", where)
    if trial.word not in (_VALID, _INVALID, _UNKNOWN):
        raise CommandError(trial.explanation)
    kind = f" ({trial.kind})" if trial.kind else ""
    print(plain(f"{options.replay}: {trial.word}{kind} on the {options.service} service"))
    for line in trial.explanation.splitlines():
        print(f"  {plain(line)}")
    if options.out is not None:
        print(plain(f"history: {trial.folder / HISTORY}"))
        print(plain(f"output: {run_folder(trial.folder / HISTORY) / 'logs'}"))
    return {_VALID: VALID, _INVALID: INVALID}.get(trial.word, UNKNOWN)


_VALID: Final = "valid"
_INVALID: Final = "invalid"
_UNKNOWN: Final = "unknown"


# --- a hunt ----------------------------------------------------------------------------------------


def _hunt(options: argparse.Namespace) -> int:
    if options.out is not None and options.out.exists():
        if not options.out.is_dir() or any(options.out.iterdir()):
            raise CommandError(f"--out {options.out} is there and not empty; name a new folder")
    with tempfile.TemporaryDirectory(prefix="coordlab-") as temporary:
        folder = options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        minutes = options.minutes or (10.0 if options.runs is None else math.inf)
        hunt = Hunt(
            where=Where(options.service, HuntJudge(), folder.absolute()),
            semantics=options.semantics or "shipped",
            first_seed=options.seed,
            time_s=60 * minutes,
            runs=options.runs,
            jobs=options.jobs,
            reduce_s=options.reduce,
        )
        with Progress("run") as progress:
            hunter = Hunter(
                hunt,
                say=_Teller(progress).say,
                progress=lambda hunter: progress.say(_progress_line(hunter)),
            )
            interrupted = False
            try:
                hunter.run()
            except KeyboardInterrupt:
                interrupted = True
        if options.out is not None:
            summary = json.dumps(_fields_of(hunter, interrupted=interrupted), indent=2)
            (folder / SUMMARY).write_text(f"{summary}\n", encoding="utf-8")
        for line in _report(hunter, is_kept=options.out is not None):
            print(plain(line))
    if interrupted:
        print("interrupted: what was found until then")
        return INTERRUPTED
    if hunter.kinds:
        return INVALID
    return VALID if hunter.runs else BAD_INPUT


class _Teller:
    """Prints what is found, each with the time, above the progress."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def say(self, sentence: str) -> None:
        self._progress.done()
        print(plain(sentence), flush=True)


def _progress_line(hunter: Hunter) -> str:
    hunt = hunter.hunt
    kinds = f", {len(hunter.kinds)} kinds of failure" if hunter.kinds else ""
    left_s = hunt.time_s - hunter.elapsed_s
    if math.isfinite(left_s):
        left = f"{duration(left_s)} left" if left_s > 0 else "time is over, finishing"
    else:
        left = f"of {hunt.runs}"
    return f"run {hunter.runs}, {left}{kinds}"


def _report(hunter: Hunter, *, is_kept: bool) -> Iterator[str]:
    hunt = hunter.hunt
    told = ", ".join(f"{count} {word}" for word, count in sorted(hunter.words.items()))
    yield (
        f"{hunter.runs} runs in {duration(hunter.elapsed_s)}, {hunt.jobs} at a time, on the "
        f"{hunt.where.service} service ({hunt.semantics}), seeds from {hunt.first_seed}: "
        f"{told or 'none came to its end'}"
    )
    for kind, count in hunter.unknown.most_common():
        yield f"  {count} x not judged: {kind}"
    if hunter.lost:
        yield f"  lost, as their workers died: seeds {', '.join(map(str, hunter.lost))}"
    if not hunter.kinds:
        yield "nothing is invalid"
        return
    rows = [("count", "first", "again", "what")]
    for kind, count in hunter.kinds.most_common():
        sighting = hunter.sightings[kind]
        first = f"run {sighting.run}, {sighting.at_s:.0f} s"
        rows.append((str(count), first, _again(sighting), kind))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{cell:{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
    for sighting in hunter.sightings.values():
        yield ""
        yield from _sighting_lines(sighting, is_kept=is_kept)
    if not is_kept:
        yield "with --out DIR all of it is kept, with a script that shows it again"


def _again(sighting: Sighting) -> str:
    reduced = sighting.reduced
    return f"{reduced.failed} of {reduced.tried}" if reduced.real else "not tried"


def _sighting_lines(sighting: Sighting, *, is_kept: bool) -> Iterator[str]:
    reduced = sighting.reduced
    case = reduced.trial.case
    yield f"{reduced.trial.kind}, seed {sighting.drawn.case.schedule.seed}"
    for line in reduced.trial.explanation.splitlines():
        yield f"  {line}"
    yield f"  {case.program} {dict(case.arguments)}"
    yield f"  {case.schedule!r}"
    if reduced.blamed:
        yield f"  a published service shows it with one deviation: {', '.join(reduced.blamed)}"
    if is_kept:
        yield f"  again: sh {shlex.quote(str(sighting.folder / 'reproduce.sh'))}"


def _fields_of(hunter: Hunter, *, interrupted: bool) -> dict[str, Any]:
    """The summary as plain data."""
    hunt = hunter.hunt
    return {
        "service": hunt.where.service,
        "semantics": hunt.semantics,
        "first_seed": hunt.first_seed,
        "jobs": hunt.jobs,
        "seconds": round(hunter.elapsed_s, 1),
        "interrupted": interrupted,
        "runs": dict(hunter.words),
        "not_judged": dict(hunter.unknown),
        "lost_seeds": hunter.lost,
        "found": [
            {
                "kind": kind,
                "count": hunter.kinds[kind],
                "seed": sighting.drawn.case.schedule.seed,
                "run": sighting.run,
                "at_s": round(sighting.at_s, 1),
                "in_simulator": sighting.reduced.in_simulator,
                "simulated_runs": sighting.reduced.simulated,
                "real_runs": sighting.reduced.real,
                "failed": sighting.reduced.failed,
                "tried": sighting.reduced.tried,
                "blamed": list(sighting.reduced.blamed),
                "folder": sighting.folder.name,
            }
            for kind, sighting in hunter.sightings.items()
        ],
    }


def _natural(text: str) -> int:
    """A whole number from 0 on."""
    return 0 if text == "0" else positive_int(text)


def _minutes(text: str) -> float:
    value = _seconds(text)
    if not value:
        raise argparse.ArgumentTypeError(f"must be a time in minutes above 0, found {text!r}")
    return value


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1e7:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1e7, found {text!r}")
    return value
