"""Campaigns: a program, and how schedules are drawn for it. The same for all mutants of a kind.

Each draws from the seed what goes wrong and when, and leaves a quiet end in which everybody must get on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from checker.live_processes.spec import FailureModel
from coord_sim.faults import Crash, Degrade, Fault, Pause, Restart
from coord_sim.moments import When
from coord_sim.schedule import Place, Schedule
from coord_sim.sim import Process, Program, Run, simulate
from coord_sim.sim.entropy import Entropy, Stream
from coord_sim.sim.programs.mixed import (
    barrier_traffic,
    block_traffic,
    nested_sets,
    store_traffic,
    takeover,
)
from tests.mutants.judging import complaints

HEARTBEAT_TIMEOUT_S = 3.0
_FAULTS_UNTIL_S = 5.0
_QUIET_FROM_S = 20.0


@dataclass(frozen=True, slots=True)
class Campaign:
    """A program under drawn schedules.

    Attributes:
      draw: Draws what the seed decides.
      failures: The failure model that its schedules keep.
    """

    program: Program
    draw: Callable[[Stream], Schedule]
    failures: FailureModel = "suspicion"

    def run(self, seed: int, mutant: str = "") -> Run:
        """One run of the published service, or of a mutant of it."""
        drawn = self.draw(Entropy(seed).stream("campaign"))
        schedule = replace(drawn, seed=seed, semantics="published", mutant=mutant)
        return simulate(self.program, schedule)

    def complaints(self, seed: int, mutant: str = "") -> Iterator[tuple[str, str]]:
        """What is wrong with that run: which check says so, and its words."""
        return complaints(self.run(seed, mutant), self.failures)


def _crashes(stream: Stream, victims: range, *, restart: float = 0.8) -> tuple[Fault, ...]:
    """One crash or two, of different processes; most come back, soon or after the time-out."""
    faults: list[Fault] = []
    left = list(victims)
    for _ in range(1 + stream.below(min(2, len(left)))):
        process = left.pop(stream.below(len(left)))
        at_s = stream.between(0.5, _FAULTS_UNTIL_S)
        faults.append(Crash(process, at_s))
        if stream.chance(restart):
            most_s = HEARTBEAT_TIMEOUT_S * (0.3 if stream.chance(0.6) else 2.0)
            faults.append(Restart(process, at_s + stream.between(0.02, most_s)))
    return tuple(faults)


def _blocks(stream: Stream) -> Schedule:
    """Crashes and restarts."""
    faults = _crashes(stream, range(3))
    return Schedule(processes=3, faults=faults, quiet_from_s=_QUIET_FROM_S)


def _stalls(stream: Stream) -> Schedule:
    """A stall that is longer than the time-out."""
    pause = Pause(stream.below(3), stream.between(0.5, 3.0), stream.between(4.0, 6.0))
    return Schedule(processes=3, faults=(pause,), quiet_from_s=_QUIET_FROM_S)


def _short_stalls(stream: Stream) -> Schedule:
    """Stalls shorter than what the time-out allows after a heartbeat: nobody may be suspected."""
    faults: list[Fault] = [
        Pause(process, stream.between(0.5, 4.0), stream.between(0.3, 0.4 * HEARTBEAT_TIMEOUT_S))
        for process in range(3)
    ]
    faults.append(Crash(stream.below(3), stream.between(5.0, 8.0)))
    return Schedule(processes=3, faults=tuple(faults), quiet_from_s=_QUIET_FROM_S)


def _sets(stream: Stream) -> Schedule:
    """Perhaps a crash, for good."""
    faults = _crashes(stream, range(3), restart=0.0) if stream.chance(0.5) else ()
    return Schedule(processes=3, faults=faults, quiet_from_s=_QUIET_FROM_S)


def _store(stream: Stream) -> Schedule:
    """Crashes of all but process 0."""
    faults = _crashes(stream, range(1, 4))
    return Schedule(processes=4, faults=faults, quiet_from_s=_QUIET_FROM_S)


def _staggered(stream: Stream) -> Schedule:
    """Processes start one after the other."""
    starts = tuple(stream.between(0.0, 4.0) for _ in range(3))
    return Schedule(processes=3, starts_s=starts, quiet_from_s=_QUIET_FROM_S)


def _duplicates(stream: Stream) -> Schedule:
    """Somebody starts a second process as task 1, which takes over, and dies."""
    start_s = stream.between(1.0, 2.0)
    return Schedule(
        processes=3,
        tasks=2,
        places=(Place(process=2, task=1),),
        starts_s=(0.0, 0.0, start_s),
        faults=(Crash(2, start_s + stream.between(0.5, 1.5)),),
        limit_s=60.0,
        quiet_from_s=_QUIET_FROM_S,
    )


def _late_messages(stream: Stream) -> Schedule:
    """A process dies with a request on its way, which arrives when its successor has registered."""
    process = stream.below(3)
    last = When("inside", process, "key_value_set", 1 + stream.below(4))
    faults = (
        Degrade(process, last, 0.006, delay_s=stream.between(0.05, 0.5)),
        Crash(process, replace(last, plus_s=0.006)),
        Restart(process, replace(last, plus_s=0.007)),
    )
    return Schedule(processes=3, faults=faults)


def _dying_inside(stream: Stream) -> Schedule:
    """A process dies in the barrier, and is back soon."""
    process = stream.below(3)
    inside = When("inside", process, "live_processes", 1 + stream.below(5))
    back = replace(inside, plus_s=stream.between(0.02, 0.3))
    return Schedule(processes=3, faults=(Crash(process, inside), Restart(process, back)))


def _repeated_messages(stream: Stream) -> Schedule:
    """The network repeats messages, and mixes them up a little."""
    bad = Degrade(None, stream.between(0.0, 1.0), 4.0, duplicate=0.7, reorder=0.1, raw=True)
    return Schedule(processes=3, faults=(bad,), quiet_from_s=_QUIET_FROM_S)


def _calm(stream: Stream) -> Schedule:
    """Nothing goes wrong."""
    del stream
    return Schedule(processes=3)


def _twins(stream: Stream) -> Schedule:
    """One dies in the barrier, and another soon after, for good: they are found dead at once."""
    first = stream.below(3)
    inside = When("inside", first, "live_processes", 2 + stream.below(4))
    second = (first + 1 + stream.below(2)) % 3
    later = replace(inside, plus_s=stream.between(0.02, 0.4))
    return Schedule(processes=3, faults=(Crash(first, inside), Crash(second, later)))


async def _sums(process: Process) -> None:
    """Sums over all live devices in blocks, until every process has done so ten times in a row."""
    from coord_sim.errors import CollectiveError, ProcessFailureError

    for step in range(10):
        try:
            async with process.live_devices() as live:
                await process.sleep(0.2 * process.random.between(0.5, 1.5))
                total = await process.devices.psum(1, live).block_until_ready()
                if total != len(live):
                    process.log(f"step {step}: {total} of {len(live)}")
        except (CollectiveError, ProcessFailureError):
            continue
    await process.client.shutdown()


BLOCKS = Campaign(block_traffic(), _blocks, "crash-stop")
STALLS = Campaign(block_traffic(10), _stalls)
SHORT_STALLS = Campaign(block_traffic(12, leaves_early=0.0), _short_stalls, "crash-stop")
DYING_INSIDE = Campaign(block_traffic(leaves_early=0.0), _dying_inside, "crash-stop")
LATE_MESSAGES = Campaign(block_traffic(leaves_early=0.0), _late_messages)
REPEATED_MESSAGES = Campaign(barrier_traffic(), _repeated_messages)
TWINS = Campaign(block_traffic(leaves_early=0.0), _twins)
SETS = Campaign(nested_sets(), _sets)
STORE = Campaign(store_traffic(), _store)
BARRIERS = Campaign(barrier_traffic(), _blocks)
LATE_ARRIVALS = Campaign(barrier_traffic(2, step_s=2.5, timeout_s=4.0), _calm)
STAGGERED = Campaign(barrier_traffic(2), _staggered)
DUPLICATES = Campaign(takeover(watched_s=100.0), _duplicates)
COLLECTIVES = Campaign(_sums, _blocks)

CAMPAIGNS = {
    name: value for name, value in sorted(globals().items()) if isinstance(value, Campaign)
}
"""All of them, by name."""
