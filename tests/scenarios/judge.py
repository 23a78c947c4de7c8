"""The checker as the judge of scenarios."""

from __future__ import annotations

from checker import History, LiveProcesses, check


def verdict(history: History, definition: str, failures: str) -> str:
    """The word of the verdict about the live sets."""
    spec = LiveProcesses(definition=definition, failures=failures)  # type: ignore[arg-type]
    return check(history, spec).word
