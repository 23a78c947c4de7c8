"""`coordlab warmup`: compiles the fast searches ahead."""

from __future__ import annotations

import argparse
import time
from typing import Any

from checker.compiling import is_installed
from checker.live_processes.compiled import choice as live_processes
from checker.search import choice as search
from coord_sim.cli.errors import CommandError

EXAMPLES = """\
examples:
  coordlab warmup
      once after installing, so that no later check waits for the compiler
"""


def add_parser(subparsers: Any) -> None:
    """Adds the subcommand."""
    parser = subparsers.add_parser(
        "warmup",
        help="compile the fast searches ahead",
        description="Compiles what large or hard histories are checked with. It takes about a minute, "
        "once per installation and Python, and would else happen in the background.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compiles; 0."""
    del options
    if not is_installed():
        raise CommandError("the fast searches need numpy and numba: install coordlab[fast]")
    began_s = time.monotonic()
    try:
        search.CODE.load()
        live_processes.CODE.load()
    except ImportError as error:
        raise CommandError(f"numpy and numba cannot be used: {error}") from None
    print(f"compiled searches are ready ({time.monotonic() - began_s:.0f} s)")
    return 0
