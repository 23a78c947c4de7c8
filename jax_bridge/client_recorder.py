"""Records what one process asks of the coordination service, from inside it.

The methods of jaxlib's client class are replaced by ones that write an event before and after, so that
the program stays as it is. Every event is one `write` to a file of the process's own: SIGKILL loses
nothing that was written.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from checker.history import (
    LIVE_PROCESSES,
    SHUTDOWN,
    Enter,
    Event,
    Exit,
    Fail,
    Header,
    HistoryWriter,
    Info,
    Invoke,
    Ok,
    Start,
    value_fields,
)
from jax_bridge import compat
from jax_bridge.conditions import BLOCK, Inside

_DEFINITE_CODES = frozenset(
    {
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "FAILED_PRECONDITION",
        "ABORTED",
        "OUT_OF_RANGE",
        "UNIMPLEMENTED",
        "UNAUTHENTICATED",
    }
)
"""The service decides these before it changes anything; after others an effect is possible."""

_CODE = re.compile(r"([A-Z_]{2,}):")
_PROBES = 3

Arguments = Callable[..., Mapping[str, Any]]


class ProcessRecorder:
    """Writes the events of one start of one process.

    A program may connect more than once, with one client after the other: each is an incarnation of
    its own, hence a lifetime of its own, numbered from 0 in this start. Clients are told apart by their
    `id`; a reference would keep them from being destroyed, by which a client leaves the job.

    Args:
      path: The file of this start.
      process: Who this is.
      processes: How many the job has.
      hold: Where to stop and wait for SIGKILL, if anywhere.
      held_path: Created when the process stands there.
    """

    def __init__(
        self, path: Path, *, process: int, processes: int, hold: Inside | None, held_path: Path
    ) -> None:
        self.process = process
        self.everybody = frozenset(range(processes))
        self._hold = hold
        self._held_path = held_path
        self._counts: dict[str, int] = {}
        self._operations = 0
        self._blocks = 0
        self._lifetime_of: dict[int, int] = {}
        self._incarnation_of: dict[int, int | None] = {}
        self._lock = threading.RLock()
        self._file: int | None = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        header = Header(source="processes", participants=tuple(range(processes)))
        self._writer = HistoryWriter(self._write, header)

    def start(self, client: int, since_ns: int, incarnation: int | None) -> None:
        """A client has connected; once more in the same incarnation is nothing new."""
        with self._lock:
            lifetime = self._lifetime(client)
            if lifetime in self._incarnation_of:
                if self._incarnation_of[lifetime] == incarnation:
                    return
                del self._lifetime_of[client]
                lifetime = self._lifetime(client)
            self._incarnation_of[lifetime] = incarnation
            self._append(Start, lifetime, incarnation=incarnation, since_ns=since_ns)

    def invoke(self, client: int, operation: str, arguments: Mapping[str, object]) -> int:
        """A call begins; returns its id."""
        with self._lock:
            number = self._operations
            self._operations += 1
            lifetime = self._lifetime(client)
            self._append(Invoke, lifetime, id=number, operation=operation, arguments=arguments)
        return number

    def ok(self, client: int, number: int, result: object) -> None:
        """A call has returned."""
        self._append(Ok, self._lifetime(client), id=number, result=result)

    def error(self, client: int, number: int, error: BaseException) -> None:
        """A call has raised."""
        text = str(error)
        code = _CODE.match(text)
        name = code[1] if code else type(error).__name__
        kind = Fail if name in _DEFINITE_CODES else Info
        message = text.split("\n", maxsplit=1)[0][:500]
        self._append(kind, self._lifetime(client), id=number, code=name, message=message)

    def enter(self, live: dict[int, int]) -> int:
        """A block begins; returns its number."""
        with self._lock:
            block = self._blocks
            self._blocks += 1
            self._append(Enter, self._latest_lifetime(), block=block, live=dict(live))
        return block

    def exit(
        self, block: int, outcome: str, failed: tuple[int, ...] = (), message: str = ""
    ) -> None:
        """A block has ended."""
        self._append(
            Exit,
            self._latest_lifetime(),
            block=block,
            outcome=outcome,
            failed=failed,
            message=message[:500],
        )

    def is_held(self, operation: str) -> bool:
        """Counts a call of `operation`, and says whether it is the one to be killed in."""
        count = self._counts[operation] = self._counts.get(operation, 0) + 1
        return self._hold == Inside(operation, count)

    def wait_to_be_killed(self) -> None:
        """Tells the launcher that the process stands where it asked for, and stays there."""
        self._held_path.touch()
        threading.Event().wait()

    def _lifetime(self, client: int) -> int:
        with self._lock:
            return self._lifetime_of.setdefault(client, len(self._incarnation_of))

    def _latest_lifetime(self) -> int:
        return max(self._incarnation_of, default=0)

    def _append(self, kind: Callable[..., Event], lifetime: int, **fields: Any) -> None:
        with self._lock:
            if self._file is not None:
                self._writer.append(
                    kind(
                        time_ns=time.monotonic_ns(),
                        process=self.process,
                        lifetime=lifetime,
                        **fields,
                    )
                )

    def _write(self, lines: bytes) -> None:
        """One write per event. A disk that is full ends the recording, never the program."""
        if self._file is None:
            return
        try:
            written = os.write(self._file, lines)
            problem = "" if written == len(lines) else "the disk is full"
        except OSError as error:
            problem = str(error)
        if problem:
            self._file = None
            print(f"coordlab: recording stopped: {problem}", file=sys.stderr)


def install(recorder: ProcessRecorder) -> None:
    """Replaces the methods of jaxlib's client class by recording ones."""
    client_class = compat.client_class()
    get_live_nodes = client_class.get_live_nodes
    probe = client_class.key_value_try_get

    connect = client_class.connect

    @functools.wraps(connect)
    def recorded_connect(self: Any) -> Any:
        since_ns = time.monotonic_ns()
        result = connect(self)
        # jaxlib does not tell its incarnation; a round of this process alone does, at once.
        incarnation = None
        with contextlib.suppress(Exception):  # The program asked to connect, and for nothing more.
            incarnation = get_live_nodes(self, [recorder.process]).get(recorder.process)
        recorder.start(id(self), since_ns, incarnation)
        _install_blocks(recorder)
        return result

    client_class.connect = recorded_connect
    for name, (operation, arguments, result_of) in _METHODS.items():
        method = getattr(client_class, name)
        recorded = _recorded(
            recorder,
            method,
            operation=operation,
            arguments=arguments,
            result_of=result_of,
            probe=probe,
        )
        setattr(client_class, name, recorded)


