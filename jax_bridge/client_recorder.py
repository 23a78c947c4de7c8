"""Records what one process asks of the coordination service, from inside it.

The methods of jaxlib's client class are replaced by ones that write an event before and after, so that
the program stays as it is. Every event is one `write` to a file of the process's own: SIGKILL loses
nothing that was written. Linux may cut the write that is under way, at a page of the file: then the call
was not made yet, or its answer not handed on. Whatever goes wrong with the recording ends the
recording, never the program.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jax_bridge import compat
from jax_bridge.recorder.complaints import complain
from jax_bridge.recorder.descriptors import high_descriptor
from jax_bridge.recorder.lines import EventLines, header_line, remark_line, value_fields

if TYPE_CHECKING:
    from jax_bridge.conditions import Inside

_LIVE_PROCESSES = "live_processes"
_BLOCK = "block"
"""The name of a block in a condition."""

REMARKS = "recorder"
"""The lane of what a recorder remarks."""

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
_MESSAGE_MAX = 500

_DISK_FULL = "the disk is full"
_append = os.write
_now_ns = time.monotonic_ns

Arguments = Callable[..., Mapping[str, object]]
"""How arguments look in a history; called with the recorder and the arguments themselves."""


class ProcessRecorder:
    """Writes the events of one start of one process.

    A program may connect more than once, with one client after the other: each is an incarnation of
    its own, hence a lifetime of its own, numbered from 0 in this start. Clients are told apart by their
    `id`; a reference would keep them from being destroyed, by which a client leaves the job.

    Args:
      path: The file of this start. If it exists, it is continued.
      process: Who this is.
      processes: How many the job has, or None if that is not known. Then the header names this
        process alone, and who reads the file must know the others (`checker.history.read_part`).
      hold: Where to stop and wait for SIGKILL, if anywhere.
      held_path: Created when the process stands there.
      task: Which task it says it is, if not that of its number.
      cannot_know, details: For the header.

    Raises:
      OSError: the file cannot be opened.
    """

    def __init__(
        self,
        path: Path,
        *,
        process: int,
        processes: int | None,
        hold: Inside | None = None,
        held_path: Path | None = None,
        task: int | None = None,
        cannot_know: Sequence[str] = (),
        details: Mapping[str, object] | None = None,
    ) -> None:
        self.process = process
        self.task = process if task is None else task
        self.everybody = frozenset(() if processes is None else range(processes))
        self.latest_live_arguments: tuple[list[int], Mapping[str, object]] | None = None
        self.hold = None if hold is None else (hold.operation, hold.count)
        self._held_path = held_path
        self._counts: dict[str, int] = {}
        self._operations = 0
        self._blocks = 0
        self._lifetimes = 0
        self._lifetime_of: dict[int, int] = {}
        self._incarnation_of: dict[int, int | None] = {}
        self._lock = threading.RLock()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._file: int | None = high_descriptor(descriptor)
        self._lines = EventLines(process)
        participants = (process,) if processes is None else tuple(range(processes))
        self._write(header_line(participants, cannot_know, details or {}))
        _abandon_in_forks(self)

    def made(self, client: int) -> None:
        """A client was made; an earlier one of the same `id` is no more."""
        with self._lock:
            self._lifetime_of.pop(client, None)

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
            self._write(self._lines.start(_now_ns(), lifetime, incarnation, since_ns))

    # The next two are within the time of the program's calls, and run with caches that have gone cold
    # while it waited: each function more, called from here, costs microseconds. So lines are formatted
    # here, of texts that `EventLines` has.

    def invoke(self, client: int, operation: str, arguments: Mapping[str, object]) -> int:
        """A call begins; returns its id.

        If `arguments` is the object of an earlier call, it must not have changed since.
        """
        with self._lock:
            number = self._operations
            self._operations = number + 1
            file = self._file
            if file is None:
                return number
            lifetime = self._lifetime_of.get(client)
            if lifetime is None:
                lifetime = self._lifetime(client)
            lines = self._lines
            known, text = lines.latest_arguments
            if arguments is not known:
                text = lines.arguments(arguments)
            line = (
                f'{{"type":"invoke","time_ns":{_now_ns()}{lines.by}{lifetime},"id":{number},'
                f'"operation":"{operation}","arguments":{text}}}\n'
            ).encode()
            try:
                if _append(file, line) != len(line):
                    self.stop(_DISK_FULL)
            except OSError as error:
                self.stop(str(error))
        return number

    def ok(self, client: int, number: int, result: object) -> None:
        """A call has returned; a live set is a dictionary from process to incarnation."""
        with self._lock:
            file = self._file
            if file is None:
                return
            lifetime = self._lifetime_of.get(client)
            if lifetime is None:
                lifetime = self._lifetime(client)
            lines = self._lines
            before = b""
            known, text = lines.latest_result
            if result != known:
                before, text = lines.result(result)
            text = (
                f'{{"type":"ok","time_ns":{_now_ns()}{lines.by}{lifetime},"id":{number},{text}}}\n'
            )
            line = before + text.encode()
            try:
                if _append(file, line) != len(line):
                    self.stop(_DISK_FULL)
            except OSError as error:
                self.stop(str(error))

    def error(self, client: int, number: int, error: BaseException) -> None:
        """A call has raised."""
        text = str(error)
        code = _CODE.match(text)
        name = code[1] if code else type(error).__name__
        with self._lock:
            line = self._lines.error(
                _now_ns(),
                self._lifetime(client),
                number,
                kind="fail" if name in _DEFINITE_CODES else "info",
                code=name,
                message=_first_line(text),
            )
            self._write(line)

    def enter(self, live: Mapping[int, int]) -> int:
        """A block begins; returns its number."""
        with self._lock:
            block = self._blocks
            self._blocks += 1
            lifetime = self._latest_lifetime()
            self._write(self._lines.enter(_now_ns(), lifetime, block, live))
        return block

    def exit(
        self, block: int, outcome: str, failed: tuple[int, ...] = (), message: str = ""
    ) -> None:
        """A block has ended."""
        with self._lock:
            line = self._lines.exit(
                _now_ns(),
                self._latest_lifetime(),
                block,
                outcome=outcome,
                failed=failed,
                message=message[:_MESSAGE_MAX],
            )
            self._write(line)

    def remark(self, sentence: str) -> None:
        """Something about this process that is no event, for people."""
        with self._lock:
            remark = f"process {self.process}: {_first_line(sentence)}"
            self._write(remark_line(_now_ns(), remark, REMARKS))

    def abandon(self) -> None:
        """Writes nothing from now on: in a fork, the file is the parent's."""
        self._lock = threading.RLock()  # Another thread of the parent may have held the old one.
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def stop(self, problem: str) -> None:
        """Ends the recording, and says why, if standard error is there."""
        self._file = None
        complain(f"recording stopped: {problem}")

    def is_held(self, operation: str) -> bool:
        """Counts a call of `operation`, and says whether it is the one to be killed in."""
        if self.hold is None:
            return False
        count = self._counts[operation] = self._counts.get(operation, 0) + 1
        return self.hold == (operation, count)

    def wait_to_be_killed(self) -> None:
        """Tells the launcher that the process stands where it asked for, and stays there."""
        assert self._held_path is not None
        self._held_path.touch()
        threading.Event().wait()

    def _lifetime(self, client: int) -> int:
        lifetime = self._lifetime_of.get(client)
        if lifetime is None:
            lifetime = self._lifetime_of[client] = self._lifetimes
            self._lifetimes += 1
        return lifetime

    def _latest_lifetime(self) -> int:
        return max(self._incarnation_of, default=0)

    def _write(self, lines: bytes) -> None:
        """One write per event. A disk that is full ends the recording, never the program."""
        if self._file is None:
            return
        try:
            if _append(self._file, lines) != len(lines):
                self.stop(_DISK_FULL)
        except OSError as error:
            self.stop(str(error))


