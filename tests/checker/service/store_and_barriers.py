"""Everything that a client may ask of the store and of barriers, from two threads.

Run as `python store_and_barriers.py PROCESS PROCESSES ADDRESS`.
"""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from typing import Any

from jax_bridge import compat

KEYS = ("a", "a/b", "a/c", "/d/")
CALLS = 40
WAIT_MS = 5000


def ask(client: Any, rng: random.Random) -> None:
    """One call, whatever it is."""
    key = rng.choice(KEYS)
    match rng.randrange(7):
        case 0:
            client.key_value_set(key, rng.choice(("1", "x", " +3")), rng.random() < 0.6)
        case 1:
            client.key_value_set_bytes(key, b"\xff\x00", True)
        case 2:
            client.key_value_try_get_bytes(key)
        case 3:
            client.blocking_key_value_get_bytes(key, 30)
        case 4:
            client.key_value_delete(key)
        case 5:
            client.key_value_dir_get_bytes("a")
        case 6:
            client.key_value_increment(rng.choice(("n", key)), rng.choice((1, -2)))


def main(process: int, address: str) -> None:
    client = compat.new_client(address, process, heartbeat_timeout_s=5, init_timeout_s=60)
    client.connect()

    def use_the_store(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(CALLS):
            with contextlib.suppress(Exception):  # It is recorded.
                ask(client, rng)

    thread = threading.Thread(target=use_the_store, args=(process,))
    thread.start()
    for round_ in range(10):
        with contextlib.suppress(Exception):
            client.wait_at_barrier("all", WAIT_MS)
        if process < 2 and round_ % 3 == 0:
            client.wait_at_barrier("pair", WAIT_MS, [0, 1])
    use_the_store(100 + process)
    thread.join()
    client.wait_at_barrier("end", WAIT_MS)
    client.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[3])
