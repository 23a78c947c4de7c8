"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How bad it is."""

    GOOD = 0
    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check.

    Attributes:
      level: How bad.
      check: Which check.
      sentence: What was found, in words.
      remedy: What to do; empty if nothing.
    """

    level: Level
    check: str
    sentence: str
    remedy: str = ""
