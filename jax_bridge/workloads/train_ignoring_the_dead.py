"""The guide's fault-tolerant training without recovery: whoever dies is ignored, and the rest train on.

A linear model in one weight, by data parallelism. The batch of a step is spread over who is alive, so
that the weight that is right depends on who took part in which step: each process notes that, and at
the end NumPy repeats it. A process that dies does not cost the others more than the step it died in.
One that comes back finds that it is too late, and leaves; the others go on without it.
"""

# mypy: disable-error-code="no-untyped-call,no-any-return"
# JAX has functions without types.

from __future__ import annotations

import json
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jax_bridge.workloads.communicators import DEVICES, Communicators
from jax_bridge.workloads.program import PAUSE_S, Program, check, say, spread

STEPS = 40
SAMPLES_PER_PROCESS = 10
LEARNING_RATE = 0.05
BEGUN, RESULT = "training/begun", "training/result"

_RANDOM = np.random.default_rng(seed=5)
INPUTS = _RANDOM.permutation(np.linspace(-3.0, 3.0, 600)).astype(np.float32)
TARGETS = (10.0 * INPUTS + _RANDOM.normal(size=INPUTS.shape)).astype(np.float32)


def samples_of(step: int, processes: int) -> slice:
    """Which samples the step takes with so many live processes; those at the end may be fewer."""
    size = SAMPLES_PER_PROCESS * processes
    return slice(step * size % (len(INPUTS) - size), step * size % (len(INPUTS) - size) + size)


@jax.jit
def next_weight(weight: jax.Array, inputs: jax.Array, targets: jax.Array) -> jax.Array:
    """One step of gradient descent for `targets = weight * inputs`."""
    slope = jax.grad(lambda weight: jnp.mean((weight * inputs - targets) ** 2))(weight)
    return weight - LEARNING_RATE * slope


def repeated_in_numpy(members: list[int]) -> float:
    """The weight in float64 after as many steps, with so many processes in each."""
    weight = 0.0
    for step, processes in enumerate(members):
        inputs, targets = (
            array[samples_of(step, processes)].astype(np.float64) for array in (INPUTS, TARGETS)
        )
        weight -= LEARNING_RATE * 2 * float(np.mean((weight * inputs - targets) * inputs))
    return weight


def trained(weight: np.float32, step: int, devices: list[Any]) -> np.float32:
    """The weight after this step, computed by one device of each live process."""
    mesh = Mesh(np.array(devices), ("process",))
    samples = samples_of(step, len(devices))
    cut = NamedSharding(mesh, PartitionSpec("process"))
    inputs, targets = spread(INPUTS[samples], cut), spread(TARGETS[samples], cut)
    before = spread(np.array(weight), NamedSharding(mesh, PartitionSpec()))
    return np.float32(next_weight(before, inputs, targets).addressable_data(0))


def gathered(number: int, devices: list[Any]) -> list[int]:
    """Everybody's number, in the order of the devices."""
    mesh = Mesh(np.array(devices), ("process",))
    cut = NamedSharding(mesh, PartitionSpec("process"))
    mine = np.array([number], np.int32)
    numbers = jax.make_array_from_callback((len(devices),), cut, lambda _: mine)
    everywhere = NamedSharding(mesh, PartitionSpec())
    everybodys = jax.jit(lambda numbers: numbers, out_shardings=everywhere)(numbers)
    return [int(number) for number in everybodys.addressable_data(0)]


def check_result(program: Program, weight: np.float32, members: list[int]) -> None:
    """Compares the weight with NumPy's, and the whole with what the first that was done has."""
    check("the weight", weight, repeated_in_numpy(members), bound=1e-5)
    mine = json.dumps([float(weight), members])
    if program.publish(RESULT, mine) != mine:
        raise SystemExit("wrong: another process has another result")


def main() -> None:
    """Trains until all steps are done."""
    program = Program.join(__doc__, devices=DEVICES, rounds=STEPS, recoverable=True)
    communicators = Communicators(program)
    weight = np.float32(0.0)
    members: list[int] = []  # How many took part in each step.
    if program.has(BEGUN):
        say("too late: the training began without me, and there is no recovery")
        program.leave()
        return
    while len(members) < program.rounds_wanted:
        step = len(members)
        try:
            with multihost_utils.live_devices(jax.devices()) as live:
                devices = communicators.choose(live)
                try:
                    steps = gathered(step, devices)
                    if min(steps) == max(steps):
                        new_weight = trained(weight, step, devices)
                except jax.errors.JaxRuntimeError:
                    communicators.failed()
                    raise
                time.sleep(PAUSE_S)
        except multihost_utils.ProcessFailureError as failure:
            dead = sorted({device.process_index for device in failure.failed_devices})
            say(f"step {step} failed: processes {dead} died")
        except jax.errors.JaxRuntimeError as error:
            say(f"step {step} failed: {str(error).splitlines()[0]}")
        else:
            # Somebody who was declared dead, but had only stalled, is behind.
            if step < max(steps):
                say(f"too late: the others are at step {max(steps)}, and there is no recovery")
                break
            if min(steps) < max(steps):
                say(f"step {step} waits: processes at {steps}")
                continue
            program.client.key_value_set(BEGUN, "yes", allow_overwrite=True)
            weight = new_weight
            members.append(len(devices))
            say(f"step {step} with {[device.process_index for device in devices]}: {weight:.6f}")
    else:
        check_result(program, weight, members)
    program.leave()


if __name__ == "__main__":
    main()
