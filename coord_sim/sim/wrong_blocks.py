"""Known-wrong variants of `live_devices`: each must be caught."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from coord_sim.sim.live_devices import LiveDevices, LiveSet


class TakesCollectivesForAtomic(LiveDevices):
    """Believes that who got through the body got through it together: nobody has failed."""

    def failed(self, before: LiveSet, after: LiveSet) -> tuple[int, ...]:  # noqa: ARG002
        """Nobody."""
        return ()


class IgnoresIncarnations(LiveDevices):
    """Takes a process that restarted for the one that it was."""

    def failed(self, before: LiveSet, after: LiveSet) -> tuple[int, ...]:
        """Who is missing."""
        return tuple(process for process in before if process not in after)


class AsksAtTwoProgramPoints(LiveDevices):
    """Asks on entry of each block anew: two barriers a block, where a restarted process meets one."""

    async def entry(self) -> LiveSet:
        """Another call."""
        self._blocks.live = await self._client.get_live_nodes(self._processes)
        return self._blocks.live


wrong_blocks: Final[Mapping[str, type[LiveDevices]]] = {
    "collective-treated-as-atomic": TakesCollectivesForAtomic,
    "live-devices-without-incarnations": IgnoresIncarnations,
    "live-devices-at-two-program-points": AsksAtTwoProgramPoints,
}
"""Wrong blocks by name."""
