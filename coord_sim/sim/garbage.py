"""Less garbage collection while a simulation runs."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

_ALLOCATIONS: Final = 100_000


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Lets the collector of cycles look less often: what a simulation keeps, its history, has none.

    A sixth of the time of a long run went into looking through the history again and again.
    """
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], _ALLOCATIONS) if before[0] else 0, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
