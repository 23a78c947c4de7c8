"""The checker's fuzzer: `python -m tests.checker.fuzz --histories 1000000 [--seed N] [--jobs N]`.

Draws small histories, asks every search and the definition of linearizability about each, and judges
some of the witnesses and explanations. Prints how many there were, and what replays each difference
(`--replay SEED`). Exit code 1 if there are any.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from collections.abc import Iterator
from itertools import count

from checker.operations import Operations
from checker.search import check_operations
from checker.search.budget import Budget
from checker.specification import Specification
from checker.specs import SPECS, spec_named
from checker.verdict import Invalid, Valid
from tests.checker.search.algorithms import ALGORITHMS, EFFORTS, climbed, with_effort
from tests.checker.search.judging import judge
from tests.oracles.linearizability import linearizable
from tests.random_operations import TOYS, random_operations

NAMES = [name for name in TOYS if issubclass(SPECS[name], Specification)]

BATCH = 1_000
"""Histories between two lines of progress, for each job."""

PROVEN = 16
"""One history in so many is checked with everything: proofs, one-sided searches."""

DIFFERENCES_MAX = 5


def drawn(seed: int) -> tuple[str, Operations]:
    """The history of a seed, and the name of its specification."""
    rng = random.Random(seed)
    name = NAMES[seed % len(NAMES)]
    return name, random_operations(rng, name, operations_max=rng.choice((6, 10, 10, 14)))


def differences(seed: int, *, everything: bool) -> Iterator[str]:
    """What is wrong with the answers on one history, in words."""
    name, history = drawn(seed)
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    expected = linearizable(history, spec)
    for algorithm, search in ALGORITHMS.items():
        answer = search(history, spec, Budget())
        if answer not in (expected, None) or (answer is None and algorithm != "compiled"):
            yield f"{algorithm}: {answer}, and by definition {expected}"
    if not everything:
        return
    sure = [(str(effort), with_effort(history, spec, effort)) for effort in EFFORTS]
    for effort, answer in sure:
        if answer not in (expected, None):
            yield f"{effort}: {answer}, and by definition {expected}"
    if expected and climbed(history, spec) is not True:
        yield "the steps of the compiled search find no order"
    for compiled, paranoid in ((False, False), (True, False), (None, True)):
        try:
            verdict = check_operations(history, spec, compiled=compiled, paranoid=paranoid)
            if isinstance(verdict, Valid):
                verdict.witness.verify()  # type: ignore[union-attr]
            elif isinstance(verdict, Invalid):
                judge(verdict.anomaly)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a difference
            yield f"proof, compiled={compiled}, paranoid={paranoid}: {error!r:.300}"


def batch(first: int) -> list[tuple[int, str]]:
    """The differences on `BATCH` histories from a seed on."""
    return [
        (seed, words)
        for seed in range(first, first + BATCH)
        for words in differences(seed, everything=seed % PROVEN == 0)
    ]


def replay(seed: int) -> int:
    """Shows one history, and what is wrong with the answers.

    Returns:
      The exit code.
    """
    name, history = drawn(seed)
    print(f"{name}: {len(history)} operations")
    for event in history.events:
        index = event if event >= 0 else ~event
        what = "calls" if event >= 0 else "ends"
        print(f"  process {history.process[index]} {what} {index}: {history.at(index)}")
    found = list(differences(seed, everything=True))
    print("\n".join(found) or "no difference")
    return int(bool(found))


def fuzz(first: int, histories: int, jobs: int) -> int:
    """Draws that many histories.

    Returns:
      The exit code.
    """
    begun = time.monotonic()
    found = 0
    seeds = range(first, first + histories, BATCH)
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool:
        for done, wrong in zip(count(1), pool.imap_unordered(batch, seeds)):
            for seed, words in wrong:
                found += 1
                print(f"\nseed {seed}: {words}\n  python -m tests.checker.fuzz --replay {seed}\n")
            elapsed = time.monotonic() - begun
            total = done * BATCH
            print(f"{elapsed:7.0f} s: {total:,} histories, {found} differences", flush=True)
            if found >= DIFFERENCES_MAX:
                break
    return int(found > 0)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.checker.fuzz", description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the first seed")
    parser.add_argument("--jobs", type=int, default=1, metavar="N")
    parser.add_argument("--replay", type=int, metavar="SEED", help="show one history again")
    options = parser.parse_args(arguments)
    if options.replay is not None:
        return replay(options.replay)
    return fuzz(options.seed, options.histories, options.jobs)


if __name__ == "__main__":
    sys.exit(main())
