"""Runs jaxlib's C++ coordination service as a process of its own, until SIGTERM."""

from __future__ import annotations

import argparse
import signal
import sys

from coord_sim.held_port import hold_port
from jax_bridge import compat


def main() -> int:
    """Serves on the loopback and prints `ready address=HOST:PORT`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--heartbeat-timeout", type=int, required=True)
    parser.add_argument("--register-timeout", type=int)
    parser.add_argument("--shutdown-timeout", type=int)
    parser.add_argument("--recoverable", action="store_true")
    options = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        # The C++ service does not tell which port it got.
        with hold_port(options.port) as held:
            port = held.getsockname()[1]
            address = f"127.0.0.1:{port}"
            service = compat.new_service(
                address,
                options.processes,
                recoverable=options.recoverable,
                heartbeat_timeout_s=options.heartbeat_timeout,
                register_timeout_s=options.register_timeout,
                shutdown_timeout_s=options.shutdown_timeout,
            )
            print(f"ready address={address}", flush=True)
            signal.sigwait({signal.SIGTERM, signal.SIGINT})
            service.shutdown()
    except OSError as error:
        print(f"port {options.port}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
