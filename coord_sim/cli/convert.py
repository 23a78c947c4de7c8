"""`coordlab convert`: a history in the format of another tool."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from checker.printable import printable
from coord_sim.cli.errors import CommandError

FORMATS = ("jsonl", "edn", "porcupine")

EXAMPLES = """\
examples:
  coordlab convert store/latest/history.edn run.jsonl --to jsonl
  coordlab convert run.jsonl run.edn --to edn
      for Jepsen, Knossos and Elle
  coordlab convert history.txt.gz - --to porcupine
      to standard output, for Porcupine

The format of IN is recognised by what it holds; gzip and zstd are unpacked. docs/foreign-histories.md
says what is read and what each format cannot hold.
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "convert",
        help="write a history in another format",
        description="Reads a history of any known format and writes it in another.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", metavar="IN")
    parser.add_argument("output", metavar="OUT", help="a file, or - for standard output")
    parser.add_argument("--to", choices=FORMATS, required=True, help="format to write")
    parser.add_argument(
        "--independent",
        action=argparse.BooleanOptionalAction,
        help="whether Jepsen's values are [key value] pairs of independent objects "
        "(default: if all are)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Converts; 0."""
    from checker.formats import read_operations, write_operations

    operations = read_operations(options.input, independent=options.independent)
    try:
        write_operations(operations, options.output, options.to)
    except ValueError as error:
        raise CommandError(f"{options.input} cannot be written as {options.to}: {error}") from None
    for note in operations.notes:
        print(f"coordlab: {printable(options.input)}: {note}", file=sys.stderr)
    return 0
