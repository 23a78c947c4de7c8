"""Time-outs of barriers: none comes before its time.

The time-out of the call that opens an instance counts for all its callers, so a call that timed out
needs some call of the same barrier whose time-out was over by then.
"""

from __future__ import annotations

from checker.anomaly import Anomaly
from checker.history.events import Info, Invoke
from checker.history.history import History

TIMED_OUT = "DEADLINE_EXCEEDED"
TOO_EARLY = "barrier-timed-out-early"
"""Kind of the anomaly."""

TOLERANCE_NS = 100_000_000
"""The service measures by a clock of its own, which is read before and after the call is recorded."""

_NS_PER_MS = 1_000_000


class BarrierTimeouts:
    """The calls of barriers that were told that their time was over, by barrier.

    Args:
      history: The history; its clock must tell time.

    Complexity: linear.
    """

    def __init__(self, history: History) -> None:
        self._early: dict[str, Anomaly] = {}
        if history.header.clock == "abstract":
            return
        earliest_ns: dict[str, int] = {}
        open_: dict[int, tuple[Invoke, str]] = {}
        for event in history.events:
            if isinstance(event, Invoke) and event.operation == "barrier":
                barrier, timeout_ms = (
                    event.arguments.get("barrier"),
                    event.arguments.get("timeout_ms"),
                )
                if isinstance(barrier, str) and isinstance(timeout_ms, int):
                    until_ns = event.time_ns - event.uncertainty_ns + timeout_ms * _NS_PER_MS
                    earliest_ns[barrier] = min(until_ns, earliest_ns.get(barrier, until_ns))
                    open_[event.id] = event, barrier
            elif isinstance(event, Info) and event.code == TIMED_OUT and event.id in open_:
                invoke, barrier = open_[event.id]
                latest_ns = event.time_ns + event.uncertainty_ns + TOLERANCE_NS
                if latest_ns < earliest_ns[barrier]:
                    self._early.setdefault(barrier, _too_early(invoke, event, earliest_ns[barrier]))

    def of(self, barrier: object) -> Anomaly | None:
        """A time-out of a barrier that came too early."""
        return self._early.get(barrier) if isinstance(barrier, str) else None


def _too_early(invoke: Invoke, event: Info, earliest_ns: int) -> Anomaly:
    missing_s = (earliest_ns - event.time_ns) / 1e9
    return Anomaly(
        kind=TOO_EARLY,
        summary=(
            f"Process {event.process} (operation {event.id}) was told that the barrier timed out, "
            f"{missing_s:.3f} s before the time-out of any of its calls."
        ),
        processes=(event.process,),
        operations=(event.id,),
        from_ns=invoke.time_ns,
        to_ns=event.time_ns,
    )
