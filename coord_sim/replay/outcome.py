"""What a replay says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Verdict: TypeAlias = Literal["could", "could not", "unknown"]

COULD: Final = "could"
COULD_NOT: Final = "could not"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The first answer that the model could not have given.

    Attributes:
      event: Index of the event that shows it: the answer, or the request that has none.
      request: Index of the event of the request; None if it is not known.
      asked: The request, in words.
      state: What the model knows that matters here, a line each.
      allowed: What the model answers, or why it answers nothing.
      answered: What was recorded.
    """

    event: int
    request: int | None
    asked: str
    state: tuple[str, ...]
    allowed: str
    answered: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The outcome of a replay.

    Attributes:
      verdict: Whether the model could have given all answers.
      finding: Why not; for an unknown outcome the answer at which the search stuck, if it did.
      side: What was replayed: what a service saw, or what its callers saw.
      events: Events of the history.
      operations: Requests that the model was given.
      steps: Events and inputs that the search tried in all.
      had_choices: Whether the recording left anything open, so that a search was needed.
      notes: What was assumed, learned, and could not be judged; a sentence each.
    """

    verdict: Verdict
    finding: Finding | None
    side: Literal["service", "callers"]
    events: int
    operations: int
    steps: int
    had_choices: bool = True
    notes: tuple[str, ...] = ()
