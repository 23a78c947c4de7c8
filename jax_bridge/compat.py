"""Everything of JAX that is private or differs between versions: no other file names it.

Tested with jax 0.10.2 (Python 3.11) and 0.12.0.1 (Python 3.13).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = (
    False  # Every Python under `coordlab wrap` imports this file: `typing` takes longer.
)
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

RUNTIME_MODULE = "jaxlib._jax"
"""Has the C++ service and client; `jax._src` reaches both through this very module."""

SERVICE_REQUIRED = ("address", "num_nodes")
"""The parameters of jaxlib's service that have no default."""


def client_class() -> Any:
    """Jaxlib's client class; its methods can be replaced, and C++ takes its instances only."""
    from jaxlib import _jax

    return _jax.DistributedRuntimeClient


def new_client(
    address: str,
    process: int,
    *,
    heartbeat_timeout_s: int,
    init_timeout_s: int,
    shutdown_timeout_s: int | None = None,
) -> Any:
    """A bare client of the coordination service, not connected."""
    from jaxlib import _jax

    return _jax.get_distributed_runtime_client(
        address,
        process,
        init_timeout=init_timeout_s,
        shutdown_timeout=shutdown_timeout_s,
        heartbeat_timeout=heartbeat_timeout_s,
        use_compression=True,
    )


def new_service(
    address: str,
    processes: int,
    *,
    recoverable: bool,
    heartbeat_timeout_s: int,
    register_timeout_s: int | None = None,
    shutdown_timeout_s: int | None = None,
) -> Any:
    """The C++ coordination service, running as long as the object lives."""
    from jaxlib import _jax

    return _jax.get_distributed_runtime_service(
        address,
        processes,
        heartbeat_timeout=heartbeat_timeout_s,
        cluster_register_timeout=register_timeout_s,
        shutdown_timeout=shutdown_timeout_s,
        recoverable=recoverable,
    )


def service_parameters(runtime: Any) -> dict[str, str]:
    """What this jaxlib's service takes, in order: name -> "str", "int" or "bool".

    They differ between versions (0.12 adds mTLS), and the function itself tells in its docstring.

    Args:
      runtime: The module called `RUNTIME_MODULE`.
    """
    import re

    docstring = runtime.get_distributed_runtime_service.__doc__
    parameters = docstring[docstring.index("(") : docstring.index(")")]
    return dict(re.findall(r"(\w+): (\w+)", parameters))


def replace_service(runtime: Any, start: Callable[..., Any]) -> None:
    """Puts `start` in the place of the function that starts the C++ service."""
    replaced = runtime.get_distributed_runtime_service
    start.__doc__ = replaced.__doc__
    runtime.get_distributed_runtime_service = start
    made = getattr(replaced, "made", None)
    if made is not None:
        tell_of_services(runtime, made)


def tell_of_services(runtime: Any, made: Callable[[str, int, int], None]) -> None:
    """Has `made` told of each new service of a program, also by a function that is put in later.

    Args:
      runtime: The module called `RUNTIME_MODULE`.
      made: Called with the service's address, the number of processes, and the time on the monotonic
        clock, in nanoseconds, at which nobody can have reached the service yet.
    """
    import time

    make = runtime.get_distributed_runtime_service

    def get_distributed_runtime_service(*arguments: Any, **named: Any) -> Any:
        began_ns = time.monotonic_ns()
        service = make(*arguments, **named)  # Raises if an argument is missing.
        if not getattr(service, "is_new", True):
            return service  # A substitute, for one that goes on.
        address, processes = (
            arguments[place] if len(arguments) > place else named[name]
            for place, name in enumerate(SERVICE_REQUIRED)
        )
        made(address, processes, began_ns)
        return service

    get_distributed_runtime_service.__doc__ = make.__doc__
    get_distributed_runtime_service.made = made  # type: ignore[attr-defined]
    runtime.get_distributed_runtime_service = get_distributed_runtime_service


