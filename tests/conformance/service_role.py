"""A C++ service in a process of its own."""

from __future__ import annotations

import json
from typing import Any, TextIO

from tests.ports import reserved_port


def preload() -> None:
    """Imports what takes time, and starts no thread of gRPC."""
    from jaxlib import _jax

    assert _jax


def serve(options: dict[str, Any], orders: TextIO, reports: TextIO) -> None:
    """Starts a service, tells its address, and keeps it until the orders end."""
    from jaxlib import _jax

    with reserved_port() as port:  # The C++ service does not tell which port it got.
        address = f"127.0.0.1:{port}"
        service = _jax.get_distributed_runtime_service(
            address,
            options["tasks"],
            heartbeat_timeout=options["heartbeat_timeout_s"],
            cluster_register_timeout=options["register_timeout_s"],
            shutdown_timeout=options["shutdown_timeout_s"],
            recoverable=options["recoverable"],
        )
        reports.write(json.dumps({"address": address}) + "\n")
        reports.flush()
        for order in orders:
            if order.strip() == "shutdown":
                service.shutdown()
                reports.write("{}\n")
                reports.flush()
