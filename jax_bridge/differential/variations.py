"""Other timings of one run: what the simulator shows when only times change.

A real run is one of many that its schedule allows: a kill falls a little earlier or later, a thread is
scheduled late, the service's tick is at another phase. So the simulator is told when things happened in
the real run (each start, each fault, each call: a simulated process makes a call no earlier than the
real one did), and moves all that by little. What a program draws stays the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, TypeAlias

from checker.history import Crash as CrashEvent
from checker.history import Fail, Info, Invoke, Ok, Start
from checker.history import Fault as FaultEvent
from coord_sim.faults import Crash, Fault, Partition, Reset, Restart
from coord_sim.moments import SERVICE, Member, When
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, Program, Run, Stream, simulate
from coord_sim.sim.case import Case
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.injection import described

TICK_S: Final = 1.0
"""The service looks for the dead this often."""

_LATENCIES_S: Final = (0.0004, 0.001, 0.005, 0.03)
_SHIFTS_S: Final = (0.0, 0.002, 0.02, 0.1, 0.4)
_NUDGE_S: Final = 0.05
_LAGS_S: Final = (0.0, 0.001, 0.01, 0.1)
_START_UPS_S: Final = (0.0, 0.05, 0.2, 1.0)
_APART_S: Final = (0.0, 0.01, 0.05)
_DYING_S: Final = 2.0
"""No process takes longer to die of a reset; one that does died of something else."""

_GONE_S: Final = 0.001
"""A process is gone at least so long before it starts again."""

_START_UP_S: Final = 5.0
"""A start that begins later after a restart is another one's."""


@dataclass(frozen=True, slots=True)
class Variation:
    """A way to move the times of a run.

    Attributes:
      seed: Of the network's latencies, of lags and of incarnations.
      phase_s: All happens so much later; the service's ticks do not.
      latency_s: Of a message, at most.
      lag_s: A call is made up to this much later than in the real run.
      shifts_s: By fault, how much later (or earlier) it comes.
      start_up_s: A start that did not come to register begins to connect so much later than planned.
      joining: Any other one begins to connect later by this part, from 0 to 1, of the time that it took.
      reach: A request arrives up to this part later, from 0 to 1, of the time that its answer took.
      dying: Processes take a while to die of a reset, and send heartbeats meanwhile: this part of that
        time, from 0 to 1, a reset comes later.
      apart_s: A partition of several processes cuts them off one after the other, within this time.
      death_order: In which the service declares several processes dead that it finds in one tick.
    """

    seed: int
    phase_s: float
    latency_s: float
    lag_s: float
    shifts_s: tuple[float, ...]
    start_up_s: float = 0.0
    joining: float = 0.0
    reach: float = 0.0
    dying: float = 0.0
    apart_s: float = 0.0
    death_order: tuple[int, ...] = ()


def draw_variation(stream: Stream, faults: int, tasks: int) -> Variation:
    """Draws one from nothing."""
    return Variation(
        seed=stream.below(1 << 30),
        phase_s=stream.between(0.0, TICK_S),
        latency_s=_one_of(stream, _LATENCIES_S),
        lag_s=_one_of(stream, _LAGS_S),
        shifts_s=tuple(_shift_s(stream) for _ in range(faults)),
        start_up_s=_one_of(stream, _START_UPS_S),
        joining=_part(stream),
        reach=_part(stream),
        dying=_part(stream),
        apart_s=_one_of(stream, _APART_S),
        death_order=stream.order(tasks),
    )


