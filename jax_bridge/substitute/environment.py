"""What a command must have in its environment for its services to be ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

SOCKET_VARIABLE = "COORDLAB_SUBSTITUTE_SOCKET"
"""Has the path of the socket. The start-up file spells it out, as it imports nothing at first."""

_STARTUP = Path(__file__).parent / "startup"


def substituting(base: Mapping[str, str], socket_path: str) -> dict[str, str]:
    """The environment of a command whose coordination services are to be ours.

    Args:
      base: What the command would get otherwise.
      socket_path: Where the owner of the services listens.
    """
    path = [str(_STARTUP), base.get("PYTHONPATH", "")]
    return {
        **base,
        "PYTHONPATH": os.pathsep.join(entry for entry in path if entry),
        SOCKET_VARIABLE: socket_path,
    }
