"""Porcupine's histories as its Go structures become JSON.

Porcupine has no file format: users write `[]porcupine.Operation` or `[]porcupine.Event` with
`encoding/json`, as one array or one object after the other. What `Input` and `Output` hold is the
user's; `call_of` and `result_of` say how they are understood.

Source: https://github.com/anishathalye/porcupine, model.go.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from checker.errors import MalformedHistory
from checker.formats.calls import process_number, time_number
from checker.formats.json_values import Object, frozen_json, json_objects
from checker.history.fields import shown
from checker.operations import (
    UNKNOWN,
    Failed,
    Operation,
    Operations,
    Recorder,
    from_intervals,
)

if TYPE_CHECKING:
    from checker.formats.source import Source

_FUNCTION_NAMES: Final = ("f", "function", "op", "operation", "type", "name", "method", "kind")
"""Fields of an input that may say what was called, in the order in which they are looked for."""

_KEY_NAMES: Final = ("key",)
_VALUE_NAMES: Final = ("value", "argument", "arg", "result")
_COURSE_INPUT: Final = frozenset({"op", "key", "value"})
_COURSE_FUNCTIONS: Final = ("get", "put", "append")
"""MIT's course on distributed systems (6.5840) numbers its operations so, in models/kv.go."""

_OUTCOMES: Final = ("ok", "fail", "info")
_CALL, _RETURN = ("call", "0", "false"), ("return", "1", "true")


def read_porcupine_operations(source: Source) -> Operations:
    """Reads objects with `ClientId`, `Input`, `Call`, `Output` and `Return`."""
    rows: list[tuple[int, Operation]] = []
    intervals: list[tuple[int, int | None]] = []
    lines: list[int] = []
    for line, raw in json_objects(source):
        fields = _lower(raw)
        process, invoked_ns, ended_ns = interval_of(fields, line)
        function, key, argument = call_of(fields.get("input"), line)
        result = UNKNOWN if ended_ns is None else result_of(fields.get("output"), line)
        rows.append((process, Operation(function, key, argument, result)))
        intervals.append((invoked_ns, ended_ns))
        lines.append(line)
    return from_intervals(rows, intervals, lines=lines, source=source.path)


def read_porcupine_events(source: Source) -> Operations:
    """Reads objects with `ClientId`, `Kind`, `Value` and `Id`."""
    recorder = Recorder(source=source.path)
    opened: dict[Hashable, tuple[int, int]] = {}
    used: dict[Hashable, int] = {}
    for line, raw in json_objects(source):
        fields = _lower(raw)
        process = process_number(fields.get("clientid", 0), line)
        number = frozen_json(fields.get("id"), line, "Id")
        if "id" not in fields or number is None:
            raise _malformed("is missing; it pairs a call with its return", line, "Id")
        kind = str(fields.get("kind")).lower()
        if kind in _CALL:
            if number in used:
                raise _malformed(
                    f"{shown(number)} is used a second time (first in line {used[number]}); every "
                    "call needs its own",
                    line,
                    "Id",
                )
            used[number] = line
            function, key, argument = call_of(fields.get("value"), line)
            index = recorder.invoke(process, function, argument, key=key, line=line)
            opened[number] = (index, process)
        elif kind in _RETURN:
            call = opened.pop(number, None)
            if call is None:
                what = "has returned already" if number in used else "was never called"
                raise _malformed(
                    f"operation {shown(number)} {what}; a call returns once", line, "Id"
                )
            if call[1] != process:
                raise _malformed(
                    f"operation {shown(number)} was called by client {call[1]} and returns to "
                    f"{process}",
                    line,
                    "ClientId",
                )
            result = result_of(fields.get("value"), line)
            if isinstance(result, Failed):
                recorder.fail(call[0], result.error)
            elif result is UNKNOWN:
                recorder.info(call[0])
            else:
                recorder.ok(call[0], result)
        else:
            raise _malformed(
                "must be call or return (false or true, as Go writes them; 0 or 1), found "
                + shown(fields.get("kind")),
                line,
                "Kind",
            )
    return recorder.operations()


def interval_of(fields: Object, line: int) -> tuple[int, int, int | None]:
    """Client, call and return of an operation, whose names are in small letters.

    Raises:
      MalformedHistory: without the path.
    """
    process = process_number(fields.get("clientid", 0), line)
    invoked_ns = time_number(fields.get("call"), line, "Call")
    ended_ns = fields.get("return")
    if ended_ns is None:
        return process, invoked_ns, None
    ended_ns = time_number(ended_ns, line, "Return")
    if ended_ns < invoked_ns:
        raise _malformed(
            f"the operation returns at {ended_ns}, before its call at {invoked_ns}; times must not "
            "run backwards",
            line,
            "Return",
        )
    return process, invoked_ns, ended_ns


def call_of(raw: object, line: int) -> tuple[str, Hashable, Hashable]:
    """Function, key and argument from what a user's `Input` holds.

    An object names the function in `f`, `Op`, `Type` or the like, the object in `Key`; what is left is
    the argument: the value of a single field, or all fields.
    """
    if isinstance(raw, str) and raw:
        return raw, None, None
    if not isinstance(raw, dict):
        return "operation", None, frozen_json(raw, line, "Input")
    fields = _lower(raw)
    named = next((name for name in _FUNCTION_NAMES if _is_name(fields.get(name))), None)
    if named is None:
        return "operation", None, frozen_json(raw, line, "Input")
    function = fields[named]
    key = frozen_json(
        next((fields[name] for name in _KEY_NAMES if name in fields), None), line, "Key"
    )
    rest = {name: value for name, value in raw.items() if name.lower() not in (named, *_KEY_NAMES)}
    if isinstance(function, int):
        is_course = set(fields) == _COURSE_INPUT and 0 <= function < len(_COURSE_FUNCTIONS)
        word = _COURSE_FUNCTIONS[function] if is_course else str(function)
        if word == "get":
            return word, key, None
        return word, key, _alone(rest, line, "Input")
    return str(function), key, _alone(rest, line, "Input")


def result_of(raw: object, line: int) -> Hashable:
    """The result from what a user's `Output` holds: the value of a single field, or all of it.

    `{"type": "ok", "value": …}`, `{"type": "fail", "error": …}` and `{"type": "info"}` are what
    `write_operations` writes.
    """
    if isinstance(raw, dict):
        if raw.get("type") in _OUTCOMES and set(raw) <= {"type", "value", "error"}:
            if raw["type"] == "info":
                return UNKNOWN
            if raw["type"] == "fail":
                return Failed(frozen_json(raw.get("error"), line, "Output"))
            return frozen_json(raw.get("value"), line, "Output")
        return _alone(raw, line, "Output")
    return frozen_json(raw, line, "Output")


def _alone(fields: Object, line: int, field: str) -> Hashable:
    if not fields:
        return None
    if len(fields) == 1:
        (name,) = fields
        if name.lower() in _VALUE_NAMES:
            return frozen_json(fields[name], line, field)
    return frozen_json(fields, line, field)


def _is_name(value: object) -> bool:
    return (isinstance(value, str) and value != "") or type(value) is int


def _lower(fields: Object) -> Object:
    """Go's names begin with capitals unless a user renames them."""
    return {name.lower(): value for name, value in fields.items()}


def _malformed(problem: str, line: int, field: str) -> MalformedHistory:
    return MalformedHistory(problem, line=line, field=field)