def changed(stream: Stream, variation: Variation) -> Variation:
    """Draws one that differs from a given one in one thing."""
    match stream.below(13):
        case 0:
            return replace(variation, phase_s=stream.between(0.0, TICK_S))
        case 1:
            nudged_s = (variation.phase_s + stream.between(-0.1, 0.1)) % TICK_S
            return replace(variation, phase_s=nudged_s)
        case 2:
            latency_s = _one_of(stream, _LATENCIES_S)
            return replace(variation, latency_s=latency_s, seed=stream.below(1 << 30))
        case 3 if variation.shifts_s:
            shifts_s = list(variation.shifts_s)
            shifts_s[stream.below(len(shifts_s))] = _shift_s(stream)
            return replace(variation, shifts_s=tuple(shifts_s))
        case 4:
            lag_s = _one_of(stream, _LAGS_S)
            return replace(variation, lag_s=lag_s, seed=stream.below(1 << 30))
        case 5 if variation.shifts_s:
            shifts_s = list(variation.shifts_s)
            shifts_s[stream.below(len(shifts_s))] += stream.between(-_NUDGE_S, _NUDGE_S)
            return replace(variation, shifts_s=tuple(shifts_s))
        case 6:
            return replace(variation, dying=_part(stream))
        case 7:
            return replace(variation, start_up_s=_one_of(stream, _START_UPS_S))
        case 8:
            return replace(variation, apart_s=_one_of(stream, _APART_S), seed=stream.below(1 << 30))
        case 9:
            return replace(variation, joining=_part(stream))
        case 10:
            return replace(variation, reach=_part(stream), seed=stream.below(1 << 30))
        case 11:
            return replace(variation, death_order=stream.order(len(variation.death_order)))
        case _:
            return replace(variation, seed=stream.below(1 << 30))


def _one_of(stream: Stream, values: Sequence[float]) -> float:
    return values[stream.below(len(values))]


def _part(stream: Stream) -> float:
    """None, all, or a part of a whole."""
    return min(1.0, max(0.0, stream.between(-1.0, 2.0)))


def _shift_s(stream: Stream) -> float:
    most_s = _one_of(stream, _SHIFTS_S)
    return stream.between(-most_s, most_s)


# --- the real run's times ----------------------------------------------------------------------


_Call: TypeAlias = tuple[int, int, str, str, int]
"""Process, start, operation, subject, and which of these."""


class _Span(NamedTuple):
    """From when to when something took."""

    began_s: float
    took_s: float

    def within(self, part: float) -> float:
        """A moment in it; part 0: the beginning."""
        return self.began_s + part * self.took_s


def _span(began_ns: int, ended_ns: int) -> _Span:
    return _Span(began_ns / 1e9, (ended_ns - began_ns) / 1e9)


