"""Where our service or client differs from jaxlib's, and why; and where jaxlib differs from the note.

Every entry must occur: one that does not fails its scenario's test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """An observation that an arm makes differently from its baseline.

    Attributes:
      scenario: Id.
      observation: Name of the observation.
      arms: Such as `stub on model`.
      jaxlib: Versions begin so; empty for all.
      reason: Why it is left so.
    """

    scenario: str
    observation: str
    arms: tuple[str, ...]
    jaxlib: str = ""
    reason: str

    def concerns(self, scenario: str, arm: str, jaxlib: str) -> bool:
        """Whether this entry is about such a run."""
        return self.scenario == scenario and arm in self.arms and jaxlib.startswith(self.jaxlib)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDifference:
    """Something that the design note says and the installed jaxlib does not do.

    Attributes:
      section: Of the note.
      note: What it says.
      jaxlib: What is measured.
      scenario: That shows it.
    """

    section: str
    note: str
    jaxlib: str
    scenario: str


KNOWN: tuple[KnownDifference, ...] = tuple(
    KnownDifference(
        scenario=scenario,
        observation="report",
        arms=("stub on model",),
        jaxlib="0.10.",
        reason="UNIMPLEMENTED on both; our server says which method it does not have",
    )
    for scenario in ("10", "13")
)

NOTE: tuple[NoteDifference, ...] = (
    NoteDifference(
        section="7",
        note="NUL is a plain character of a key.",
        jaxlib="A key ends at its first NUL, before it is normalised; answers echo it as sent.",
        scenario="k3",
    ),
)
