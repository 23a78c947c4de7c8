"""Rungs 1 to 3: processes that do nothing together but live, and notice who does not.

Each process writes a new tick under its key and reads those of the others. It ends by itself as soon as
it has seen what it waits for: that another process was silent for long (`gone`), or that one came back
as another incarnation (`back`). Whether it gets so far is the question: fate sharing, or the loss of the
coordination service, ends it before.

Run as `alive.py PROCESS PROCESSES ADDRESS gone|back [ADDRESS_IN_PROCESS_0]`, once per process. With the
last argument, process 0 serves the job at that address, as JAX does unless told otherwise.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import sys
import time
import uuid
from typing import Any

import jax

HEARTBEAT_TIMEOUT_S = 10
PAUSE_S = 0.25
SILENCE_S = 2.0 * HEARTBEAT_TIMEOUT_S
"""Longer than the service takes to declare a process dead (a second over the time-out), and to tell."""
GIVE_UP_S = 90.0


def tick_of(client: Any, process: int) -> str | None:
    """The last tick of a process, or None if it never wrote one."""
    try:
        return str(client.key_value_try_get(f"alive/{process}"))
    except jax.errors.JaxRuntimeError as error:
        if not str(error).startswith("NOT_FOUND"):
            raise
        return None


class Others:
    """What this process saw of the others' ticks."""

    def __init__(self, processes: set[int]) -> None:
        self.processes = processes
        self._ticks: dict[int, str] = {}
        self._seen_s: dict[int, float] = {}
        self.back: set[int] = set()

    def saw(self, process: int, tick: str, now_s: float) -> None:
        """A tick was read, which may be an old one."""
        before = self._ticks.get(process)
        if tick != before:
            if before is not None and before.split(maxsplit=1)[0] != tick.split(maxsplit=1)[0]:
                self.back.add(process)
            self._ticks[process] = tick
            self._seen_s[process] = now_s

    def gone(self, now_s: float) -> set[int]:
        """Who has been silent for long."""
        return {p for p, seen_s in self._seen_s.items() if now_s - seen_s > SILENCE_S}


def watch(client: Any, process: int, processes: int, wanted: str) -> str:
    """Ticks until what is wanted was seen; says what that was.

    Raises:
      TimeoutError: nothing of the kind happened.
    """
    others = Others(set(range(processes)) - {process})
    start = uuid.uuid4().hex
    came_back = tick_of(client, process) is not None
    deadline_s = time.monotonic() + GIVE_UP_S
    tick = 0
    while time.monotonic() < deadline_s:
        tick += 1
        try:
            client.key_value_set(f"alive/{process}", f"{start} {tick}", allow_overwrite=True)
            for other in others.processes:
                seen = tick_of(client, other)
                if seen is not None:
                    others.saw(other, seen, time.monotonic())
        except jax.errors.JaxRuntimeError as error:
            print(f"tick {tick} failed: {str(error).splitlines()[0]}", flush=True)
        if wanted == "back" and came_back:
            return "came back myself"
        if wanted == "back" and others.back:
            return f"saw {sorted(others.back)} come back"
        gone = others.gone(time.monotonic())
        if wanted == "gone" and gone:
            return f"lived on without {sorted(gone)}"
        time.sleep(PAUSE_S)
    raise TimeoutError(f"after {GIVE_UP_S:g} s nobody is {wanted}")


def main() -> None:
    """Joins the job, and says what it lived to see."""
    process, processes, address, wanted = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
    in_process_0 = sys.argv[5] if len(sys.argv) > 5 else None
    # A setting of the service: it counts if process 0 serves, and an outside service has its own.
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(
        in_process_0 or address,
        processes,
        process,
        coordinator_bind_address=in_process_0,
        heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        initialization_timeout=60,
    )
    from jax._src import distributed

    print(f"saw: {watch(distributed.global_state.client, process, processes, wanted)}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
