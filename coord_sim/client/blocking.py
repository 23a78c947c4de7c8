"""The blocking client: the asyncio one on a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Self, TypeVar

from coord_sim.client import aio
from coord_sim.core.messages import TasksWatched
from coord_sim.errors import ServiceError

_T = TypeVar("_T")


class DistributedRuntimeClient:
    """A client of one task, for programs without an event loop. Its methods may be called by any thread.

    Arguments and errors are those of `coord_sim.client.aio.DistributedRuntimeClient`. `on_fatal` is
    called on the client's own thread, and may not call the client.
    """

    def __init__(
        self,
        address: str,
        node_id: int,
        *,
        on_fatal: Callable[[ServiceError], None] | None = None,
        **options: Any,
    ) -> None:
        self._client = aio.DistributedRuntimeClient(address, node_id, on_fatal=on_fatal, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name=f"coordination-client-{node_id}", daemon=True
        )
        self._thread.start()
        self._is_closed = False

    @property
    def incarnation(self) -> int:
        """This client's random number."""
        return self._client.incarnation

    def connect(self) -> None:
        """Registers the task, which waits until all tasks of the job have registered."""
        self._run(self._client.connect())

    def shutdown(self) -> None:
        """Leaves the job. Nothing happens if the client is not connected."""
        self._run(self._client.shutdown())

    def close(self) -> None:
        """Ends all calls, the connection and the thread, without a word to the service."""
        if self._is_closed:
            return
        self._run(self._client.close())
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.shutdown()
        except ServiceError:
            if error is None:
                raise
        finally:
            self.close()

    def key_value_set(self, key: str, value: str, allow_overwrite: bool = False) -> None:
        """Stores a text; ALREADY_EXISTS if the key has a value and may not be overwritten."""
        self._run(self._client.key_value_set(key, value, allow_overwrite))

    def key_value_set_bytes(self, key: str, value: bytes, allow_overwrite: bool = False) -> None:
        """Stores bytes."""
        self._run(self._client.key_value_set_bytes(key, value, allow_overwrite))

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        """Waits for a text; DEADLINE_EXCEEDED after `timeout_in_ms`."""
        return self._run(self._client.blocking_key_value_get(key, timeout_in_ms))

    def blocking_key_value_get_bytes(self, key: str, timeout_in_ms: int) -> bytes:
        """Waits for bytes."""
        return self._run(self._client.blocking_key_value_get_bytes(key, timeout_in_ms))

    def key_value_try_get(self, key: str) -> str:
        """The text of a key; NOT_FOUND if it has no value."""
        return self._run(self._client.key_value_try_get(key))

    def key_value_try_get_bytes(self, key: str) -> bytes:
        """The bytes of a key."""
        return self._run(self._client.key_value_try_get_bytes(key))

    def key_value_dir_get(self, key: str) -> list[tuple[str, str]]:
        """All keys under a directory, with their texts, ascending."""
        return self._run(self._client.key_value_dir_get(key))

    def key_value_dir_get_bytes(self, key: str) -> list[tuple[str, bytes]]:
        """All keys under a directory, with their bytes, ascending."""
        return self._run(self._client.key_value_dir_get_bytes(key))

    def key_value_increment(self, key: str, increment: int) -> int:
        """Adds to a number that is stored as text; the sum."""
        return self._run(self._client.key_value_increment(key, increment))

    def key_value_delete(self, key: str) -> None:
        """Removes a key and all keys under it."""
        self._run(self._client.key_value_delete(key))

    def wait_at_barrier(
        self, barrier_id: str, timeout_in_ms: int, process_ids: Iterable[int] | None = None
    ) -> None:
        """Waits for the other participants: `process_ids`, or all tasks."""
        self._run(self._client.wait_at_barrier(barrier_id, timeout_in_ms, process_ids))

    def cancel_barrier(self, barrier_id: str) -> None:
        """Ends the first use of a barrier for all who wait; jaxlib has no Python name for it."""
        self._run(self._client.cancel_barrier(barrier_id))

    def get_live_nodes(self, process_ids: Iterable[int]) -> dict[int, int]:
        """The `live_processes` barrier: which of the processes are alive, with their incarnations."""
        return self._run(self._client.get_live_nodes(process_ids))

    def report_error(self, code: int, message: str) -> None:
        """Puts this task in error, which without recoverability ends the job (jaxlib 0.11 on)."""
        self._run(self._client.report_error(code, message))

    def watch_tasks(self, version: int = -1) -> TasksWatched:
        """States and incarnations of all tasks, once their version differs from `version`."""
        return self._run(self._client.watch_tasks(version))

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._is_closed or threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(
                "the client is closed" if self._is_closed else "on_fatal may not call the client"
            )
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
