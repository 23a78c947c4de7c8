"""The command `coordlab`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

from checker import MalformedHistory
from coord_sim.cli import check, demo, run, serve, show, simulate, wrap
from coord_sim.cli.errors import CommandError, complain, problem_of
from coord_sim.cli.exit_codes import BAD_INPUT, BROKEN_PIPE, INTERRUPTED

_SUBCOMMANDS = (demo, check, show, simulate, serve, run, wrap)

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


def exit_code_of(run: Callable[[], int]) -> int:
    """Runs a command; what stops it becomes an exit code and at most one line."""
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not complain about that at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except (CommandError, MalformedHistory, OSError) as error:
        complain(problem_of(error))
        return BAD_INPUT
    except KeyboardInterrupt:
        print("coordlab: interrupted", file=sys.stderr)
        return INTERRUPTED
    return code


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
