"""What the extra `coordlab[testing]` installs, asked for where it is needed."""

from __future__ import annotations

import importlib.util


def require_hypothesis(module: str) -> None:
    """Raises an `ImportError` that says what to install if Hypothesis is missing."""
    if importlib.util.find_spec("hypothesis") is None:
        raise ModuleNotFoundError(
            f"{module} needs Hypothesis, which is not installed; install coordlab[testing]",
            name="hypothesis",
        )
