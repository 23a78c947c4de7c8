"""Writes a history in a format that other tools read."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Final

from checker.collector import collector_paused
from checker.formats.edn import Keyword, edn_text, keyword_text
from checker.history.fields import INTEGER_MAX
from checker.operations import OPEN_NS, Failed, Fault, Operation, Operations

JSON_LINES, EDN, PORCUPINE = "jsonl", "edn", "porcupine"
STANDARD_OUTPUT: Final = "-"
_NEMESIS = "nemesis"


def write_operations(operations: Operations, path: str | Path, format: str) -> None:  # noqa: A002 - its name in every tool
    """Writes a history.

    What a format cannot hold is lost: see docs/foreign-histories.md.

    Args:
      operations: The history.
      path: The file, replaced in one step; `-` for standard output.
      format: `jsonl` (ours), `edn` (Jepsen's, one map a line) or `porcupine` (its operations as JSON).

    Raises:
      ValueError: the format is unknown, or a value of the history is nothing that it has.
      OSError: the file cannot be written.
    """
    with collector_paused():
        write_text(text_of(operations, format), path)


def text_of(operations: Operations, format: str) -> Iterator[str]:  # noqa: A002 - as above
    """The text of a file, in pieces.

    Raises:
      ValueError: as `write_operations`, perhaps only while iterating.
    """
    writers: dict[str, Callable[[Operations], Iterator[str]]] = {
        JSON_LINES: _json_lines,
        EDN: _edn,
        PORCUPINE: _porcupine,
    }
    if format not in writers:
        raise ValueError(f"unknown format {format!r}; one of {', '.join(writers)}")
    return writers[format](operations)


def write_text(pieces: Iterator[str], path: str | Path) -> None:
    """Writes a file in one step: a reader sees the old one or the whole new one."""
    if str(path) == STANDARD_OUTPUT:
        for piece in pieces:
            sys.stdout.buffer.write(piece.encode())
        return
    target = Path(path)
    if target.exists() and not target.is_file():
        # A device or a pipe is written to, and must never be replaced; a folder is an error.
        with open(target, "w", encoding="utf-8") as file:
            _write_all(pieces, file)
        return
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as file:
            _write_all(pieces, file)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _write_all(pieces: Iterator[str], file: IO[str]) -> None:
    for piece in pieces:
        file.write(piece)


def _json_lines(operations: Operations) -> Iterator[str]:
    from checker.formats.to_history import history_of

    yield history_of(operations).to_text()


# --- EDN ---------------------------------------------------------------------------------------


def _edn(operations: Operations) -> Iterator[str]:
    processes = _with_one_call_at_a_time(operations)
    has_time = operations.clock != "abstract"
    calls: dict[int, str] = {}
    for number, (position, time_ns) in enumerate(_moments(operations)):
        line = f"{{:index {number}, " + (f":time {time_ns}, " if has_time else "")
        if isinstance(position, Fault):
            yield f"{line}{_fault_text(position)}}}\n"
            continue
        index, type_ = position
        operation = operations.at(index)
        value, error = _edn_value(operation, type_)
        code = operations.kind[index]
        if code not in calls:
            key = "" if operation.key is None else f", :key {edn_text(operation.key)}"
            calls[code] = f":f {keyword_text(operation.function)}{key}"
        yield (
            f"{line}:type :{type_}, :process {processes[index]}, {calls[code]}, "
            f":value {edn_text(value)}{error}}}\n"
        )


def _edn_value(operation: Operation, type_: str) -> tuple[object, str]:
    result = operation.result
    if type_ == "ok":
        return result, ""
    if type_ == "fail" and isinstance(result, Failed) and result.error is not None:
        return operation.argument, f", :error {edn_text(result.error)}"
    return operation.argument, ""


def _moments(
    operations: Operations,
) -> Iterator[tuple[tuple[int, str] | Fault, int]]:
    """All that there is to write, in order, each with its time."""
    others: list[tuple[int, tuple[int, str] | Fault]] = []
    for fault in operations.faults:
        others.append((fault.time_ns, fault))
        if fault.until_ns is not None:
            others.append((fault.until_ns, fault))
    for index in range(len(operations)):
        ended_ns = operations.ended_ns[index]
        if ended_ns != OPEN_NS and operations.at(index).is_open:
            others.append((max(ended_ns, operations.invoked_ns[index]), (index, "info")))
    others.sort(key=lambda other: other[0])
    waiting = iter(others)
    other = next(waiting, None)
    for event in operations.events:
        index = ~event if event < 0 else event
        time_ns = operations.ended_ns[index] if event < 0 else operations.invoked_ns[index]
        while other is not None and other[0] < time_ns:
            yield other[1], other[0]
            other = next(waiting, None)
        type_ = "invoke"
        if event < 0:
            type_ = "fail" if isinstance(operations.at(index).result, Failed) else "ok"
        yield (index, type_), time_ns
    if other is not None:
        yield other[1], other[0]
    for time_ns, rest in waiting:
        yield rest, time_ns


def _with_one_call_at_a_time(operations: Operations) -> list[int]:
    """Process of each operation; a process with an open call calls under another number.

    Who crashed never calls again, as in Jepsen; and after errors of clocks have become part of them,
    calls of one process may overlap.
    """
    processes = list(operations.process)
    free: dict[int, list[int]] = {}
    """Of each process the numbers that wait for no response."""
    fresh = max(processes, default=0)
    for event in operations.events:
        if event < 0:
            free[operations.process[~event]].append(processes[~event])
            continue
        process = processes[event]
        numbers = free.setdefault(process, [process])
        if not numbers:
            fresh += 1
            numbers.append(fresh)
        processes[event] = numbers.pop()
    if fresh > INTEGER_MAX:
        raise ValueError(f"a process would need a number above {INTEGER_MAX}")
    return processes


def _fault_text(fault: Fault) -> str:
    lane = keyword_text(fault.lane)
    name = Keyword(fault.name)
    text = keyword_text(name)
    return f":type :info, :process {lane}, :f {text}, :value nil"


# --- Porcupine ---------------------------------------------------------------------------------


def _porcupine(operations: Operations) -> Iterator[str]:
    """One object a line. Its times are closed intervals, as ours: equal times are concurrent."""
    from checker.formats.to_history import json_value

    times = _strict_times(operations)
    after_all = max(times.values(), default=0) + 1
    texts: dict[int, tuple[str, str]] = {}
    yield "["
    for index in range(len(operations)):
        operation = operations.at(index)
        code = operations.kind[index]
        if code not in texts:
            texts[code] = (
                _json(_porcupine_input(operation, json_value)),
                _json(_porcupine_output(operation, json_value)),
            )
        called, returned = texts[code]
        yield (
            f'{"," if index else ""}\n{{"ClientId":{operations.process[index]},"Input":{called},'
            f'"Call":{times[index]},"Output":{returned},"Return":{times.get(~index, after_all)}}}'
        )
    yield "\n]\n"


def _porcupine_input(operation: Operation, json_value: Callable[..., object]) -> dict[str, object]:
    fields: dict[str, object] = {"f": operation.function}
    if operation.key is not None:
        fields["key"] = json_value(operation.key)
    if operation.argument is not None:
        fields["value"] = json_value(operation.argument)
    return fields


def _porcupine_output(operation: Operation, json_value: Callable[..., object]) -> dict[str, object]:
    result = operation.result
    if operation.is_open:
        return {"type": "info"}
    if isinstance(result, Failed):
        return {"type": "fail", "error": json_value(result.error)}
    return {"type": "ok", "value": json_value(result)}


def _strict_times(operations: Operations) -> dict[int, int]:
    """The time of each event; a nanosecond between a response and what follows it at the same time."""
    times: dict[int, int] = {}
    latest_ns: int | None = None
    after_response = False
    for event in operations.events:
        index = ~event if event < 0 else event
        time_ns = operations.ended_ns[index] if event < 0 else operations.invoked_ns[index]
        if latest_ns is not None:
            time_ns = max(time_ns, latest_ns + after_response)
        times[event] = latest_ns = time_ns
        after_response = event < 0
    return times


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
