"""What may go wrong, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Crash:
    """Process `process` dies at `at_s` (seconds since the run began), wherever it is."""

    process: int
    at_s: float


@dataclass(frozen=True, slots=True)
class Restart:
    """Process `process` starts again at `at_s`, with a new incarnation; ignored while it runs."""

    process: int
    at_s: float


Fault: TypeAlias = Crash | Restart
