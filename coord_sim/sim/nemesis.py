"""Draws faults from a seed.

`draw_schedule` does swarm testing: each run draws which kinds of faults there are and how bad they are,
within a budget, so that runs differ in kind and not only in detail. At the end comes a quiet phase, in
which everybody who lives must get on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from coord_sim.errors import ScheduleError
from coord_sim.faults import Crash, Degrade, Fault, Partition, Pause, Reset, Restart, Skew, Slow
from coord_sim.moments import SERVICE, Member, When
from coord_sim.schedule import Schedule
from coord_sim.sim.entropy import Entropy, Stream

_CRASHES_MAX: Final = 3
_RESTART_SOON: Final = 0.6
"""How often a process comes back before its death can have been noticed."""

_STAYS_DOWN: Final = 0.2
_FAULTS_MAX: Final = 8
_QUIET_S: Final = 30.0
"""Longest time from the last fault to the end of the run, beside the programs' own."""


def draw_faults(
    seed: int, processes: int, *, until_s: float, heartbeat_timeout_s: float
) -> tuple[Fault, ...]:
    """One to three crashes at random moments, most with a restart, soon or after the time-out.

    Args:
      seed: Determines the draw.
      processes: Who may be hit; the same process may be hit again.
      until_s: Crashes come before this moment.
      heartbeat_timeout_s: Restarts come up to twice as late.
    """
    stream = Entropy(seed).stream("nemesis")
    faults: list[Fault] = []
    down_until: dict[Member, float] = {}
    for _ in range(1 + stream.below(_CRASHES_MAX)):
        process = stream.below(processes)
        at_s = round(stream.between(0.5, until_s), 3)
        faults += _crash(stream, process, at_s, heartbeat_timeout_s, down_until)
    return _in_order(faults)


def draw_schedule(
    seed: int,
    base: Schedule,
    *,
    until_s: float = 6.0,
    stalls: bool = True,
    kinds: Sequence[str] | None = None,
) -> Schedule:
    """A schedule with faults of drawn kinds, and a quiet phase at its end.

    Args:
      seed: Determines the draw, and the run.
      base: All that is not drawn; its faults are kept.
      until_s: Faults begin before this moment.
      stalls: Whether members may stand still, or be cut off, for longer than the heartbeat time-out. The
        crash-stop failure model only holds without.
      kinds: Kinds to choose from, of `KINDS`; all if None.

    Raises:
      ScheduleError: an unknown kind, or a fault in `base` at a moment that the run decides.
    """
    for fault in base.faults:
        if isinstance(fault.at_s, When):
            raise ScheduleError(f"{fault} has no time; a drawn schedule ends with a quiet phase")
    known = _KINDS if stalls else {name: _KINDS[name] for name in _WITHOUT_STALLS}
    for kind in kinds or ():
        if kind not in _KINDS:
            raise ScheduleError(
                f"no kind of fault is called {kind!r}; there are {', '.join(_KINDS)}"
            )
    entropy = Entropy(seed)
    swarm = entropy.stream("nemesis/swarm")
    enabled = [name for name in known if (kinds is None or name in kinds) and swarm.chance(0.5)]
    budget = 1 + swarm.below(_FAULTS_MAX)
    drawing = _Drawing(base, until_s, stalls=stalls)
    faults: list[Fault] = list(base.faults)
    streams = {name: entropy.stream(f"nemesis/{name}") for name in enabled}
    for _ in range(budget if enabled else 0):
        name = enabled[swarm.below(len(enabled))]
        faults += known[name](drawing, streams[name])
    quiet_from_s = max((_over_s(fault) for fault in faults), default=0.0)
    return replace(
        base,
        seed=seed,
        faults=_in_order(faults),
        durable=base.durable or drawing.kills_service,
        death_order=base.death_order or entropy.stream("nemesis/deaths").order(base.task_count),
        loss=round(swarm.between(0.0, 0.1), 3) if "loss" in enabled else base.loss,
        quiet_from_s=max(quiet_from_s, until_s),
        limit_s=max(base.limit_s, quiet_from_s + _QUIET_S),
    )


class _Drawing:
    """What the draws of one schedule must know of each other."""

    def __init__(self, base: Schedule, until_s: float, *, stalls: bool) -> None:
        self.base = base
        self.until_s = until_s
        self.timeout_s = base.heartbeat_timeout_s
        self.down_until: dict[Member, float] = {}
        self.kills_service = False
        # Without stalls, those that are too short to matter must not add up.
        self.longest_s = 2.5 * self.timeout_s if stalls else self.timeout_s / 40
        self.is_mild = not stalls

    def at_s(self, stream: Stream) -> float:
        return round(stream.between(0.0, self.until_s), 3)

    def process(self, stream: Stream) -> int:
        return stream.below(self.base.processes)

    def for_s(self, stream: Stream) -> float:
        # Half of them are short, half may be longer than the time-out.
        longest_s = self.longest_s / 4 if stream.chance(0.5) else self.longest_s
        return round(stream.between(0.01, max(longest_s, 0.02)), 3)


