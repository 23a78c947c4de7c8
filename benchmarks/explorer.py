"""How fast all interleavings are explored, and what the reductions save.

Run as `python benchmarks/explorer.py [--big]`. Prints states, transitions and states per second of CPU
time, then how many times more states there are without the reduction of messages, and without symmetry.
With `--big` also bounds that take minutes.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from checker import LiveProcesses
from coord_sim.cli.explore import StepwiseJudge
from coord_sim.core.semantics import PUBLISHED
from coord_sim.explore import Bounds, Exploration, explore

TARGET = Bounds(processes=3, calls=2, crashes=2, crashes_in_all=2, restarts=1)
MEASURED = (TARGET, replace(TARGET, crashes_in_all=None, suspicions=1))
BIG = (
    Bounds(processes=3, calls=3, crashes=2, restarts=2, suspicions=1),
    Bounds(processes=3, calls=4, crashes=2, restarts=2, suspicions=1),
)
COMPARED = Bounds(processes=3, calls=1, crashes=1, crashes_in_all=1, restarts=1)


def measured(bounds: Bounds, failures: str) -> tuple[Exploration, float]:
    """An exploration of the published service, and the CPU time that it took."""
    spec = LiveProcesses(failures=failures)  # type: ignore[arg-type]
    began = time.process_time()
    found = explore(bounds, PUBLISHED, StepwiseJudge(bounds.processes, spec))
    return found, time.process_time() - began


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--big", action="store_true", help="also bounds that take minutes")
    options = parser.parse_args()
    for bounds in (*MEASURED, *(BIG if options.big else ())):
        failures = "suspicion" if bounds.suspicions else "crash-stop"
        found, took_s = measured(bounds, failures)
        print(
            f"{bounds}\n  {failures}: {found.states:,} states, {found.transitions:,} transitions, "
            f"{took_s:.1f} s, {found.states / took_s:,.0f} states/s, "
            f"{'exhausted' if found.is_exhausted else 'not exhausted'}, "
            f"{'no violation' if found.violation is None else found.violation.kind}"
        )
    base = measured(COMPARED, "crash-stop")[0].states
    for name in ("reduced", "symmetric"):
        states = measured(replace(COMPARED, **{name: False}), "crash-stop")[0].states
        print(f"not {name}: {states:,} states for {base:,}, a factor of {states / base:.1f}")


if __name__ == "__main__":
    main()
