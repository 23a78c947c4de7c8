"""A client library in a process of its own, driven by one JSON object a line.

An order is `{"n", "method", "arguments"}`; it runs in a thread of its own, as calls may wait. The report
is `{"n", "value"}` or `{"n", "error"}`, the text of the exception. Bytes travel as `{"bytes": latin-1}`.
The process aborts when the library decides so: that is a result too.
"""

from __future__ import annotations

import json
import threading
from typing import Any, TextIO

INIT_TIMEOUT_S = 60


def preload() -> None:
    """Imports what takes time, and starts no thread of gRPC."""
    from coord_sim.client import DistributedRuntimeClient

    assert DistributedRuntimeClient is not None


def jaxlib_client(options: dict[str, Any]) -> Any:
    """The C++ client."""
    from jaxlib import _jax

    return _jax.get_distributed_runtime_client(
        options["address"],
        options["task"],
        init_timeout=INIT_TIMEOUT_S,
        heartbeat_timeout=options["heartbeat_timeout_s"],
        shutdown_timeout=options["shutdown_timeout_s"],
        use_compression=options["compressed"],
    )


def our_client(options: dict[str, Any]) -> Any:
    """The Python client."""
    from coord_sim.client import DistributedRuntimeClient

    return DistributedRuntimeClient(
        options["address"],
        options["task"],
        init_timeout=INIT_TIMEOUT_S,
        heartbeat_timeout=options["heartbeat_timeout_s"],
        shutdown_timeout=options["shutdown_timeout_s"],
        use_compression=options["compressed"],
    )


LIBRARIES = {"jaxlib": jaxlib_client, "coord_sim": our_client}


def serve(options: dict[str, Any], orders: TextIO, reports: TextIO) -> None:
    """Makes a client, and calls its methods as ordered."""
    client = LIBRARIES[options["library"]](options)
    writing = threading.Lock()

    def act(order: dict[str, Any]) -> None:
        report: dict[str, Any] = {"n": order["n"]}
        try:
            value = getattr(client, order["method"])(*map(decoded, order["arguments"]))
            report["value"] = encoded(value)
        except Exception as error:  # noqa: BLE001 - whatever it raises is what we want to know
            report["error"] = str(error)
        with writing:
            reports.write(json.dumps(report) + "\n")
            reports.flush()

    for line in orders:
        threading.Thread(target=act, args=(json.loads(line),), daemon=True).start()


def encoded(value: Any) -> Any:
    """A value as JSON can hold it; a dict becomes a list of pairs, as its keys are numbers."""
    if isinstance(value, bytes):
        return {"bytes": value.decode("latin-1")}
    if isinstance(value, dict):
        return [[key, encoded(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [encoded(each) for each in value]
    return value


def decoded(value: Any) -> Any:
    """The reverse for arguments."""
    return value["bytes"].encode("latin-1") if isinstance(value, dict) else value
