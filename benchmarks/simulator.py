"""How fast the simulator is, as ratios to SimPy and to a bare heap in the same run.

    python benchmarks/simulator.py            ratios and speed-ups, about two minutes
    python benchmarks/simulator.py --large    the job of 10,000 processes for one simulated hour, too

An event of the simulator is something that happens in virtual time: a timer, the arrival of a message,
or an event that a process adds to the history. Each number is the best of several short runs, taken in
turns with what it is compared with, because the machine's speed varies.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import resource
import time
from collections.abc import Callable, Generator
from typing import Any

import simpy

from coord_sim.faults import Crash
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, Program, Simulation, simulate

ROUNDS = 7


async def idle(process: Process) -> None:
    """Only heartbeats."""
    await process.sleep(1e9)


async def busy(process: Process) -> None:
    """A `live_devices` block and a write every 0.2 s."""
    while True:
        async with process.live_devices():
            await process.sleep(0.2)
            await process.client.key_value_set(f"step/{process.number}", "1", True)


def simpy_loop(events: int, processes: int) -> float:
    """Time-outs a second of SimPy."""
    environment = simpy.Environment()

    def beat() -> Generator[Any, Any, None]:
        while True:
            yield environment.timeout(1.0)

    for _ in range(processes):
        environment.process(beat())
    began_s = time.perf_counter()
    environment.run(until=events / processes)
    return events / (time.perf_counter() - began_s)


def heap_loop(events: int, processes: int) -> float:
    """Events a second of a loop over nothing but a heap."""
    heap = [(p * 7919 % processes, p) for p in range(processes)]
    heapq.heapify(heap)
    sequence = processes
    began_s = time.perf_counter()
    for _ in range(events):
        at, _ = heapq.heappop(heap)
        sequence += 1
        heapq.heappush(heap, (at + processes, sequence))
    return events / (time.perf_counter() - began_s)


def simulator(program: Program, processes: int, limit_s: float, heartbeat_s: float) -> float:
    """Events a second of the simulator."""
    schedule = Schedule(processes=processes, heartbeat_timeout_s=2 * heartbeat_s, limit_s=limit_s)
    simulation = Simulation(program, schedule)
    simulation.run_until(heartbeat_s)  # Starting is paid once, and is no cost of an event.
    before = simulation.queue.ran + len(simulation.events)
    began_s = time.perf_counter()
    run = simulation.run()
    took_s = time.perf_counter() - began_s
    return (run.events + len(run.history.events) - before) / took_s


def best(*measured: Callable[[], float]) -> list[float]:
    """The best of several rounds of each, taken in turns."""
    found = [0.0] * len(measured)
    for _ in range(ROUNDS):
        for number, measure in enumerate(measured):
            gc.collect()
            found[number] = max(found[number], measure())
    return found


def print_ratios() -> None:
    """Events a second beside SimPy's."""
    for name, program, limit_s in (("heartbeats only", idle, 3000.0), ("busy", busy, 60.0)):
        bare, ours = best(
            lambda: simpy_loop(100_000, 4),
            lambda program=program, limit_s=limit_s: simulator(program, 4, limit_s, 1.0),  # type: ignore[misc]
        )
        print(
            f"4 processes, {name}: {ours:,.0f} events/s, SimPy {bare:,.0f}/s: ratio {ours / bare:.2f}"
        )


def print_speed_up() -> None:
    """A job of 4 processes that beat once a second."""
    limit_s = 10_000.0

    def measure() -> float:
        began_s = time.perf_counter()
        simulate(idle, Schedule(processes=4, heartbeat_timeout_s=2.0, limit_s=limit_s))
        return limit_s / (time.perf_counter() - began_s)

    [speed_up] = best(measure)
    print(f"4 processes, heartbeats every second: {speed_up:,.0f} times real time")


def print_growth() -> None:
    """Cost of an event from 4 to 10,000 processes, beside a bare heap's."""
    counts = (4, 100, 1000, 10_000)
    costs = []
    for processes in counts:
        limit_s = max(200_000 / processes / 1.5, 60.0)
        bare, ours = best(
            lambda processes=processes: heap_loop(200_000, 2 * processes),  # type: ignore[misc]
            lambda processes=processes, limit_s=limit_s: simulator(idle, processes, limit_s, 5.0),  # type: ignore[misc]
        )
        costs.append((1e6 / ours, 1e6 / bare))
    for processes, (ours, bare) in zip(counts, costs, strict=True):
        print(
            f"{processes:6d} processes: {ours:.2f} us an event ({ours / costs[0][0]:.2f} times that "
            f"of 4), bare heap {bare:.2f} us ({bare / costs[0][1]:.2f} times)"
        )


def print_large(processes: int) -> None:
    """One simulated hour: heartbeats every 10 s, 10 crashes, 20 live-set rounds, recorded."""

    async def program(process: Process) -> None:
        for _ in range(20):
            await process.sleep(170.0)
            await process.client.get_live_nodes(process.participants)
        await process.sleep(1e9)

    faults = tuple(Crash(processes // 11 * (k + 1), 300.0 * (k + 1)) for k in range(10))
    schedule = Schedule(
        processes=processes, heartbeat_timeout_s=20.0, limit_s=3600.0, faults=faults
    )
    began_s = time.perf_counter()
    run = simulate(program, schedule)
    took_s = time.perf_counter() - began_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
    print(
        f"{processes} processes for an hour: {took_s:.0f} s, {memory:.2f} GB, {run.events:,} events of "
        f"the queue, {len(run.history.events):,} in the history, {run.reached}"
    )


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--large", action="store_true", help="the job of 10,000 processes, too")
    options = parser.parse_args()
    print_ratios()
    print_speed_up()
    print_growth()
    if options.large:
        print_large(10_000)


if __name__ == "__main__":
    main()
