"""A matrix that is cut by rows is transposed, and is cut by rows again: one all-to-all.

Under a kill it cannot go on: the dead process has some of the rows.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.program import Program, check, spread

ROWS_PER_DEVICE, COLUMNS_PER_DEVICE = 3, 5


def main() -> None:
    """Transposes a new matrix in every round; nothing is rounded, so that every entry must be right."""
    program = Program.join(__doc__, devices=4)
    mesh = Mesh(np.array(jax.devices()), ("rows",))
    by_rows = PartitionSpec("rows", None)
    random = np.random.default_rng(seed=4)
    shape = ROWS_PER_DEVICE * jax.device_count(), COLUMNS_PER_DEVICE * jax.device_count()

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=by_rows, out_specs=by_rows)
    def transpose(rows: jax.Array) -> jax.Array:
        columns = jax.lax.all_to_all(rows, "rows", split_axis=1, concat_axis=0, tiled=True)
        return columns.T

    for _ in program.rounds():
        matrix = random.normal(size=shape).astype(np.float32)
        found = transpose(spread(matrix, NamedSharding(mesh, by_rows)))
        check("the transposed matrix", found, matrix.T.astype(np.float64), bound=0.0)
    program.leave()


if __name__ == "__main__":
    main()