def _abandon_in_forks(recorder: ProcessRecorder) -> None:
    alive = weakref.ref(recorder)

    def abandon() -> None:
        found = alive()
        if found is not None:
            found.abandon()

    os.register_at_fork(after_in_child=abandon)


RecorderOf = Callable[[int], ProcessRecorder | None]
"""By the `id` of a client, who records it; None: nobody does."""


def install(recorder: ProcessRecorder) -> None:
    """Replaces the methods of jaxlib's client class by ones that this recorder sees."""
    record_clients(lambda _: recorder)

    client_class = compat.client_class()
    connect = client_class.connect

    @functools.wraps(connect)
    def connect_and_see_blocks(self: Any) -> Any:
        result = connect(self)
        live_devices_class = compat.live_devices_class()
        if live_devices_class is not None:
            record_blocks(live_devices_class, lambda _: recorder)
        return result

    client_class.connect = connect_and_see_blocks


def record_clients(recorder_of: RecorderOf) -> None:
    """Replaces the methods of jaxlib's client class by recording ones.

    Args:
      recorder_of: Asked in each call of a client.
    """
    client_class = compat.client_class()
    get_live_nodes = client_class.get_live_nodes
    probe = client_class.key_value_try_get

    connect = client_class.connect

    @functools.wraps(connect)
    def recorded_connect(self: Any) -> Any:
        recorder = recorder_of(id(self))
        if recorder is None:
            return connect(self)
        since_ns = _now_ns()
        try:
            result = connect(self)
        except Exception as error:
            with _never_breaking(recorder):
                recorder.remark(f"could not connect: {error}")
            raise
        # jaxlib does not tell its incarnation; a round of this process alone does, at once.
        incarnation = None
        with contextlib.suppress(Exception):  # The program asked to connect, and for nothing more.
            incarnation = get_live_nodes(self, [recorder.task]).get(recorder.task)
        with _never_breaking(recorder):
            recorder.start(id(self), since_ns, incarnation)
        return result

    client_class.connect = recorded_connect
    for name, (operation, arguments, result_of) in _METHODS.items():
        method = getattr(client_class, name)
        recorded = _recorded(
            recorder_of,
            method,
            operation=operation,
            arguments=arguments,
            result_of=result_of,
            probe=probe,
        )
        setattr(client_class, name, recorded)


