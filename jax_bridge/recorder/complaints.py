"""The one line that a program's user gets to see if something is wrong with the recording."""

from __future__ import annotations

import contextlib
import sys


def complain(sentence: str) -> None:
    """Says it on standard error, if that is there; a program may have closed it."""
    with contextlib.suppress(Exception):
        if sys.stderr is not None:  # `print` would take standard output.
            print(f"coordlab: {sentence}", file=sys.stderr)
