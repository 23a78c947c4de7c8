"""The outcome of a check: a value with three cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from checker.anomaly import Anomaly
from checker.errors import Inconclusive, Violation
from checker.live_processes.witness import Witness


@dataclass(frozen=True, slots=True)
class Valid:
    """The history satisfies the specification; `witness` proves it."""

    witness: Witness
    word = "valid"

    def require_valid(self) -> Valid:
        """Returns itself."""
        return self

    def explain(self) -> str:
        """The witness in sentences: which crashes were moved, and where to."""
        return self.witness.explain()


@dataclass(frozen=True, slots=True)
class Invalid:
    """The history violates the specification; `anomaly` says how."""

    anomaly: Anomaly
    word = "invalid"

    def require_valid(self) -> Valid:
        """Raises `Violation` with the explanation."""
        raise Violation(self.explain())

    def explain(self) -> str:
        """The cycle of constraints that cannot hold together, in sentences."""
        return self.anomaly.explain()


@dataclass(frozen=True, slots=True)
class Unknown:
    """The checker cannot tell, and says why."""

    reason: str
    word = "unknown"

    def require_valid(self) -> Valid:
        """Raises `Inconclusive` with the reason: not knowing must not look like success."""
        raise Inconclusive(self.reason)

    def explain(self) -> str:
        """The reason."""
        return self.reason


Verdict: TypeAlias = Valid | Invalid | Unknown