def _recorded(
    recorder_of: RecorderOf,
    method: Callable[..., Any],
    *,
    operation: str,
    arguments: Arguments,
    result_of: Callable[[Any], object] | None,
    probe: Callable[..., Any],
) -> Callable[..., Any]:
    @functools.wraps(method)
    def recorded(self: Any, *args: Any, **kwargs: Any) -> Any:
        client = id(self)
        recorder = recorder_of(client)
        if recorder is None:
            return method(self, *args, **kwargs)
        # This is within the time of the program's call: no helpers here that could be done without.
        number = None
        try:
            described = arguments(recorder, *args, **kwargs)
            number = recorder.invoke(client, operation, described)
        except Exception:  # noqa: BLE001, S110 - what jaxlib will refuse, in its own words
            pass
        if recorder.hold is not None and recorder.is_held(operation):
            _stay_inside(recorder, functools.partial(method, self, *args, **kwargs), self, probe)
        try:
            result = method(self, *args, **kwargs)
        except Exception as error:
            if number is not None:
                with _never_breaking(recorder):
                    recorder.error(client, number, error)
            raise
        if number is not None:
            try:
                recorder.ok(client, number, result if result_of is None else result_of(result))
            except Exception as error:  # noqa: BLE001 - as `_never_breaking`
                recorder.stop(f"{type(error).__name__}: {error}")
        return result

    return recorded


