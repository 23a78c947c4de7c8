"""The command `coordlab`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import metadata

from coord_sim.cli import (
    check,
    convert,
    demo,
    report,
    run,
    serve,
    show,
    simulate,
    warmup,
    wrap,
)
from coord_sim.cli.ending import exit_code_of

_SUBCOMMANDS = (demo, check, show, report, convert, simulate, serve, run, wrap, warmup)

EXAMPLES = """\
examples:
  coordlab demo                                    the main job, end to end
  coordlab simulate --processes 3 --random-faults --seeds 500
  coordlab check demo-out/*.jsonl
  coordlab show --focus demo-out/ghost-real.jsonl

Every subcommand has examples of its own: coordlab SUBCOMMAND --help.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a subcommand; returns its exit code."""
    options = _parser().parse_args(arguments)
    return exit_code_of(lambda: int(options.run(options)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coordlab",
        description="A laboratory for JAX's distributed control plane.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action="version", version=f"coordlab {metadata.version('coordlab')}"
    )
    subparsers = parser.add_subparsers(required=True, metavar="SUBCOMMAND")
    for subcommand in _SUBCOMMANDS:
        subcommand.add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
