"""The first line of a history: who recorded it, by which clock, about whom."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

FORMAT_VERSION = 0
"""Version of the format that this package reads and writes (docs/history-format.md)."""

VERSION_KEY = "coordlab_history"
"""The header's field with that version, by which a history file is recognised."""

SOURCES = ("processes", "server", "simulator", "manual")
CLOCKS = ("monotonic", "virtual", "wall", "abstract")

_NOTHING: Mapping[str, object] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What must be known before the first event.

    Attributes:
      source: Who saw the events: `processes` (at the callers' edge, real processes), `server` (the
        service's side), `simulator` (callers' edge, simulated), or `manual`.
      participants: All process numbers that may occur, ascending.
      clock: `monotonic` (one host's), `virtual` (the simulator's), `wall` (several hosts'), or
        `abstract` (only the order means something).
      cannot_know: What this recorder cannot see, in words.
      details: Anything else worth keeping (seed, versions, command); readers ignore it.
    """

    source: str
    participants: tuple[int, ...]
    clock: str = "monotonic"
    cannot_know: tuple[str, ...] = ()
    details: Mapping[str, object] = field(default_factory=lambda: _NOTHING)
