"""What the terminal can do, and progress on it."""

from __future__ import annotations

import os
import shutil
import sys
import time

_REDRAW_S = 0.1


def use_colour() -> bool:
    """Whether to colour: on a terminal only, and never where NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def ascii_only() -> bool:
    """Whether standard output cannot show line-drawing characters."""
    try:
        "┌│└✗".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def width() -> int:
    """Columns of the terminal, or 100."""
    return shutil.get_terminal_size((100, 24)).columns


class Progress:
    """A line on standard error that says how far long work is; nothing where that is no terminal.

    Args:
      what: What is counted, e.g. `seed`.
      total: How many there are, or None if that is not known.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total}"
        self._shown = sys.stderr.isatty()
        self._drawn_at = 0.0

    def step(self, count: int) -> None:
        """Says that `count` are done."""
        now = time.monotonic()
        if self._shown and now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            print(f"\r{self._what} {count}{self._of}\033[K", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        """Removes the line."""
        if self._shown and self._drawn_at:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
