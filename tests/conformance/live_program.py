"""A JAX program of four `live_devices` blocks, for scenario 43: arguments PROCESS PROCESSES ADDRESS.

Process 2 stays in the third block until it is killed. One JSON object a line says what each block did.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import json
import sys
import time

import jax
from jax.experimental import multihost_utils

HEARTBEAT_TIMEOUT_S = 3
BLOCKS = 4
KILLED, KILLED_IN = 2, 2


def say(**report: object) -> None:
    """Reports to the scenario."""
    print(json.dumps(report), flush=True)


def main() -> None:
    """Enters and leaves the blocks."""
    process, processes, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        address, processes, process, heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S
    )
    for block in range(BLOCKS):
        try:
            with multihost_utils.live_devices(jax.devices()) as devices:
                live = [device.process_index for device in devices]
                say(block=block, live=live)
                if (process, block) == (KILLED, KILLED_IN):
                    time.sleep(600)
        except multihost_utils.ProcessFailureError as failure:
            say(block=block, failed=[device.process_index for device in failure.failed_devices])
    say(left=True)
    sys.stdin.readline()  # Process 0 would take its service away from the others.


if __name__ == "__main__":
    main()
