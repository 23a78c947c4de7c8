"""The guide's fault-tolerant training with recovery: whoever comes back is brought up to date.

The model and the steps of `train_ignoring_the_dead.py`. In each step all compare how far they are; if
somebody is behind, the first of those that are furthest gives its weight, its step and the record of
who took part to all. So any process may be killed and started again, process 0 too if the coordination
service runs elsewhere, and all end with the same weight, which NumPy repeats from the record. Who is
done leaves the result in the store, for those that come back when all others have gone.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import json
import time
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.communicators import DEVICES, Communicators
from jax_bridge.workloads.program import PAUSE_S, Program, say
from jax_bridge.workloads.train_ignoring_the_dead import (
    RESULT,
    STEPS,
    check_result,
    gathered,
    trained,
)


def given(state: np.ndarray, giver: int, devices: list[Any]) -> np.ndarray:
    """The `giver`-th device's state, in every process: a sum in which all others take part with 0."""
    mesh = Mesh(np.array(devices), ("process",))
    cut = PartitionSpec("process")
    shape = (len(devices), len(state))
    states = jax.make_array_from_callback(
        shape, NamedSharding(mesh, cut), lambda _: state[np.newaxis]
    )

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=cut, out_specs=PartitionSpec())
    def sum_of_one(shard: jax.Array) -> jax.Array:
        is_giver = jax.lax.axis_index("process") == giver
        return jax.lax.psum(jax.numpy.where(is_giver, shard[0], 0.0), "process")

    return np.asarray(sum_of_one(states).addressable_data(0))


def packed(weight: np.float32, members: list[int], length: int) -> np.ndarray:
    """The state as float32: weight, number of steps, and how many took part in each."""
    rest = [0] * (length - len(members))
    return np.array([weight, len(members), *members, *rest], np.float32)


def unpacked(state: np.ndarray) -> tuple[np.float32, list[int]]:
    """The opposite of `packed`."""
    return np.float32(state[0]), [int(processes) for processes in state[2 : 2 + int(state[1])]]


def result_of_others(program: Program) -> tuple[np.float32, list[int]]:
    """What the first process that was done left in the store."""
    weight, members = json.loads(program.client.key_value_try_get(RESULT))
    return np.float32(weight), members


def main() -> None:
    """Trains until all steps are done."""
    program = Program.join(__doc__, devices=DEVICES, rounds=STEPS, recoverable=True)
    communicators = Communicators(program)
    weight = np.float32(0.0)
    members: list[int] = []  # How many took part in each step.
    while len(members) < program.rounds_wanted:
        try:
            with multihost_utils.live_devices(jax.devices()) as live:
                if not members and program.has(RESULT):
                    # The others finished before we were with them, and are gone.
                    weight, members = result_of_others(program)
                    say(f"took the result of the others: {weight:.6f}")
                    continue
                devices = communicators.choose(live)
                try:
                    steps = gathered(len(members), devices)
                    if min(steps) < max(steps):
                        mine = packed(weight, members, program.rounds_wanted)
                        new_weight, so_far = unpacked(given(mine, steps.index(max(steps)), devices))
                    else:
                        new_weight, so_far = weight, members
                    # Nobody's work counts before all know that nobody died.
                    if len(so_far) < program.rounds_wanted:
                        new_weight = trained(new_weight, len(so_far), devices)
                        so_far = [*so_far, len(devices)]
                except jax.errors.JaxRuntimeError:
                    communicators.failed()
                    raise
                time.sleep(PAUSE_S)
        except multihost_utils.ProcessFailureError as failure:
            dead = sorted({device.process_index for device in failure.failed_devices})
            say(f"step {len(members)} failed: processes {dead} died")
        except jax.errors.JaxRuntimeError as error:
            say(f"step {len(members)} failed: {str(error).splitlines()[0]}")
        else:
            if len(so_far) > len(members) + 1:
                say(f"caught up: from step {len(members)} to {len(so_far) - 1}")
            weight, members = new_weight, so_far
            who = [device.process_index for device in devices]
            say(f"step {len(members) - 1} with {who}: {weight:.6f}")
    check_result(program, weight, members)
    program.leave()


if __name__ == "__main__":
    main()
