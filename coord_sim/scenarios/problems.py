"""What is wrong with a scenario: where, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

from coord_sim.errors import CoordSimError
from coord_sim.scenarios.lines import Path


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong.

    Attributes:
      file: Its file, or what else it is known by.
      line: From 1; 0 if there are none.
      path: Of the key; empty for the whole file.
      text: What is wrong.
    """

    file: str
    line: int
    path: Path
    text: str

    @property
    def key(self) -> str:
        """The path as text: `faults[1].at`."""
        words = (f"[{name}]" if isinstance(name, int) else f".{name}" for name in self.path)
        return "".join(words).removeprefix(".")

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.key}: {self.text}" if self.path else f"{place}: {self.text}"


class ScenarioError(CoordSimError, ValueError):
    """A scenario that cannot be run.

    Attributes:
      problems: All that was found, in order of lines.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def nearest(name: str, names: Iterable[str]) -> str:
    """`; did you mean 'x'?` if there is a name like it, else which names there are."""
    known = sorted(names)
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if close:
        return f"; did you mean {by_lower[close[0]]!r}?"
    return f"; there are {', '.join(known)}" if known else ""
