"""Fault plans and schedules.

An *incident* is what goes wrong at one moment: a crash with its restart, a partition, a stall. Its kinds
are those of `coord_sim.sim.nemesis`, which draws from a seed; here each part is a choice of its own, so
that Hypothesis can leave it out or make it simpler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from coord_sim.errors import ScheduleError
from coord_sim.faults import Crash, Degrade, Fault, Partition, Pause, Reset, Restart, Skew, Slow
from coord_sim.moments import SERVICE, Member
from coord_sim.scenarios.problems import nearest
from coord_sim.schedule import Schedule

Incident: TypeAlias = tuple[Fault, ...]

_QUIET_S: Final = 30.0
"""From the last fault to the end of a run, at least."""

_SEEDS: Final = 2**16
_TICKS_A_SECOND: Final = 20
_WITHOUT_STALLS: Final = "loss"
"""The one kind that always stalls: lost packets are sent again much later."""


@dataclass(frozen=True, slots=True)
class _Setting:
    """What incidents must know of the job that they hit."""

    processes: int
    timeout_s: float
    until_s: float
    stalls: bool


# Strategies are made once for each setting: Hypothesis looks at each new one from all sides.
_once = lru_cache(maxsize=4096)


@_once
def _moments(setting: _Setting) -> SearchStrategy[float]:
    """When something goes wrong, in steps of 50 ms."""
    last = max(0, math.ceil(setting.until_s * _TICKS_A_SECOND) - 1)
    return st.integers(0, last).map(lambda ticks: ticks / _TICKS_A_SECOND)


@_once
def _process(setting: _Setting) -> SearchStrategy[int]:
    return st.integers(0, setting.processes - 1)


@_once
def _lengths(setting: _Setting) -> SearchStrategy[float]:
    """How long: short, or longer than the time-out if stalls may be."""
    # Without stalls, those that are too short to matter must not add up.
    unit_s = setting.timeout_s / 8 if setting.stalls else setting.timeout_s / 800
    return st.integers(1, 20).map(lambda units: round(units * unit_s, 4))


@_once
def _delays(setting: _Setting, mild_s: float, worst_s: float) -> SearchStrategy[float]:
    return _tenths(worst_s if setting.stalls else mild_s)


@_once
def _tenths(most: float) -> SearchStrategy[float]:
    """From 0 to `most`, in ten steps."""
    return st.integers(0, 10).map(lambda tenths: round(most * tenths / 10, 4))


@_once
def _signed(most: float) -> SearchStrategy[float]:
    return st.integers(-10, 10).map(lambda tenths: round(most * tenths / 10, 4))


@st.composite
def _crash(draw: st.DrawFn, setting: _Setting) -> Incident:
    process = draw(_process(setting))
    at_s = draw(_moments(setting))
    return _down(process, at_s, draw(_back_after(setting)))


@_once
def _back_after(setting: _Setting) -> SearchStrategy[float | None]:
    """How long a member is down: not for long, longer than the time-out, or for good."""
    soon = st.integers(1, 10).map(lambda tenths: round(setting.timeout_s / 2 * tenths / 10, 3))
    late = st.integers(10, 20).map(lambda tenths: round(setting.timeout_s * tenths / 10, 3))
    return st.one_of(st.none(), soon, late)


def _down(member: Member, at_s: float, back_after_s: float | None) -> Incident:
    if back_after_s is None:
        return (Crash(member, at_s),)
    return (Crash(member, at_s), Restart(member, round(at_s + back_after_s, 3)))


@st.composite
def _host_crash(draw: st.DrawFn, setting: _Setting) -> Incident:
    """Several processes die at nearly the same moment."""
    at_s = draw(_moments(setting))
    faults: list[Fault] = []
    for process in draw(_some_processes(setting)):
        died_s = round(at_s + draw(_tenths(0.05)), 4)
        faults += _down(process, died_s, draw(_back_after(setting)))
    return tuple(faults)


@_once
def _some_processes(setting: _Setting) -> SearchStrategy[list[int]]:
    return st.lists(_process(setting), min_size=1, max_size=setting.processes, unique=True)


def _pause(setting: _Setting) -> SearchStrategy[Incident]:
    return _alone(st.builds(Pause, _process(setting), _moments(setting), _lengths(setting)))


def _slow(setting: _Setting) -> SearchStrategy[Incident]:
    delays_s = _delays(setting, 0.001, 0.2)
    factors = st.sampled_from([1.0, 2.0, 4.0])
    return _alone(
        st.builds(Slow, _process(setting), _moments(setting), _lengths(setting), delays_s, factors)
    )


def _skew(setting: _Setting) -> SearchStrategy[Incident]:
    member: SearchStrategy[Member] = st.one_of(_process(setting), st.just(SERVICE))
    drifts = _signed(0.2 if setting.stalls else 0.02)
    return _alone(st.builds(Skew, member, _moments(setting), _signed(100.0), drifts))


@st.composite
def _bad_network(draw: st.DrawFn, setting: _Setting) -> Incident:
    process = draw(st.one_of(st.none(), _process(setting)))
    delays_s = _delays(setting, setting.timeout_s / 50, setting.timeout_s / 2)
    degrade = Degrade(
        process,
        draw(_moments(setting)),
        draw(_lengths(setting)),
        delay_s=draw(delays_s),
        jitter_s=draw(delays_s),
        loss=draw(_tenths(0.5)) if setting.stalls else 0.0,
        duplicate=draw(_tenths(0.5)),
        reorder=draw(_tenths(0.5)) if setting.stalls else 0.0,
    )
    return (degrade,)


@st.composite
def _partition(draw: st.DrawFn, setting: _Setting) -> Incident:
    side: tuple[Member, ...] = tuple(sorted(draw(_some_processes(setting))))
    other: tuple[Member, ...] = draw(st.sampled_from([(SERVICE,), ()]))
    one_way = draw(st.booleans())
    if one_way and draw(st.booleans()):
        side, other = (SERVICE,), side
    return (Partition(side, draw(_moments(setting)), draw(_lengths(setting)), other, one_way),)


def _reset(setting: _Setting) -> SearchStrategy[Incident]:
    return _alone(st.builds(Reset, _process(setting), _moments(setting)))


def _service_pause(setting: _Setting) -> SearchStrategy[Incident]:
    return _alone(st.builds(Pause, st.just(SERVICE), _moments(setting), _lengths(setting)))


def _service_slow(setting: _Setting) -> SearchStrategy[Incident]:
    delays_s = _delays(setting, 0.002, 0.1)
    return _alone(st.builds(Slow, st.just(SERVICE), _moments(setting), _lengths(setting), delays_s))


@st.composite
def _service_kill(draw: st.DrawFn, setting: _Setting) -> Incident:
    """The service dies and comes back. jaxlib's clients die with it, so that all are started again."""
    at_s = draw(_moments(setting))
    downs_s = st.integers(1, 10).map(lambda tenths: round(setting.timeout_s * tenths / 10, 3))
    faults = list(_down(SERVICE, at_s, draw(downs_s)))
    back_s = faults[-1].at_s
    assert isinstance(back_s, float)
    for process in range(setting.processes):
        again_s = round(back_s + draw(_tenths(2 * setting.timeout_s)), 3)
        faults += (Crash(process, at_s), Restart(process, again_s))
    return tuple(faults)


