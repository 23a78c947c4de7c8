"""Loops over `live_devices` blocks."""

from __future__ import annotations

from typing import Final

from coord_sim.core.status import Code
from coord_sim.errors import ProcessFailureError, ServiceError
from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs.naming import ProcessNumber

_REFUSALS: Final = (Code.FAILED_PRECONDITION, Code.ABORTED)
"""How a service with published semantics answers an incarnation that is over."""


def training_loop(
    steps: int = 8,
    *,
    step_s: float = 0.5,
    set_up_s: float = 1.0,
    set_up_min_s: float = 0.0,
    slow: ProcessNumber | None = None,
    slow_s: float = 0.0,
) -> Program:
    """The guide's loop that ignores the dead: every step is a `live_devices` block.

    Args:
      steps: Blocks that each start of a process runs.
      step_s: Length of a step, about.
      set_up_s: Longest time between connecting and the first block (imports, compilation).
      set_up_min_s: Shortest such time.
      slow: A process that is always the last.
      slow_s: By so much are its steps longer.
    """

    async def train(process: Process) -> None:
        await process.sleep(process.random.between(set_up_min_s, set_up_s))
        for step in range(steps):
            try:
                async with process.live_devices() as live:
                    await process.sleep(step_s * process.random.between(0.5, 1.5))
                    if process.number == slow:
                        await process.sleep(slow_s)
                    await process.client.key_value_set(
                        f"step/{process.number}", f"{step} of {len(live)}", allow_overwrite=True
                    )
            except ProcessFailureError:
                continue  # The step did not count; the next one runs without the dead.
        await process.client.shutdown()

    async def program(process: Process) -> None:
        try:
            await train(process)
        except ServiceError as error:
            if error.status.code not in _REFUSALS:
                raise
            process.log(f"refused: {error}")  # This incarnation is out of the job, and ends.

    return program


def raising_loop(
    raises: ProcessNumber,
    *,
    raises_at: int = 2,
    skips: bool = False,
    steps: int = 6,
    step_s: float = 0.5,
) -> Program:
    """A loop over blocks in which the body raises once, in one process.

    Args:
      raises: The process.
      raises_at: The step, from 0.
      skips: Whether it leaves the loop then, and does something else for ever.
      steps: Blocks.
      step_s: Length of a step.
    """

    async def program(process: Process) -> None:
        for step in range(steps):
            try:
                async with process.live_devices():
                    await process.sleep(step_s)
                    if process.number == raises and step == raises_at:
                        _fail()
            except ValueError as error:
                process.log(f"step {step} raised: {error}")
                if skips:
                    await process.client.blocking_key_value_get("never written")
        await process.client.shutdown()

    return program


def _fail() -> None:
    raise ValueError("a bad batch")


def crossed_blocks(first: ProcessNumber | None = None, *, step_s: float = 0.5) -> Program:
    """Two rounds over different sets of processes, which one process enters in the other order.

    Args:
      first: The process that begins with the round over all; the others begin with the first two.
      step_s: Time between the rounds.
    """

    async def program(process: Process) -> None:
        everybody = process.participants
        some = tuple(everybody[:2])
        order = (everybody, some) if process.number == first else (some, everybody)
        for processes in order:
            if process.number in processes:
                live = await process.client.get_live_nodes(processes)
                process.log(f"round over {len(processes)} began with {len(live)}")
                await process.sleep(step_s)
        await process.client.shutdown()

    return program
