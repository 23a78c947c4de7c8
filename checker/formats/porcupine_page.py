"""The page that Porcupine draws of a history: its data stand in a script, as JSON.

The page has no inputs and outputs, only the text that the user's model made of them, such as
`get('x') -> 'y'`; and it does not tell operations that never returned from those that did.

Source: https://github.com/anishathalye/porcupine, visualization.go and visualization/index.html.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, Final

from checker.errors import MalformedHistory
from checker.formats.calls import placed, process_number, time_number
from checker.history.fields import shown
from checker.operations import UNKNOWN, Fault, Operation, Operations, from_intervals

if TYPE_CHECKING:
    from checker.formats.source import Source

PAGE_BYTES_MAX: Final = 1 << 28
"""The data stand in one line, after a program; a larger page is refused."""

_NOTE: Final = (
    "The page holds descriptions in place of inputs and outputs, and shows operations that never "
    "returned as if they had."
)
_DATA = re.compile(r"\s*+(?:const|let|var)\s++data\s*+=\s*+(?=[\[{])")
_SCAN_LINES_MAX = 100_000
_DESCRIPTION = re.compile(r"\s*+([A-Za-z_][\w.-]*+)\s*+\((.*)\)\s*+(?:->\s*+(.*?)\s*+)?", re.DOTALL)
_ARGUMENT = re.compile(
    r"""\s*+('(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+"|[^,'"]*+)\s*+(?:,|$)""", re.DOTALL
)
_NOTHING = ("nil", "null", "<nil>", "None")
_UNKNOWN = ("unknown", "?", "<unknown>")
_KEYED = frozenset({"get", "put", "append", "delete"})


def read_page(source: Source) -> Operations:
    """Reads the operations of all partitions, and the annotations as faults."""
    line, data = _data(source)
    partitions = data.get("Partitions") if isinstance(data, dict) else data
    if not isinstance(partitions, list):
        source.fail("the page has no partitions; was it made by Porcupine?", line=line)
    rows: list[tuple[int, Operation]] = []
    intervals: list[tuple[int, int | None]] = []
    original: dict[int, int] = {}
    has_times = False
    for partition in partitions:
        history = partition.get("History") if isinstance(partition, dict) else None
        if not isinstance(history, list):
            source.fail("a partition has no History; was the page made by Porcupine?", line=line)
        for element in history:
            if not isinstance(element, dict):
                source.fail(f"an operation is an object, found {shown(element)}", line=line)
            process = process_number(element.get("ClientId", 0), line)
            begin, end = (_time(element, name, line, original) for name in ("Start", "End"))
            if end < begin:
                source.fail(
                    f"an operation ends at {end}, before it begins at {begin}",
                    line=line,
                    field="End",
                )
            has_times = has_times or bool(element.get("OriginalStart"))
            rows.append((process, _described(element.get("Description"), line)))
            intervals.append((begin, end))
    annotations = data.get("Annotations") if isinstance(data, dict) else None
    return from_intervals(
        rows,
        intervals,
        lines=[line] * len(rows),
        faults=placed(_faults(annotations, original, line), rows, intervals),
        clock="monotonic" if has_times else "abstract",
        source=source.path,
        notes=(_NOTE,),
    )


def _data(source: Source) -> tuple[int, object]:
    size = 0
    for number, line in enumerate(source.lines(), 1):
        size += len(line)
        if size > PAGE_BYTES_MAX or number > _SCAN_LINES_MAX:
            break
        found = _DATA.match(line)
        if found is None:
            continue
        try:
            return number, json.JSONDecoder().raw_decode(line, found.end())[0]
        except RecursionError:
            source.fail("the data are nested too deeply", line=number)
        except ValueError as error:
            source.fail(f"the data are not JSON: {error}", line=number)
    raise MalformedHistory(
        "a page without Porcupine's data ('const data = …'); was it made by Porcupine?",
        path=source.path,
    )


def _time(element: Mapping[str, object], name: str, line: int, original: dict[int, int]) -> int:
    """The recorded time; pages of older versions have only the drawn one."""
    drawn = time_number(element.get(name), line, name)
    told = element.get(f"Original{name}")
    if told in (None, ""):
        original[drawn] = drawn
        return drawn
    if not isinstance(told, str) or not re.fullmatch(r"-?\d{1,19}", told):
        raise MalformedHistory(
            f"must be a time as a string, found {shown(told)}", line=line, field=f"Original{name}"
        )
    original[drawn] = time_number(int(told), line, f"Original{name}")
    return original[drawn]


def _described(text: object, line: int) -> Operation:
    if not isinstance(text, str):
        raise MalformedHistory(
            f"must be a string, found {shown(text)}", line=line, field="Description"
        )
    match = _DESCRIPTION.fullmatch(text)
    if match is None:
        return Operation(text, None, None, None)
    function, inside, told = match.groups()
    arguments = _arguments(inside)
    key: Hashable = None
    if function in _KEYED and arguments:
        key, *arguments = arguments
    argument: Hashable = tuple(arguments)
    if len(arguments) < 2:
        argument = arguments[0] if arguments else None
    return Operation(function, key, argument, None if told is None else _result(told))


def _arguments(text: str) -> list[Hashable]:
    if not text.strip():
        return []
    arguments: list[Hashable] = []
    position = 0
    while position < len(text):
        match = _ARGUMENT.match(text, position)
        if match is None or match.end() == position:
            return [text]
        arguments.append(_simple(match[1]))
        position = match.end()
    return arguments


def _result(text: str) -> Hashable:
    return UNKNOWN if text in _UNKNOWN else _simple(text)


def _simple(text: str) -> Hashable:
    text = text.strip()
    if text in _NOTHING:
        return None
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        return int(text)
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _faults(annotations: object, original: Mapping[int, int], line: int) -> list[Fault]:
    if annotations is None:
        return []
    if not isinstance(annotations, list):
        raise MalformedHistory(
            f"must be a list, found {shown(annotations)}", line=line, field="Annotations"
        )
    drawn = sorted(original)
    faults = []
    for raw in annotations:
        if not isinstance(raw, dict):
            raise MalformedHistory(
                f"must be objects, found {shown(raw)}", line=line, field="Annotations"
            )
        begin, end = (
            _between(time_number(raw.get(name, 0), line, name), drawn, original)
            for name in ("Start", "End")
        )
        lane = str(raw.get("Tag") or f"process {raw.get('ClientId', 0)}")
        name = str(raw.get("Description") or "annotation")
        faults.append(Fault(lane, name, begin, end if end > begin else None))
    return faults


def _between(at: int, drawn: list[int], original: Mapping[int, int]) -> int:
    """A drawn time as a recorded one. Of annotations only the place between operations is known."""
    if at in original:
        return original[at]
    index = bisect_left(drawn, at)
    if not drawn:
        return at
    if index in (0, len(drawn)):
        return original[drawn[min(index, len(drawn) - 1)]]
    before, after = drawn[index - 1], drawn[index]
    share = (original[after] - original[before]) * (at - before) // (after - before)
    return original[before] + share
