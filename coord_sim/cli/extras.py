"""Optional dependencies, asked for where they are needed."""

from __future__ import annotations

import importlib.util

from coord_sim.cli.errors import CommandError


def require(module: str, extra: str, command: str) -> None:
    """Raises a `CommandError` that names the extra to install if `module` is missing."""
    try:
        is_there = importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Of the package that it would be in.
        is_there = False
    if not is_there:
        raise CommandError(
            f"`coordlab {command}` needs {module}, which is not installed; "
            f"install coordlab[{extra}]"
        )
