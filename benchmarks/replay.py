"""How many events a second `coordlab replay` holds against the model, and what other time-outs cost.

    python benchmarks/replay.py                 eight processes, 200,000 events
    python benchmarks/replay.py --events 20000 --tasks 32
    python benchmarks/replay.py --profile       the functions that take the most time, too

An event is a line of the history. The history is made by the core in virtual time: heartbeats, rounds of
live_processes, the store, barriers, and now and then a process that dies and comes back. Times are those
of the processor; reading the same file in the same run says how fast the machine was.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from checker import History, read
from coord_sim.replay import replay
from coord_sim.replay.silences import silences_of

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.replay.recorded_service import RandomJob, RecordedService

TIMEOUTS = 100
PROFILED = 25


def recorded(tasks: int, events: int) -> History:
    """A recording of at least so many events."""
    service = RecordedService(tasks=tasks, heartbeat_timeout_s=10.0)
    job = RandomJob(service, 1, gentle=True, deaths=0.001)
    job.run(1)
    while len(service.events) < events:
        job.go_on(1000)
    return service.history()


def processor_s(action: Callable[[], object]) -> float:
    """Seconds of the processor."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


def try_timeouts(history: History) -> None:
    """Reads all silences, and asks what many time-outs would have done."""
    silences = silences_of(history)
    draw = random.Random(1)
    for _ in range(TIMEOUTS):
        silences.row(draw.uniform(1.0, 100.0))


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="How fast recordings are replayed.")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--tasks", type=int, default=8)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    history = recorded(options.tasks, options.events)
    count = len(history.events)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        history.save(path)
        reading_s = processor_s(lambda: read(path))
    replayed = replay(history)
    assert replayed.verdict == "could", replayed
    replaying_s = min(processor_s(lambda: replay(history)) for _ in range(3))
    trying_s = min(processor_s(lambda: try_timeouts(history)) for _ in range(3))
    print(f"{count:,} events of {options.tasks} processes, {replayed.operations:,} requests")
    for what, seconds in (
        ("reading the file", reading_s),
        ("replaying it", replaying_s),
        (f"{TIMEOUTS} other time-outs", trying_s),
    ):
        print(f"{what:<22} {seconds:8.2f} s  {count / seconds:>12,.0f} events/s")
    print(f"replaying / reading    {replaying_s / reading_s:8.2f}")
    if options.profile:
        profile = cProfile.Profile()
        profile.runcall(replay, history)
        pstats.Stats(profile).sort_stats("tottime").print_stats(PROFILED)


if __name__ == "__main__":
    main()
