"""How fast histories of the `live_processes` barrier are checked and read.

Run as `python benchmarks/live_processes.py [--columns N] [--events N] [--processes N] [--repeats N]`.
Prints a table: seconds, events per second and bytes of memory per event that the work allocates besides
its input, for each definition and failure model. Compiled, from columns, at N, 2N and 10N events; in
plain Python, from events, at N and 2N, with the reading of the same history from a file beside it.
Code is linear where twice the events take about twice as long.
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import random
import resource
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path

from checker import LiveProcesses, Valid, Verdict
from checker.history import Header, read
from checker.live_processes import DEFINITIONS, FAILURE_MODELS
from checker.live_processes.check import check_columns, check_live_processes
from checker.live_processes.columns import CALL, CRASH, OK, START, Columns, columns_of

ROUNDS_PER_FAULT = 100
STEP_NS = 1_000


def valid_columns(  # noqa: PLR0915 - one loop, whose parts share its variables
    events_total: int, processes: int, seed: int = 1
) -> Columns:
    """A valid history: rounds of everybody alive, and a crash or a restart in every hundred rounds.

    A process crashes inside its call; half of the time the round still counts it in (so that the
    failure must be moved), and the process is back a hundred rounds later.
    """
    rng = random.Random(seed)
    participants = tuple(range(processes))
    columns = Columns(Header(source="simulator", clock="virtual", participants=participants))
    everybody = columns.group_index(participants)
    steps = range(1, STEP_NS)
    now = 0
    current: list[int] = []

    def tick() -> int:
        nonlocal now
        now += rng.randrange(1, STEP_NS)
        return now

    def start(process: int, number: int) -> int:
        lifetime = columns.lifetime_index(process, number)
        columns.incarnations[lifetime] = lifetime + 1
        columns.append(START, lifetime, tick())
        return lifetime

    def extend(kind: int, callers: list[int], operations: Iterable[int], detail: int) -> None:
        nonlocal now
        count = len(callers)
        times = list(accumulate(rng.choices(steps, k=count), initial=now))
        now = times[-1]
        columns.kind.extend([kind] * count)
        columns.lifetime.extend([current[process] for process in callers])
        columns.time_ns.extend(times[1:])
        columns.operation.extend(operations)
        columns.detail.extend([detail] * count)

    current.extend(start(process, 0) for process in participants)
    alive = set(participants)
    down: int | None = None
    round_number = 0
    while len(columns) < events_total:
        round_number += 1
        victim: int | None = None
        if round_number % ROUNDS_PER_FAULT == 0:
            if down is None:
                victim = down = rng.choice(sorted(alive))
            else:
                current[down] = start(down, columns.numbers[current[down]] + 1)
                alive.add(down)
                down = None
        callers = sorted(alive)
        rng.shuffle(callers)
        first = columns.operations
        columns.operations += len(callers)
        calls = dict(zip(callers, range(first, columns.operations), strict=True))
        extend(CALL, callers, calls.values(), everybody)
        counted_in = callers
        if victim is not None:
            alive.discard(victim)
            columns.append(CRASH, current[victim], tick())
            callers = [process for process in callers if process != victim]
            counted_in = callers if rng.random() < 0.5 else [*callers, victim]
        answer = {process: current[process] + 1 for process in sorted(counted_in)}
        extend(
            OK,
            callers,
            [calls[process] for process in callers],
            columns.answer_index(answer),
        )
    return columns


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


def checked(verdict: Verdict) -> None:
    """Insists on the verdict: a benchmark of a wrong answer is worth nothing."""
    if not isinstance(verdict, Valid):
        sys.exit(f"expected a valid history, found: {verdict.explain()}")


class Table:
    """Prints a row per piece of work."""

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        print(
            f"{'what':<40}{'events':>10}{'median s':>10}{'max s':>8}{'events/s':>12}{'B/event':>9}"
        )

    def row(self, what: str, events: int, work: Callable[[], object]) -> None:
        """Measures and prints."""
        median, longest = seconds(work, self._repeats)
        per_event = peak_bytes(work) / events
        print(
            f"{what:<40}{events:>10}{median:>10.3f}{longest:>8.3f}{events / median:>12,.0f}"
            f"{per_event:>9.0f}",
            flush=True,
        )


def rows_of_events(table: Table, columns: Columns) -> None:
    """Plain Python, on a history of events."""
    history = columns.history()
    for definition in DEFINITIONS:
        for failures in FAILURE_MODELS:
            spec = LiveProcesses(definition=definition, failures=failures)
            table.row(
                f"events, plain: {definition}, {failures}",
                len(columns),
                lambda spec=spec: checked(check_live_processes(history, spec, compiled=False)),
            )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.jsonl"
        history.save(path)
        table.row("reading the file", len(columns), lambda: read(path))
    table.row("events to columns", len(columns), lambda: columns_of(history))


def rows_of_columns(table: Table, columns: Columns) -> None:
    """Compiled, from columns."""
    for definition in DEFINITIONS:
        for failures in FAILURE_MODELS:
            spec = LiveProcesses(definition=definition, failures=failures)
            table.row(
                f"columns, compiled: {definition}, {failures}",
                len(columns),
                lambda spec=spec: checked(check_columns(columns, spec, compiled=True)),
            )


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--events", type=int, default=500_000, help="for plain Python")
    parser.add_argument("--columns", type=int, default=1_000_000, help="compiled; 0: not at all")
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    print(f"CPython {platform.python_version()}, {platform.machine()}, {platform.system()}")
    print(f"{os.cpu_count()} processors, load {load}")
    print(f"{options.processes} processes, a fault every {ROUNDS_PER_FAULT} rounds")
    table = Table(options.repeats)
    if options.columns:
        for count in (options.columns, 2 * options.columns, 10 * options.columns):
            began = time.perf_counter()
            columns = valid_columns(count, options.processes)
            made_s = time.perf_counter() - began
            print(f"{columns.nbytes / len(columns):.0f} bytes an event, made in {made_s:.1f} s")
            rows_of_columns(table, columns)
    if options.events:
        for count in (options.events, 2 * options.events):
            rows_of_events(table, valid_columns(count, options.processes))
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the whole run: {peak_mb:.0f} MB")


if __name__ == "__main__":
    main()
