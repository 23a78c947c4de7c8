"""Data-parallel linear regression: the batch is spread over all devices, the weights are everywhere.

A round is ten steps of gradient descent. XLA sums the gradients over the devices by itself. Under a
kill it cannot go on: the others' next step fails, as the dead process has a part of the batch.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.program import Program, check, spread

FEATURES = 6
SAMPLES_PER_DEVICE = 32
LEARNING_RATE = 0.1
STEPS_PER_ROUND = 10


def loss(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """The mean squared error."""
    return jnp.mean((inputs @ weights - targets) ** 2)


@jax.jit
def step(weights: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """One step of gradient descent."""
    return weights - LEARNING_RATE * jax.grad(loss)(weights, inputs, targets)


def main() -> None:
    """Trains, and compares the weights with those of the same descent in NumPy."""
    program = Program.join(__doc__, devices=2)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    random = np.random.default_rng(seed=1)
    inputs = random.normal(size=(SAMPLES_PER_DEVICE * jax.device_count(), FEATURES))
    targets = inputs @ np.arange(1.0, FEATURES + 1) + 0.1 * random.normal(size=len(inputs))
    # Both start from the same float32 numbers; only the arithmetic differs.
    inputs, targets = inputs.astype(np.float32), targets.astype(np.float32)
    over_batch = NamedSharding(mesh, PartitionSpec("batch"))
    batch = spread(inputs, over_batch), spread(targets, over_batch)
    weights = spread(np.zeros(FEATURES, np.float32), NamedSharding(mesh, PartitionSpec()))
    expected = np.zeros(FEATURES)
    for _ in program.rounds():
        for _ in range(STEPS_PER_ROUND):
            weights = step(weights, *batch)
            residual = inputs.astype(np.float64) @ expected - targets
            expected = expected - LEARNING_RATE * 2 * inputs.T @ residual / len(inputs)
        check("weights", weights, expected, bound=1e-5)
    program.leave()


if __name__ == "__main__":
    main()
