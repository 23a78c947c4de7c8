"""Jaxlib's client, with its methods as coroutines: what programs of the simulator call."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from coord_sim.core.status import Code, Status
from coord_sim.errors import ServiceError
from coord_sim.sim.live_devices import LiveSet

T = TypeVar("T")

FOR_EVER_MS: Final = 10**9
"""Twelve days: jaxlib's reads need a time-out."""

_CODE: Final = re.compile(r"([A-Z_]+): ?")


class Client:
    """The methods that `coord_sim.sim.client.Client` has, on a jaxlib client.

    Each call runs in a thread of its own, as jaxlib's calls wait; an answer is seen where the program
    awaits it. All raise `ServiceError` for what jaxlib raises.

    Args:
      client: Of jaxlib, connected.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    async def get_live_nodes(self, nodes: Sequence[int]) -> LiveSet:
        """Enters the `live_processes` barrier; returns process -> incarnation. Never times out."""
        return LiveSet(await self._call(self._client.get_live_nodes, list(nodes)))

    async def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Stores a value."""
        await self._call(self._client.key_value_set, key, value, allow_overwrite)

    async def key_value_set_bytes(
        self, key: str, value: bytes, allow_overwrite: bool = False
    ) -> None:
        """Stores a value."""
        await self._call(self._client.key_value_set_bytes, key, value, allow_overwrite)

    async def blocking_key_value_get(self, key: str, timeout_in_ms: int | None = None) -> str:
        """Waits for a value."""
        timeout_ms = FOR_EVER_MS if timeout_in_ms is None else timeout_in_ms
        return str(await self._call(self._client.blocking_key_value_get, key, timeout_ms))

    async def blocking_key_value_get_bytes(
        self, key: str, timeout_in_ms: int | None = None
    ) -> bytes:
        """Waits for a value."""
        timeout_ms = FOR_EVER_MS if timeout_in_ms is None else timeout_in_ms
        return bytes(await self._call(self._client.blocking_key_value_get_bytes, key, timeout_ms))

    async def key_value_try_get(self, key: str) -> str:
        """Reads a value; `ServiceError` with NOT_FOUND if there is none."""
        return str(await self._call(self._client.key_value_try_get, key))

    async def key_value_try_get_bytes(self, key: str) -> bytes:
        """Reads a value; `ServiceError` with NOT_FOUND if there is none."""
        return bytes(await self._call(self._client.key_value_try_get_bytes, key))

    async def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys under a directory, with their values, in order."""
        return list(await self._call(self._client.key_value_dir_get, key))

    async def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """All keys under a directory, with their values, in order."""
        return list(await self._call(self._client.key_value_dir_get_bytes, key))

    async def key_value_delete(self, key: str) -> None:
        """Removes a key and everything under it."""
        await self._call(self._client.key_value_delete, key)

    async def key_value_increment(self, key: str, by: int = 1) -> int:
        """Adds to a counter; returns what it is now."""
        return int(await self._call(self._client.key_value_increment, key, by))

    async def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Sequence[int] | None = None
    ) -> None:
        """Waits until all have come, or the first one's time-out is over."""
        members = () if process_ids is None else (list(process_ids),)
        await self._call(self._client.wait_at_barrier, barrier_id, timeout_in_ms, *members)

    async def shutdown(self) -> None:
        """Leaves the job. jaxlib ends the process if that is refused."""
        await self._call(self._client.shutdown)

    async def _call(self, method: Callable[..., T], *arguments: Any) -> T:
        """Calls in a daemon thread: the end of the program waits for none."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: Exception | None) -> None:
            if answered.done():
                return
            if error is None:
                answered.set_result(result)
            else:
                answered.set_exception(error)

        def call() -> None:
            result, error = None, None
            try:
                result = method(*arguments)
            except Exception as raised:  # noqa: BLE001 - handed over to who awaits
                error = raised
            with contextlib.suppress(RuntimeError):  # The program is over.
                loop.call_soon_threadsafe(settle, result, error)

        threading.Thread(target=call, daemon=True).start()
        try:
            return await answered
        except RuntimeError as error:
            code = _CODE.match(str(error))
            if code is None or code[1] not in Code.__members__:
                raise
            message = str(error)[code.end() :]
            raise ServiceError(Status(code=Code[code[1]], message=message)) from None
