"""`coordlab explore`: all interleavings within bounds, and a shortest counterexample."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from checker import LiveProcesses, Verdict, check
from checker.history import Event, History
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from checker.live_processes.stepwise import Renaming, StepwiseMonitor
from checker.specs.blocks import check_blocks
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import INVALID, UNKNOWN, VALID
from coord_sim.cli.numbers import positive_int
from coord_sim.cli.terminal import Progress
from coord_sim.cli.verdict_text import verdict_lines
from coord_sim.core.semantics import SEMANTICS, SHIPPED, Semantics
from coord_sim.core.service import CoordinationService
from coord_sim.errors import ScheduleError
from coord_sim.explore import HOLES, PROGRAMS, Bounds, Exploration, Finding, explore, names
from coord_sim.explore.services import Factory

EXAMPLES = """\
examples:
  coordlab explore --semantics shipped --out ghost.jsonl
      a shortest history that the service as jaxlib ships it gets wrong: coordlab check ghost.jsonl
  coordlab explore --calls 2 --crashes 2 --restarts 1 --suspicions 1 --semantics published
      every interleaving of three processes and the service as published: no violation
  coordlab explore --semantics published --program blocks --failures crash-stop
      live_devices blocks: all processes leave a block in the same branch
  coordlab explore --holes
      where the shipped service takes one incarnation for another; on the published one there is none
  coordlab explore --semantics published --mutant waits-for-the-dead
      a known-wrong service

Calls and crashes are counted per process, over its restarts; restarts, suspicions and retries in all.
Exit code: 0 nothing is wrong within the bounds, 1 a violation, 2 bad input, 3 --states-max reached.
"""

STATES_MAX = 5_000_000
"""Some 1 GB."""

ALONE = {
    "ghost-entry": ("live", 2),
    "zombie-calls": ("live", 2),
    "zombie-writes": ("store", 1),
    "zombie-shuts-down-successor": ("leave", 1),
    "deaths-one-by-one": ("live", 2),
    "dead-come-back": ("live", 2),
}
"""Program and calls with which each hole is explored without the others."""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "explore",
        help="try all interleavings within bounds",
        description="Explores every interleaving of calls, messages, crashes, restarts and time-outs "
        "within bounds, with the very core that servers and simulations run.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    bounds = parser.add_argument_group("bounds")
    bounds.add_argument("--processes", type=positive_int, default=3, metavar="N")
    bounds.add_argument("--calls", type=_count, metavar="N", help="of each process (2)")
    bounds.add_argument("--crashes", type=_count, metavar="N", help="of each process (1)")
    bounds.add_argument("--crashes-in-all", type=_count, metavar="N", help="(no further limit)")
    bounds.add_argument("--restarts", type=_count, default=1, metavar="N", help="in all (1)")
    bounds.add_argument(
        "--suspicions",
        type=_count,
        default=0,
        metavar="N",
        help="living processes declared dead, after a stall longer than the time-out, in all (0)",
    )
    bounds.add_argument(
        "--retries", type=_count, metavar="N", help="registrations sent twice, in all (0)"
    )
    bounds.add_argument("--program", choices=list(PROGRAMS), help="what processes call (live)")
    bounds.add_argument("--states-max", type=positive_int, default=STATES_MAX, metavar="N")
    what = parser.add_argument_group("what is explored, and judged how")
    what.add_argument("--semantics", choices=list(SEMANTICS), default=SHIPPED.name)
    what.add_argument("--mutant", metavar="NAME", help="a known-wrong service")
    what.add_argument("--definition", choices=DEFINITIONS, default="round")
    what.add_argument("--failures", choices=FAILURE_MODELS, default="suspicion")
    what.add_argument(
        "--holes", action="store_true", help="look for holes in the identity of processes instead"
    )
    what.add_argument(
        "--no-reduction", action="store_true", help="let every message travel on its own"
    )
    what.add_argument(
        "--no-symmetry", action="store_true", help="tell states apart that differ by names only"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", metavar="FILE", help="write the shortest history; with --holes, one per hole"
    )
    output.add_argument("--json", action="store_true", help="one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explores, prints and writes."""
    if options.holes:
        return _run_holes(options)
    bounds = _bounds(options)
    spec = LiveProcesses(definition=options.definition, failures=options.failures)
    began = time.monotonic()
    found = _explored(options, bounds, SEMANTICS[options.semantics], spec)
    took_s = time.monotonic() - began
    if options.out is not None and found.violation is not None:
        found.violation.history.save(options.out)
    if options.json:
        print(json.dumps(_as_json(options, found, took_s)))
    else:
        for line in _lines(options, found, spec, took_s):
            print(line)
    return _code(found)


