"""Rung 5: `live_devices` tells who is alive, and a collective over those works in every step.

Ends a few steps after a process has come back. Run as `live.py PROCESS PROCESSES ADDRESS`, once per
process. How collectives on CPU survive a come-back: see `live_sum.py`, one folder up; as here only one
process comes back, once, the number of starts so far is enough to choose an order.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import itertools
import sys
import time
from typing import Any

import jax
from jax.experimental import multihost_utils

from jax_bridge.workloads.ladder.collective import join, sum_and_greatest

HEARTBEAT_TIMEOUT_S = 10
PAUSE_S = 0.25
STEPS = 200
STEPS_AFTER_COME_BACK = 4


def starts_of(client: Any, process: int) -> int:
    """How often a process was started."""
    try:
        return int(client.key_value_try_get(f"starts/{process}"))
    except jax.errors.JaxRuntimeError:
        return 0


def main() -> None:
    """Steps until everybody is there again."""
    process, processes, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    client = join(process, processes, address, HEARTBEAT_TIMEOUT_S)
    client.key_value_set(
        f"starts/{process}", str(starts_of(client, process) + 1), allow_overwrite=True
    )
    step, somebody_died = 0, False
    while step < STEPS:
        try:
            with multihost_utils.live_devices(jax.devices()) as devices:
                live = [device.process_index for device in devices]
                if somebody_died and len(live) == processes:
                    somebody_died = False
                    step = max(step, STEPS - STEPS_AFTER_COME_BACK)  # All hear of it in the sum.
                come_backs = sum(starts_of(client, p) for p in live) - len(live)
                order = next(itertools.islice(itertools.permutations(devices), come_backs, None))
                total, latest = sum_and_greatest(list(order), process + 1.0, step)
                print(f"step {latest}", flush=True)
                print(f"saw: sum over {live} is {total:g}", flush=True)
                time.sleep(PAUSE_S)
        except multihost_utils.ProcessFailureError as failure:
            dead = sorted({device.process_index for device in failure.failed_devices})
            print(f"saw: block failed, {dead} died", flush=True)
            somebody_died = True
        except jax.errors.JaxRuntimeError as error:
            print(f"error: {str(error).splitlines()[0]}", flush=True)
        else:
            step = latest + 1
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
