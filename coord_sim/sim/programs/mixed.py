"""Traffic of every kind, drawn from the seed: to run services under load, not to do something useful."""

from __future__ import annotations

from typing import Final

from coord_sim.core.status import Code
from coord_sim.errors import ProcessFailureError, ServiceError
from coord_sim.sim.process import Process, Program

REFUSED: Final = "refused"
"""Condition that is reached when the service refuses a process, which then ends."""

_REFUSALS: Final = (Code.FAILED_PRECONDITION, Code.ABORTED)
"""How a service with published semantics answers an incarnation that is over."""


def block_traffic(steps: int = 6, *, step_s: float = 0.4, leaves_early: float = 0.2) -> Program:
    """Loops over `live_devices` blocks of different lengths; each start has steps of its own.

    Args:
      steps: Blocks of a start, or up to twice as many.
      step_s: Length of a block, about.
      leaves_early: How likely a start leaves the job after two blocks.
    """

    async def work(process: Process) -> None:
        random = process.random
        count = 2 if random.chance(leaves_early) else steps + random.below(steps + 1)
        await process.sleep(random.between(0.0, 0.5))
        for step in range(count):
            try:
                async with process.live_devices() as live:
                    for half in range(2):
                        await process.sleep(step_s / 2 * random.between(0.2, 1.8))
                        done = f"{step}.{half} of {len(live)}"
                        await process.client.key_value_set(f"step/{process.number}", done, True)
            except ProcessFailureError:
                process.sometimes("a failure in a block")
        await process.client.shutdown()

    return _until_refused(work)


def nested_sets(steps: int = 4, *, step_s: float = 0.4) -> Program:
    """Asks for the live ones among all, and between that two processes ask for themselves.

    Args:
      steps: How often.
      step_s: Time between two calls, about.
    """

    async def work(process: Process) -> None:
        everybody = process.participants
        for _ in range(steps):
            await process.client.get_live_nodes(everybody)
            await process.sleep(step_s * process.random.between(0.2, 1.8))
            if process.number in everybody[:2]:
                await process.client.get_live_nodes(everybody[:2])
        await process.client.shutdown()

    return _until_refused(work)


def store_traffic(steps: int = 5, *, step_s: float = 0.4, calls: int = 4) -> Program:
    """Steps that process 0 announces by a key, with calls of the store between them.

    Process 0 must live: the others wait for its keys without a time-out.

    Args:
      steps: How many.
      step_s: Length of a step, about.
      calls: Of each process in a step.
    """

    async def work(process: Process) -> None:
        for step in range(steps):
            if process.number == 0:
                await process.sleep(step_s)
                await process.client.key_value_set(f"announced/{step}", "go", True)
            else:
                await process.client.blocking_key_value_get(f"announced/{step}")
            for call in range(calls):
                await process.sleep(step_s * process.random.between(0.0, 0.4))
                await _call_the_store(process, f"{process.number}.{process.lifetime}.{step}.{call}")
        process.sometimes("all steps")
        await process.client.shutdown()

    return _until_refused(work)


async def _call_the_store(process: Process, value: str) -> None:
    """One call, drawn; that a key exists or not is no error."""
    client, random = process.client, process.random
    key = ("a", "a/b", "a/c", "d")[random.below(4)]
    try:
        match random.below(8):
            case 0 | 1:
                await client.key_value_set(key, value, allow_overwrite=True)
            case 2:
                await client.key_value_set(key, value)
            case 3:
                await client.key_value_try_get(key)
            case 4:
                await client.key_value_dir_get("a")
            case 5:
                await client.key_value_delete("a")
            case _:
                await client.key_value_increment("n")
    except ServiceError as error:
        if error.status.code not in (Code.ALREADY_EXISTS, Code.NOT_FOUND):
            raise


def barrier_traffic(steps: int = 6, *, step_s: float = 0.4, timeout_s: float = 2.0) -> Program:
    """Comes to one barrier of all, again and again, whatever became of the last time.

    Args:
      steps: How often each start comes.
      step_s: Time between two calls, about.
      timeout_s: Of the barrier.
    """

    async def work(process: Process) -> None:
        for _ in range(steps):
            await process.sleep(step_s * process.random.between(0.2, 1.8))
            try:
                await process.client.wait_at_barrier("sync", round(timeout_s * 1000))
                process.sometimes("a barrier of all")
            except ServiceError as error:
                process.log(f"{error}")
        await process.client.shutdown()

    return _until_refused(work)


def takeover(*, watched_s: float = 4.0, step_s: float = 0.5) -> Program:
    """Process 0 asks who lives until it is alone; the others only work, and do not call.

    Args:
      watched_s: How long the others work before they ask, once.
      step_s: Pause of process 0 before it asks.
    """

    async def work(process: Process) -> None:
        everybody = process.participants
        if process.number == 0:
            await process.sleep(step_s)
            while len(await process.client.get_live_nodes(everybody)) > 1:
                await process.sleep(step_s)
        else:
            await process.sleep(watched_s)
            await process.client.get_live_nodes(everybody)
        await process.client.shutdown()

    return _until_refused(work)


def _until_refused(work: Program) -> Program:
    async def program(process: Process) -> None:
        try:
            await work(process)
        except ServiceError as error:
            if error.status.code not in _REFUSALS:
                raise
            process.log(f"refused: {error}")  # This incarnation is out of the job, and ends.
            process.sometimes(REFUSED)

    return program
