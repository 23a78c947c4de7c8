"""Why a history is invalid, as data and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker.linearization import Contradiction


@dataclass(frozen=True, slots=True)
class Reason:
    """`before` must precede `after`, and why. All three are phrases or sentences for people."""

    before: str
    after: str
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Anomaly:
    """A contradiction.

    Attributes:
      kind: A stable word for machines, e.g. `counted-without-call`.
      summary: One sentence: what was answered, and what it contradicts.
      details: Further sentences.
      cycle: Constraints that chase each other's tail: each reason's `after` is the next one's
        `before`. Empty where the contradiction is immediate.
      processes: The processes involved, ascending.
      operations: Ids of the operations involved, ascending.
      from_ns, to_ns: The stretch of the history that shows it.
      evidence: For operations that are not linearizable: the contradiction as data.
    """

    kind: str
    summary: str
    details: tuple[str, ...] = ()
    cycle: tuple[Reason, ...] = ()
    processes: tuple[int, ...] = ()
    operations: tuple[int, ...] = ()
    from_ns: int = 0
    to_ns: int = 0
    evidence: Contradiction | None = None

    def explain(self) -> str:
        """All of it as text, one sentence a line."""
        lines = [self.summary, *self.details]
        if self.cycle:
            lines.append("These cannot all hold:")
            for number, reason in enumerate(self.cycle, start=1):
                order = f"{reason.before} must come before {reason.after}"
                lines.append(f"  {number}. {order}: {reason.because}.")
            lines.append("  The last of them leads back to the first: a contradiction.")
        return "\n".join(lines)
