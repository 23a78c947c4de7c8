"""What each process of a job needs in its environment, by platform: pure functions of a few numbers.

GPU settings are those of JAX's guide to fault tolerance (https://docs.jax.dev/en/latest/fault_tolerance.html,
"Surviving Faults" and "Cancelling Collectives"; the scripts in `docs/_static/fault_tolerance` of
jax-ml/jax). Both jaxlibs that are tested here know the flags (XLA ends a process at a flag that it does
not know); what they do could not be tried, as it takes GPUs. `docs/gpu.md` says how to.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from jax_bridge.errors import LaunchFailed

PLATFORMS: Final = ("cpu", "gpu")

GPU_FLAGS: Final = (
    # Otherwise an error of NCCL, such as a peer that died, ends the process (openxla/xla#13109).
    "--xla_gpu_nccl_terminate_on_error=false",
    # So that the host is not stuck inside NCCL, and a communicator can be aborted by another thread.
    "--xla_gpu_nccl_async_execution=true",
    "--xla_gpu_nccl_blocking_communicators=false",
)
"""For XLA_FLAGS; the guide's `cancel_collectives.py`."""

ABORT_COLLECTIVES: Final = "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE"
"""Aborts the communicators of an incarnation that died; read by `jaxlib/xla_client.py`."""
TFRT_CLIENT: Final = "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT"
"""The GPU client that can do that; likewise."""
VISIBLE_DEVICES: Final = "CUDA_VISIBLE_DEVICES"
"""Read by CUDA, which then counts from 0 those that are named there."""
LOCAL_DEVICES: Final = "JAX_LOCAL_DEVICE_IDS"
"""Read by `jax.distributed.initialize`, unless the script gives `local_device_ids` itself."""
MEMORY_FRACTION: Final = "XLA_CLIENT_MEM_FRACTION"
"""Of the GPU's memory, reserved at the start; read by `jaxlib/xla_client.py`."""
OLD_MEMORY_FRACTION: Final = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""Its former name: jaxlib refuses to start if both are set."""
PREALLOCATE: Final = "XLA_PYTHON_CLIENT_PREALLOCATE"

SHARED_MEMORY: Final = 0.75
"""What all processes on one GPU take together: as much as JAX takes by default for one."""

CANCELLED: Final = (
    "is not connected",
    "Gloo context initialization failed",
    "Gloo all-reduce failed",
    "Gloo all-to-all failed",
    "Gloo AllGather failed",
    "Gloo ReduceScatter failed",
    "Gloo ReduceScatter timed out",
    "Gloo collective permute failed",
)
"""How a collective that lost a member shows in the text of a `JaxRuntimeError`.

The first is the guide's, on GPUs: "FAILED_PRECONDITION: Task with incarnation id 3446767950926952685 is
not connected". The others are gloo's, on CPUs; they are all that jaxlib 0.10.2 and 0.12.0.1 have.
"""

_NOTHING: Mapping[str, str] = MappingProxyType({})


def environment_for(
    platform: str,
    *,
    process: int,
    processes: int,
    devices: int | None = None,
    inherited: Mapping[str, str] = _NOTHING,
) -> Mapping[str, str]:
    """What the environment of a process has besides what it inherits.

    Args:
      platform: One of `PLATFORMS`.
      process: From 0.
      processes: Of the job, all on this machine.
      devices: How many GPUs this machine has; None: one for each process, as in the guide.
      inherited: The caller's environment: flags of its own are kept, and win, as XLA takes the last.

    Raises:
      ValueError: there is no such platform, or no device.
      LaunchFailed: `CUDA_VISIBLE_DEVICES` of the caller shows fewer GPUs than that.
    """
    if platform == "cpu":
        return {"JAX_PLATFORMS": "cpu"}
    if platform != "gpu":
        raise ValueError(f"{platform!r} is not a platform; one of {', '.join(PLATFORMS)}")
    devices = processes if devices is None else devices
    visible = _visible(inherited)
    if visible is not None and len(visible) < devices:
        raise LaunchFailed(
            f"{devices} GPUs cannot be shared out: CUDA_VISIBLE_DEVICES="
            f"{inherited[VISIBLE_DEVICES]!r} shows {len(visible)}; name more there, or say --devices N "
            "of those that it shows"
        )
    mine, sharers = _share_of(process, processes, devices)
    environment = {
        # Work goes to the GPU unless a program asks for `jax.devices("cpu")`.
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_FLAGS": " ".join([*GPU_FLAGS, inherited.get("XLA_FLAGS", "")]).strip(),
        ABORT_COLLECTIVES: "1",
        TFRT_CLIENT: "1",
        LOCAL_DEVICES: ",".join(map(str, mine)),
    }
    says_itself = {MEMORY_FRACTION, OLD_MEMORY_FRACTION, PREALLOCATE} & inherited.keys()
    if sharers > 1 and not says_itself:
        # https://docs.jax.dev/en/latest/gpu_memory_allocation.html: "Running multiple JAX processes
        # concurrently".
        environment[MEMORY_FRACTION] = f"{SHARED_MEMORY / sharers:.3f}"
    return environment


def _share_of(process: int, processes: int, devices: int) -> tuple[list[int], int]:
    """Which devices a process has, and how many processes have the first of them."""
    if devices < 1:
        raise ValueError("there is no GPU to share out")
    if devices >= processes:
        each = devices // processes
        return list(range(process * each, (process + 1) * each)), 1
    device = process % devices
    return [device], len(range(device, processes, devices))


def is_cancellation(text: str) -> bool:
    """Whether an error's text is that of a collective that lost a member.

    Example:
      >>> is_cancellation("UNKNOWN: Gloo all-reduce failed: [..] Connection closed by peer")
      True
    """
    return any(words in text for words in CANCELLED)


def count_gpus(
    environment: Mapping[str, str] = os.environ, folder: Path = Path("/proc/driver/nvidia/gpus")
) -> int:
    """How many NVIDIA GPUs a process with this environment sees; 0 without a driver.

    Args:
      environment: `CUDA_VISIBLE_DEVICES` limits what is seen.
      folder: Where the driver lists them, one folder each.
    """
    there = sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
    visible = _visible(environment, there)
    return there if visible is None else min(len(visible), there)


def _visible(environment: Mapping[str, str], there: int | None = None) -> list[str] | None:
    """The GPUs that `CUDA_VISIBLE_DEVICES` names; None if it is not set.

    Args:
      environment: Where it may be set.
      there: How many GPUs there are, if that is known.
    """
    if VISIBLE_DEVICES not in environment:
        return None

    def is_valid(name: str) -> bool:
        if name.isdecimal():
            return there is None or int(name) < there
        return name.startswith(("GPU-", "MIG-"))

    # CUDA ignores the first name that is none, and all after it; -1 and the like hide everything.
    names = (name.strip() for name in environment[VISIBLE_DEVICES].split(","))
    return list(itertools.takewhile(is_valid, names))
