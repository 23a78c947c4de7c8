"""Reading a history and the options that say how to judge it, the same for every subcommand."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from checker import History, LiveProcesses, MalformedHistory, Verdict, check, read
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from checker.printable import printable
from checker.search.budget import MEMORY_BYTES_MAX
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.cli.terminal import Progress


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose the specification."""
    default = LiveProcesses()
    parser.add_argument(
        "--definition",
        choices=DEFINITIONS,
        default=default.definition,
        help="one instant per round, or one per answer as in the JAX guide (default: %(default)s)",
    )
    parser.add_argument(
        "--failures",
        choices=FAILURE_MODELS,
        default=default.failures,
        help="whether a process may be declared dead while it lives (default: %(default)s)",
    )
    parser.add_argument(
        "--matchings-max",
        type=positive_int,
        default=default.matchings_max,
        metavar="N",
        help="ways to read an ambiguous history before giving up (default: %(default)s)",
    )


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Adds the options about operations of any object: how they are read, and what a search may use."""
    parser.add_argument(
        "--independent",
        action=argparse.BooleanOptionalAction,
        help="whether Jepsen's values are [key value] pairs of independent objects "
        "(default: if all are)",
    )
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--timeout",
        type=positive_seconds,
        metavar="SECONDS",
        help="give up after so long, with the verdict unknown (default: never)",
    )
    limits.add_argument(
        "--memory",
        type=positive_int,
        metavar="MIB",
        help="give up above so much memory for a search (default: 2048)",
    )
    limits.add_argument(
        "--paranoid",
        action="store_true",
        help="search without pruning rules, and replay the witness; slow",
    )


def memory_bytes_max(options: argparse.Namespace) -> int:
    """Memory that a search may use."""
    return MEMORY_BYTES_MAX if options.memory is None else int(options.memory) << 20


def spec_of(options: argparse.Namespace) -> LiveProcesses:
    """The specification that the options choose."""
    return LiveProcesses(
        definition=options.definition,
        failures=options.failures,
        matchings_max=options.matchings_max,
    )


def read_and_check(path: str, spec: LiveProcesses) -> tuple[History, Verdict]:
    """Reads and checks one file; progress and the reader's notes go to standard error.

    Raises:
      MalformedHistory: naming the file.
      OSError: the file cannot be read.
    """
    history = read_history(path)
    with Progress(f"checking {printable(path)}") as progress:
        progress.say(f"checking {printable(path)} ({len(history.events):,} events)")
        try:
            verdict = check(history, spec)
        except MalformedHistory as error:
            raise MalformedHistory(error.problem, path=path, field=error.field) from None
    return history, verdict


def read_history(path: str) -> History:
    """Reads a history of ours; progress and the reader's notes go to standard error.

    Raises:
      MalformedHistory: naming the file; if it is another tool's, with the remedy.
      OSError: the file cannot be read.
    """
    with Progress(f"reading {printable(path)}, event") as progress:
        history = read(path, report=progress.step)
    for note in history.notes:
        print(f"coordlab: {printable(path)}: {note}", file=sys.stderr)
    return history


def published_verdict(history: History, verdict: Verdict, spec: LiveProcesses) -> Verdict | None:
    """What the published reading says about a history that was checked by rounds, else None."""
    if spec.definition != "round":
        return None
    if verdict.word == "valid":
        return verdict  # The instants of the rounds are instants of their answers.
    return check(history, replace(spec, definition="published"))
