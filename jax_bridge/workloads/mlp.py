"""A network with one hidden layer, trained by data parallelism.

A round is five steps of gradient descent; NumPy does the same with derivatives written by hand. Under a
kill it cannot go on: the others' next step fails.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.program import Program, check, spread

INPUTS, HIDDEN = 8, 16
SAMPLES_PER_DEVICE = 16
LEARNING_RATE = 0.2
STEPS_PER_ROUND = 5


class Weights(NamedTuple):
    """`hidden` is float[INPUTS, HIDDEN], `output` float[HIDDEN, 1]; arrays of NumPy or of JAX."""

    hidden: Any
    output: Any


class Batch(NamedTuple):
    """`inputs` is float[samples, INPUTS], `targets` float[samples, 1]."""

    inputs: Any
    targets: Any


def loss(weights: Weights, batch: Batch) -> jax.Array:
    """The mean squared error of a network with one layer of tanh."""
    answers = jnp.tanh(batch.inputs @ weights.hidden) @ weights.output
    return jnp.mean((answers - batch.targets) ** 2)


@jax.jit
def step(weights: Weights, batch: Batch) -> Weights:
    """One step of gradient descent."""
    slopes = jax.grad(loss)(weights, batch)
    return jax.tree.map(lambda weight, slope: weight - LEARNING_RATE * slope, weights, slopes)


def step_in_numpy(weights: Weights, batch: Batch) -> Weights:
    """The same step in float64, with derivatives by hand."""
    activations = np.tanh(batch.inputs @ weights.hidden)
    slope = 2 * (activations @ weights.output - batch.targets) / len(batch.inputs)
    before_tanh = (slope @ weights.output.T) * (1 - activations**2)
    return Weights(
        weights.hidden - LEARNING_RATE * batch.inputs.T @ before_tanh,
        weights.output - LEARNING_RATE * activations.T @ slope,
    )


def beginning(devices: int) -> tuple[Weights, Batch]:
    """The first weights and the batch, float32; the same in every process."""
    random = np.random.default_rng(seed=2)
    inputs = random.normal(size=(SAMPLES_PER_DEVICE * devices, INPUTS)).astype(np.float32)
    targets = np.sin(inputs.sum(axis=1, keepdims=True))
    hidden = random.normal(size=(INPUTS, HIDDEN)).astype(np.float32) / np.sqrt(np.float32(INPUTS))
    output = random.normal(size=(HIDDEN, 1)).astype(np.float32) / np.sqrt(np.float32(HIDDEN))
    return Weights(hidden, output), Batch(inputs, targets)


def in_float64(weights: Weights, batch: Batch) -> tuple[Weights, Batch]:
    """The same numbers in the precision of the reference."""
    return (
        Weights(*(array.astype(np.float64) for array in weights)),
        Batch(*(array.astype(np.float64) for array in batch)),
    )


def main() -> None:
    """Trains, and compares the weights after every round."""
    program = Program.join(__doc__, devices=2)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    first, samples = beginning(jax.device_count())
    expected, exact_samples = in_float64(first, samples)
    weights = Weights(*(spread(w, NamedSharding(mesh, PartitionSpec())) for w in first))
    batch = Batch(*(spread(a, NamedSharding(mesh, PartitionSpec("batch"))) for a in samples))
    for _ in program.rounds():
        for _ in range(STEPS_PER_ROUND):
            weights = step(weights, batch)
            expected = step_in_numpy(expected, exact_samples)
        check("weights of the hidden layer", weights.hidden, expected.hidden, bound=1e-5)
        check("weights of the output", weights.output, expected.output, bound=1e-5)
    program.leave()


if __name__ == "__main__":
    main()
