"""The command `coordlab`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from coord_sim.cli.ending import exit_code_of

_SUBCOMMANDS = (
    "demo",
    "check",
    "show",
    "report",
    "convert",
    "replay",
    "simulate",
    "campaign",
    "explore",
    "scenarios",
    "workloads",
    "serve",
    "run",
    "hunt",
    "diff",
    "tap",
    "record",
    "merge",
    "wrap",
    "explain",
    "doctor",
    "warmup",
)
"""In the order of the help; each is a module of this package."""

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
    _stand_in_for_closed_streams()
    words = sys.argv[1:] if arguments is None else list(arguments)
    return exit_code_of(lambda: _run(words))


def _run(words: Sequence[str]) -> int:
    # The modules of all subcommands take as long to import as a small check takes.
    named = words[:1] if words and words[0] in _SUBCOMMANDS else _SUBCOMMANDS
    options = _parser(named).parse_args(words)
    return int(options.run(options))


def _stand_in_for_closed_streams() -> None:
    """What is said to a stream that was closed (`>&-`) goes nowhere, not to the other one."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end


class _Version(argparse.Action):
    """Looks the version up when it is asked for: that takes as long as a small check."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        del namespace, values, option_string
        from importlib import metadata

        print(f"coordlab {metadata.version('coordlab')}")
        parser.exit()


def _parser(subcommands: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="coordlab",
        description="A laboratory for JAX's distributed control plane.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(required=True, metavar="SUBCOMMAND")
    for subcommand in subcommands:
        importlib.import_module(f"coord_sim.cli.{subcommand}").add_parser(subparsers)
    return parser


if __name__ == "__main__":
    sys.exit(main())
