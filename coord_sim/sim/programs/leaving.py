"""Ends of jobs."""

from __future__ import annotations

from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs.naming import ProcessNumber


def leaving(
    apart: ProcessNumber,
    *,
    work_s: float = 3.0,
    early_s: float = 0.0,
    late_s: float = 0.0,
    says_so: bool = True,
) -> Program:
    """Everybody works and leaves; one process leaves at another time.

    Args:
      apart: The process.
      work_s: How long the work takes.
      early_s: The others take so much longer.
      late_s: `apart` takes so much longer.
      says_so: Whether it calls `shutdown`; else it just ends.
    """

    async def program(process: Process) -> None:
        is_apart = process.number == apart
        await process.sleep(work_s + (late_s if is_apart else early_s))
        process.log("work done")
        if says_so or not is_apart:
            await process.client.shutdown()

    return program