def _crashes(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield from _crash(
        stream,
        drawing.process(stream),
        drawing.at_s(stream),
        drawing.timeout_s,
        drawing.down_until,
    )


def _host_crashes(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    """All processes of a host, or of a few, die at nearly the same moment."""
    hosts = drawing.base.hosts or tuple((p,) for p in range(drawing.base.processes))
    at_s = drawing.at_s(stream)
    for _ in range(1 if drawing.base.hosts else 2):
        for process in hosts[stream.below(len(hosts))]:
            died_s = round(at_s + stream.between(0.0, 0.05), 3)
            yield from _crash(stream, process, died_s, drawing.timeout_s, drawing.down_until)


def _pauses(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield Pause(drawing.process(stream), drawing.at_s(stream), drawing.for_s(stream))


def _slowness(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    process, at_s, for_s = drawing.process(stream), drawing.at_s(stream), drawing.for_s(stream)
    delay_s = 0.001 if drawing.is_mild else round(stream.between(0.0, 0.2), 3)
    yield Slow(process, at_s, for_s, delay_s, round(stream.between(1.0, 4.0), 2))


def _skews(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    member: Member = SERVICE if stream.chance(0.2) else drawing.process(stream)
    most = 0.02 if drawing.is_mild else 0.2
    drift = round(stream.between(-most, most), 3)
    yield Skew(member, drawing.at_s(stream), round(stream.between(-100.0, 100.0), 3), drift)


def _bad_networks(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    process = None if stream.chance(0.3) else drawing.process(stream)
    at_s = drawing.at_s(stream)
    worst_s = drawing.timeout_s / 50 if drawing.is_mild else drawing.timeout_s / 2
    yield Degrade(
        process,
        at_s,
        drawing.for_s(stream),
        delay_s=round(stream.between(0.0, worst_s), 3),
        jitter_s=round(stream.between(0.0, worst_s), 3),
        loss=0.0 if drawing.is_mild else round(stream.between(0.0, 0.5), 2),
        duplicate=round(stream.between(0.0, 0.5), 2),
        reorder=0.0 if drawing.is_mild else round(stream.between(0.0, 0.5), 2),
    )


def _partitions(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    cut = [p for p in range(drawing.base.processes) if stream.chance(0.4)]
    side: tuple[Member, ...] = tuple(cut) or (drawing.process(stream),)
    one_way = stream.chance(0.5)
    other: tuple[Member, ...] = (SERVICE,) if stream.chance(0.7) else ()
    if one_way and stream.chance(0.5):
        side, other = (SERVICE,), side
    yield Partition(side, drawing.at_s(stream), drawing.for_s(stream), other, one_way)


def _resets(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield Reset(drawing.process(stream), drawing.at_s(stream))


def _service_pauses(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield Pause(SERVICE, drawing.at_s(stream), drawing.for_s(stream))


def _service_slowness(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    delay_s = round(stream.between(0.0, 0.002 if drawing.is_mild else 0.1), 4)
    yield Slow(SERVICE, drawing.at_s(stream), drawing.for_s(stream), delay_s)


def _service_kills(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    """The service dies and comes back. jaxlib's clients die with it, so that all are started again."""
    at_s = drawing.at_s(stream)
    if drawing.kills_service:
        return
    drawing.kills_service = True
    back_s = round(at_s + stream.between(0.01, drawing.timeout_s), 3)
    yield Crash(SERVICE, at_s)
    yield Restart(SERVICE, back_s)
    for process in range(drawing.base.processes):
        again_s = round(back_s + stream.between(0.0, 2 * drawing.timeout_s), 3)
        yield Crash(process, at_s)
        yield Restart(process, again_s)
        drawing.down_until[process] = max(drawing.down_until.get(process, 0.0), again_s)


def _losses(_drawing: _Drawing, _stream: Stream) -> Iterator[Fault]:
    """Packets are lost all the time; the schedule's own setting."""
    return iter(())


_Draw = Callable[[_Drawing, Stream], Iterator[Fault]]

_KINDS: Final[dict[str, _Draw]] = {
    "crash": _crashes,
    "host crash": _host_crashes,
    "pause": _pauses,
    "slow": _slowness,
    "skew": _skews,
    "bad network": _bad_networks,
    "loss": _losses,
    "partition": _partitions,
    "reset": _resets,
    "service pause": _service_pauses,
    "service slow": _service_slowness,
    "service kill": _service_kills,
}

_WITHOUT_STALLS: Final = tuple(name for name in _KINDS if name != "loss")

KINDS: Final = tuple(_KINDS)
"""The kinds of faults that `draw_schedule` chooses from."""


def _crash(
    stream: Stream,
    process: int,
    at_s: float,
    timeout_s: float,
    down_until: dict[Member, float],
) -> Iterator[Fault]:
    """A crash, and mostly a restart, unless the process is down then."""
    if stream.chance(_RESTART_SOON):
        delay_s = stream.between(0.01, timeout_s / 2)
    else:
        delay_s = stream.between(timeout_s, 2 * timeout_s)
    stays_down = stream.chance(_STAYS_DOWN)
    if at_s <= down_until.get(process, 0.0):
        return  # It is down then, or its next restart is still to come.
    yield Crash(process, at_s)
    if stays_down:
        down_until[process] = float("inf")
        return
    back_s = round(at_s + delay_s, 3)
    down_until[process] = back_s
    yield Restart(process, back_s)


def _over_s(fault: Fault) -> float:
    assert isinstance(fault.at_s, float | int), "drawn faults come at times"
    return fault.at_s + getattr(fault, "for_s", 0.0)


def _in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    def time_s(fault: Fault) -> float:
        return fault.at_s if isinstance(fault.at_s, float | int) else 0.0

    return tuple(sorted(faults, key=time_s))
