"""The outcome of a check: a value with three cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from checker.anomaly import Anomaly
from checker.errors import Inconclusive, Violation
from checker.linearization import Linearization
from checker.live_processes.witness import Witness


@dataclass(frozen=True, slots=True)
class Valid:
    """The history satisfies the specification; `witness` proves it.

    Attributes:
      witness: For `live_processes`, an instant per answer; else an order of the operations.
      algorithm: The search that found it, in a word; empty where there is only one.
    """

    witness: Witness | Linearization
    algorithm: str = ""
    word = "valid"

    def require_valid(self) -> Valid:
        """Returns itself."""
        return self

    def explain(self) -> str:
        """The witness in sentences: which crashes were moved, and where to."""
        return self.witness.explain()


@dataclass(frozen=True, slots=True)
class Invalid:
    """The history violates the specification; `anomaly` says how.

    Attributes:
      anomaly: Why it cannot be valid.
      algorithm: The search that found it, in a word; empty where there is only one.
    """

    anomaly: Anomaly
    algorithm: str = ""
    word = "invalid"

    def require_valid(self) -> Valid:
        """Raises `Violation` with the explanation."""
        raise Violation(self.explain())

    def explain(self) -> str:
        """The cycle of constraints that cannot hold together, in sentences."""
        return self.anomaly.explain()


@dataclass(frozen=True, slots=True)
class Unknown:
    """The checker cannot tell, and says why.

    Attributes:
      reason: What stands in the way, and what to do about it.
      events_done: How many events of the object's history had an explanation by then.
      events: How many there are; 0 where that is no measure.
      algorithm: The search that gave up, in a word; empty where there is only one.
    """

    reason: str
    events_done: int = 0
    events: int = 0
    algorithm: str = ""
    word = "unknown"

    def require_valid(self) -> Valid:
        """Raises `Inconclusive` with the reason: not knowing must not look like success."""
        raise Inconclusive(self.reason)

    def explain(self) -> str:
        """The reason, and how far the check came."""
        if not self.events:
            return self.reason
        return (
            f"{self.reason}; the first {self.events_done:,} of {self.events:,} events are explained"
        )


Verdict: TypeAlias = Valid | Invalid | Unknown
