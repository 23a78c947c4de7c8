"""`coordlab check`: verdicts on recorded histories."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from checker import History, Invalid, LiveProcesses, MalformedHistory, Verdict
from coord_sim.cli.errors import complain, problem_of
from coord_sim.cli.exit_codes import BAD_INPUT, code_of, worst
from coord_sim.cli.reading import add_reading, published_verdict, read_and_check, spec_of
from coord_sim.cli.verdict_text import verdict_lines

EXAMPLES = """\
examples:
  coordlab check run.jsonl
      the round reading, with false suspicion allowed
  coordlab check --definition published --failures crash-stop run.jsonl
      the guide's own definition
  coordlab check --json demo-out/*.jsonl
      one JSON object a line

Exit code: 0 valid, 1 invalid, 2 bad input, 3 unknown; for several files the first of 2, 1, 3, 0.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "check",
        help="check recorded histories",
        description="Checks histories against the live_processes barrier.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    add_reading(parser)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="one JSON object per file")
    output.add_argument("--quiet", action="store_true", help="verdicts without explanations")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Checks every file, whatever becomes of the others."""
    spec = spec_of(options)
    codes = []
    for path in options.files:
        try:
            history, verdict = read_and_check(path, spec)
        except (MalformedHistory, OSError) as error:
            codes.append(_report_error(options, path, error))
        else:
            _report(options, path, history, verdict, spec)
            codes.append(code_of(verdict))
    return worst(codes)


def _report(
    options: argparse.Namespace, path: str, history: History, verdict: Verdict, spec: LiveProcesses
) -> None:
    if options.json:
        print(json.dumps(_fields(path, history, verdict, spec)))
        return
    for line in verdict_lines(path, history, verdict, spec=spec, quiet=options.quiet):
        print(line)


def _fields(
    path: str, history: History, verdict: Verdict, spec: LiveProcesses
) -> dict[str, object]:
    fields: dict[str, object] = {
        "file": path,
        "verdict": verdict.word,
        "definition": spec.definition,
        "failures": spec.failures,
        "events": len(history.events),
        "explanation": verdict.explain(),
        "notes": list(history.notes),
        "cannot_know": list(history.header.cannot_know),
    }
    published = published_verdict(history, verdict, spec)
    if published is not None:
        fields["published"] = published.word
    if isinstance(verdict, Invalid):
        fields["anomaly"] = dataclasses.asdict(verdict.anomaly)
    return fields


def _report_error(options: argparse.Namespace, path: str, error: MalformedHistory | OSError) -> int:
    if options.json:
        print(json.dumps({"file": path, "error": problem_of(error)}))
    complain(problem_of(error))
    return BAD_INPUT
