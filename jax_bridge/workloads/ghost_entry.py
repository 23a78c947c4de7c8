"""The schedule that shows a ghost entry, with bare coordination clients and no computation.

Run as `python ghost_entry.py PROCESS PROCESSES ADDRESS [PATIENCE_S] [HEARTBEAT_TIMEOUT_S]`; the last
process is the victim: kill it inside its first `get_live_nodes` and start it again at once, before it is
declared dead. The others call `get_live_nodes` only when it is back; back again, it does not call until
the others have been answered, or until its patience is over. Everybody waits for keys, so the order of
events is the same in every run.

As published, the others must wait for the newcomer's call. The service as shipped answers them at once
and counts the newcomer in, because its predecessor's place in the barrier was kept.
"""

from __future__ import annotations

import contextlib
import sys

from jax_bridge import compat

PROCESS, PROCESSES, ADDRESS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
PATIENCE_S = float(sys.argv[4]) if len(sys.argv) > 4 else 3.0
HEARTBEAT_TIMEOUT_S = int(sys.argv[5]) if len(sys.argv) > 5 else 3
EVERYBODY = list(range(PROCESSES))
VICTIM = PROCESSES - 1
WAIT_MS = 60_000


def main() -> None:
    """Plays this process's part."""
    client = compat.new_client(
        ADDRESS, PROCESS, heartbeat_timeout_s=HEARTBEAT_TIMEOUT_S, init_timeout_s=60
    )
    client.connect()
    if PROCESS != VICTIM:
        client.blocking_key_value_get("victim/back", WAIT_MS)
        live = client.get_live_nodes(EVERYBODY)
        print(f"told {live}", flush=True)
        client.key_value_set(f"answered/{PROCESS}", "yes")
    elif not has_called_before(client):
        client.get_live_nodes(EVERYBODY)
    else:
        client.key_value_set("victim/back", "yes")
        with contextlib.suppress(Exception):  # Out of patience: the others wait for our call.
            for process in EVERYBODY[:-1]:
                client.blocking_key_value_get(f"answered/{process}", round(PATIENCE_S * 1000))
            client.shutdown()
            return
        print(f"told {client.get_live_nodes(EVERYBODY)}", flush=True)
    client.shutdown()


def has_called_before(client: object) -> bool:
    """Whether a former start of the victim was here; marks that one is now."""
    try:
        client.key_value_set("victim/called", "yes")  # type: ignore[attr-defined]
    except Exception as error:
        if "ALREADY_EXISTS" not in str(error):
            raise
        return True
    return False


if __name__ == "__main__":
    main()
