"""`coordlab report`: a history and its verdict as a page, a picture, text, or a trace."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checker import Verdict, check
from checker.printable import printable
from coord_sim.cli import terminal
from coord_sim.cli.errors import CommandError
from coord_sim.cli.exit_codes import code_of
from coord_sim.cli.reading import (
    add_limits,
    add_reading,
    memory_bytes_max,
    read_and_check,
    spec_of,
)
from coord_sim.cli.specs import named_spec

if TYPE_CHECKING:
    from checker.report import Report

FORMATS = ("html", "svg", "json", "txt")

STDOUT = "-"

EXAMPLES = """\
examples:
  coordlab report demo-out/ghost-real.jsonl --out ghost.html
      one page that works offline: lanes, faults, the anomaly, zoom and search
  coordlab report history.edn --spec register --out report.html
      a history of another tool, with "why not here?" for every operation
  coordlab report history.edn --spec register --out - --format txt
      the words and a small picture, in the terminal
  coordlab report run.jsonl --out trace.json
      a trace for ui.perfetto.dev and chrome://tracing

Exit code: that of the verdict: 0 valid, 1 invalid, 2 bad input, 3 unknown.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "report",
        help="write a history and its verdict as a page, a picture or a trace",
        description="Checks a history and writes a report.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument(
        "--spec",
        metavar="NAME",
        help="what to check, e.g. register (default: live_processes, for our own histories)",
    )
    parser.add_argument(
        "--out", metavar="OUT", required=True, help="a file to write, or - for standard output"
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="json is a trace for Perfetto and Chrome (default: by the suffix of OUT; "
        "for standard output txt)",
    )
    add_limits(parser)
    add_reading(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Checks, writes, and says what was found."""
    form = _format(options)
    report, verdict = _checked(options)
    if options.out == STDOUT:
        print(_on_terminal(report) if form == "txt" else _form(report, form))
        return code_of(verdict)
    report.save(options.out, form)
    print(f"{printable(options.out)}: {terminal.plain(options.file)} is {report.page.headline}")
    return code_of(verdict)


def _format(options: argparse.Namespace) -> str:
    if options.format is not None:
        return str(options.format)
    if options.out == STDOUT:
        return "txt"
    suffix = Path(options.out).suffix.removeprefix(".").lower()
    if suffix not in FORMATS:
        raise CommandError(
            f"{options.out}: the suffix names no form of a report; "
            f"use one of {', '.join(f'.{name}' for name in FORMATS)}, or --format"
        )
    return suffix


def _checked(options: argparse.Namespace) -> tuple[Report, Verdict]:
    from checker.report import report_of, report_of_history

    if options.spec is None:
        history, verdict = read_and_check(options.file, spec_of(options))
        return report_of_history(history, verdict, name=Path(options.file).name), verdict
    from checker.formats import read_operations

    spec = named_spec(options.spec)
    operations = read_operations(options.file, independent=options.independent)
    for note in operations.notes:
        print(f"coordlab: {printable(options.file)}: {note}", file=sys.stderr)
    verdict = check(
        operations,
        spec,
        timeout_s=options.timeout,
        memory_bytes_max=memory_bytes_max(options),
        paranoid=options.paranoid,
    )
    return report_of(operations, verdict, spec), verdict


def _form(report: Report, form: str) -> str:
    forms = {"html": report.html, "svg": report.svg, "json": report.perfetto}
    return forms[form]()


def _on_terminal(report: Report) -> str:
    return report.text(
        terminal.width(), colour=terminal.use_colour(), ascii_only=terminal.ascii_only()
    )
