"""`coordlab show`: a history as a picture in the terminal."""

from __future__ import annotations

import argparse
from typing import Any

from checker.timeline import timeline_lines
from coord_sim.cli import terminal
from coord_sim.cli.numbers import positive_int
from coord_sim.cli.reading import add_reading, read_and_check, spec_of

EXAMPLES = """\
examples:
  coordlab show run.jsonl | less
      the whole history, one lane a process
  coordlab show --focus demo-out/ghost-real.jsonl
      what matters for the violation, and its explanation
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "show",
        help="draw a recorded history in the terminal",
        description="Draws a history: time runs down, one lane a process.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE")
    add_reading(parser)
    parser.add_argument("--focus", action="store_true", help="only what the violation is about")
    parser.add_argument("--width", type=positive_int, metavar="N", help="columns")
    parser.add_argument("--ascii", action="store_true", help="no line-drawing characters")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Draws; 0."""
    history, verdict = read_and_check(options.file, spec_of(options))
    lines = timeline_lines(
        history,
        verdict,
        width=options.width or terminal.width(),
        colour=terminal.use_colour(),
        focus=options.focus,
        ascii_only=options.ascii or terminal.ascii_only(),
    )
    for line in lines:
        print(line)
    return 0
