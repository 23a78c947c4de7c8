"""Checks the environment of a planned job."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path

from jax_bridge.doctor.addresses import Address
from jax_bridge.doctor.findings import Finding, Level

_GRPC_PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")
"""In the order in which gRPC looks; it knows these spellings only."""

_NO_PROXIES = ("no_grpc_proxy", "no_proxy")
_NCCL_TIMEOUT = "xla_gpu_nccl_termination_timeout_seconds"
_SLURM = (
    "SLURM_JOB_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_NTASKS",
    "SLURM_PROCID",
    "SLURM_LOCALID",
)
_TPU_HOSTS = ("TPU_PROCESS_ADDRESSES_PATH", "TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES")


def check_proxies(environment: Mapping[str, str], address: Address | None) -> Iterator[Finding]:
    """Says whether gRPC would send the traffic to the service through a proxy."""
    proxy = next((name for name in _GRPC_PROXIES if environment.get(name)), None)
    if proxy is None:
        return
    exempt = next((environment[name] for name in _NO_PROXIES if environment.get(name)), "")
    if address is not None and _is_exempt(address.host, exempt):
        yield Finding(
            Level.GOOD, "proxies", f"{proxy} is set, and {address.host} is exempt from it"
        )
        return
    yield Finding(
        Level.ERROR if address is not None else Level.WARNING,
        "proxies",
        f"{proxy} is set: gRPC sends the traffic to the service through {environment[proxy]}, loopback "
        "included, and initialize() hangs if the proxy does not pass it on",
        f"unset {proxy}, or put the host of the service into no_proxy",
    )


def _is_exempt(host: str, exempt: str) -> bool:
    """Whether gRPC leaves a host alone: entries are endings of names."""
    return any(host.endswith(entry.strip()) for entry in exempt.split(",") if entry.strip())


def check_accelerator_flags(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Looks for the flag that ends a wait inside a collective of NCCL."""
    platforms = environment.get("JAX_PLATFORMS", "").lower()
    has_gpu = (
        any(name in platforms for name in ("cuda", "gpu", "rocm"))
        or Path("/dev/nvidiactl").exists()
    )
    if has_gpu and _NCCL_TIMEOUT not in environment.get("XLA_FLAGS", ""):
        yield Finding(
            Level.NOTE,
            "flags",
            f"{_NCCL_TIMEOUT} is not set: a process that waits in a collective for one that is alive "
            "but stuck waits for ever",
            f"XLA_FLAGS=--{_NCCL_TIMEOUT}=600",
        )


def detected_cluster(environment: Mapping[str, str]) -> str | None:
    """The cluster that `initialize()` would detect if it is not told everything, or None.

    Source: the `is_env_present` of `jax/_src/clusters`, in the order in which JAX asks them.
    """
    if any(name.startswith("OMPI_MCA_orte_hnp_uri") for name in environment):
        return "Open MPI"
    if all(name in environment for name in _SLURM):
        return "Slurm"
    if importlib.util.find_spec("libtpu") is not None:
        return "Cloud TPU"
    if any(name in environment for name in _TPU_HOSTS):
        return "GKE TPU, if libtpu is there"
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "Kubernetes (needs the package kubernetes)"
    return None


def check_detection(environment: Mapping[str, str], *, all_told: bool) -> Iterator[Finding]:
    """Says which cluster JAX would detect where it is not told everything."""
    cluster = detected_cluster(environment)
    if cluster is not None:
        yield Finding(
            Level.NOTE,
            "detection",
            f"JAX would detect {cluster} here, and take from it what initialize() is not given; it asks "
            "unless it is given the address, the number of processes, the process and the local "
            "devices",
        )
    elif not all_told:
        yield Finding(
            Level.NOTE,
            "detection",
            "JAX would detect no cluster here: initialize() needs coordinator_address, num_processes "
            "and process_id",
        )
