"""Histories that no search decides in a reasonable time."""

from __future__ import annotations

import random

from checker.operations import Operations, Recorder


def concurrent_writes(number: int) -> Operations:
    """Writes of distinct values, all at once, and as many reads of them in another order.

    In the end the value changes though nobody writes any more.
    """
    rng = random.Random(number)
    recorder = Recorder()
    writes = [recorder.invoke(process, "write", process) for process in range(number)]
    reads = [recorder.invoke(number + process, "read") for process in range(number)]
    for read, value in zip(reads, rng.sample(range(number), number), strict=True):
        recorder.ok(read, value)
    for write in writes:
        recorder.ok(write)
    for value in (0, 1):
        recorder.ok(recorder.invoke(0, "read"), value)
    return recorder.operations()


def concurrent_adds(number: int) -> Operations:
    """Any subset of the additions has a sum of its own, and the read returns none of them."""
    recorder = Recorder()
    adds = [recorder.invoke(process, "add", 1 << process) for process in range(number)]
    recorder.ok(recorder.invoke(number, "read"), -1)
    for add in adds:
        recorder.ok(add)
    return recorder.operations()


def crashed_swaps(number: int) -> Operations:
    """Hundreds of compare-and-sets of unknown outcome, and reads that need chains of them."""
    rng = random.Random(number)
    values = max(6, number // 8)
    recorder = Recorder()
    for process in range(number):
        swap = (rng.randrange(values), rng.randrange(values))
        recorder.info(recorder.invoke(process, "cas", swap))
    recorder.ok(recorder.invoke(number, "write", 0))
    for _ in range(3 * values):
        recorder.ok(recorder.invoke(number, "read"), rng.randrange(values))
    return recorder.operations()
