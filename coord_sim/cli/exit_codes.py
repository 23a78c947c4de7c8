"""What the exit codes of `coordlab` mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker import Verdict

VALID = 0
INVALID = 1
BAD_INPUT = 2
UNKNOWN = 3
INTERRUPTED = 130
BROKEN_PIPE = 141
"""As a shell reports a program that SIGPIPE ended: whoever read the output had enough."""

_WORST_FIRST = (BAD_INPUT, INVALID, UNKNOWN, VALID)


def code_of(verdict: Verdict) -> int:
    """The exit code that a verdict stands for."""
    from checker import Invalid, Valid

    if isinstance(verdict, Valid):
        return VALID
    return INVALID if isinstance(verdict, Invalid) else UNKNOWN


def worst(codes: Iterable[int]) -> int:
    """The code for several files: the first of 2, 1, 3, 0 that occurs."""
    found = set(codes)
    return next((code for code in _WORST_FIRST if code in found), VALID)
