"""Programs around the key-value store, which is one for the whole job and forgets nothing."""

from __future__ import annotations

from coord_sim.core.status import Code
from coord_sim.errors import ServiceError
from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs.naming import ProcessNumber


def claimed_key(key: str = "leader") -> Program:
    """Every process claims the same key, without overwriting.

    Args:
      key: Its name.
    """

    async def program(process: Process) -> None:
        await process.sleep(process.random.between(0.1, 0.5))
        try:
            await process.client.key_value_set(key, str(process.number))
            process.sometimes("claimed")
        except ServiceError as error:
            if error.status.code is not Code.ALREADY_EXISTS:
                raise
            owner = await process.client.key_value_try_get(key)
            process.log(f"already claimed by {owner}")
            process.sometimes("found claimed")
        await process.client.shutdown()

    return program


def topology(*, work_s: float = 12.0, overwrites: bool = False) -> Program:
    """At its start every process says under a key of its own what devices it has.

    Args:
      work_s: How long it works then.
      overwrites: Whether it may replace what is there.
    """

    async def program(process: Process) -> None:
        key = f"local_topology/{process.number}"
        await process.client.key_value_set(key, f"start {process.lifetime}", overwrites)
        for number in process.participants:
            await process.client.blocking_key_value_get(f"local_topology/{number}")
        process.log("knows the topology")
        await process.sleep(work_s)
        await process.client.shutdown()

    return program


def announced(
    announcer: ProcessNumber,
    *,
    announces: bool = True,
    after_s: float = 1.0,
    timeout_s: float = 5.0,
) -> Program:
    """All wait for a key that one process writes.

    Args:
      announcer: The process.
      announces: Whether it does write it.
      after_s: When.
      timeout_s: How long the others wait.
    """

    async def program(process: Process) -> None:
        if process.number == announcer:
            await process.sleep(after_s)
            if announces:
                await process.client.key_value_set("mesh", "2x2")
        else:
            try:
                mesh = await process.client.blocking_key_value_get("mesh", round(timeout_s * 1000))
                process.log(f"mesh {mesh}")
            except ServiceError as error:
                process.log(f"no mesh: {error}")
        await process.client.shutdown()

    return program


def steady_writes(
    *, writes: int = 20, every_s: float = 0.5, leaves: ProcessNumber | None = None
) -> Program:
    """Every process writes its own number under the same key, again and again.

    Args:
      writes: How often.
      every_s: Time between two.
      leaves: A process that leaves the job after its writes at once; the others work on as long again.
    """

    async def program(process: Process) -> None:
        for _ in range(writes):
            await process.sleep(every_s)
            try:
                await process.client.key_value_set(
                    "latest", f"process {process.number}", allow_overwrite=True
                )
            except ServiceError as error:
                process.log(f"refused: {error}")
                process.sometimes("refused")
                return
        process.log("wrote all")
        if process.number != leaves:
            await process.sleep(writes * every_s)
        await process.client.shutdown()

    return program