class StepwiseJudge:
    """The checker's definition of `live_processes`, as an exploration asks for it."""

    initial = StepwiseMonitor.initial

    def __init__(self, processes: int, spec: LiveProcesses) -> None:
        self._monitor = StepwiseMonitor(range(processes), spec)
        self._renamings: dict[tuple[int, ...], Renaming] = {}

    def after(self, state: int, events: Sequence[Event]) -> int | None:
        """The state after these events, or None if nothing explains them."""
        for event in events:
            following = self._monitor.after(state, event)
            if following is None:
                return None
            state = following
        return state

    def renamed(self, state: int, processes: Sequence[int]) -> int:
        """The state after the same events under other numbers of processes."""
        order = tuple(processes)
        renaming = self._renamings.get(order)
        if renaming is None:
            renaming = self._renamings[order] = Renaming(
                order,
                operation=lambda number: names.renamed_call(number, order),
                incarnation=lambda number: names.renamed_incarnation(number, order),
            )
        return self._monitor.renamed(state, renaming)


def _explored(
    options: argparse.Namespace, bounds: Bounds, semantics: Semantics, spec: LiveProcesses
) -> Exploration:
    judge = StepwiseJudge(bounds.processes, spec)
    with Progress("state") as progress:
        return explore(
            bounds,
            semantics,
            judge,
            factory=_factory(options),
            states_max=options.states_max,
            report=progress.step,
        )


def _bounds(
    options: argparse.Namespace, *, calls: int = 2, crashes: int = 1, retries: int = 0
) -> Bounds:
    try:
        return Bounds(
            processes=options.processes,
            calls=calls if options.calls is None else options.calls,
            crashes=crashes if options.crashes is None else options.crashes,
            crashes_in_all=options.crashes_in_all,
            restarts=options.restarts,
            suspicions=options.suspicions,
            retries=retries if options.retries is None else options.retries,
            program=options.program or ("mixed" if options.holes else "live"),
            reduced=not options.no_reduction,
            symmetric=not options.no_symmetry,
        )
    except ScheduleError as error:
        raise CommandError(str(error)) from None


def _factory(options: argparse.Namespace) -> Factory:
    if options.mutant is None:
        return CoordinationService
    from coord_sim.mutants import find

    try:
        mutant = find(options.mutant)
    except LookupError as error:
        raise CommandError(str(error)) from None
    if mutant.service is None:
        raise CommandError(f"{mutant.name} is a wrong {mutant.side}; only services are explored")
    return mutant.service


# --- output --------------------------------------------------------------------------------------


def _code(found: Exploration) -> int:
    if found.violation is not None:
        return INVALID
    return VALID if found.is_exhausted else UNKNOWN


def _lines(
    options: argparse.Namespace, found: Exploration, spec: LiveProcesses, took_s: float
) -> Iterator[str]:
    yield f"explored: {_described(options, found.bounds)}"
    yield from _counts(found, took_s)
    if found.no_progress is not None:
        yield (
            f"no progress: {found.stuck_states:,} states in which somebody waits for a process that "
            "lives and never calls; one after the fewest steps:"
        )
        yield from _steps(found.no_progress)
    if found.violation is not None:
        yield from _violation(options, found.violation, spec)
    elif found.is_exhausted:
        yield f"no violation: {spec.definition}, {spec.failures}; all of it was explored"
    else:
        yield f"unknown: no violation in the first {found.states:,} states; raise --states-max"


def _described(options: argparse.Namespace, bounds: Bounds) -> str:
    what = options.semantics if options.mutant is None else f"{options.semantics}, {options.mutant}"
    limits = [
        f"{bounds.processes} processes",
        f"{bounds.calls} calls each",
        f"{bounds.crashes} crashes each",
        f"{bounds.restarts} restarts",
        f"{bounds.suspicions} suspicions",
    ]
    if bounds.crashes_in_all is not None:
        limits.insert(3, f"{bounds.crashes_in_all} crashes in all")
    if bounds.retries:
        limits.append(f"{bounds.retries} retries")
    ways = [
        word
        for word, given in (
            ("no reduction", not bounds.reduced),
            ("no symmetry", not bounds.symmetric),
        )
        if given
    ]
    return f"{what}; program {bounds.program}; {', '.join([*limits, *ways])}"


def _counts(found: Exploration, took_s: float) -> Iterator[str]:
    yield (
        f"states: {found.states:,} ({found.protocol_states:,} of the protocol, "
        f"{found.service_states:,} of the service), {found.transitions:,} transitions, "
        f"depth {found.depth}"
    )
    yield f"time: {took_s:.1f} s, {found.states / max(took_s, 1e-9):,.0f} states/s"


def _steps(finding: Finding) -> Iterator[str]:
    for number, step in enumerate(finding.steps, start=1):
        yield f"  {number}. {step}"


def _violation(
    options: argparse.Namespace, violation: Finding, spec: LiveProcesses
) -> Iterator[str]:
    yield f"violation of {violation.kind}, after {len(violation.steps)} steps:"
    yield from _steps(violation)
    if violation.kind == "deadlock":
        yield "  Now somebody waits, nobody can move, and no living process is waited for."
    else:
        yield from verdict_lines("history", violation.history, _verdict(violation, spec), spec=spec)
    if options.out is not None:
        yield f"history: {options.out} ({len(violation.history.events)} events)"


