"""Where a recording is made: what tells whose clock its times are of, when recordings are merged."""

from __future__ import annotations

import os
import time

from jax_bridge.recorder.processes import clock_id, host_name, state_of


def origin_details(process: int | None) -> dict[str, object]:
    """Details of the header of a recording that this process makes.

    Args:
      process: Its number in the job; None for what it notes beside that.
    """
    pid = os.getpid()
    state = state_of(pid)
    return {
        "host": host_name(),
        "clock_id": clock_id(),
        "wall_clock_ahead_ns": time.time_ns() - time.monotonic_ns(),
        "pid": pid,
        "pid_started": None if state is None else state.started,
        "process": process,
    }
