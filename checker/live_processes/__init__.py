"""The `live_processes` barrier: its definitions, and a near-linear checker for them."""

from checker.live_processes.spec import (
    DEFINITIONS,
    FAILURE_MODELS,
    Definition,
    FailureModel,
    LiveProcesses,
)
from checker.live_processes.witness import PlacedAnswer, PlacedFailure, Witness

__all__ = [
    "DEFINITIONS",
    "FAILURE_MODELS",
    "Definition",
    "FailureModel",
    "LiveProcesses",
    "PlacedAnswer",
    "PlacedFailure",
    "Witness",
]