def _recorded(
    recorder: ProcessRecorder,
    method: Callable[..., Any],
    *,
    operation: str,
    arguments: Arguments,
    result_of: Callable[[Any], object],
    probe: Callable[..., Any],
) -> Callable[..., Any]:
    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        described = dict(arguments(*args, **kwargs))
        if described.get("participants") == recorder.everybody:
            del described["participants"]  # It is understood, and long in large jobs.
        elif "participants" in described:
            described["participants"] = tuple(sorted(described["participants"]))
        number = recorder.invoke(id(self), operation, described)
        if recorder.is_held(operation):
            _stay_inside(recorder, functools.partial(method, self, *args, **kwargs), self, probe)
        try:
            result = method(self, *args, **kwargs)
        except Exception as error:
            recorder.error(id(self), number, error)
            raise
        recorder.ok(id(self), number, result_of(result))
        return result

    return recorded


def _stay_inside(
    recorder: ProcessRecorder, call: Callable[[], Any], client: Any, probe: Callable[..., Any]
) -> None:
    """Makes the call, and never returns from it: its answer is not seen by anybody."""
    called = threading.Event()

    def make_call() -> None:
        called.set()
        with contextlib.suppress(Exception):
            call()

    threading.Thread(target=make_call, daemon=True).start()
    called.wait()
    # Requests of one client go over one connection, in order: when a later one is answered, the
    # service has the earlier one.
    for _ in range(_PROBES):
        with contextlib.suppress(Exception):
            probe(client, "coordlab/probe")
    recorder.wait_to_be_killed()