def _verdict(violation: Finding, spec: LiveProcesses) -> Verdict:
    if violation.kind == "atomicity":
        return check_blocks(violation.history)
    return check(violation.history, spec)


def _as_json(options: argparse.Namespace, found: Exploration, took_s: float) -> dict[str, object]:
    return {
        "semantics": options.semantics,
        "mutant": options.mutant,
        "definition": options.definition,
        "failures": options.failures,
        "bounds": dataclasses.asdict(found.bounds),
        "states": found.states,
        "protocol_states": found.protocol_states,
        "service_states": found.service_states,
        "transitions": found.transitions,
        "depth": found.depth,
        "exhausted": found.is_exhausted,
        "seconds": round(took_s, 3),
        "violation": _finding_as_json(found.violation),
        "no_progress_states": found.stuck_states,
        "no_progress": _finding_as_json(found.no_progress),
    }


def _finding_as_json(finding: Finding | None) -> dict[str, object] | None:
    if finding is None:
        return None
    return {"kind": finding.kind, "steps": list(finding.steps)}


def _hole_bounds(options: argparse.Namespace) -> Bounds:
    """By default small, and yet every hole of the shipped service is within."""
    chosen = argparse.Namespace(**vars(options))
    if options.crashes is None and options.crashes_in_all is None:
        chosen.crashes_in_all = 2
    return _bounds(chosen, calls=1, crashes=2, retries=1)


# --- holes ---------------------------------------------------------------------------------------


def _run_holes(options: argparse.Namespace) -> int:
    bounds = _hole_bounds(options)
    semantics = SEMANTICS[options.semantics]
    began = time.monotonic()
    with Progress("state") as progress:
        found = explore(
            bounds,
            semantics,
            factory=_factory(options),
            states_max=options.states_max,
            sought=HOLES,
            report=progress.step,
        )
    rows = [_hole_row(options, hole, found.holes.get(hole)) for hole in HOLES]
    took_s = time.monotonic() - began
    if options.json:
        print(
            json.dumps({"semantics": options.semantics, "holes": rows, "seconds": round(took_s, 3)})
        )
    else:
        print(f"explored: {_described(options, bounds)}")
        for line in (*_counts(found, took_s), *_hole_lines(rows)):
            print(line)
    if found.holes:
        return INVALID
    return VALID if found.is_exhausted else UNKNOWN


def _hole_row(options: argparse.Namespace, hole: str, finding: Finding | None) -> dict[str, object]:
    row: dict[str, object] = {"hole": hole, "meaning": HOLES[hole], "found": finding is not None}
    if finding is None:
        return row
    row["steps"] = list(finding.steps)
    row["verdicts"] = _verdicts(finding.history)
    row["alone"] = _alone(options, hole)
    if options.out is not None:
        path = Path(options.out)
        path = path.with_stem(f"{path.stem}-{hole}")
        finding.history.save(path)
        row["history"] = str(path)
    return row


def _verdicts(history: History) -> dict[str, str]:
    return {
        f"{definition}, {failures}": check(
            history, LiveProcesses(definition=definition, failures=failures)
        ).word
        for definition in DEFINITIONS
        for failures in FAILURE_MODELS
    }


def _alone(options: argparse.Namespace, hole: str) -> dict[str, list[str] | None]:
    """Shortest ways in which this hole breaks each reading, all other holes avoided."""
    program, calls = ALONE[hole]
    bounds = dataclasses.replace(_hole_bounds(options), program=program, calls=calls)
    shortest: dict[str, list[str] | None] = {}
    for definition in DEFINITIONS:
        for failures in FAILURE_MODELS:
            spec = LiveProcesses(definition=definition, failures=failures)
            found = explore(
                bounds,
                SEMANTICS[options.semantics],
                StepwiseJudge(bounds.processes, spec),
                factory=_factory(options),
                states_max=options.states_max,
                avoided=HOLES.keys() - {hole},
            )
            steps = None if found.violation is None else list(found.violation.steps)
            shortest[f"{definition}, {failures}"] = steps
    return shortest


def _hole_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield ""
        yield f"{row['hole']}: {row['meaning']}"
        if not row["found"]:
            yield "  not found"
            continue
        for number, step in enumerate(row["steps"], start=1):
            yield f"  {number}. {step}"
        invalid = [name for name, word in row["verdicts"].items() if word == "invalid"]
        yield f"  This history is a violation of: {'; '.join(invalid) or 'nothing'}."
        broken = {name: steps for name, steps in row["alone"].items() if steps is not None}
        listed = "; ".join(f"{name} ({len(steps)} steps)" for name, steps in broken.items())
        yield f"  With no other hole, it leads to violations of: {listed or 'nothing'}."
        if "history" in row:
            yield f"  history: {shlex.quote(row['history'])}"


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 on, found {text!r}")
    return value
