"""Records what one process asks of the coordination service, from inside it.

The methods of jaxlib's client class are replaced by ones that write an event before and after
(`recorder.process_recorder`), so that the program stays as it is.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from jax_bridge import compat
from jax_bridge.recorder.lines import value_fields
from jax_bridge.recorder.process_recorder import (
    LIVE_PROCESSES,
    ProcessRecorder,
    first_line,
    never_breaking,
)

_BLOCK = "block"
"""The name of a block in a condition."""

_PROBES = 3

Arguments = Callable[..., Mapping[str, object]]
"""How arguments look in a history; called with the recorder and the arguments themselves."""

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
        since_ns = time.monotonic_ns()
        try:
            result = connect(self)
        except Exception as error:
            with never_breaking(recorder):
                recorder.remark(f"could not connect: {error}")
            raise
        # jaxlib does not tell its incarnation; a round of this process alone does, at once.
        incarnation = None
        with contextlib.suppress(Exception):  # The program asked to connect, and for nothing more.
            incarnation = get_live_nodes(self, [recorder.task]).get(recorder.task)
        with never_breaking(recorder):
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
        if operation == LIVE_PROCESSES:
            recorded = _recorded_round(recorder_of, method, recorded, arguments)
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
                with never_breaking(recorder):
                    recorder.error(client, number, error)
            raise
        if number is not None:
            with never_breaking(recorder):
                recorder.ok(client, number, result if result_of is None else result_of(result))
        return result

    return recorded


def _recorded_round(
    recorder_of: RecorderOf,
    method: Callable[..., Any],
    recorded: Callable[..., Any],
    arguments: Arguments,
) -> Callable[..., Any]:
    """Has a call recorded the short way if it is as the one before, and else by `recorded`."""

    @functools.wraps(method)
    def recorded_round(self: Any, *args: Any, **kwargs: Any) -> Any:
        recorder = recorder_of(id(self))
        if recorder is None or recorder.hold is not None or kwargs or len(args) != 1:
            return recorded(self, *args, **kwargs)
        (processes,) = args
        known = recorder.known_round
        if known is not None and known.processes == processes and known.client == id(self):
            return recorder.call_round(known, method, self, processes)
        result = recorded(self, processes)
        if type(processes) is list:
            described = None
            with contextlib.suppress(Exception):  # As above: then it was not recorded.
                described = arguments(recorder, processes)
            if described is not None:
                with never_breaking(recorder):
                    recorder.know_round(id(self), processes, described)
        return result

    return recorded_round


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
            with never_breaking(recorder):
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
        with never_breaking(recorder):
            failed = compat.failed_processes(error)
            text = first_line(f"{type(error).__name__}: {error}")
            if raised is not None and raised is not error:
                text += f"; the body raised {first_line(f'{type(raised).__name__}: {raised}')}"
            recorder.exit(block, "raised" if failed is None else "failed", failed or (), text)
        raise
    with never_breaking(recorder):
        recorder.exit(block, "completed")


# --- operations: how arguments and results look in a history -----------------------------------------


def _live_arguments(recorder: ProcessRecorder, processes: Any) -> Mapping[str, object]:
    numbers = set(_integers(processes))
    known = recorder.everybody or numbers
    if min(numbers, default=0) < 0 or not numbers <= known:
        raise ValueError("a history has the processes of the job only")
    # Everybody is understood, and long in large jobs.
    return {} if numbers == recorder.everybody else {"participants": sorted(numbers)}


def _set_arguments(
    _: object, key: str, value: str | bytes, allow_overwrite: bool = False
) -> Mapping[str, object]:
    if type(allow_overwrite) is not bool:
        raise TypeError("jaxlib takes no other truth value")
    return {"key": _text(key), "value": value_fields(value), "allow_overwrite": allow_overwrite}


def _set_text_arguments(
    recorder: object, key: str, value: str, allow_overwrite: bool = False
) -> Mapping[str, object]:
    return _set_arguments(recorder, key, _text(value), allow_overwrite)


def _set_bytes_arguments(
    recorder: object, key: str, value: bytes, allow_overwrite: bool = False
) -> Mapping[str, object]:
    if not isinstance(value, bytes):
        raise TypeError("jaxlib takes bytes only")
    return _set_arguments(recorder, key, value, allow_overwrite)


def _key_arguments(_: object, key: str) -> Mapping[str, object]:
    return {"key": _text(key)}


def _get_arguments(_: object, key: str, timeout_in_ms: int) -> Mapping[str, object]:
    return {"key": _text(key), "timeout_ms": _integer(timeout_in_ms)}


def _increment_arguments(_: object, key: str, increment: int) -> Mapping[str, object]:
    return {"key": _text(key), "increment": _integer(increment)}


def _barrier_arguments(
    _: object, barrier_id: str, timeout_in_ms: int, process_ids: Any = None
) -> Mapping[str, object]:
    listed = [] if process_ids is None else _integers(process_ids)
    # To jaxlib an empty list is everybody, as none is.
    members = sorted(listed) or None
    return {
        "barrier": _text(barrier_id),
        "timeout_ms": _integer(timeout_in_ms),
        "processes": members,
    }


def _text(value: Any) -> str:
    """What jaxlib takes for text; raises for what it refuses, which is no call."""
    if not isinstance(value, str):
        raise TypeError("jaxlib takes text only")
    value.encode()  # Lone surrogates are refused too.
    return value


def _integer(value: Any, bits: int = 64) -> int:
    """What jaxlib takes for a number: all of that size that `int` takes, but for floating point."""
    if isinstance(value, float):
        raise TypeError("jaxlib takes whole numbers only")
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise TypeError(f"jaxlib takes numbers of {bits} bits")
    return number


def _integers(values: Any) -> list[int]:
    """What jaxlib takes for a list of tasks: any sequence but text; neither sets nor iterators."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(type(values), "__getitem__"):
        raise TypeError("jaxlib takes sequences only")
    return [_integer(value, 32) for value in values]


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
    # A live set is written as it is: a dictionary from processes to incarnations.
    "get_live_nodes": (LIVE_PROCESSES, _live_arguments, None),
    "key_value_set": ("key_value_set", _set_text_arguments, _no_result),
    "key_value_set_bytes": ("key_value_set", _set_bytes_arguments, _no_result),
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
