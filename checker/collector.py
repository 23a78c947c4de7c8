"""Pauses Python's cyclic garbage collector where it would only cost time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector.

    Reading and checking make some objects per event and no garbage in cycles; every full collection
    would walk over the whole history again, which takes up to half of the time.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
