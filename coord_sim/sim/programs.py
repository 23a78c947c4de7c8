"""Programs to simulate."""

from __future__ import annotations

from coord_sim.errors import ProcessFailureError, ServiceError
from coord_sim.sim.process import Process, Program


def training_loop(steps: int = 8, *, step_s: float = 0.5, set_up_s: float = 1.0) -> Program:
    """The guide's loop that ignores the dead: every step is a `live_devices` block.

    Args:
      steps: Blocks that each start of a process runs.
      step_s: Length of a step, about.
      set_up_s: Longest time between connecting and the first block (imports, compilation).
    """

    async def train(process: Process) -> None:
        await process.sleep(process.random.between(0.0, set_up_s))
        for step in range(steps):
            try:
                async with process.live_devices() as live:
                    await process.sleep(step_s * process.random.between(0.5, 1.5))
                    await process.client.key_value_set(
                        f"step/{process.number}", f"{step} of {len(live)}", allow_overwrite=True
                    )
            except ProcessFailureError:
                continue  # The step did not count; the next one runs without the dead.
        await process.client.shutdown()

    async def program(process: Process) -> None:
        try:
            await train(process)
        except ServiceError:
            return  # Refused: this incarnation is out of the job, and ends.

    return program
