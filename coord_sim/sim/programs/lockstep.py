"""The classic job: all go step by step, and nobody is expected to die."""

from __future__ import annotations

from collections.abc import Awaitable

from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs.naming import ProcessNumber


async def until_exit(process: Process, body: Awaitable[None]) -> None:
    """Runs a body as Python runs a JAX program: whatever ends it, at the end it leaves the job.

    `jax.distributed.initialize` registers `shutdown` with `atexit`, so that a program that ends by an
    exception still waits there for its peers, where leaving is a barrier.
    """
    try:
        await body
    except Exception as error:
        process.log(f"{type(error).__name__}: {error}")
        await process.client.shutdown()
        raise
    await process.client.shutdown()


def lockstep(
    steps: int = 10,
    *,
    step_s: float = 0.5,
    timeout_s: float = 60.0,
    raises: ProcessNumber | None = None,
    raises_at: int = 0,
    reports: bool = False,
) -> Program:
    """Steps with a barrier after each.

    Args:
      steps: How many.
      step_s: Length of a step, about.
      timeout_s: Of the barriers.
      raises: A process whose program raises.
      raises_at: The step, from 0, in which it does.
      reports: Whether it reports the error to the service before.
    """

    async def work(process: Process) -> None:
        for step in range(steps):
            await process.sleep(step_s * process.random.between(0.8, 1.2))
            if process.number == raises and step == raises_at:
                if reports:
                    await process.client.report_error(13, "device 3 is busy")
                raise RuntimeError("device 3 is busy")
            await process.client.wait_at_barrier(f"step/{step}", round(timeout_s * 1000))
            process.log(f"step {step} done at {process.clock_s():.3f} s of its clock")
            process.sometimes("a step of all")
        process.sometimes("all steps")

    async def program(process: Process) -> None:
        await until_exit(process, work(process))

    return program
