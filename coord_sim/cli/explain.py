"""`coordlab explain`: why a job failed, from its histories and logs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coord_sim.cli import terminal
from coord_sim.cli.errors import CommandError, complain
from coord_sim.cli.exit_codes import BAD_INPUT
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.cli.terminal import plain

if TYPE_CHECKING:
    from jax_bridge.explain import Cause, Evidence, Explanation

_OTHERS_SHOWN = 4
_ECHOES_SHOWN = 3

EXAMPLES = """\
examples:
  coordlab explain logs/
      the standard error of all processes, a file each: rank-0.err, rank-1.err, ...
  coordlab explain run.jsonl run.run/logs
      what `coordlab run` leaves: a history and the logs, merged
  coordlab explain --processes 8 slurm-4711_*.out
      how many there should be, so that a process that never came is missed
  srun ... || { coordlab explain --json logs/ > why.json; [ $? = 11 ] && sbatch again.sh; }
      a scheduler's script

Files may be packed with gzip, cut, or hold noise; what cannot be read is named, and the rest is used.
Numbers of processes are taken from the names of files, or from labels in front of the lines.
Histories of different jobs are refused.

Exit code, by the class of the first cause: 0 nothing is wrong, 10 user error, 11 infrastructure,
12 preemption, 13 teardown (the work was done), 14 unknown, also if nothing was found and not everything
could be read, or nothing is in it; 2 bad input.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "explain",
        help="say why a job failed: the origin apart from its echoes",
        description="Reads histories and logs of all processes of a job, and ranks causes.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a history, a log, or a folder of them"
    )
    parser.add_argument(
        "--processes", type=positive_int, metavar="N", help="how many processes the job has"
    )
    parser.add_argument(
        "--stuck-after",
        type=positive_seconds,
        default=10.0,
        metavar="SECONDS",
        help="calls that have waited for so long at a history's end are stuck (default: %(default)g)",
    )
    parser.add_argument("--json", action="store_true", help="print an object for programs")
    parser.add_argument("--all", action="store_true", help="show all causes and all echoes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explains; the exit code of the first cause's class."""
    from jax_bridge.explain import DifferentJobs, explain

    try:
        with terminal.Progress("reading") as progress:
            explanation = explain(
                options.files,
                processes=options.processes,
                stuck_after_s=options.stuck_after,
                report=lambda path, count: progress.say(f"reading {plain(path)} ({count:,} lines)"),
            )
    except DifferentJobs as error:
        raise CommandError(str(error)) from None
    if not explanation.files:
        for path, problem in explanation.unread:
            complain(problem if problem.startswith(path) else f"{path}: {problem}")
        if not explanation.unread:
            raise CommandError(f"{', '.join(options.files)}: there are no files in it")
        return BAD_INPUT
    if options.json:
        print(json.dumps(explanation.to_json(), indent=1))
    else:
        for line in _text(explanation, show_all=options.all):
            print(line)
    for path, problem in explanation.unread:
        print(f"coordlab: not used: {plain(path)}: {plain(problem)}", file=sys.stderr)
    return explanation.exit_code


def _text(explanation: Explanation, *, show_all: bool) -> Iterator[str]:
    from jax_bridge.explain.classes import ADVICE

    count = len(explanation.files)
    if not explanation.causes:
        yield f"nothing is wrong, as far as {count} file{'s' * (count > 1)} can tell"
    else:
        first, *others = explanation.causes
        yield f"{first.failure_class.value}: {plain(first.sentence)}"
        yield f"  confidence: {first.confidence.name.lower()}"
        yield from _details(first)
        yield f"  remedy: {first.remedy}"
        yield f"  for schedulers: {ADVICE[first.failure_class]}"
        yield from _echoes(explanation, show_all=show_all)
        shown = others if show_all else others[:_OTHERS_SHOWN]
        if shown:
            yield ""
            yield "less likely, or a consequence:"
        for cause in shown:
            confidence = cause.confidence.name.lower()
            yield f"  {cause.failure_class.value}, {confidence}: {plain(cause.sentence)}"
            yield f"    {_quote(cause.evidence[0])}"
        if len(others) > len(shown):
            yield f"  and {len(others) - len(shown)} more (--all)"
    notes = [(file.path, note) for file in explanation.files for note in file.notes]
    times = [file for file in explanation.files if file.times_since and explanation.causes]
    if explanation.harmless or explanation.warnings or notes or times:
        yield ""
    for sighting in explanation.warnings:
        yield f"note: {sighting.message.meaning}: {_quote(sighting.evidence)}"
    if explanation.harmless:
        harmless = len(explanation.harmless)
        yield (
            f"harmless: {_quote(explanation.harmless[0].evidence)}"
            + (f", and {harmless - 1} more" if harmless > 1 else "")
        )
    for path, note in notes:
        yield f"note: {plain(path)}: {plain(note)}"
    for file in times:
        yield f"note: times in {plain(file.path)} count from {file.times_since}"


def _details(cause: Cause) -> Iterator[str]:
    for detail in cause.details:
        yield f"  {plain(detail)}"
    yield "  evidence:"
    for evidence in cause.evidence:
        yield f"    {_quote(evidence)}"


def _echoes(explanation: Explanation, *, show_all: bool) -> Iterator[str]:
    echoes = explanation.echoes
    if not echoes:
        return
    from jax_bridge.explain.causes import named
    from jax_bridge.explain.job_logs import clock

    processes = sorted({echo.process for echo in echoes if echo.process is not None})
    times = sorted(echo.time_s for echo in echoes if echo.time_s is not None)
    who = named(processes) if processes or len(echoes) == 1 else f"{len(echoes)} processes"
    when = ""
    if times:
        first, last = clock(times[0]), clock(times[-1])
        when = f" at {first}" if first == last else f" from {first} to {last}"
    yield ""
    verb = "itself" if len(echoes) == 1 else "themselves"
    yield f"echoes: {who} ended {verb}{when} with the message that everybody prints"
    for echo in echoes if show_all else echoes[:_ECHOES_SHOWN]:
        yield f"    {_quote(echo.evidence)}"
    if not show_all and len(echoes) > _ECHOES_SHOWN:
        yield f"    and {len(echoes) - _ECHOES_SHOWN} more (--all)"


def _quote(evidence: Evidence) -> str:
    place = evidence.path if evidence.line == 0 else f"{evidence.path}:{evidence.line}"
    return f"{plain(place)}: {plain(evidence.text)}"
