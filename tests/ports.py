"""Ports that are known before somebody listens there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from coord_sim.held_port import hold_port


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of the loopback at which services may listen, ours and jaxlib's, one after the other.

    Nobody else gets it: another test would be found there while no service is, or a connection would
    have it at its client's end.
    """
    with hold_port() as held:
        yield held.getsockname()[1]