@contextlib.contextmanager
def _never_breaking(recorder: ProcessRecorder) -> Iterator[None]:
    """A mistake of the recorder, or memory that is full, costs the recording."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever it is, the program goes on
        recorder.stop(f"{type(error).__name__}: {error}")


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


def record_blocks(live_devices_class: Any, recorder_of: RecorderOf) -> None:
    """Has the blocks of the class behind `live_devices` recorded; a second time is nothing.

    Args:
      live_devices_class: As `compat.live_devices_class` finds it.
      recorder_of: Asked in each block, about the program's client.
    """
    if hasattr(live_devices_class, "recorded_by_coordlab"):
        return
    live_devices_class.recorded_by_coordlab = True
    original = live_devices_class.__call__

    @contextlib.contextmanager
    def recorded(self: Any, devices: Any) -> Iterator[Any]:
        recorder = recorder_of(id(compat.current_client()))
        manager = original(self, devices)
        alive = manager.__enter__()
        block = None
        if recorder is not None:
            with _never_breaking(recorder):
                block = recorder.enter(compat.live_incarnations(self))
            if recorder.is_held(_BLOCK):
                recorder.wait_to_be_killed()
        raised: BaseException | None = None
        try:
            yield alive
        except BaseException as error:  # noqa: BLE001 - handed to the original manager
            raised = error
        with _recorded_exit(recorder, block, raised):
            if raised is None:
                manager.__exit__(None, None, None)
            elif not manager.__exit__(type(raised), raised, raised.__traceback__):
                raise raised

    live_devices_class.__call__ = recorded


@contextlib.contextmanager
def _recorded_exit(
    recorder: ProcessRecorder | None, block: int | None, raised: BaseException | None
) -> Iterator[None]:
    """Records how a block ends, with what its body raised: that tells a cancelled collective."""
    if recorder is None or block is None:
        yield
        return
    try:
        yield
    except BaseException as error:
        with _never_breaking(recorder):
            failed = compat.failed_processes(error)
            text = _first_line(f"{type(error).__name__}: {error}")
            if raised is not None and raised is not error:
                text += f"; the body raised {_first_line(f'{type(raised).__name__}: {raised}')}"
            recorder.exit(block, "raised" if failed is None else "failed", failed or (), text)
        raise
    with _never_breaking(recorder):
        recorder.exit(block, "completed")


def _first_line(text: str) -> str:
    return text.split("\n", maxsplit=1)[0][:_MESSAGE_MAX]


# --- operations: how arguments and results look in a history -----------------------------------------


def _live_arguments(recorder: ProcessRecorder, processes: Any) -> Mapping[str, object]:
    # Rounds name the same processes again and again. The arguments are then the same object, too, by
    # which `EventLines` knows that it has their text.
    latest = recorder.latest_live_arguments  # Read once: several threads may call.
    if latest is not None and type(processes) is list and latest[0] == processes:
        return latest[1]
    named = list(processes)
    numbers = {int(process) for process in named}
    # Everybody is understood, and long in large jobs.
    arguments = {} if numbers == recorder.everybody else {"participants": sorted(numbers)}
    recorder.latest_live_arguments = (named, arguments)
    return arguments


def _set_arguments(
    _: object, key: str, value: str | bytes, allow_overwrite: bool = False
) -> Mapping[str, object]:
    return {"key": key, "value": value_fields(value), "allow_overwrite": bool(allow_overwrite)}


def _key_arguments(_: object, key: str) -> Mapping[str, object]:
    return {"key": key}


def _get_arguments(_: object, key: str, timeout_in_ms: int) -> Mapping[str, object]:
    return {"key": key, "timeout_ms": int(timeout_in_ms)}


def _increment_arguments(_: object, key: str, increment: int) -> Mapping[str, object]:
    return {"key": key, "increment": int(increment)}


def _barrier_arguments(
    _: object, barrier_id: str, timeout_in_ms: int, process_ids: Any = None
) -> Mapping[str, object]:
    members = None if process_ids is None else sorted(int(process) for process in process_ids)
    return {"barrier": barrier_id, "timeout_ms": int(timeout_in_ms), "processes": members}


def _no_arguments(_: object) -> Mapping[str, object]:
    return {}


def _no_result(_: object) -> object:
    return None


def _value_result(value: str | bytes) -> object:
    return value_fields(value)


def _entries_result(entries: Any) -> object:
    return [[key, value_fields(value)] for key, value in entries]


def _number_result(value: Any) -> object:
    return int(value)


_METHODS: dict[str, tuple[str, Arguments, Callable[[Any], object] | None]] = {
    # A live set is written as it is: a dictionary, made for this call alone.
    "get_live_nodes": (_LIVE_PROCESSES, _live_arguments, None),
    "key_value_set": ("key_value_set", _set_arguments, _no_result),
    "key_value_set_bytes": ("key_value_set", _set_arguments, _no_result),
    "blocking_key_value_get": ("key_value_get", _get_arguments, _value_result),
    "blocking_key_value_get_bytes": ("key_value_get", _get_arguments, _value_result),
    "key_value_try_get": ("key_value_try_get", _key_arguments, _value_result),
    "key_value_try_get_bytes": ("key_value_try_get", _key_arguments, _value_result),
    "key_value_dir_get": ("key_value_dir_get", _key_arguments, _entries_result),
    "key_value_dir_get_bytes": ("key_value_dir_get", _key_arguments, _entries_result),
    "key_value_delete": ("key_value_delete", _key_arguments, _no_result),
    "key_value_increment": ("key_value_increment", _increment_arguments, _number_result),
    "wait_at_barrier": ("barrier", _barrier_arguments, _no_result),
    "shutdown": ("shutdown", _no_arguments, _no_result),
}

OPERATIONS = frozenset(operation for operation, _, _ in _METHODS.values())
"""Names that a condition `in:OPERATION#K` may use, besides `block`."""
