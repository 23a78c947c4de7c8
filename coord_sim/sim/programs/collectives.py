"""Rendezvous without a time-out, and what is waited for in them.

As gloo's do, they meet through the key-value store: each member writes a key of its own and reads those
of all others, however long that takes.
"""

from __future__ import annotations

from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs.naming import ProcessNumber

NOTICE = "RECEIVED_PREEMPTION_NOTICE"
"""The key that JAX's preemption sync manager waits for."""

COUNTERS = "PREEMPTION_CURRENT_COUNTER"

_SYNC_TIMEOUT_MS = 180_000


async def meet(process: Process, name: str) -> None:
    """Returns when all processes have come to the rendezvous of this name."""
    await process.client.key_value_set(f"{name}/{process.number}", "here")
    for number in process.participants:
        if number != process.number:
            await process.client.blocking_key_value_get(f"{name}/{number}")


def rendezvous(
    steps: int = 6,
    *,
    step_s: float = 0.5,
    stuck: ProcessNumber | None = None,
    stuck_at: int = 2,
    gated: ProcessNumber | None = None,
    gated_at: int = 2,
    gate: str = "checkpoint",
) -> Program:
    """Steps that end in a collective.

    Args:
      steps: How many.
      step_s: Length of a step, about.
      stuck: A process that loops for ever outside of the collective, alive.
      stuck_at: The step, from 0, in which it does.
      gated: A process that alone enters one more collective.
      gated_at: The step, from 0, after which it does.
      gate: Name of that collective.
    """

    async def program(process: Process) -> None:
        for step in range(steps):
            await process.sleep(step_s * process.random.between(0.8, 1.2))
            while process.number == stuck and step == stuck_at:
                await process.sleep(1.0)
            await meet(process, f"step/{step}")
            process.log(f"step {step} done")
            process.sometimes("a step of all")
            if process.number == gated and step == gated_at:
                await meet(process, gate)
        process.sometimes("all steps")
        await process.client.shutdown()

    return program


def lone_preemption(
    notified: ProcessNumber, *, notice_s: float = 2.2, steps: int = 10, step_s: float = 0.5
) -> Program:
    """A preemption notice that one process gets, and acts upon alone: it enters the joint checkpoint.

    Args:
      notified: The process.
      notice_s: When it gets the notice, after it connected.
      steps: How many steps the job has.
      step_s: Length of a step.
    """

    async def program(process: Process) -> None:
        spent_s = 0.0
        for step in range(steps):
            await process.sleep(step_s)
            spent_s += step_s
            if process.number == notified and spent_s >= notice_s:
                process.log(f"preempted: saves before step {step}")
                await meet(process, f"checkpoint/{step}")
                process.log("saved")
                break
            await meet(process, f"step/{step}")
        await process.client.shutdown()

    return program


def agreed_preemption(
    notified: ProcessNumber, *, notice_s: float = 2.2, steps: int = 10, step_s: float = 0.5
) -> Program:
    """A preemption notice that all agree upon, by JAX's preemption sync manager: they save at one step.

    The notice is a key; whoever sees it publishes its step, all meet at a barrier, and the latest step
    plus one is where they save. Nobody begins a step meanwhile.

    Args:
      notified: The process.
      notice_s: When it gets the notice, after it connected.
      steps: How many steps the job has.
      step_s: Length of a step.
    """

    async def watch(process: Process) -> None:
        await process.client.blocking_key_value_get(NOTICE)
        process.volatile["agreement"] = process.start(agree(process))

    async def agree(process: Process) -> None:
        client = process.client
        await client.key_value_set(f"{COUNTERS}/{process.number}", str(process.volatile["step"]))
        await client.wait_at_barrier("PREEMPTION_SYNC_BARRIER", _SYNC_TIMEOUT_MS)
        counters = await client.key_value_dir_get(COUNTERS)
        process.volatile["sync point"] = max(int(counter) for _, counter in counters) + 1

    async def notify(process: Process) -> None:
        await process.sleep(notice_s)
        await process.client.key_value_set(NOTICE, f"task {process.number}")

    async def program(process: Process) -> None:
        process.volatile["step"] = 0
        process.start(watch(process))
        if process.number == notified:
            process.start(notify(process))
        for step in range(steps):
            agreement = process.volatile.get("agreement")
            if agreement is not None:
                await agreement
            process.volatile["step"] = step
            if process.volatile.get("sync point") == step:
                await meet(process, f"checkpoint/{step}")
                process.log("saved with all")
                process.sometimes("a joint checkpoint")
                break
            await process.sleep(step_s)
            await meet(process, f"step/{step}")
        await process.client.shutdown()

    return program
