"""Barriers whose names go wrong."""

from __future__ import annotations

from coord_sim.errors import ServiceError
from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs.lockstep import until_exit
from coord_sim.sim.programs.naming import ProcessNumber


def drifting_ids(
    drifts: ProcessNumber | None = None,
    *,
    drifts_at: int = 2,
    calls: int = 5,
    step_s: float = 0.5,
    timeout_s: float = 5.0,
) -> Program:
    """Barriers named by a counter that every process keeps for itself.

    Args:
      drifts: A process that counts once too often, as after a step that it tried twice.
      drifts_at: Before this call, from 0.
      calls: How many each process makes.
      step_s: Time between them.
      timeout_s: Of the barriers.
    """

    async def work(process: Process) -> None:
        counter = 0
        for call in range(calls):
            await process.sleep(step_s)
            if process.number == drifts and call == drifts_at:
                counter += 1
            await process.client.wait_at_barrier(f"sync/{counter}", round(timeout_s * 1000))
            process.log(f"passed sync/{counter}")
            counter += 1
        process.sometimes("all barriers")

    async def program(process: Process) -> None:
        await until_exit(process, work(process))

    return program


def reused_barrier(late: ProcessNumber, *, late_s: float = 8.0, timeout_s: float = 3.0) -> Program:
    """A barrier that times out because one process is late, and that the others try again.

    Args:
      late: The process.
      late_s: When it comes.
      timeout_s: Of the first try; the second waits ten times as long.
    """

    async def program(process: Process) -> None:
        if process.number == late:
            await process.sleep(late_s)
            await _try(process, timeout_s)
        else:
            await _try(process, timeout_s)
            await _try(process, 10 * timeout_s)
        await process.client.shutdown()

    async def _try(process: Process, limit_s: float) -> None:
        try:
            await process.client.wait_at_barrier("save", round(limit_s * 1000))
        except ServiceError as error:
            process.log(f"{error}")
        else:
            process.sometimes("passed")

    return program
