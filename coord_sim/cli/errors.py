"""The errors that a command ends with, in one line each."""

from __future__ import annotations

import sys

from checker import MalformedHistory
from checker.printable import printable


class CommandError(Exception):
    """Bad input or usage: printed as one line, exit code 2."""


def problem_of(error: CommandError | MalformedHistory | OSError) -> str:
    """What is wrong, and with which file."""
    if not isinstance(error, OSError):
        return str(error)
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def complain(problem: str) -> None:
    """Prints the one line."""
    print(f"coordlab: error: {printable(problem)}", file=sys.stderr)
