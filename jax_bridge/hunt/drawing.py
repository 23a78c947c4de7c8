"""Draws cases that real processes can run.

Swarm testing: each seed draws its own program, which kinds of faults there are, and few of them, so that
cases differ in kind and not only in detail. They are short, as real time is what a hunt has least of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from coord_sim.faults import Crash, Degrade, Fault, Partition, Pause, Reset, Restart
from coord_sim.moments import BLOCK, SERVICE, Member, Moment, When
from coord_sim.schedule import Place, Schedule
from coord_sim.sim.case import Case
from coord_sim.sim.entropy import Entropy, Stream

UNTIL_S: Final = 5.0
"""Faults at times come before this."""

LIMIT_S: Final = 45.0
"""Long enough to tell who waits for ever: programs run for some ten seconds."""

_FAULTS_MAX: Final = 4
_BACK_SOON: Final = 0.7
"""How often a process comes back before its death can have been noticed."""

_STAYS_DOWN: Final = 0.2


@dataclass(frozen=True, slots=True)
class _Work:
    """A program, and what it bears.

    Attributes:
      name: In `coord_sim.sim.programs.PROGRAMS`.
      draw: Its arguments, for so many tasks.
      operations: Inside which of its operations processes may be killed.
      first_victim: Processes below it must live, as others wait for them for ever.
      restarts: Whether a process may come back, or have a double: not where others would wait for a
        different round.
      weight: How often it is drawn.
    """

    name: str
    draw: Callable[[Stream, int], Mapping[str, Any]]
    operations: tuple[str, ...]
    first_victim: int = 0
    restarts: bool = True
    weight: int = 1


def _blocks(stream: Stream, _tasks: int) -> Mapping[str, Any]:
    leaves_early = 0.2 if stream.chance(0.3) else 0.0
    step_s = round(stream.between(0.3, 0.8), 2)
    return {"steps": 4 + stream.below(3), "step_s": step_s, "leaves_early": leaves_early}


def _training(stream: Stream, tasks: int) -> Mapping[str, Any]:
    """One may be slower than the others, who then wait for it in the barrier."""
    set_up_s = round(stream.between(0.5, 4.0), 2)
    drawn = {"steps": 4 + stream.below(4), "step_s": 0.4, "set_up_s": set_up_s}
    if stream.chance(0.5):
        drawn |= {"slow": stream.below(tasks), "slow_s": round(stream.between(0.3, 1.5), 2)}
    return drawn


def _steps(stream: Stream, _tasks: int) -> Mapping[str, Any]:
    return {"steps": 4 + stream.below(4)}


def _writes(_stream: Stream, _tasks: int) -> Mapping[str, Any]:
    return {"writes": 12, "every_s": 0.25}


_IN_BLOCKS: Final = ("live_processes", "live_processes", BLOCK, "key_value_set")

_WORKS: Final = (
    _Work("block_traffic", _blocks, _IN_BLOCKS, weight=4),
    _Work("training_loop", _training, _IN_BLOCKS, weight=4),
    _Work("nested_sets", _steps, ("live_processes",), restarts=False, weight=2),
    _Work("store_traffic", _steps, ("key_value_set",), first_victim=1),
    _Work("barrier_traffic", _steps, ("barrier",)),
    _Work("steady_writes", _writes, ("key_value_set",)),
)

BEAR_EVERYTHING: Final = frozenset(work.name for work in _WORKS if not work.first_victim)
"""Programs that come to an end whoever dies."""


def draw_case(seed: int, *, semantics: str = "shipped") -> Case:
    """The case of a seed: program, job and faults.

    Args:
      seed: Determines all of it, and what the program draws.
      semantics: Of the service.
    """
    stream = Entropy(seed).stream("hunt")
    works = [work for work in _WORKS for _ in range(work.weight)]
    work = works[stream.below(len(works))]
    tasks = 2 + stream.below(3)
    arguments = work.draw(stream, tasks)
    timeout_s = 2.0 + stream.below(2)
    drawing = _Drawing(work, tasks, timeout_s)
    enabled = [name for name in _KINDS if stream.chance(0.4)]
    for _ in range(1 + stream.below(_FAULTS_MAX) if enabled else 0):
        drawing.faults += _KINDS[enabled[stream.below(len(enabled))]](drawing, stream)
    schedule = Schedule(
        processes=drawing.tasks,
        seed=seed,
        semantics=semantics,
        heartbeat_timeout_s=timeout_s,
        faults=tuple(drawing.faults),
        limit_s=LIMIT_S,
    )
    return Case(work.name, replace(schedule, **drawing.settings), arguments)


@dataclass(slots=True)
class _Drawing:
    """What the draws of one case must know of each other."""

    work: _Work
    tasks: int
    timeout_s: float
    faults: list[Fault] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    dead: set[int] = field(default_factory=set)

    def at_s(self, stream: Stream) -> float:
        return round(stream.between(0.3, UNTIL_S), 2)

    def for_s(self, stream: Stream) -> float:
        """Half are short, half may be longer than the time-out."""
        longest_s = (0.6 if stream.chance(0.5) else 2.5) * self.timeout_s
        return round(stream.between(0.05, longest_s), 2)

    def victim(self, stream: Stream) -> int:
        return min(self.work.first_victim + stream.below(self.tasks), self.tasks - 1)

    def inside(self, stream: Stream, process: int) -> When:
        operations = self.work.operations
        operation = operations[stream.below(len(operations))]
        return When("inside", process, operation, 1 + stream.below(4))

    def death(self, stream: Stream, process: int, at: Moment) -> Iterator[Fault]:
        """A crash, and mostly a restart; nothing for whom another draw has killed already."""
        if process in self.dead:
            return
        self.dead.add(process)
        yield Crash(process, at)
        if not self.work.restarts or stream.chance(_STAYS_DOWN):
            return
        if stream.chance(_BACK_SOON):
            back_s = stream.between(0.0, 0.3 * self.timeout_s) if stream.chance(0.5) else 0.0
        else:
            back_s = stream.between(self.timeout_s, 2 * self.timeout_s)
        yield Restart(process, When("crash", process, plus_s=round(back_s, 2)))


def _crashes(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield from drawing.death(stream, drawing.victim(stream), drawing.at_s(stream))


def _deaths_inside(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    process = drawing.victim(stream)
    yield from drawing.death(stream, process, drawing.inside(stream, process))


def _twins(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    """Two die at once, one of them in an operation: their deaths are noticed together."""
    first, second = drawing.victim(stream), drawing.victim(stream)
    if first != second and not {first, second} & drawing.dead:
        at = drawing.inside(stream, first)
        drawing.dead |= {first, second}
        yield Crash(first, at)
        yield Crash(second, at)


def _pauses(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield Pause(drawing.victim(stream), drawing.at_s(stream), drawing.for_s(stream))


def _service_pauses(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield Pause(SERVICE, drawing.at_s(stream), drawing.for_s(stream))


def _partitions(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    side: tuple[Member, ...] = (drawing.victim(stream),)
    other: tuple[Member, ...] = (SERVICE,)
    one_way = stream.chance(0.5)
    if one_way and stream.chance(0.5):
        side, other = other, side
    yield Partition(side, drawing.at_s(stream), drawing.for_s(stream), other, one_way)


def _resets(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    process = drawing.victim(stream)
    at = drawing.inside(stream, process) if stream.chance(0.5) else drawing.at_s(stream)
    yield Reset(process, at)


def _bad_networks(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    yield Degrade(
        None if stream.chance(0.3) else drawing.victim(stream),
        drawing.at_s(stream),
        drawing.for_s(stream),
        delay_s=round(stream.between(0.0, 0.5 * drawing.timeout_s), 2),
        jitter_s=round(stream.between(0.0, 0.2), 2),
        loss=round(stream.between(0.0, 0.3), 2) if stream.chance(0.5) else 0.0,
    )


def _patient_clients(drawing: _Drawing, _stream: Stream) -> Iterator[Fault]:
    """The clients were given a longer time-out than the service, and beat too rarely; no fault."""
    drawing.settings["client_heartbeat_timeout_s"] = 4 * drawing.timeout_s
    return iter(())


def _late_starts(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    """Some start later than others; no fault."""
    if "starts_s" not in drawing.settings:
        starts_s = [round(stream.between(0.0, 2.0), 2) for _ in range(drawing.tasks)]
        drawing.settings["starts_s"] = tuple(starts_s)
    return iter(())


def _duplicates(drawing: _Drawing, stream: Stream) -> Iterator[Fault]:
    """Somebody starts a second process as a task that has one, which may stand still meanwhile."""
    if "places" in drawing.settings or not drawing.work.restarts:
        return
    process, task = drawing.tasks, drawing.victim(stream)
    start_s = round(stream.between(1.0, 4.0), 2)
    starts_s = drawing.settings.get("starts_s", (0.0,) * drawing.tasks)
    drawing.settings |= {
        "processes": process + 1,
        "tasks": drawing.tasks,
        "places": (Place(process=process, task=task),),
        "starts_s": (*starts_s, start_s),
    }
    if stream.chance(0.5) and task not in drawing.dead:
        before_s = round(stream.between(0.0, drawing.timeout_s), 2)
        yield Pause(task, max(0.3, round(start_s - before_s, 2)), round(2 * before_s + 0.5, 2))


_KINDS: Final[Mapping[str, Callable[[_Drawing, Stream], Iterator[Fault]]]] = {
    "crash": _crashes,
    "death inside": _deaths_inside,
    "another death inside": _deaths_inside,
    "twins": _twins,
    "pause": _pauses,
    "service pause": _service_pauses,
    "partition": _partitions,
    "reset": _resets,
    "bad network": _bad_networks,
    "patient clients": _patient_clients,
    "late starts": _late_starts,
    "duplicate": _duplicates,
}
