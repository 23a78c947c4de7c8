"""A sum over the devices of all processes: 1 + 2 + … + 8 = 36 on two processes of four devices.

Under a kill it cannot go on: the others' sum fails, as the dead process has a part of it.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.program import Program, check, spread


def main() -> None:
    """Sums in every round."""
    program = Program.join(__doc__, devices=4)
    mesh = Mesh(np.array(jax.devices()), ("device",))
    everywhere, nowhere = PartitionSpec("device"), PartitionSpec()
    values = np.arange(1.0, jax.device_count() + 1, dtype=np.float32)
    mine = spread(values, NamedSharding(mesh, everywhere))

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=everywhere, out_specs=nowhere)
    def total(shard: jax.Array) -> jax.Array:
        return jax.lax.psum(shard, "device")

    for _ in program.rounds():
        expected = values.astype(np.float64).sum(keepdims=True)
        check(f"the sum 1 + … + {len(values)} =", total(mine), expected, bound=0.0)
    program.leave()


if __name__ == "__main__":
    main()