def _alone(fault: SearchStrategy[Any]) -> SearchStrategy[Incident]:
    return fault.map(lambda each: (each,))


_KINDS: Final[dict[str, Callable[[_Setting], SearchStrategy[Incident]]]] = {
    "crash": _crash,
    "reset": _reset,
    "pause": _pause,
    "partition": _partition,
    "slow": _slow,
    "skew": _skew,
    "bad network": _bad_network,
    "service pause": _service_pause,
    "service slow": _service_slow,
    "host crash": _host_crash,
    "service kill": _service_kill,
}
"""The simplest first: Hypothesis shrinks towards them. `loss` is a setting of a schedule."""

KINDS: Final = (*_KINDS, _WITHOUT_STALLS)


def incidents(
    processes: int,
    *,
    kinds: Sequence[str] | None = None,
    stalls: bool = True,
    until_s: float = 6.0,
    heartbeat_timeout_s: float = 3.0,
) -> SearchStrategy[tuple[Fault, ...]]:
    """What goes wrong at one moment. Arguments as of `faults`."""
    chosen = _chosen(kinds, stalls=stalls)
    return _incidents(_Setting(processes, heartbeat_timeout_s, until_s, stalls), chosen)


@_once
def _incidents(setting: _Setting, kinds: tuple[str, ...]) -> SearchStrategy[Incident]:
    return st.one_of([_KINDS[kind](setting) for kind in _KINDS if kind in kinds])


