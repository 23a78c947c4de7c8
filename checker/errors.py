"""The errors of the checker.

CheckerError
+- MalformedHistory (ValueError)   a file or a history that breaks the format; says where and what
|                                  to do
+- SpecificationError              a specification broke its own rules: `step` raised, or returned what
|                                  it must not
+- WitnessError                    a witness does not prove what it should: a bug of the checker
+- Violation (AssertionError)      from `require_valid()` on an invalid history
+- Inconclusive (AssertionError)   from `require_valid()` on an unknown verdict
"""

from __future__ import annotations


class CheckerError(Exception):
    """All that this package raises on purpose."""


class MalformedHistory(CheckerError, ValueError):
    """A history that breaks its format.

    Attributes:
      problem: What is wrong and what to do, in one sentence.
      path: The file, if the history came from one.
      line: Line number in the file, counted from 1.
      field: The field of that line at fault, if one can be named.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | None = None,
        line: int | None = None,
        field: str | None = None,
    ) -> None:
        self.problem = problem
        self.path = path
        self.line = line
        self.field = field
        super().__init__(str(self))

    def __str__(self) -> str:
        place = self.path or ""
        if self.line is not None:
            place += f":{self.line}" if place else f"line {self.line}"
        if self.field is not None:
            # Field names come from the file: repr keeps the message on one line.
            place += f": field {self.field!r:.80}" if place else f"field {self.field!r:.80}"
        return f"{place}: {self.problem}" if place else self.problem


class SpecificationError(CheckerError):
    """A specification broke its own rules: `step` raised, or returned what it must not."""


class WitnessError(CheckerError):
    """A witness is wrong: a bug of the checker. Please report it with the history."""


class Violation(CheckerError, AssertionError):
    """A history was required to be valid and is not."""


class Inconclusive(CheckerError, AssertionError):
    """A history was required to be valid and the checker could not tell."""
