"""The error that a command ends with."""

from __future__ import annotations


class CommandError(Exception):
    """Bad input or usage: printed as one line, exit code 2."""
