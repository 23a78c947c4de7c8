"""`coordlab diff`: one scenario in the simulator and on real processes; does the same come of it?"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker.history import History
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import BAD_INPUT, INVALID, VALID
from coord_sim.cli.extras import require
from coord_sim.cli.interrupts import end_like_ctrl_c_on_sigterm
from coord_sim.cli.numbers import positive_int, positive_seconds
from coord_sim.cli.scenarios import named_scenario, verdict_word
from coord_sim.cli.terminal import plain
from coord_sim.scenarios.scenario import PROCESSES, SIMULATOR
from coord_sim.sim.case import Case

if TYPE_CHECKING:
    from jax_bridge.differential.running import Result

EXAMPLES = """\
examples:
  coordlab diff --scenario ghost-entry
      in the simulator, on our server and on jaxlib's service, with jaxlib's clients
  coordlab diff --scenario single-reset --service real
      on jaxlib's service alone
  coordlab diff --seeds 200 --jobs 4 --out differences
      200 drawn jobs with drawn faults; what differs is made small and saved
  coordlab diff --seeds 1 --first 17 --json
      the job of seed 17 again, as JSON

The simulator is run with the times of the real run, moved by little (docs/diff.md): a real run is the
same if one of those runs has the same ends, blocks, answers, words and verdict. Exit code: 0 if all are
the same or what differs is explained, 1 if not, 2 for bad input and for what could not be run.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "diff",
        help="compare real processes with the simulator",
        description="Runs scenarios on real processes and looks for what they saw in the simulator.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--scenario", action="append", metavar="NAME|FILE", help="may be given several times"
    )
    what.add_argument("--seeds", type=positive_int, metavar="N", help="draw N jobs with faults")
    parser.add_argument("--first", type=_seed, default=0, metavar="S", help="the first seed (0)")
    parser.add_argument(
        "--service",
        choices=("model", "real", "both"),
        default="both",
        help="our server, jaxlib's service, or one after the other (both)",
    )
    parser.add_argument(
        "--jobs", type=positive_int, default=2, metavar="J", help="runs at a time (2)"
    )
    parser.add_argument(
        "--limit",
        type=positive_seconds,
        metavar="S",
        help="ends each run then, if its own limit is later",
    )
    parser.add_argument(
        "--shrink-runs",
        type=_count,
        default=12,
        metavar="N",
        help="real runs to make one difference small; 0: leave it as it is (12)",
    )
    parser.add_argument(
        "--shrink-minutes", type=positive_seconds, default=5.0, metavar="M", help="at most (5)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("coordlab-diff"),
        metavar="DIR",
        help="where differences are saved (coordlab-diff)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Runs and compares."""
    require("jax", "jax", "diff")
    if options.service != "real":
        require("google.protobuf", "server", "diff on our server")
        require("hpack", "server", "diff on our server")
    from jax_bridge.differential.arms import SERVICES
    from jax_bridge.differential.running import Plan, run_cases
    from jax_bridge.differential.shrinking import RealBudget

    end_like_ctrl_c_on_sigterm()
    if options.out.exists() and not options.out.is_dir():
        raise CommandError(f"--out {options.out}: is no folder")
    cases = _cases(options)
    if cases is None:
        return BAD_INPUT
    plan = Plan(
        verdict=service_word,
        out=options.out,
        services=SERVICES if options.service == "both" else (options.service,),
        budget=RealBudget(options.shrink_runs, options.shrink_minutes * 60),
    )
    results = []
    for result in run_cases(cases, plan, options.jobs):
        results.append(result)
        if not options.json:
            for line in _lines(result):
                print(plain(line), flush=True)
    if options.json:
        print(json.dumps(_document(results), indent=2))
    else:
        for line in _summary(results):
            print(plain(line))
    if any(result.differs for result in results):
        return INVALID
    nothing_was_run = all(result.skipped for result in results)
    return BAD_INPUT if nothing_was_run or any(result.failed for result in results) else VALID


def service_word(history: History) -> str:
    """The checker's word on all objects of a history: the judge of both sides."""
    return verdict_word(history, "service", "suspicion")


def _cases(options: argparse.Namespace) -> list[tuple[str, Case]] | None:
    """Names and cases; None, and complaints, if a scenario is none."""
    if options.scenario is None:
        drawn = list(_drawn(options.first, options.seeds))
        return [(name, _cut(case, options.limit)) for name, case in drawn]
    cases: dict[str, Case] = {}
    for name in options.scenario:
        scenario = named_scenario(name)
        if scenario is None:
            return None
        if PROCESSES not in scenario.runs_on:
            raise CommandError(
                f"{name} runs in the simulator only; coordlab scenarios {name} says why"
            )
        if SIMULATOR not in scenario.runs_on:
            raise CommandError(f"{name} runs on real processes only: there is nothing to compare")
        if scenario.name in cases:
            raise CommandError(f"--scenario {name}: there are two of the name {scenario.name}")
        case = Case(scenario.program, scenario.schedule, dict(scenario.arguments))
        cases[scenario.name] = _cut(case, options.limit)
    return list(cases.items())


def _drawn(first: int, count: int) -> Iterator[tuple[str, Case]]:
    from jax_bridge.differential.drawing import draw_case

    for seed in range(first, first + count):
        yield f"seed-{seed}", draw_case(seed)


def _cut(case: Case, limit_s: float | None) -> Case:
    from jax_bridge.differential.arms import cut_at

    return case if limit_s is None else cut_at(case, limit_s)


# --- what is printed ---------------------------------------------------------------------------


def _lines(result: Result) -> Iterator[str]:
    head = f"{result.name} on {result.service}"
    about = f"({result.size}; {result.took_s:.0f} s)"
    if result.skipped:
        yield f"{head}: not run: {result.skipped}"
    elif result.failed:
        yield f"{head}: could not be run: {result.failed}"
    elif result.is_same:
        explained = f", but for {', '.join(result.explained)}" if result.explained else ""
        yield f"{head}: the same{explained}, timing {result.tried} {about}"
    else:
        yield f"{head}: DIFFERS in {result.level} {about}"
        yield f"  {result.first}"
        yield f"  {result.note}"
        yield f"  saved: {result.saved}"


def _summary(results: list[Result]) -> Iterator[str]:
    told = _counts(results)
    yield ", ".join(f"{count} {word}" for word, count in told.items() if count)
    explained = Counter(name for result in results for name in result.explained)
    for name, count in explained.most_common():
        yield f"explained in {count}: {name} (docs/diff.md)"


def _counts(results: list[Result]) -> dict[str, int]:
    return {
        "the same": sum(result.is_same for result in results),
        "different": sum(result.differs for result in results),
        "not run": sum(bool(result.skipped) for result in results),
        "could not be run": sum(bool(result.failed) for result in results),
    }


def _document(results: list[Result]) -> dict[str, object]:
    counts = {word.replace(" ", "_"): count for word, count in _counts(results).items()}
    runs = [{**dataclasses.asdict(result), "differs": result.differs} for result in results]
    return {"format": "coordlab diff", "version": 1, **counts, "runs": runs}


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a seed is a whole number, found {text!r}") from None


def _count(text: str) -> int:
    return 0 if text == "0" else positive_int(text)
