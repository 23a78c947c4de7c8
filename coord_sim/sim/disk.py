"""What a process keeps over a crash."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any


class Disk(MutableMapping[str, Any]):
    """A durable mapping: what was written and synced is there after a restart.

    A crash loses what was written after the latest `sync`. A clean end loses nothing. Values are copied
    in and out, as by a real disk: to change one, write it again.
    """

    def __init__(self) -> None:
        self.sync_takes: Callable[[], Awaitable[None]]
        self._now: dict[str, Any] = {}
        self._safe: dict[str, Any] = {}

    async def sync(self) -> None:
        """Makes durable what was written before; takes the time of a disk."""
        written = dict(self._now)
        await self.sync_takes()
        self._safe = written

    def crash(self) -> None:
        """Forgets what was not synced."""
        self._now = dict(self._safe)

    def __getitem__(self, key: str) -> Any:
        return copy.deepcopy(self._now[key])

    def __setitem__(self, key: str, value: Any) -> None:
        self._now[key] = copy.deepcopy(value)

    def __delitem__(self, key: str) -> None:
        del self._now[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now)

    def __len__(self) -> int:
        return len(self._now)
