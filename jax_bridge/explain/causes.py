"""What may have been the cause of a failure, with the evidence for it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from jax_bridge.explain.classes import FailureClass

QUOTE_MAX = 300
"""Characters of a line that are quoted."""


class Confidence(IntEnum):
    """How sure a cause is."""

    LOW = 1
    MEDIUM = 2
    HIGH = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line of a file.

    Attributes:
      path, line: Where; line 0 stands for the file as a whole.
      text: What stands there, cut to `QUOTE_MAX` characters.
    """

    path: str
    line: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One explanation.

    Attributes:
      name: Identifies the kind, e.g. `killed`.
      sentence: What happened, in words.
      failure_class: Whose business it is.
      confidence: How sure it is.
      rank: Of two causes, the one with the larger rank explains the other.
      processes: Who began; empty if that is not known.
      evidence: Lines that show it; at least one.
      remedy: What to do.
      details: More that is known, each in words.
    """

    name: str
    sentence: str
    failure_class: FailureClass
    confidence: Confidence
    rank: int
    processes: tuple[int, ...]
    evidence: tuple[Evidence, ...]
    remedy: str
    details: tuple[str, ...] = ()


def quoted(text: str) -> str:
    """A text as evidence: one line, not long."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTE_MAX else line[: QUOTE_MAX - 1] + "…"


def named(processes: tuple[int, ...] | list[int]) -> str:
    """`process 3`, `processes 3 and 5`, `processes 0-6 and 9`; `a process` where none is known."""
    numbers = sorted(set(processes))
    if not numbers:
        return "a process"
    if len(numbers) == 1:
        return f"process {numbers[0]}"
    spans: list[str] = []
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            first, last = numbers[begin], numbers[i - 1]
            spans += [f"{first}-{last}"] if last > first + 1 else [str(n) for n in numbers[begin:i]]
            begin = i
    words = ", ".join(spans[:-1])
    return f"processes {words} and {spans[-1]}" if words else f"processes {spans[0]}"


def agreeing(processes: tuple[int, ...] | list[int], one: str, many: str) -> str:
    """The processes with the verb in the right number."""
    return f"{named(processes)} {one if len(set(processes)) <= 1 else many}"
