"""Runs jaxlib's C++ coordination service as a process of its own, until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import socket

from jax_bridge import compat


def main() -> None:
    """Serves on a free port of the loopback and prints `ready address=HOST:PORT`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--heartbeat-timeout", type=int, required=True)
    parser.add_argument("--recoverable", action="store_true")
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    # The C++ service does not tell which port it got. A port is reserved for it while it cannot be
    # shared, so that nobody else has it, and shared with gRPC afterwards; this socket never listens.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as reserved:
        reserved.bind(("127.0.0.1", 0))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        service = compat.new_service(
            address,
            options.processes,
            recoverable=options.recoverable,
            heartbeat_timeout_s=options.heartbeat_timeout,
        )
        print(f"ready address={address}", flush=True)
        signal.sigwait({signal.SIGTERM, signal.SIGINT})
        service.shutdown()


if __name__ == "__main__":
    main()