@_once
def _plans(
    setting: _Setting, kinds: tuple[str, ...], incidents_max: int
) -> SearchStrategy[tuple[Fault, ...]]:
    return st.lists(_incidents(setting, kinds), max_size=incidents_max).map(_plan)


def faults(
    processes: int,
    *,
    kinds: Sequence[str] | None = None,
    stalls: bool = True,
    until_s: float = 6.0,
    heartbeat_timeout_s: float = 3.0,
    incidents_max: int = 6,
) -> SearchStrategy[tuple[Fault, ...]]:
    """A fault plan: incidents in order of time, such that nobody crashes who is down.

    Args:
      processes: Who may be hit.
      kinds: Of `coord_sim.sim.nemesis.KINDS`; all if None.
      stalls: Whether members may stand still, or be cut off, for longer than the heartbeat time-out. The
        crash-stop failure model only holds without.
      until_s: Incidents begin before this moment.
      heartbeat_timeout_s: What "long" means.
      incidents_max: How many there are at most.

    Raises:
      ScheduleError: an unknown kind.
    """
    chosen = _chosen(kinds, stalls=stalls)
    setting = _Setting(processes, heartbeat_timeout_s, until_s, stalls)
    return _plans(setting, chosen, incidents_max)


@st.composite
def schedules(
    draw: st.DrawFn,
    /,
    processes: int | SearchStrategy[int] = st.integers(1, 4),  # noqa: B008 - strategies are values
    *,
    kinds: Sequence[str] | None = None,
    stalls: bool = True,
    until_s: float = 6.0,
    incidents_max: int = 6,
    **settings: Any,
) -> Schedule:
    """Schedules with faults, and a quiet phase at the end.

    Args:
      draw: Given by Hypothesis.
      processes: How many, or a strategy for it.
      kinds: As of `faults`.
      stalls: As of `faults`.
      until_s: As of `faults`.
      incidents_max: As of `faults`.
      settings: Other fields of the schedules.
    """
    chosen = _chosen(kinds, stalls=stalls)
    count = processes if isinstance(processes, int) else draw(processes)
    base = Schedule(processes=count, **settings)
    plan: tuple[Fault, ...] = ()
    if any(kind in _KINDS for kind in chosen):
        setting = _Setting(count, base.heartbeat_timeout_s, until_s, stalls)
        plan = draw(_plans(setting, chosen, incidents_max))
    over_s = max((_over_s(fault) for fault in (*base.faults, *plan)), default=0.0)
    kills_service = any(isinstance(f, Crash) and f.process == SERVICE for f in plan)
    loss = draw(st.integers(0, 10)) / 100 if _WITHOUT_STALLS in chosen else base.loss
    return replace(
        base,
        seed=draw(st.integers(0, _SEEDS - 1)),
        faults=(*base.faults, *plan),
        durable=base.durable or kills_service,
        loss=loss,
        quiet_from_s=over_s if plan or base.faults else None,
        limit_s=max(base.limit_s, over_s + _QUIET_S),
    )


def _chosen(kinds: Sequence[str] | None, *, stalls: bool) -> tuple[str, ...]:
    for kind in kinds or ():
        if kind not in KINDS:
            raise ScheduleError(f"no kind of fault is called {kind!r}{nearest(kind, KINDS)}")
    chosen = KINDS if kinds is None else tuple(kinds)
    return chosen if stalls else tuple(kind for kind in chosen if kind != _WITHOUT_STALLS)


def _plan(drawn: Iterable[Incident]) -> tuple[Fault, ...]:
    """The faults in order of time; without crashes of who is down, and their restarts."""
    down_until: dict[Member, float] = {}
    kept: list[Fault] = []
    for incident in sorted(drawn, key=lambda each: _at_s(each[0])):
        back_s = {fault.process: _at_s(fault) for fault in incident if isinstance(fault, Restart)}
        for fault in incident:
            if isinstance(fault, Crash):
                if _at_s(fault) <= down_until.get(fault.process, -1.0):
                    back_s.pop(fault.process, None)
                    continue
                down_until[fault.process] = back_s.get(fault.process, math.inf)
            elif isinstance(fault, Restart) and fault.process not in back_s:
                continue
            kept.append(fault)
    return tuple(sorted(kept, key=_at_s))


def _at_s(fault: Fault) -> float:
    assert isinstance(fault.at_s, float | int), "drawn faults come at times"
    return fault.at_s


def _over_s(fault: Fault) -> float:
    at_s = fault.at_s if isinstance(fault.at_s, float | int) else 0.0
    return at_s + getattr(fault, "for_s", 0.0)
