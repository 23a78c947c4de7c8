"""Runs the scenarios of the library on real processes, several at a time: they mostly wait.

`python -m tests.bridge.library [--service real|model] [--semantics published] [--jobs 8] [NAME ...]`
prints a line for each, and what an expectation found where it does not hold; exit code 1 if any fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coord_sim.scenarios import names, scenario_named
from coord_sim.scenarios.scenario import PROCESSES


def for_processes() -> list[str]:
    """The shipped scenarios that real processes can run."""
    return [name for name in names() if PROCESSES in scenario_named(name).runs_on]


def run_one(name: str, arguments: Sequence[str]) -> tuple[int, str, float]:
    """The exit code of `coordlab run`, its output, and the time that it took, in seconds."""
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--scenario", name, *arguments]
    began_s = time.monotonic()
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return ended.returncode, ended.stdout, time.monotonic() - began_s


def main() -> int:
    """Runs them and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--service", choices=("real", "model"), default="real")
    parser.add_argument("--semantics", choices=("shipped", "published"))
    parser.add_argument("--jobs", type=int, default=8, metavar="N")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep histories and logs there")
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    arguments = ["--service", options.service]
    if options.semantics is not None:
        arguments += ["--semantics", options.semantics]
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)

    def run_and_tell(name: str) -> bool:
        kept = [] if options.keep is None else ["--out", str(options.keep / f"{name}.jsonl")]
        code, output, took_s = run_one(name, [*arguments, *kept])
        print(f"{'ok' if code == 0 else f'FAILED ({code})':10} {took_s:6.1f} s  {name}", flush=True)
        if code != 0:
            print(output, flush=True)
        return code == 0

    with ThreadPoolExecutor(options.jobs) as pool:
        held = list(pool.map(run_and_tell, options.names or for_processes()))
    print(f"{sum(held)} of {len(held)} hold on the {options.service} service")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