class Timing:
    """When things happened in a run on real processes.

    Args:
      case: What was run.
      run: What came of it.
    """

    def __init__(self, case: Case, run: Run) -> None:
        self._case = case
        self._end_s = run.end_s
        self._calls: dict[_Call, _Span] = {}
        self._deaths_s: dict[int, list[float]] = {}
        self._starts: dict[tuple[int, int], _Span] = {}
        counts: Counter[tuple[int, int, str, str]] = Counter()
        ended_ns = {
            event.id: event.time_ns
            for event in run.history.events
            if isinstance(event, Ok | Fail | Info)
        }
        for event in run.history.events:
            if isinstance(event, Start):
                began_ns = event.time_ns if event.since_ns is None else event.since_ns
                self._starts[event.process, event.lifetime] = _span(began_ns, event.time_ns)
            elif isinstance(event, CrashEvent):
                self._deaths_s.setdefault(event.process, []).append(event.time_ns / 1e9)
            elif isinstance(event, Invoke):
                subject = event.arguments.get("key", event.arguments.get("barrier"))
                key = (event.process, event.lifetime, event.operation, str(subject))
                counts[key] += 1
                answered_ns = ended_ns.get(event.id, event.time_ns)
                self._calls[(*key, counts[key])] = _span(event.time_ns, answered_ns)
        self._faults_s = _times_of(case.schedule.faults, run.history.faults)

    def schedule(self, variation: Variation) -> Schedule:
        """The schedule with the times of this run, moved."""
        of = self._case.schedule
        faults: list[Fault] = []
        died_s: dict[Member, float] = {}
        delays = Entropy(variation.seed).stream("partitions")
        pairs = zip(of.faults, self._faults_s, variation.shifts_s, strict=True)
        for fault, seen_s, shift_s in pairs:
            at_s = fault.at_s
            if isinstance(fault, Restart) and fault.process != SERVICE and seen_s is not None:
                assert isinstance(fault.process, int)
                seen_s = self._began_s(fault.process, seen_s, variation)
            if isinstance(at_s, When):
                # Whether it comes inside a call is the point; how much later it comes is not.
                later_s = max(0.0, at_s.plus_s + shift_s) if at_s.plus_s else 0.0
                faults.append(replace(fault, at_s=replace(at_s, plus_s=later_s)))
            else:
                moved_s = max(0.0, (at_s if seen_s is None else seen_s) + shift_s)
                if isinstance(fault, Crash):
                    died_s[fault.process] = moved_s
                elif isinstance(fault, Restart) and fault.process in died_s:
                    moved_s = max(moved_s, died_s[fault.process] + _GONE_S)
                elif isinstance(fault, Reset):
                    moved_s += variation.dying * self._dying_s(fault.process, moved_s)
                moved = replace(fault, at_s=moved_s + variation.phase_s)
                if isinstance(moved, Partition) and variation.apart_s:
                    faults += _one_by_one(moved, of.processes, variation.apart_s, delays)
                else:
                    faults.append(moved)
        starts_s: list[float | None] = []
        for process in range(of.processes):
            start_s = of.start_s(process)
            if start_s is not None:
                late_s = start_s + variation.start_up_s
                seen = self._starts.get((process, 0))
                start_s = late_s if seen is None else seen.within(variation.joining)
                start_s += variation.phase_s
            starts_s.append(start_s)
        return replace(
            of,
            seed=variation.seed,
            faults=tuple(faults),
            starts_s=tuple(starts_s),
            latency_min_s=min(of.latency_min_s, variation.latency_s),
            latency_max_s=variation.latency_s,
            death_order=variation.death_order,
            quiet_from_s=None,  # Times that move may reach into it.
            limit_s=self._end_s + variation.phase_s
            if self._end_s >= of.limit_s
            else of.limit_s + 1,
        )

    def _dying_s(self, process: int, reset_s: float) -> float:
        """How long a process took to die of a reset; 0 if it did not die of it."""
        died = [at_s for at_s in self._deaths_s.get(process, ()) if 0 < at_s - reset_s <= _DYING_S]
        return min(died) - reset_s if died else 0.0

    def _began_s(self, process: int, restarted_s: float, variation: Variation) -> float:
        """When a start began to connect: a process needs a while until then."""
        # One that was killed before it registered is not in the history; a later start is another's.
        until_s = min(
            (
                seen_s
                for fault, seen_s in zip(self._case.schedule.faults, self._faults_s, strict=True)
                if isinstance(fault, Crash | Restart) and fault.process == process
                if seen_s is not None and seen_s > restarted_s
            ),
            default=restarted_s + _START_UP_S,
        )
        began = [
            seen.within(variation.joining)
            for (whose, _), seen in self._starts.items()
            if whose == process and restarted_s <= seen.began_s <= until_s
        ]
        return min(began, default=restarted_s + variation.start_up_s)

    def program(self, variation: Variation) -> Program:
        """The program, which makes each call no earlier than in this run, and draws the same."""
        case = self._case
        inner = case.make_program()
        entropy = Entropy(case.schedule.seed)
        draws = {
            (process, lifetime): entropy.stream(f"process/{process}/{lifetime}")
            for process in range(case.schedule.processes)
            for lifetime in range(1 + _restarts_of(case.schedule, process))
        }
        lags = Entropy(variation.seed)

        for stream in draws.values():
            stream.incarnation()  # As in any start, before the program draws anything.

        async def program(process: Process) -> None:
            start = (process.number, process.lifetime)
            if start in draws:
                process.random = draws[start]
            process.client = _PacedClient(process, self._calls, variation, lags)  # type: ignore[assignment]
            await inner(process)

        return program


