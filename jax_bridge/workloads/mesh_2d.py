"""A block of a network on a mesh of two dimensions: the batch over one, the weights over the other.

The block is `x + relu(x A) B`. `A` is cut by columns and `B` by rows, so that one sum over the axis
"model" completes it; gradients are summed over the axis "data". The pairs of devices along "model"
belong to different processes. Under a kill it cannot go on: the dead process has half of the weights.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.program import Program, check, spread

WIDTH, HIDDEN = 8, 32
SAMPLES_PER_ROW = 4
DEVICES_PER_PROCESS = 4


def main() -> None:
    """Computes the block and the derivatives of its mean square, in every round for other inputs."""
    program = Program.join(__doc__, devices=DEVICES_PER_PROCESS)
    by_process = np.array(jax.devices()).reshape(program.processes, DEVICES_PER_PROCESS)
    mesh = Mesh(by_process.T, ("data", "model"))
    rows, columns = PartitionSpec("model", None), PartitionSpec(None, "model")
    samples = PartitionSpec("data", None)
    random = np.random.default_rng(seed=3)
    up = random.normal(size=(WIDTH, HIDDEN * program.processes)).astype(np.float32)
    down = random.normal(size=(HIDDEN * program.processes, WIDTH)).astype(np.float32)
    weights = spread(up, NamedSharding(mesh, columns)), spread(down, NamedSharding(mesh, rows))

    @jax.jit
    @jax.shard_map(
        mesh=mesh,
        in_specs=(columns, rows, samples),
        out_specs=(samples, columns, rows),
        check_vma=False,
    )
    def block(
        up: jax.Array, down: jax.Array, inputs: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        hidden = jnp.maximum(inputs @ up, 0.0)
        outputs = inputs + jax.lax.psum(hidden @ down, "model")
        size = outputs.size * jax.lax.axis_size("data")
        slope = 2.0 * outputs / size  # Of the mean square of all outputs.
        of_down = jax.lax.psum(hidden.T @ slope, "data")
        of_up = jax.lax.psum(inputs.T @ ((slope @ down.T) * (hidden > 0.0)), "data")
        return outputs, of_up, of_down

    for _ in program.rounds():
        inputs = random.normal(size=(SAMPLES_PER_ROW * DEVICES_PER_PROCESS, WIDTH))
        inputs = inputs.astype(np.float32)
        found = block(*weights, spread(inputs, NamedSharding(mesh, samples)))
        for what, mine, right in zip(
            ("outputs", "slopes of A", "slopes of B"),
            found,
            block_in_numpy(up, down, inputs),
            strict=True,
        ):
            check(what, mine, right, bound=1e-5)
    program.leave()


def block_in_numpy(
    up: np.ndarray, down: np.ndarray, inputs: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The block and its derivatives in float64, on one machine."""
    up, down, inputs = (array.astype(np.float64) for array in (up, down, inputs))
    hidden = np.maximum(inputs @ up, 0.0)
    outputs = inputs + hidden @ down
    slope = 2.0 * outputs / outputs.size
    return outputs, inputs.T @ ((slope @ down.T) * (hidden > 0.0)), hidden.T @ slope


if __name__ == "__main__":
    main()
