"""The training loops of the JAX guide, and what it warns of.

A linear model of one parameter learns by data parallelism: each live process computes the gradient of
its shard of a batch, and a collective adds them up. A step is a `live_devices` block. If somebody failed
in it, nobody takes the new weights, and the step is run again with whoever is live then.

What the guide promises is that all take the same branch, so that all have the same weights. It does not
promise the weights of a run without faults: its batch has ten samples per *live* process, so that a step
with fewer processes learns less. What holds bit for bit (`trained`): the weights are those of a run
without faults in which each step had as many processes as the step that counted here. With
`batch="global"` the batch is the same whoever lives, and the gradients are added up in the order of the
samples; then the weights are those of a run without faults, bit for bit.

Source: the JAX guide "Fault Tolerant Distributed JAX", part 2, and the section Atomicity of part 1.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

from coord_sim.errors import CollectiveError, ProcessFailureError, ServiceError
from coord_sim.sim.data_plane import Array
from coord_sim.sim.entropy import Entropy
from coord_sim.sim.process import Process, Program

State: TypeAlias = tuple[float, tuple[int, ...]]
"""The weights, and of each step that they have seen the number of processes that were in it."""

_CaughtUp: TypeAlias = Callable[[Process, tuple[int, ...], State], Awaitable[State]]
"""Brings a process that came back to the state of the others."""

INITIAL: Final[State] = (0.5, ())

SHARD: Final = 10
"""Samples per process and step."""

LEARNING_RATE: Final = 1e-6

BATCHES: Final = ("live", "global")
HANDOVERS: Final = ("all", "pairs")
SENDERS: Final = ("first", "furthest")

_SAMPLES: Final = 600


@functools.cache
def _data() -> tuple[tuple[float, float], ...]:
    """Noisy samples of `y = 10 x`, in random order: the same in every process."""
    stream = Entropy(42).stream("the guide's data")
    inputs = [float(x) for x in range(-_SAMPLES // 2, _SAMPLES // 2)]
    for last in range(len(inputs) - 1, 0, -1):
        other = stream.below(last + 1)
        inputs[last], inputs[other] = inputs[other], inputs[last]
    return tuple((x, 10 * x + stream.between(-1.0, 1.0)) for x in inputs)


class _Batch:
    """How a step's samples are shared out, and how their gradients become new weights.

    Args:
      kind: `live` or `global`.
      processes: How many processes the job has.
    """

    def __init__(self, kind: str, processes: int) -> None:
        self.is_global = kind == "global"
        self._processes = processes

    def gradients(self, state: State, members: int, rank: int) -> tuple[float, ...]:
        """The gradients of the samples of one shard; their sum alone if the batch is not global."""
        weights, seen = state
        size = self._size(members)
        start = len(seen) * size
        data = _data()
        gradients = []
        for place in range(start + rank * size // members, start + (rank + 1) * size // members):
            x, y = data[place % _SAMPLES]
            gradients.append(2 * (weights * x - y) * x)
        return tuple(gradients) if self.is_global else (_sum(gradients),)

    def updated(self, state: State, gradients: Iterable[float], members: int) -> State:
        """The state after a step."""
        weights, seen = state
        mean = _sum(gradients) / self._size(members)
        return weights - LEARNING_RATE * mean, (*seen, members)

    def _size(self, members: int) -> int:
        return SHARD * (self._processes if self.is_global else members)


def _sum(values: Iterable[float]) -> float:
    """From the first to the last: `sum` is more exact than a device, and than itself before 3.12."""
    total = 0.0
    for value in values:
        total = total + value
    return total


def trained(members: Sequence[int], *, processes: int, batch: str = "live") -> float:
    """The weights after a training without faults in which step k has `members[k]` processes.

    Args:
      members: Of each step.
      processes: How many processes the job has.
      batch: `live` or `global`.
    """
    kind = _Batch(batch, processes)
    state = INITIAL
    for count in members:
        shards = [kind.gradients(state, count, rank) for rank in range(count)]
        if kind.is_global:
            gradients: Iterable[float] = _joined(tuple(shards))
        else:
            gradients = (_sum(shard[0] for shard in shards),)
        state = kind.updated(state, gradients, count)
    return state[0]


def ignore_the_dead(
    steps: int = 8,
    *,
    batch: str = "live",
    step_s: float = 0.5,
    pause_s: float = 0.1,
    set_up_s: float = 1.0,
) -> Program:
    """The guide's first loop: the survivors go on without the dead, which must not come back.

    Args:
      steps: Steps of the training.
      batch: `live`: a batch has ten samples per live process, as in the guide. `global`: it always has
        as many as if all lived.
      step_s: How long a device works on a step, about.
      pause_s: Time between two steps.
      set_up_s: Longest time between connecting and the first step.
    """
    return _training(steps, batch, step_s=step_s, pause_s=pause_s, set_up_s=set_up_s)


def recover_the_restarted(
    steps: int = 8,
    *,
    batch: str = "live",
    handover: str = "all",
    sender: str = "first",
    step_s: float = 0.5,
    pause_s: float = 0.1,
    set_up_s: float = 1.0,
) -> Program:
    """The guide's second loop: who comes back gets step and weights, and takes part again.

    Args:
      steps: Steps of the training.
      batch: As in `ignore_the_dead`.
      handover: `all`: one broadcast over all live processes. `pairs`: a collective of sender and
        receiver for each that came back, as in the guide. Not safe: a death in the collective before
        it, seen by the one and not by the other, leaves one waiting for the other, and both are alive.
      sender: Who sends: `first`, process 0 as long as it lives, as in the guide, which takes it for
        immortal: if it comes back, the training begins anew. `furthest`: the first of those that have
        done most steps.
      step_s: How long a device works on a step, about.
      pause_s: Time between two steps.
      set_up_s: Longest time between connecting and the first step.
    """
    _check("handover", handover, HANDOVERS)
    _check("sender", sender, SENDERS)

    async def caught_up(process: Process, live: tuple[int, ...], state: State) -> State:
        devices = process.devices
        steps_of_all = await devices.all_gather(len(state[1]), live).block_until_ready()
        rank = 0 if sender == "first" else steps_of_all.index(max(steps_of_all))
        source = live[rank]
        behind = [
            p for p, step in zip(live, steps_of_all, strict=True) if step != steps_of_all[rank]
        ]
        if behind:
            process.sometimes("step and weights were sent to a process that came back")
        if handover == "all":
            received = devices.broadcast_one_to_all(state, live, source) if behind else None
            return state if received is None else await received.block_until_ready()
        for receiver in behind:
            if process.number in {source, receiver}:
                sent = devices.broadcast_one_to_all(state, (source, receiver), source)
                if process.number == receiver:
                    state = await sent.block_until_ready()
        return state

    return _training(
        steps, batch, caught_up=caught_up, step_s=step_s, pause_s=pause_s, set_up_s=set_up_s
    )


def late_results(
    steps: int = 6, *, waits: str = "after", step_s: float = 0.5, set_up_s: float = 0.2
) -> Program:
    """Sums over all live processes, with the guide's warning about arrays that are futures.

    Args:
      steps: How many sums.
      waits: For the result: `inside` the block, or `after` it, when the block has said that it was
        completed although nothing is computed yet.
      step_s: How long a device works before the sum.
      set_up_s: Longest time between connecting and the first block.
    """
    _check("waits", waits, ("inside", "after"))

    async def program(process: Process) -> None:
        devices = process.devices
        await process.sleep(process.random.between(0.0, set_up_s))
        for step in range(steps):
            y: Array | None = None
            try:
                async with process.live_devices() as live:
                    x = devices.compute(lambda: process.number + 1.0, takes_s=step_s)
                    y = devices.psum(x, live)
                    if waits == "inside":
                        await y.block_until_ready()
            except (ProcessFailureError, CollectiveError) as error:
                process.log(f"step {step}: branch A: {error}")
                continue
            process.log(f"step {step}: branch B")
            assert y is not None
            try:
                process.log(f"step {step}: y is {await y.block_until_ready()}")
            except CollectiveError as error:
                process.log(f"step {step}: y failed: {error}")
                process.sometimes("a result failed after its block was completed")
        await process.client.shutdown()

    return _unless_refused(program)


def _training(
    steps: int,
    batch: str,
    *,
    caught_up: _CaughtUp | None = None,
    step_s: float,
    pause_s: float,
    set_up_s: float,
) -> Program:
    """The loop of both programs."""
    _check("batch", batch, BATCHES)

    async def train(process: Process) -> None:
        state = INITIAL
        kind = _Batch(batch, len(process.participants))
        await process.sleep(process.random.between(0.0, set_up_s))
        while len(state[1]) < steps:
            step = len(state[1])
            try:
                async with process.live_devices() as live:
                    if caught_up is not None:
                        state = await caught_up(process, live, state)
                    takes_s = step_s * process.random.between(0.5, 1.5)
                    update = _dispatch_step(process, kind, state, live, takes_s)
                    new_state = await update.block_until_ready()
            except (ProcessFailureError, CollectiveError) as error:
                process.log(f"step {step} failed: {error}")
                process.sometimes("a step was run again")
            else:
                state = new_state
                process.log(f"step {len(state[1]) - 1} done by {live}: weights {state[0].hex()}")
            await process.sleep(pause_s)
        process.disk["weights"], process.disk["members"] = state
        await process.client.shutdown()

    return _unless_refused(train)


def _dispatch_step(
    process: Process, batch: _Batch, state: State, live: tuple[int, ...], takes_s: float
) -> Array:
    """The state after the step, as an array."""
    devices = process.devices
    count, rank = len(live), live.index(process.number)

    def gradients() -> tuple[float, ...]:
        return batch.gradients(state, count, rank)

    def new_state(total: tuple[float, ...]) -> State:
        return batch.updated(state, total, count)

    shard = devices.compute(gradients, takes_s=takes_s)
    if batch.is_global:
        return devices.compute(new_state, devices.compute(_joined, devices.all_gather(shard, live)))
    return devices.compute(new_state, devices.psum(shard, live))


def _joined(shards: tuple[tuple[float, ...], ...]) -> tuple[float, ...]:
    return tuple(gradient for shard in shards for gradient in shard)


def _unless_refused(train: Program) -> Program:
    async def program(process: Process) -> None:
        try:
            await train(process)
        except ServiceError as error:
            process.log(f"refused: {error}")  # This incarnation is out of the job, and ends.

    return program


def _check(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is one of {', '.join(allowed)}; found {value!r}")
