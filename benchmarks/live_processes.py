"""How fast histories of the `live_processes` barrier are checked and read.

Run as `python benchmarks/live_processes.py [--events N] [--processes N] [--repeats N]`. Prints a table:
events per second and bytes of memory per event for each definition and failure model, with the
reading of the same history from a file beside it, at N and at 2N events (near-linear code takes about
twice as long).
"""

from __future__ import annotations

import argparse
import gc
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from checker import LiveProcesses, Valid, check
from checker.history import Crash, Event, Header, History, Invoke, Ok, Start, read

ROUNDS_PER_FAULT = 100
STEP_NS = 1_000


def valid_history(events_total: int, processes: int, seed: int = 1) -> History:
    """A valid history: rounds of everybody alive, and a crash or a restart in every hundred rounds.

    A process crashes inside its call; half of the time the round still counts it in (so that the
    failure must be moved), and the process is back a hundred rounds later.
    """
    rng = random.Random(seed)
    events: list[Event] = []
    now = 0
    operation = 0
    drawn = 0
    lifetime = [0] * processes
    incarnation = [0] * processes
    alive = set(range(processes))
    down: int | None = None

    def tick() -> int:
        nonlocal now
        now += rng.randrange(1, STEP_NS)
        return now

    def start(process: int) -> None:
        nonlocal drawn
        drawn += 1
        incarnation[process] = drawn
        events.append(
            Start(
                time_ns=tick(),
                process=process,
                lifetime=lifetime[process],
                incarnation=drawn,
            )
        )

    for process in range(processes):
        start(process)
    round_number = 0
    while len(events) < events_total:
        round_number += 1
        victim: int | None = None
        if round_number % ROUNDS_PER_FAULT == 0:
            if down is None:
                victim = down = rng.choice(sorted(alive))
            else:
                lifetime[down] += 1
                start(down)
                alive.add(down)
                down = None
        callers = sorted(alive)
        rng.shuffle(callers)
        calls = {}
        for process in callers:
            calls[process] = operation
            events.append(
                Invoke(
                    time_ns=tick(),
                    process=process,
                    lifetime=lifetime[process],
                    id=operation,
                    operation="live_processes",
                    arguments={},
                )
            )
            operation += 1
        if victim is not None:
            alive.discard(victim)
            events.append(Crash(time_ns=tick(), process=victim, lifetime=lifetime[victim]))
            callers.remove(victim)
        counted_in = callers if victim is None or rng.random() < 0.5 else [*callers, victim]
        answer = {process: incarnation[process] for process in counted_in}
        events.extend(
            Ok(
                time_ns=tick(),
                process=process,
                lifetime=lifetime[process],
                id=calls[process],
                result=answer,
            )
            for process in callers
        )
    header = Header(source="simulator", clock="virtual", participants=tuple(range(processes)))
    return History(header, events)


def seconds(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and largest of `repeats` runs."""
    times = []
    for _ in range(repeats):
        gc.collect()
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times), max(times)


def peak_bytes(work: Callable[[], object]) -> int:
    """Peak of what `work` allocates."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def checked(history: History, spec: LiveProcesses) -> None:
    """Checks, and insists on the verdict: a benchmark of a wrong answer is worth nothing."""
    verdict = check(history, spec)
    if not isinstance(verdict, Valid):
        sys.exit(f"expected a valid history, found: {verdict.explain()}")


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"CPython {platform.python_version()}, {platform.machine()}, {platform.system()}")
    print(f"{options.processes} processes, a fault every {ROUNDS_PER_FAULT} rounds")
    print(f"{'what':<28}{'events':>10}{'median s':>10}{'max s':>8}{'events/s':>11}{'B/event':>9}")
    for count in (options.events, 2 * options.events):
        history = valid_history(count, options.processes)
        events = len(history.events)

        def row(what: str, work: Callable[[], object]) -> None:
            median, longest = seconds(work, options.repeats)
            per_event = peak_bytes(work) / events  # noqa: B023
            print(
                f"{what:<28}{events:>10}{median:>10.2f}{longest:>8.2f}"  # noqa: B023
                f"{events / median:>11,.0f}{per_event:>9.0f}",  # noqa: B023
                flush=True,
            )

        for definition in ("round", "published"):
            for failures in ("suspicion", "crash-stop"):
                spec = LiveProcesses(definition=definition, failures=failures)  # type: ignore[arg-type]
                row(
                    f"{definition}, {failures}",
                    lambda spec=spec: checked(history, spec),  # noqa: B023
                )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "history.jsonl"
            history.save(path)
            row("reading the file", lambda: read(path))  # noqa: B023
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the whole run: {peak_mb:.0f} MB")


if __name__ == "__main__":
    main()
