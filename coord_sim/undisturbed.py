"""Work into which no signal must come."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def undisturbed(*numbers: signal.Signals) -> Iterator[None]:
    """Holds signals back, also from processes that are started inside; they come when it is over.

    Args:
      numbers: Which ones. One that had come before may raise at the beginning.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