def vary(timing: Timing, variation: Variation) -> Run:
    """Simulates a case with the times of a run, moved."""
    return simulate(timing.program(variation), timing.schedule(variation))


def _one_by_one(
    fault: Partition, processes: int, apart_s: float, delays: Stream
) -> Iterator[Partition]:
    """A partition from the service, process by process: a relay is told of one after the other."""
    side = set(fault.side)
    other = set(fault.other) or {*range(processes), SERVICE} - side
    for process in range(processes):
        up = process in side and SERVICE in other
        down = process in other and SERVICE in side
        if up or down:
            ends: tuple[tuple[Member, ...], tuple[Member, ...]] = ((process,), (SERVICE,))
            at_s = fault.at_s
            assert not isinstance(at_s, When)
            yield replace(
                fault,
                side=ends[0 if up else 1],
                other=ends[1 if up else 0],
                at_s=at_s + delays.between(0.0, apart_s),
            )


def _restarts_of(schedule: Schedule, process: int) -> int:
    return sum(isinstance(f, Restart) and f.process == process for f in schedule.faults)


def _times_of(faults: Sequence[Fault], seen: Sequence[FaultEvent]) -> tuple[float | None, ...]:
    """When each fault came, in seconds; None if it did not."""
    coming: dict[str, list[float]] = {}
    for event in seen:
        coming.setdefault(event.name, []).append(event.time_ns / 1e9)
    order = sorted(
        range(len(faults)),
        key=lambda n: float("inf") if isinstance(at := faults[n].at_s, When) else at,
    )
    times: list[float | None] = [None] * len(faults)
    for number in order:
        left = coming.get(described(faults[number]))
        if left:
            times[number] = left.pop(0)
    return tuple(times)


# --- pacing ------------------------------------------------------------------------------------

_OPERATIONS: Final[Mapping[str, str]] = {
    "get_live_nodes": "live_processes",
    "key_value_set": "key_value_set",
    "key_value_set_bytes": "key_value_set",
    "blocking_key_value_get": "key_value_get",
    "blocking_key_value_get_bytes": "key_value_get",
    "key_value_try_get": "key_value_try_get",
    "key_value_try_get_bytes": "key_value_try_get",
    "key_value_dir_get": "key_value_dir_get",
    "key_value_dir_get_bytes": "key_value_dir_get",
    "key_value_delete": "key_value_delete",
    "key_value_increment": "key_value_increment",
    "wait_at_barrier": "barrier",
    "shutdown": "shutdown",
}
"""The methods of a client, and what histories call them."""


class _PacedClient:
    """A client that waits before each call until the real run had made it.

    Args:
      process: Whose client it is.
      calls: When the real run made each call, and how long it took.
      variation: How times are moved.
      lags: Of what each call may be later.
    """

    def __init__(
        self,
        process: Process,
        calls: Mapping[_Call, _Span],
        variation: Variation,
        lags: Entropy,
    ) -> None:
        self._process = process
        self._client = process.client
        self._calls = calls
        self._variation = variation
        self._lags = lags.stream(f"lags/{process.number}/{process.lifetime}")
        self._counts: Counter[tuple[str, str]] = Counter()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._client, name)
        operation = _OPERATIONS.get(name)
        if operation is None:
            return method  # type: ignore[no-any-return]

        async def paced(*arguments: Any, **named: Any) -> Any:
            subject = "None"
            if operation not in ("live_processes", "shutdown"):
                subject = str(arguments[0])
            self._counts[operation, subject] += 1
            process = self._process
            count = self._counts[operation, subject]
            seen = self._calls.get((process.number, process.lifetime, operation, subject, count))
            if seen is not None:
                due_s = seen.within(self._lags.between(0.0, self._variation.reach))
                due_s += self._variation.phase_s
                wait_s = due_s - process.clock_s() + self._lags.between(0.0, self._variation.lag_s)
                if wait_s > 0:
                    await process.sleep(wait_s)
            return await method(*arguments, **named)

        return paced
