"""A port of the loopback that is kept for one service while that service does not listen there."""

from __future__ import annotations

import socket


def hold_port(port: int = 0) -> socket.socket:
    """Keeps a port from everybody but services that share it: ours and jaxlib's, one after the other.

    Connections are refused meanwhile, as the socket never listens. Without it another process that asks
    for a free port may be given the one of a service that is killed and comes back.

    Args:
      port: 0: any free one.

    Raises:
      OSError: somebody else has it.
    """
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if port:  # Connections of the service that was here before may not be quite over.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
        # Our servers share a port with what does not listen, gRPC with what shares it. A free port is
        # asked for before, as the system may hand out twice what is shared from the beginning.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        held.close()
        raise
    return held