def _install_blocks(recorder: ProcessRecorder) -> None:
    live_devices_class = compat.live_devices_class()
    if live_devices_class is None or hasattr(live_devices_class, "recorded_by_coordlab"):
        return
    live_devices_class.recorded_by_coordlab = True
    original = live_devices_class.__call__

    @contextlib.contextmanager
    def recorded(self: Any, devices: Any) -> Iterator[Any]:
        manager = original(self, devices)
        alive = manager.__enter__()
        block = recorder.enter(compat.live_incarnations(self))
        if recorder.is_held(BLOCK):
            recorder.wait_to_be_killed()
        raised: BaseException | None = None
        try:
            yield alive
        except BaseException as error:  # noqa: BLE001 - handed to the original manager
            raised = error
        with _recorded_exit(recorder, block):
            if raised is None:
                manager.__exit__(None, None, None)
            elif not manager.__exit__(type(raised), raised, raised.__traceback__):
                raise raised

    live_devices_class.__call__ = recorded


@contextlib.contextmanager
def _recorded_exit(recorder: ProcessRecorder, block: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        failed = compat.failed_processes(error)
        text = f"{type(error).__name__}: {error}".split("\n")[0]
        recorder.exit(block, "raised" if failed is None else "failed", failed or (), text)
        raise
    recorder.exit(block, "completed")


# --- operations: how arguments and results look in a history -----------------------------------------


def _live_arguments(processes: Any) -> Mapping[str, object]:
    return {"participants": frozenset(int(process) for process in processes)}


def _live_result(live: Any) -> object:
    return {int(process): int(incarnation) for process, incarnation in live.items()}


def _as_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _set_arguments(
    key: str, value: str | bytes, allow_overwrite: bool = False
) -> Mapping[str, object]:
    fields = value_fields(_as_bytes(value))
    return {"key": key, "value": fields, "allow_overwrite": allow_overwrite}


def _key_arguments(key: str, *_: object, **__: object) -> Mapping[str, object]:
    return {"key": key}


def _get_arguments(key: str, timeout_in_ms: int) -> Mapping[str, object]:
    return {"key": key, "timeout_ms": timeout_in_ms}


def _increment_arguments(key: str, increment: int) -> Mapping[str, object]:
    return {"key": key, "increment": increment}


def _barrier_arguments(
    barrier_id: str, timeout_in_ms: int, process_ids: Any = None
) -> Mapping[str, object]:
    members = None if process_ids is None else sorted(int(process) for process in process_ids)
    return {"barrier": barrier_id, "timeout_ms": timeout_in_ms, "processes": members}


def _no_arguments(*_: object, **__: object) -> Mapping[str, object]:
    return {}


def _value_result(value: str | bytes) -> object:
    return value_fields(_as_bytes(value))


def _entries_result(entries: Any) -> object:
    return [[key, value_fields(_as_bytes(value))] for key, value in entries]


def _nothing(_: object) -> object:
    return None


def _number_result(value: Any) -> object:
    return int(value)


_METHODS: dict[str, tuple[str, Arguments, Callable[[Any], object]]] = {
    "get_live_nodes": (LIVE_PROCESSES, _live_arguments, _live_result),
    "key_value_set": ("key_value_set", _set_arguments, _nothing),
    "key_value_set_bytes": ("key_value_set", _set_arguments, _nothing),
    "blocking_key_value_get": ("key_value_get", _get_arguments, _value_result),
    "blocking_key_value_get_bytes": ("key_value_get", _get_arguments, _value_result),
    "key_value_try_get": ("key_value_try_get", _key_arguments, _value_result),
    "key_value_try_get_bytes": ("key_value_try_get", _key_arguments, _value_result),
    "key_value_dir_get": ("key_value_dir_get", _key_arguments, _entries_result),
    "key_value_dir_get_bytes": ("key_value_dir_get", _key_arguments, _entries_result),
    "key_value_delete": ("key_value_delete", _key_arguments, _nothing),
    "key_value_increment": ("key_value_increment", _increment_arguments, _number_result),
    "wait_at_barrier": ("barrier", _barrier_arguments, _nothing),
    "shutdown": (SHUTDOWN, _no_arguments, _nothing),
}

OPERATIONS = frozenset(operation for operation, _, _ in _METHODS.values())
"""Names that a condition `in:OPERATION#K` may use, besides `block`."""
