"""A fault-tolerant loop like the JAX guide's: a sum over all live processes in every step.

Run by hand as `python live_sum.py PROCESS PROCESSES ADDRESS [STEPS] [HEARTBEAT_TIMEOUT_S]`, once per
process. Prints a line per step, and ends early, a few steps after all are there again, if one has died
and come back. Nothing in it knows that it may be recorded.

CPU collectives and come-backs: gloo keeps one communicator per *ordered* list of devices, and its
addresses under one key per such list. After a process came back, survivors would use the communicator
with the dead one, and the newcomer finds its predecessor's key (`ALREADY_EXISTS`), in jaxlib 0.10.2
and 0.12 alike. So every new combination of incarnations takes another order of the same devices, which
gives it a communicator of its own: there are n! for n processes. A member that dies inside a
collective can leave others waiting; they give up after the time-out set below.
"""

from __future__ import annotations

import itertools
import os
import sys
import time

PROCESS, PROCESSES, ADDRESS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
STEPS = int(sys.argv[4]) if len(sys.argv) > 4 else 30
HEARTBEAT_TIMEOUT_S = int(sys.argv[5]) if len(sys.argv) > 5 else 3
STEPS_AFTER_COME_BACK = 4
PAUSE_S = 0.25

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_cpu_collective_timeout_seconds=6"
)

import jax  # noqa: E402 - the flags above must be set first
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import Mesh, NamedSharding, PartitionSpec  # noqa: E402


def coordination_client():
    """The client that `initialize` made."""
    from jax._src import distributed

    return distributed.global_state.client


def fresh_order(devices: list) -> list:
    """An order of `devices` that no other combination of incarnations has used.

    The first process of the live set takes the next number that is free; the others wait for it.
    """
    client = coordination_client()
    incarnations = multihost_utils.live_devices.devices
    names = ",".join(str(device.id) for device in devices)
    who = "-".join(f"{incarnations[device]:x}" for device in devices)
    orders = list(itertools.permutations(devices))
    if devices[0].process_index == PROCESS:
        for number in itertools.count():
            try:
                client.key_value_set(f"order/{names}/{number}", who)
            except jax.errors.JaxRuntimeError:
                if client.key_value_try_get(f"order/{names}/{number}") != who:
                    continue
            break
        if number >= len(orders):
            raise RuntimeError(f"all {len(orders)} orders of {len(devices)} devices are used up")
        client.key_value_set(f"chosen/{who}", str(number), allow_overwrite=True)
    number = int(client.blocking_key_value_get(f"chosen/{who}", 30_000))
    return list(orders[number])


def over_all(devices: list, value: float, step: int) -> tuple[float, int]:
    """The sum of everybody's value, and the greatest step that anybody is at."""
    mesh = Mesh(np.array(devices), ("process",))
    sharding = NamedSharding(mesh, PartitionSpec("process"))
    mine = np.array([[value, step]], dtype=np.float32)
    shards = jax.make_array_from_callback((len(devices), 2), sharding, lambda _: mine)

    def combine(shard):
        total = jax.lax.psum(shard[0, 0], "process")
        latest = jax.lax.pmax(shard[0, 1], "process")
        return total, latest

    replicated = (PartitionSpec(), PartitionSpec())
    program = jax.jit(
        jax.shard_map(combine, mesh=mesh, in_specs=PartitionSpec("process"), out_specs=replicated)
    )
    total, latest = program(shards)
    return float(total.addressable_data(0)), int(latest.addressable_data(0))


def main() -> None:
    """Steps until everybody alive has done `STEPS` of them, or everybody is alive again."""
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        ADDRESS,
        PROCESSES,
        PROCESS,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        initialization_timeout=60,
    )
    if PROCESS == 0:
        # Process 0 tells the others the topology under this key, once: it refuses to come back as
        # long as its predecessor's is there.
        coordination_client().key_value_delete("cpu:global_topology/cpu")
    step, somebody_died = 0, False
    while step < STEPS:
        try:
            with multihost_utils.live_devices(jax.devices()) as devices:
                live = [device.process_index for device in devices]
                if PROCESS not in live:
                    sys.exit(f"process {PROCESS} was declared dead: it was held up for too long")
                if somebody_died and len(live) == PROCESSES:
                    somebody_died = False
                    step = max(step, STEPS - STEPS_AFTER_COME_BACK)  # All hear of it in the sum.
                total, latest = over_all(fresh_order(devices), PROCESS + 1.0, step)
                expected = sum(process + 1.0 for process in live)
                assert total == expected, f"the sum over {live} is {total}, not {expected}"
                print(f"step {latest}: sum over {live} is {total}", flush=True)
                time.sleep(PAUSE_S)
        except multihost_utils.ProcessFailureError as failure:
            dead = sorted({device.process_index for device in failure.failed_devices})
            print(f"step {step} failed: processes {dead} died", flush=True)
            somebody_died = True
        except jax.errors.JaxRuntimeError as error:
            print(f"step {step} failed: {str(error).splitlines()[0]}", flush=True)
        else:
            step = latest + 1
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
