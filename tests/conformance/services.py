"""The services under test behind one interface: jaxlib's C++ service, and ours.

```python
async with ForkServer() as forks:
    service = RealService(forks)             # or ModelService(), or ModelProcess()
    address = await service.start(ServiceOptions(tasks=2))
    ...
    await service.stop()
```

A `RealService` starts in about 15 ms and stops in 3 ms, as one process is forked for each.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import SHIPPED, Semantics
from coord_sim.core.service import ServiceConfig
from coord_sim.server.grpc_server import CoordinationServer

REPOSITORY = Path(__file__).parents[2]
READY_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """What a service is created with; seconds, whole ones as jaxlib takes no others."""

    tasks: int
    recoverable: bool = False
    heartbeat_timeout_s: int = 100
    shutdown_timeout_s: int = 300
    register_timeout_s: int = 3600


class Service(Protocol):
    """A coordination service that can be started once and stopped."""

    async def start(self, options: ServiceOptions) -> str:
        """Starts to serve.

        Returns:
          HOST:PORT.
        """

    async def stop(self) -> None:
        """Ends it, whatever state it is in. Waiting calls fail with some error."""


class ForkedProcess:
    """A child of the fork server.

    Attributes:
      pid: Its process id.
      orders: Lines to it.
      reports: Lines from it; ends when the process does.
      stderr: File that holds what it wrote to standard error.
    """

    def __init__(
        self,
        pid: int,
        reports: asyncio.StreamReader,
        orders: asyncio.StreamWriter,
        status: asyncio.Future[int],
        stderr: Path,
    ) -> None:
        self.pid = pid
        self.orders = orders
        self.reports = reports
        self.stderr = stderr
        self._status = status

    async def report(self) -> dict[str, Any]:
        """The next line from it, decoded.

        Raises:
          EOFError: the process has ended.
        """
        line = await self.reports.readline()
        if not line:
            raise EOFError(f"process {self.pid} ended: {self.stderr.read_text(errors='replace')}")
        report: dict[str, Any] = json.loads(line)
        return report

    async def order(self, text: str) -> None:
        """Sends it a line."""
        self.orders.write(text.encode() + b"\n")
        await self.orders.drain()

    async def status(self) -> int:
        """Waits for its end; the exit status, or minus the number of the signal that ended it."""
        return await asyncio.shield(self._status)

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal, unless it has ended."""
        if not self._status.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        """Ends it at once."""
        self.signal(signal.SIGKILL)
        await self.status()
        self.orders.close()


class ForkServer:
    """The process of `fork_server.py`, to be used with `async with`."""

    def __init__(self) -> None:
        self._stack = contextlib.AsyncExitStack()
        self._statuses: dict[int, asyncio.Future[int]] = {}
        self._hellos: dict[int, asyncio.Future[ForkedProcess]] = {}
        self._files: dict[int, Path] = {}
        self._next_id = 0

    async def __aenter__(self) -> Self:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-"))
        self._folder = Path(folder)
        self._socket = self._folder / "s"
        server = await asyncio.start_unix_server(self._hello, self._socket, limit=1 << 26)
        self._stack.callback(server.close)
        # With GRPC_VERBOSITY=NONE, the C++ client would not say why it ends its process.
        environment = {k: v for k, v in os.environ.items() if k != "GRPC_VERBOSITY"}
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.conformance.fork_server"),
            cwd=REPOSITORY,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for us alone; the children end with us.
        )
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._watching
        await self._stack.aclose()

    async def fork(self, role: str, options: dict[str, Any]) -> ForkedProcess:
        """Starts a process in a role of `fork_server.ROLES`."""
        number = self._next_id
        self._next_id += 1
        loop = asyncio.get_running_loop()
        self._statuses[number] = loop.create_future()
        self._hellos[number] = loop.create_future()
        self._files[number] = self._folder / f"stderr-{number}"
        request = {
            "id": number,
            "role": role,
            "socket": str(self._socket),
            "stderr": str(self._files[number]),
            "options": options,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(READY_WITHIN_S):
            return await self._hellos[number]

    async def _hello(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = json.loads(await reader.readline())
        number = told["id"]
        self._hellos.pop(number).set_result(
            ForkedProcess(
                told["pid"], reader, writer, self._statuses[number], self._files.pop(number)
            )
        )

    async def _watch(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            told = json.loads(line)
            self._statuses.pop(told["id"]).set_result(told["status"])
        for hello in self._hellos.values():
            hello.set_exception(EOFError("the fork server has ended"))


class RealService:
    """The C++ service of the installed jaxlib, in a process of its own."""

    def __init__(self, forks: ForkServer) -> None:
        self._forks = forks
        self.process: ForkedProcess | None = None

    async def start(self, options: ServiceOptions) -> str:
        """See `Service`."""
        self.process = await self._forks.fork("service", asdict(options))
        address: str = (await self.process.report())["address"]
        return address

    async def stop(self) -> None:
        """See `Service`."""
        if self.process is not None:
            await self.process.kill()

    def signal(self, number: signal.Signals) -> None:
        """Sends the service's process a signal."""
        assert self.process is not None
        self.process.signal(number)


class ModelService:
    """Our server in this event loop."""

    def __init__(self, semantics: Semantics = SHIPPED) -> None:
        self._semantics = semantics
        self._server: CoordinationServer | None = None

    async def start(self, options: ServiceOptions) -> str:
        """See `Service`."""
        config = ServiceConfig(
            tasks=options.tasks,
            recoverable=options.recoverable,
            heartbeat_timeout_ns=seconds(options.heartbeat_timeout_s),
            register_timeout_ns=seconds(options.register_timeout_s),
            shutdown_timeout_ns=seconds(options.shutdown_timeout_s),
            semantics=self._semantics,
        )
        # As the service of the installed jaxlib: 0.10 does not know the call.
        has_reports = not version("jaxlib").startswith("0.10.")
        self._server = CoordinationServer(config, with_reports=has_reports)
        port = self._server.bind("127.0.0.1", 0)
        await self._server.start()
        return f"127.0.0.1:{port}"

    async def stop(self) -> None:
        """See `Service`."""
        if self._server is not None:
            await self._server.stop()


class ModelProcess:
    """Our server as `coordlab serve`, for scenarios that stop or kill the process."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, options: ServiceOptions) -> str:
        """See `Service`."""
        assert options.register_timeout_s == ServiceOptions(tasks=1).register_timeout_s
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "coord_sim.cli.main", "serve"),
            *("--processes", str(options.tasks)),
            *("--heartbeat-timeout", str(options.heartbeat_timeout_s)),
            *("--shutdown-timeout", str(options.shutdown_timeout_s)),
            *(["--recoverable"] if options.recoverable else []),
            cwd=REPOSITORY,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(READY_WITHIN_S):
            ready = (await self._process.stdout.readline()).decode().split()
        return ready[1].removeprefix("address=")

    async def stop(self) -> None:
        """See `Service`."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Sends the service's process a signal."""
        assert self._process is not None
        self._process.send_signal(number)


@contextlib.asynccontextmanager
async def serving(service: Service, options: ServiceOptions) -> AsyncIterator[str]:
    """A service that runs for the length of a block; yields its address."""
    try:
        yield await service.start(options)
    finally:
        await service.stop()
