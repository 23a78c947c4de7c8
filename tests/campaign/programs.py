"""Programs that tests name."""

from __future__ import annotations

import asyncio
import os

from coord_sim.sim import Process, Program


async def deadly(process: Process) -> None:
    """Ends the worker that simulates it."""
    os._exit(9)


async def plain(process: Process) -> None:
    """A program, not a maker of one."""
    note(process)
    process.sometimes(SECOND)
    if process.lifetime > 5:
        process.sometimes("never comes")
    await process.client.shutdown()


SECOND = "a second time"


def note(process: Process) -> None:
    """Notes a condition for its caller."""
    process.sometimes("it began")


def failing(after: int = 3) -> Program:
    """Makes a program with a bug."""

    async def program(process: Process) -> None:
        for step in range(after):
            await process.sleep(1.0)
            process.log(f"step {step}")
        if process.number == 1:
            raise KeyError("no such parameter")
        await process.client.shutdown()

    return program


def unmade() -> Program:
    """Cannot be made."""
    raise ValueError("nothing to make it of")


async def foreign(process: Process) -> None:
    """Waits for what is not the simulator's."""
    await asyncio.sleep(1.0)
