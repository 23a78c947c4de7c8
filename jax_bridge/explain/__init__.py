"""Says why a job failed, from its logs and histories: the origin apart from its echoes."""

from __future__ import annotations

from jax_bridge.explain.causes import Cause, Confidence, Evidence
from jax_bridge.explain.classes import EXIT_CODES, FailureClass
from jax_bridge.explain.explanation import Explanation, explain
from jax_bridge.explain.jobs import DifferentJobs
from jax_bridge.explain.messages import KNOWN_MESSAGES, KnownMessage

__all__ = [
    "EXIT_CODES",
    "KNOWN_MESSAGES",
    "Cause",
    "Confidence",
    "DifferentJobs",
    "Evidence",
    "Explanation",
    "FailureClass",
    "KnownMessage",
    "explain",
]
