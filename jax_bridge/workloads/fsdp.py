"""Fully sharded data parallelism: each device keeps a slice of the weights and a slice of the batch.

The network of `mlp.py`. A step gathers the weights (all-gather), computes the gradient of the local
slice of the batch, and sums gradients so that each device gets its slice of the sum (reduce-scatter).
Under a kill it cannot go on, even in principle: the dead process had the only copy of its weights.

Two faults of reduce-scatter on CPU are reported: a process that waits more than 30 s for the others
fails, whatever time-out is set (jax-ml/jax#40831), and slices of megabytes may come out wrong on the
first device (jax-ml/jax#40830). The slices here have less than a kilobyte, and rounds begin together.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads import mlp
from jax_bridge.workloads.program import Program, check, spread

SLICES = PartitionSpec("slice")


def gather(piece: jax.Array) -> jax.Array:
    """The whole of what each device has a slice of."""
    return jax.lax.all_gather(piece, "slice", tiled=True)


def sum_and_slice(whole: jax.Array) -> jax.Array:
    """This device's slice of the sum over all devices."""
    return jax.lax.psum_scatter(whole, "slice", tiled=True)


def main() -> None:
    """Trains, and compares this process's slices of the weights after every round."""
    program = Program.join(__doc__, devices=2)
    mesh = Mesh(np.array(jax.devices()), ("slice",))
    first, samples = mlp.beginning(jax.device_count())
    expected, exact_samples = mlp.in_float64(first, samples)
    sharding = NamedSharding(mesh, SLICES)
    weights = mlp.Weights(*(spread(array, sharding) for array in first))
    batch = mlp.Batch(*(spread(array, sharding) for array in samples))

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(SLICES, SLICES), out_specs=SLICES, check_vma=False)
    def step(pieces: mlp.Weights, batch: mlp.Batch) -> mlp.Weights:
        slopes = jax.grad(mlp.loss)(jax.tree.map(gather, pieces), batch)
        rate = mlp.LEARNING_RATE / jax.lax.axis_size("slice")  # The mean of the slices' means.
        return jax.tree.map(lambda w, slope: w - rate * sum_and_slice(slope), pieces, slopes)

    for _ in program.rounds():
        for _ in range(mlp.STEPS_PER_ROUND):
            weights = step(weights, batch)
            expected = mlp.step_in_numpy(expected, exact_samples)
        check("slices of the hidden layer", weights.hidden, expected.hidden, bound=1e-5)
        check("slices of the output", weights.output, expected.output, bound=1e-5)
    program.leave()


if __name__ == "__main__":
    main()
