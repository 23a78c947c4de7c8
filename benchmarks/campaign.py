"""How many runs a second a campaign makes on one core, and what takes the time.

    python benchmarks/campaign.py              three processes, eight blocks
    python benchmarks/campaign.py --steps 2    shorter runs
    python benchmarks/campaign.py --profile    the functions that take the most time, too

Each part is left out in turn. Times are those of the processor, and the best of several rounds that take
turns, because the machine's speed varies; a bare SimPy loop in the same run says how fast it was.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import replace

import simpy
from simulator import simpy_loop

from coord_sim.campaign import Job, Judgement, Plan, run_batch
from coord_sim.cli.judges import ServiceJudge
from coord_sim.schedule import Schedule
from coord_sim.sim import Run

ROUNDS = 5
RUNS = 60
PROFILED = 25


def no_judge(run: Run) -> Judgement:
    """Looks at nothing."""
    del run
    return Judgement("valid")


def draw(job: Job) -> None:
    """Draws the cases, and runs none."""
    for seed in range(RUNS):
        job.plan.case(seed)


def simulate(job: Job) -> None:
    """Draws and runs, and does nothing else."""
    for seed in range(RUNS):
        job.plan.case(seed).run()


def batch(job: Job) -> None:
    """All that a campaign does."""
    run_batch(job, 0, RUNS)


def processor_s(action: Callable[[], object]) -> float:
    """Seconds of the processor."""
    began_s = time.process_time()
    action()
    return time.process_time() - began_s


def measure(job: Job) -> None:
    """Prints a table."""
    blind = replace(job, judge=no_judge, coverage=False)
    parts: dict[str, Callable[[], object]] = {
        "drawing cases": lambda: draw(job),
        "and simulating": lambda: simulate(job),
        "and counting, digest": lambda: batch(blind),
        "and coverage": lambda: batch(replace(blind, coverage=True)),
        "and judging: all of a campaign": lambda: batch(job),
    }
    batch(job)  # What is imported and compiled late.
    best = dict.fromkeys(parts, float("inf"))
    loop_s = float("inf")
    for _ in range(ROUNDS):
        for name, part in parts.items():
            best[name] = min(best[name], processor_s(part))
        loop_s = min(loop_s, 1 / simpy_loop(200_000, 100))
    before_s = 0.0
    print(f"{'':32} {'runs/s':>8} {'ms a run':>9} {'more':>9}")
    for name, seconds in best.items():
        ms = seconds / RUNS * 1e3
        print(f"{name:32} {RUNS / seconds:8,.0f} {ms:9.2f} {ms - before_s:+9.2f}")
        before_s = ms
    known = run_batch(job, 0, RUNS)
    print(
        f"{known.events / RUNS:.0f} events and {known.history_events / RUNS:.0f} events of the history "
        f"a run; SimPy {simpy.__version__}: {1 / loop_s:,.0f} time-outs/s"
    )


def profile(job: Job) -> None:
    """Prints the functions that take the most time."""
    profiler = cProfile.Profile()
    profiler.runcall(batch, job)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(PROFILED)


def main() -> None:
    """Measures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    base = Schedule(processes=options.processes, semantics="published")
    job = Job(Plan("training_loop", base, {"steps": options.steps}), ServiceJudge())
    measure(job)
    if options.profile:
        profile(job)


if __name__ == "__main__":
    main()
