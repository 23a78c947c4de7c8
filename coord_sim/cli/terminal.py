"""What the terminal can do, and progress on it."""

from __future__ import annotations

import os
import shutil
import sys
import time
from types import TracebackType
from typing import Self

from checker.printable import printable
from checker.timeline import CHARACTERS

_REDRAW_S = 0.1


def use_colour() -> bool:
    """Whether to colour: on a capable terminal only, and never where NO_COLOR is set."""
    is_capable = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return is_capable and not os.environ.get("NO_COLOR")


def ascii_only() -> bool:
    """Whether standard output cannot show line-drawing characters."""
    try:
        CHARACTERS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError, AttributeError):  # None if it was closed at the start.
        return True
    return False


def plain(text: str) -> str:
    """Text from a file or of a file name, as it can be printed to standard output on one line."""
    return printable(text, ascii_only=ascii_only())


def width() -> int:
    """Columns of the terminal, or 100."""
    return shutil.get_terminal_size((100, 24)).columns


class Progress:
    """A line on standard error that says how far long work is; nothing where that is no terminal.

    As a context manager, it removes the line however the work ends.

    Args:
      what: What is counted, e.g. `seed`.
      total: How many there are, or None if that is not known.
    """

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total}"
        self._shown = sys.stderr is not None and sys.stderr.isatty()
        self._drawn_at = 0.0
        self._is_drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.done()

    def step(self, count: int) -> None:
        """Says that `count` are done."""
        now = time.monotonic()
        if now - self._drawn_at >= _REDRAW_S:
            self._drawn_at = now
            self.say(f"{self._what} {count:,}{self._of}")

    def say(self, text: str) -> None:
        """Says something else in the same place."""
        if self._shown:
            self._is_drawn = True
            print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)

    def done(self) -> None:
        """Removes the line."""
        if self._is_drawn:
            self._is_drawn = False
            print("\r\033[K", end="", file=sys.stderr, flush=True)
