"""`multihost_utils`: meet, broadcast from process 0, gather from all, and assert that all are equal.

Under a kill it cannot go on: all four are collectives over all processes.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import numpy as np
from jax.experimental import multihost_utils

from jax_bridge.workloads.program import Program, check, say


def main() -> None:
    """Does all four in every round."""
    program = Program.join(__doc__, devices=2)
    everybody = np.arange(program.processes)
    for number in program.rounds():
        multihost_utils.sync_global_devices(f"round {number}")
        mine = np.array([100.0 * number + program.process, 0.5], np.float32)
        from_first = multihost_utils.broadcast_one_to_all(mine)
        check("broadcast of process 0", from_first, [100.0 * number, 0.5], bound=0.0)
        gathered = multihost_utils.process_allgather(mine)
        right = np.stack([100.0 * number + everybody, np.full(len(everybody), 0.5)], axis=1)
        check("gathered", gathered, right, bound=0.0)
        multihost_utils.assert_equal(number, "the rounds differ")
        try:
            multihost_utils.assert_equal(program.process, "as they should")
        except AssertionError:
            say("right: assert_equal notices that processes have different numbers")
        else:
            raise SystemExit("wrong: assert_equal takes different numbers for equal")
    program.leave()


if __name__ == "__main__":
    main()
