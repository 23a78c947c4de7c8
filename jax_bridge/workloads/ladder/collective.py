"""Rung 4: collectives with a dead process and without it, nobody knowing who is alive.

All sum over all; then process VICTIM is expected to die in its `key_value_set`, while the others
sum over all again, which cannot work, and then over themselves, which does.

Run as `collective.py PROCESS PROCESSES ADDRESS VICTIM`, once per process. On CPU a collective with a
dead process fails: where the connection to it breaks, at once; at a member that waits for another one,
after the time-out below.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import os
import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

COLLECTIVE_TIMEOUT_S = 8
"""In `live.py` all have given up before the victim is started again."""
HEARTBEAT_TIMEOUT_S = 30
"""Nobody needs to be told that somebody has died."""


def join(process: int, processes: int, address: str, heartbeat_timeout_s: int) -> Any:
    """Joins the job; returns the client of the coordination service."""
    flags = f"--xla_cpu_collective_timeout_seconds={COLLECTIVE_TIMEOUT_S}"
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {flags}"
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        address,
        processes,
        process,
        heartbeat_timeout_seconds=heartbeat_timeout_s,
        initialization_timeout=60,
    )
    from jax._src import distributed

    return distributed.global_state.client


def sum_and_greatest(devices: list[Any], value: float, number: int) -> tuple[float, int]:
    """The sum of everybody's value and the greatest number, by collectives over `devices`."""
    mesh = Mesh(np.array(devices), ("process",))
    sharding = NamedSharding(mesh, PartitionSpec("process"))
    mine = np.array([[value, number]], dtype=np.float32)
    shards = jax.make_array_from_callback((len(devices), 2), sharding, lambda _: mine)

    def combine(shard: Any) -> Any:
        return jax.lax.psum(shard[0, 0], "process"), jax.lax.pmax(shard[0, 1], "process")

    program = jax.jit(
        jax.shard_map(
            combine,
            mesh=mesh,
            in_specs=PartitionSpec("process"),
            out_specs=(PartitionSpec(), PartitionSpec()),
        )
    )
    total, greatest = program(shards)
    return float(total.addressable_data(0)), int(greatest.addressable_data(0))


def attempt(process: int, devices: list[Any]) -> str:
    """Sums over `devices`, and says what came of it."""
    over = sorted(device.process_index for device in devices)
    try:
        total, _ = sum_and_greatest(devices, process + 1.0, 0)
    except jax.errors.JaxRuntimeError as error:
        what, _, where = str(error).splitlines()[0].partition(": [")
        print(f"because of [{where}", flush=True)
        return f"sum over {over} failed: {what}"
    return f"sum over {over} is {total:g}"


def main() -> None:
    """Sums with everybody, with the dead, and without."""
    process, processes, address, victim = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
    client = join(process, processes, address, HEARTBEAT_TIMEOUT_S)
    devices = jax.devices()
    print(f"saw: {attempt(process, devices)}", flush=True)
    if process == int(victim):
        client.key_value_set("about to", "die")
        raise AssertionError("nobody killed me")
    print(f"saw: {attempt(process, devices)}", flush=True)
    survivors = [device for device in devices if device.process_index != int(victim)]
    print(f"saw: {attempt(process, survivors)}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
