"""`coordlab check`: verdicts on recorded histories."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from typing import Any

from checker import History, Invalid, LiveProcesses, MalformedHistory, Verdict, check, read
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from coord_sim.cli.exit_codes import BAD_INPUT, code_of, worst
from coord_sim.cli.terminal import Progress
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


def add_reading(parser: argparse.ArgumentParser) -> None:
    """Adds the options that choose definition and failure model."""
    parser.add_argument("--definition", choices=DEFINITIONS, default="round")
    parser.add_argument("--failures", choices=FAILURE_MODELS, default="suspicion")


def run(options: argparse.Namespace) -> int:
    """Checks every file, whatever becomes of the others."""
    spec = LiveProcesses(definition=options.definition, failures=options.failures)
    progress = Progress("checking file", len(options.files))
    codes = []
    for number, path in enumerate(options.files, start=1):
        progress.step(number)
        try:
            history = read(path)
            verdict = check(history, spec)
        except (MalformedHistory, OSError) as error:
            progress.done()
            codes.append(_report_error(options, path, error))
            continue
        progress.done()
        for note in history.notes:
            print(f"coordlab: {path}: {note}", file=sys.stderr)
        _report(options, path, history, verdict)
        codes.append(code_of(verdict))
    return worst(codes)


def _report(options: argparse.Namespace, path: str, history: History, verdict: Verdict) -> None:
    if options.json:
        print(json.dumps(_fields(options, path, history, verdict)))
        return
    lines = verdict_lines(
        path,
        history,
        verdict,
        definition=options.definition,
        failures=options.failures,
        quiet=options.quiet,
    )
    for line in lines:
        print(line)


def _fields(
    options: argparse.Namespace, path: str, history: History, verdict: Verdict
) -> dict[str, object]:
    fields: dict[str, object] = {
        "file": path,
        "verdict": verdict.word,
        "definition": options.definition,
        "failures": options.failures,
        "events": len(history.events),
        "explanation": verdict.explain(),
        "notes": list(history.notes),
    }
    if isinstance(verdict, Invalid):
        fields["anomaly"] = dataclasses.asdict(verdict.anomaly)
    return fields


def _report_error(
    options: argparse.Namespace, path: str, error: MalformedHistory | OSError
) -> int:
    text = f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error)
    if options.json:
        print(json.dumps({"file": path, "error": text}))
    print(f"coordlab: error: {text}", file=sys.stderr)
    return BAD_INPUT
