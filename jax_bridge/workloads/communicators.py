"""Collectives on CPU after a process has come back.

XLA's CPU backend keeps one gloo communicator per ordered list of device ids, for as long as the backend
lives; also one that is broken, and one that could not be made. Its members find each other under the
keys `cpu:gloo/DEVICES/RANK` of the coordination service, written once. So when a process has died and
come back, the survivors would use the communicator with the dead one, and the newcomer cannot write its
predecessor's key (`ALREADY_EXISTS`). On GPUs the incarnations of the processes are part of the name.

Here they become part of it, too: each process brings several CPU devices, of which a computation uses
one; each new combination of incarnations takes another choice of devices, and so a communicator of its
own. There are `DEVICES ** n` choices for n processes. All members must choose the same, so the first of
them chooses and the others look it up in the store.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

from collections import Counter
from typing import Any

from jax.experimental import multihost_utils

from jax_bridge.workloads.program import Program

DEVICES = 8
"""CPU devices a process: 64 communicators for two processes, 512 for three."""
WAIT_MS = 10_000


class Communicators:
    """Chooses the devices of each `live_devices` block, in the same way in all of its processes.

    Args:
      program: This process's part in the job.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._client = program.client
        self._blocks: Counter[str] = Counter()
        self._current = ""

    def choose(self, devices: list[Any]) -> list[Any]:
        """One device of each live process, in order of the processes.

        Call it once in each `live_devices` block, before anything is computed.

        Args:
          devices: What the block was given: `DEVICES` of each live process.

        Raises:
          JaxRuntimeError: the process that chooses has died.
          RuntimeError: all choices are used up.
        """
        incarnations = multihost_utils.live_devices.devices
        assert incarnations is not None
        by_process: dict[int, list[Any]] = {}
        members: dict[int, int] = {}
        for device in devices:
            by_process.setdefault(device.process_index, []).append(device)
            members[device.process_index] = incarnations[device]
        if devices[0].platform != "cpu":  # Nothing to choose: the incarnations are in the name.
            return _chosen(by_process, 0)
        who = "-".join(f"{process}.{members[process]:x}" for process in sorted(members))
        # All members have been in the same blocks since there are just these: they count alike.
        block = self._blocks[who]
        self._blocks[who] += 1
        if min(members) == self._program.process:
            self._client.key_value_set(f"choice/{who}/{block}", str(self._free(who, by_process)))
            if block > 0:  # Whoever is in this block has read what was chosen for the one before.
                self._client.key_value_delete(f"choice/{who}/{block - 1}")
        number = int(self._client.blocking_key_value_get(f"choice/{who}/{block}", WAIT_MS))
        self._current = _name(by_process, number)
        return _chosen(by_process, number)

    def failed(self) -> None:
        """Says that a collective of this block failed: its communicator must not be used again.

        Call it inside the block: everybody enters the next one after that.
        """
        if self._current:
            self._client.key_value_set(f"broken/{self._current}", "yes", allow_overwrite=True)

    def _free(self, who: str, by_process: dict[int, list[Any]]) -> int:
        """The first choice that is either ours already and not broken, or nobody's yet."""
        for number in range(DEVICES ** len(by_process)):
            name = _name(by_process, number)
            owner = self._program.publish(f"owner/{name}", who)
            if owner == who and not self._program.has(f"broken/{name}"):
                return number
        raise RuntimeError(
            f"all {DEVICES ** len(by_process)} communicators of the processes {sorted(by_process)} "
            "are used up: too many of them came back"
        )


def _chosen(by_process: dict[int, list[Any]], number: int) -> list[Any]:
    """The `number`-th choice: its digits to the base `DEVICES` say which device of each process."""
    chosen = []
    for process in sorted(by_process):
        number, digit = divmod(number, DEVICES)
        chosen.append(by_process[process][digit])
    return chosen


def _name(by_process: dict[int, list[Any]], number: int) -> str:
    return ",".join(str(device.id) for device in _chosen(by_process, number))
