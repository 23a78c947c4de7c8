"""What is known of how an operation ended."""

from __future__ import annotations

from checker.operations import UNKNOWN, Failed, Operation


def has_result(operation: Operation) -> bool:
    """Whether it returned something: its outcome is known, and is no error."""
    return operation.result is not UNKNOWN and not isinstance(operation.result, Failed)
