"""Preemption: SIGTERM reaches one process, and all stop at the same step and save the same state.

The last process sends itself the signal in its third round, as a scheduler would. JAX's preemption
service tells all processes one step to stop at, a little later; `reached_preemption_sync_point` is true
there, in all of them. Then each "saves" and they compare what they saved. If a process is killed
instead of being asked to go, the others wait for it at their next collective, and fail.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import os
import signal
import time

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.program import PAUSE_S, Program, check, say, spread

SIGNALLED_STEP = 2
LONGEST = 200
"""The steps after which somebody should have heard of the signal."""


def main() -> None:
    """Adds in every step, until the step at which all stop."""
    program = Program.join(__doc__, devices=1)
    mesh = Mesh(np.array(jax.devices()), ("process",))
    ones = spread(
        np.ones(jax.device_count(), np.float32), NamedSharding(mesh, PartitionSpec("process"))
    )

    @jax.jit
    @jax.shard_map(
        mesh=mesh, in_specs=(PartitionSpec(), PartitionSpec("process")), out_specs=PartitionSpec()
    )
    def add(total: jax.Array, mine: jax.Array) -> jax.Array:
        return total + jax.lax.psum(mine, "process")

    total = spread(np.zeros(1, np.float32), NamedSharding(mesh, PartitionSpec()))
    for number in range(LONGEST):
        program.announce(number)
        if multihost_utils.reached_preemption_sync_point(number):
            break
        total = jax.block_until_ready(add(total, ones))
        if number == SIGNALLED_STEP and program.process == program.processes - 1:
            say("SIGTERM for this process alone")
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(PAUSE_S)
    else:
        raise SystemExit(f"wrong: no word of the signal in {LONGEST} steps")
    stops = multihost_utils.process_allgather(np.int32(number))
    check(f"that all stop at step {number}", stops, np.full(program.processes, number), bound=0.0)
    check("the saved sum", total, [float(number * program.processes)], bound=0.0)
    program.leave()


if __name__ == "__main__":
    main()
