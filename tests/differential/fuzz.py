"""The differential fuzzer: `python -m tests.differential.fuzz --seconds 600 [--seed N]`.

Draws programs, runs them on the C++ service of the installed jaxlib and on ours, and prints programs on
which they differ, as short as it gets them. Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import itertools
import os
import random
import sys
import time
from pathlib import Path

from tests.differential.campaign import Campaign, Finding, drawn, real_and_model
from tests.differential.programs import Program

BATCH = {False: 192, True: 48}
"""Programs in a batch, without and with timed steps. Four parts in five are without."""

FINDINGS_MAX = 5


def has_reports() -> bool:
    """Whether the installed jaxlib knows ReportErrorToService."""
    major, minor = importlib.metadata.version("jaxlib").split(".")[:2]
    return (int(major), int(minor)) >= (0, 11)


async def replay(program: Program) -> int:
    """Runs one program with patience.

    Returns:
      The exit code.
    """
    async with real_and_model() as pair:
        finding = await Campaign(pair).confirm(program)
    print("no difference" if finding is None else finding)
    return int(finding is not None)


async def fuzz(seed: int, seconds: float, number: int | None, *, shrinks: bool) -> int:
    """Runs programs until the time is up.

    Returns:
      The exit code.
    """
    begun = time.monotonic()
    end = begun + seconds
    findings: list[Finding] = []
    kinds: set[str] = set()
    differing = 0
    async with real_and_model() as pair:
        campaign = Campaign(pair)
        for turn in itertools.count():
            left = sys.maxsize if number is None else number - campaign.tally.programs
            if left <= 0 or time.monotonic() > end or len(findings) >= FINDINGS_MAX:
                break
            timed = turn % 5 == 1
            batch = drawn(min(left, BATCH[timed]), seed + turn, timed=timed, reports=has_reports())
            for finding in await campaign.batch(batch, until=end):
                differing += 1
                if finding.kind in kinds:
                    continue
                shorter = await campaign.shrink(finding) if shrinks else finding
                if shorter.kind not in kinds:
                    findings.append(shorter)
                    print(f"\n--- difference {len(findings)}\n{shorter}\n", flush=True)
                kinds |= {finding.kind, shorter.kind}
            elapsed = time.monotonic() - begun
            print(
                f"{elapsed:6.0f} s: {campaign.tally.programs} programs, "
                f"{campaign.tally.steps} steps, {differing} differ",
                flush=True,
            )
    print(campaign.tally)
    print(f"{differing} programs differ, in {len(findings)} ways; seed {seed}")
    return int(bool(findings))


def main() -> None:
    """The command."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    parser = argparse.ArgumentParser(prog="python -m tests.differential.fuzz")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: 600)")
    parser.add_argument("--programs", type=int, help="at most so many")
    parser.add_argument("--seed", type=int, help="default: drawn, and printed")
    parser.add_argument(
        "--no-shrink", action="store_true", help="print programs as they were drawn"
    )
    parser.add_argument(
        "--replay", metavar="JSON", help="run this program, or the one in this file"
    )
    options = parser.parse_args()
    if options.replay is not None:
        text = options.replay
        if not text.lstrip().startswith("{"):
            text = Path(text).read_text(encoding="utf-8")
        sys.exit(asyncio.run(replay(Program.from_json(text))))
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}, jaxlib {importlib.metadata.version('jaxlib')}", flush=True)
    sys.exit(
        asyncio.run(fuzz(seed, options.seconds, options.programs, shrinks=not options.no_shrink))
    )


if __name__ == "__main__":
    main()