def runtime_error(message: str) -> Exception:
    """What jaxlib raises for a status; the message begins with the name of its code."""
    from jaxlib import _jax

    error: Exception = _jax.JaxRuntimeError(message)
    return error


def live_devices_class() -> Any:
    """The class behind `multihost_utils.live_devices`, or None if the program does not use JAX.

    Call it no earlier than in `connect()`: before, importing JAX would freeze settings that the
    program may still make.
    """
    if "jax" not in sys.modules:
        return None
    from jax.experimental import multihost_utils

    return getattr(multihost_utils, "_LiveDevices", None)


def live_incarnations(live_devices: Any) -> dict[int, int]:
    """What a `live_devices` object holds: process -> incarnation."""
    devices = live_devices.devices or {}
    return {device.process_index: incarnation for device, incarnation in devices.items()}


def failed_processes(error: BaseException) -> tuple[int, ...] | None:
    """Whose devices a `ProcessFailureError` names, or None for another exception."""
    devices = getattr(error, "failed_devices", None)
    if devices is None:
        return None
    return tuple(sorted({device.process_index for device in devices}))


BLOCKS_MODULE = "jax.experimental.multihost_utils"
"""Has `live_devices`."""


def replace_client_maker(runtime: Any, made: Callable[[Any, str, int], None]) -> None:
    """Has `made` told of each client of the coordination service that a program makes.

    Args:
      runtime: The module called `RUNTIME_MODULE`.
      made: Called with the client, the service's address, and the number of the process.
    """
    make = runtime.get_distributed_runtime_client

    def get_distributed_runtime_client(*arguments: Any, **named: Any) -> Any:
        client = make(*arguments, **named)  # Raises if an argument is missing.
        address = arguments[0] if arguments else named["address"]
        process = arguments[1] if len(arguments) > 1 else named["node_id"]
        made(client, address, process)
        return client

    get_distributed_runtime_client.__doc__ = make.__doc__
    runtime.get_distributed_runtime_client = get_distributed_runtime_client


HEARTBEAT_TIMEOUT_S = 100
"""Of a client that is not told another one, by `jax.distributed.initialize` or by jaxlib itself."""

_HEARTBEAT_TIMEOUT = 5
"""The place of `heartbeat_timeout` among the parameters of the function that makes clients."""


def tell_of_heartbeats(runtime: Any, told: Callable[[int], None]) -> None:
    """Has `told` called with the heartbeat time-out of each client that a program makes, in seconds.

    Args:
      runtime: The module called `RUNTIME_MODULE`.
      told: Called when the client is there; it beats every half of its time-out.
    """
    make = runtime.get_distributed_runtime_client

    def get_distributed_runtime_client(*arguments: Any, **named: Any) -> Any:
        client = make(*arguments, **named)
        timeout_s = named.get("heartbeat_timeout")
        if len(arguments) > _HEARTBEAT_TIMEOUT:
            timeout_s = arguments[_HEARTBEAT_TIMEOUT]
        told(HEARTBEAT_TIMEOUT_S if timeout_s is None else int(timeout_s))
        return client

    get_distributed_runtime_client.__doc__ = make.__doc__
    runtime.get_distributed_runtime_client = get_distributed_runtime_client


def processes_of_job(address: str, process: int) -> int | None:
    """How many processes the job has, if `jax.distributed.initialize` is making this client now.

    Args:
      address: The service's, as the client has it.
      process: The client's number.
    """
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if state is None or (state.coordinator_address, state.process_id) != (address, process):
        return None
    return int(state.num_processes)


def current_client() -> Any:
    """The client that `jax.distributed.initialize` made, or None."""
    distributed = sys.modules.get("jax._src.distributed")
    return getattr(getattr(distributed, "global_state", None), "client", None)


def jaxlib_version() -> str | None:
    """Of the jaxlib that this program has imported, or None."""
    version = getattr(sys.modules.get("jaxlib.version"), "__version__", None)
    return None if version is None else str(version)
