"""The names and numbers of the protocol."""

from __future__ import annotations

from typing import NewType

TaskId = NewType("TaskId", int)
"""A process of the job, numbered from 0. The service's word is task, JAX's is process."""

Incarnation = NewType("Incarnation", int)
"""Random 64-bit number of one start of a task, or of the service."""

CallId = NewType("CallId", int)
"""Given by the driver to each request, and named again in the reply to it."""

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
INCARNATION_BITS = 64


def seconds(time_s: float) -> int:
    """Seconds as integer nanoseconds, the unit of the core."""
    return round(time_s * NS_PER_S)
