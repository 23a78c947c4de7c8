"""When the service looks at its clock: the phases of its tick that fit what was seen.

The service ticks once a second, from its start. A recording does not say when that was, so every tick
that showed, and every tick that did not come, narrows the phases that are possible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coord_sim.core.service import TICK_NS

_ALL: Final = ((0, TICK_NS),)


@dataclass(frozen=True, slots=True)
class Phases:
    """A set of phases: ascending, disjoint intervals of nanoseconds modulo one tick.

    Attributes:
      arcs: Pairs of first and last.
      late_ns: How much later than its phase says a tick may come.
    """

    late_ns: int
    arcs: tuple[tuple[int, int], ...] = _ALL

    @property
    def is_empty(self) -> bool:
        """Whether nothing fits."""
        return not self.arcs

    @property
    def is_narrowed(self) -> bool:
        """Whether anything was learned."""
        return self.arcs != _ALL

    def ticked_between(self, after_ns: int, until_ns: int) -> Phases:
        """Those of which a tick may have come in this interval."""
        return self._meet(after_ns - self.late_ns, until_ns)

    def silent(self, due_ns: int, until_ns: int) -> Phases:
        """Those of which no tick after `due_ns` must have come by `until_ns`."""
        first_ns = until_ns - self.late_ns
        if first_ns <= due_ns:
            return self
        if first_ns > due_ns + TICK_NS:
            return Phases(self.late_ns, ())
        return self._meet(first_ns, due_ns + TICK_NS)

    def _meet(self, first_ns: int, last_ns: int) -> Phases:
        """Those within an interval of time."""
        if last_ns - first_ns >= TICK_NS:
            return self
        first, last = first_ns % TICK_NS, last_ns % TICK_NS
        pieces = ((first, last),) if first <= last else ((0, last), (first, TICK_NS))
        met = [
            (max(a, first), min(b, last))
            for a, b in self.arcs
            for first, last in pieces
            if max(a, first) <= min(b, last)
        ]
        return Phases(self.late_ns, tuple(sorted(met)))

    def words(self) -> str:
        """Which they are, in milliseconds after a full second of the recorder's clock."""
        return " or ".join(f"{a / 1e6:.1f} to {b / 1e6:.1f} ms" for a, b in self.arcs)
