"""Wrong barriers. Registration and leaving, which are barriers too, are left as they are."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from coord_sim.core.barriers import (
    REGISTRATION_BARRIER,
    Arrival,
    Barrier,
    BarrierOutcome,
    Barriers,
    Purpose,
    Told,
    shutdown_barrier,
)
from coord_sim.core.identifiers import Incarnation
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.core.status import BarrierError, Code, Status


class _WithBarriers(CoordinationService):
    barriers: ClassVar[type[Barriers]]

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        super().__init__(config, incarnation, now_ns)
        self._barriers = self.barriers(
            self.membership,
            config.semantics,
            recoverable=config.recoverable,
            once_only=(REGISTRATION_BARRIER, shutdown_barrier(incarnation)),
        )


class _OneMayMiss(Barriers):
    def arrive(self, arrival: Arrival, now_ns: int) -> list[BarrierOutcome]:
        outcomes = super().arrive(arrival, now_ns)
        barrier = self._open.get(arrival.barrier_id)
        if arrival.purpose is Purpose.BARRIER and barrier is not None:
            if len(barrier.missing) == 1:
                outcomes += self._end(barrier, None)
        return outcomes


class ReleasesABarrierEarly(_WithBarriers):
    """A barrier passes when all but one have come."""

    barriers = _OneMayMiss


class _PassedForEver(Barriers):
    def arrive(self, arrival: Arrival, now_ns: int) -> list[BarrierOutcome]:
        barrier = self._barriers.get(arrival.barrier_id)
        if arrival.purpose is Purpose.BARRIER and barrier is not None:
            if barrier.is_over and barrier.result is None:
                return [Told(arrival, None, arrival.counter)]
        return super().arrive(arrival, now_ns)


class ForgetsTheCounter(_WithBarriers):
    """A barrier that was passed once is passed by every later call, alone."""

    barriers = _PassedForEver


class _FailsOne(Barriers):
    def _end(self, barrier: Barrier, result: Status | None) -> list[BarrierOutcome]:
        outcomes = super()._end(barrier, result)
        first = outcomes[0]
        if result is None and isinstance(first, Told) and first.arrival.purpose is Purpose.BARRIER:
            status = Status(
                code=Code.ABORTED,
                message=f"Barrier ({barrier.name}) was aborted.",
                barrier_error=BarrierError(barrier.id, barrier.counter),
            )
            outcomes[0] = replace(first, result=status)
        return outcomes


class PassesForSome(_WithBarriers):
    """A barrier that all have reached passes for all but the first, which is told that it failed."""

    barriers = _FailsOne


class _HalfTime(Barriers):
    def arrive(self, arrival: Arrival, now_ns: int) -> list[BarrierOutcome]:
        if arrival.purpose is Purpose.BARRIER:
            arrival = replace(arrival, timeout_ns=arrival.timeout_ns // 2)
        return super().arrive(arrival, now_ns)


class TimesOutEarly(_WithBarriers):
    """A barrier times out after half its time."""

    barriers = _HalfTime


class _ForEver(Barriers):
    def expire(self, now_ns: int) -> list[BarrierOutcome]:
        del now_ns
        return []


class NeverTimesOut(_WithBarriers):
    """Barriers ignore their time-outs."""

    barriers = _ForEver
