"""Tasks behind a client library: the part of `stubs.Task` that a client can express.

What a client hides is missing in the outcomes: payloads, counters, keys as sent.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from coord_sim.core.status import Code
from tests.conformance.client_role import decoded, encoded
from tests.conformance.outcome import Outcome
from tests.conformance.services import ForkedProcess, ForkServer, ServiceOptions
from tests.conformance.stubs import Call

WAIT_MS = 60_000
_STATUS = re.compile(r"([A-Z_]+): (.*)", re.DOTALL)
# What the C++ client adds: where the error arose, and the payloads, in arbitrary order.
_TAIL = re.compile(
    r"\nAdditional GRPC error information.*|\n?RPC: /[\w./]+.*|(?: \[[\w./]+='[^']*'\])+\s*$",
    re.DOTALL,
)


class ClientTask:
    """One start of one task behind a client library, in a process of its own.

    Args:
      process: Runs `client_role`.
      number: The task's id.
    """

    def __init__(self, process: ForkedProcess, number: int) -> None:
        self.process = process
        self.number = number
        self.incarnation = 0
        self._reports: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next = 0
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def start(
        cls,
        forks: ForkServer,
        address: str,
        number: int,
        library: str,
        options: ServiceOptions,
        *,
        compressed: bool = True,
    ) -> ClientTask:
        """Starts a process with a client that is not connected yet."""
        settings = {
            "address": address,
            "task": number,
            "library": library,
            "heartbeat_timeout_s": options.heartbeat_timeout_s,
            "shutdown_timeout_s": options.shutdown_timeout_s,
            "compressed": compressed,
        }
        return cls(await forks.fork("client", settings), number)

    async def _read(self) -> None:
        while True:
            try:
                report = await self.process.report()
            except (EOFError, ConnectionError):
                break
            self._reports.pop(report["n"]).set_result(report)
        for waiting in self._reports.values():
            waiting.set_result({"ended": True})

    def call(self, method: str, *arguments: Any, answer: Callable[[Any], dict[str, Any]]) -> Call:
        """Calls a method of the library.

        Args:
          method: Its name.
          *arguments: Of the call.
          answer: From the value returned to the fields of the outcome.
        """
        number = self._next
        self._next += 1
        report: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._reports[number] = report
        order = {"n": number, "method": method, "arguments": [encoded(each) for each in arguments]}

        async def outcome() -> Outcome:
            await self.process.order(json.dumps(order))
            told = await report
            if "ended" in told:
                return Outcome(code=Code.UNKNOWN, message="the process has ended")
            if "error" in told:
                return _failure(told["error"])
            return Outcome(code=Code.OK, answer=answer(told["value"]))

        return Call(method, outcome())

    async def kill(self) -> None:
        """Kills the process, as a crash would."""
        await self.process.kill()
        await self._reader

    # --- the operations of `stubs.Task` ---------------------------------------------------------

    def register(self) -> Call:
        """`connect`."""
        return self.call("connect", answer=_nothing)

    def shutdown(self) -> Call:
        """`shutdown`."""
        return self.call("shutdown", answer=_nothing)

    def alive(self, tasks: Sequence[int]) -> Call:
        """`get_live_nodes`."""
        return self.call(
            "get_live_nodes", list(tasks), answer=lambda value: {"alive": dict(map(tuple, value))}
        )

    def insert(self, key: str, value: bytes, *, overwrite: bool = False) -> Call:
        """`key_value_set_bytes`."""
        return self.call("key_value_set_bytes", key, value, overwrite, answer=_nothing)

    def get(self, key: str) -> Call:
        """`blocking_key_value_get_bytes`."""
        return self.call("blocking_key_value_get_bytes", key, WAIT_MS, answer=_bytes)

    def try_get(self, key: str) -> Call:
        """`key_value_try_get_bytes`."""
        return self.call("key_value_try_get_bytes", key, answer=_bytes)

    def increment(self, key: str, by: int) -> Call:
        """`key_value_increment`."""
        return self.call(
            "key_value_increment", key, by, answer=lambda value: {"value": b"%d" % value}
        )

    def directory(self, key: str) -> Call:
        """`key_value_dir_get_bytes`."""
        return self.call(
            "key_value_dir_get_bytes",
            key,
            answer=lambda value: {"entries": [(name, decoded(each)) for name, each in value]},
        )

    def delete(self, key: str) -> Call:
        """`key_value_delete`."""
        return self.call("key_value_delete", key, answer=_nothing)

    def barrier(
        self, barrier_id: str, *, timeout_s: float = 60.0, tasks: Sequence[int] = ()
    ) -> Call:
        """`wait_at_barrier`."""
        arguments = [barrier_id, round(timeout_s * 1000), *([list(tasks)] if tasks else [])]
        return self.call("wait_at_barrier", *arguments, answer=_nothing)


def _nothing(_: Any) -> dict[str, Any]:
    return {}


def _bytes(value: Any) -> dict[str, Any]:
    return {"value": decoded(value)}


def _failure(text: str) -> Outcome:
    found = _STATUS.match(text)
    if found is None or found[1] not in Code.__members__:
        return Outcome(code=Code.UNKNOWN, message=text)
    return Outcome(code=Code[found[1]], message=_TAIL.sub("", found[2]).strip())
