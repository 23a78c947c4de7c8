"""Jepsen's histories: as EDN, as lines of a log, and as JSON.

Sources: https://github.com/jepsen-io/history (the fields of an operation), the recorded histories that
checkers are measured on, and what Jepsen prints to its log.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import TYPE_CHECKING, Final

from checker.errors import MalformedHistory
from checker.formats.calls import Calls, process_number, time_number
from checker.formats.edn import EdnEvents, Fields, Keyword, parse_value
from checker.history.fields import shown
from checker.operations import show

if TYPE_CHECKING:
    from checker.formats.source import Source

_TYPES: Final = ("invoke", "ok", "fail", "info")
_CACHED_VALUES_MAX = 4096
_CACHED_LENGTH_MAX = 256
_DIGITS_MAX = 18

_SIMPLE = r':[A-Za-z][\w.*+!?/=-]*+|-?\d{1,18}(?![\w.])|nil(?![\w.])|"[^"\\]*+"'
_FLAT_VALUE = rf"{_SIMPLE}|\[(?:(?:{_SIMPLE})(?:[ ,]++(?:{_SIMPLE}))*+)?+\]"
_RECORD = r"\s*+(?:\#jepsen\.history\.Op\s*+)?+"
_CALL = rf':f :([a-z][\w-]*+)(?:, :key "([^"\\]*+)")?+, :value ({_FLAT_VALUE})\}}\s*+'
_PROCESS_FIRST: Final = re.compile(
    rf"{_RECORD}\{{:process (\d{{1,18}}), :type :(invoke|ok|fail|info), {_CALL}", re.ASCII
)
_TYPE_FIRST: Final = re.compile(
    rf"{_RECORD}\{{:index \d{{1,18}}, (?::time (\d{{1,18}}), )?+:type :(invoke|ok|fail|info), "
    rf":process (\d{{1,18}}), {_CALL}",
    re.ASCII,
)
"""By far most lines of most files, in the order of older and of newer versions of Jepsen, at a tenth of
the price of a parser."""

_FLAT_MAP: Final = re.compile(
    r"\s*+(?:\#jepsen\.history\.Op\s*+)?+"
    rf"\{{((?:\s*+:[a-z][\w?-]*+\s++(?:{_FLAT_VALUE})(?:[\s,]++|(?=\}})))++)\}}[\s,]*+",
    re.ASCII,
)
_FLAT_PAIR: Final = re.compile(rf":([a-z][\w?-]*+)\s++({_FLAT_VALUE})[\s,]*+", re.ASCII)

_LOG_EVENT: Final = re.compile(
    r"(?:.{0,400}?[\s:-])??(\d{1,18}|:[A-Za-z][\w.-]*+)[ \t]++:(invoke|ok|fail|info)[ \t]++"
    r":([^\s,]++)(?:[ \t]++([^\t\n\r]*+))?+(?:\t([^\n\r]*+))?+\s*+",
    re.ASCII,
)


def looks_like_log(line: str) -> bool:
    """Whether a line of text is an event of Jepsen's log."""
    return _LOG_EVENT.fullmatch(line) is not None


def read_edn(source: Source, calls: Calls) -> None:
    """Reads a vector or list of maps, or maps one after the other."""
    values = _Values()
    parser = EdnEvents()
    number = 0
    process_first, type_first = _PROCESS_FIRST.fullmatch, _TYPE_FIRST.fullmatch
    flat_map = _FLAT_MAP.fullmatch
    add_flat, value_of = calls.event, values.of
    for number, line in enumerate(source.lines(), 1):
        if parser.idle:
            if (match := process_first(line)) is not None:
                process, type_, function, key, text = match.groups()
                add_flat(int(process), type_, function, value_of(text, number), key, number)
                continue
            if (match := type_first(line)) is not None:
                time, type_, process, function, key, text = match.groups()
                value = value_of(text, number)
                time_ns = None if time is None else int(time)
                add_flat(int(process), type_, function, value, key, number, time_ns)
                continue
            if (match := flat_map(line)) is not None:
                pairs = _FLAT_PAIR.findall(match[1])
                fields: Fields = {name: value_of(text, number) for name, text in pairs}
                if len(fields) == len(pairs):
                    add_event(calls, fields, number)
                    continue
        for at, fields in parser.feed(line, number):
            add_event(calls, fields, at)
    parser.finish(number)


def read_log(source: Source, calls: Calls) -> None:
    """Reads `INFO  jepsen.util - 16<TAB>:ok<TAB>:read<TAB>4`, with or without what stands in front."""
    values = _Values()
    match_line = _LOG_EVENT.fullmatch
    skipped = 0
    event = calls.event
    for number, line in enumerate(source.lines(), 1):
        match = match_line(line)
        if match is None:
            skipped += not line.isspace()
            continue
        process, type_, function, text, error = match.groups()
        if process[0] == ":":
            calls.fault(process[1:], function, _log_text(text))
            continue
        told = values.of(error, number) if error and type_ == "fail" else None
        # What an indefinite call says in place of its value need not be EDN.
        value = None if type_ == "info" else values.of(text or "nil", number)
        event(int(process), type_, function, value, None, number, None, told)
    if skipped:
        calls.notes.append(
            f"{skipped} line{'' if skipped == 1 else 's'} of the log "
            f"{'is no event' if skipped == 1 else 'are no events'} of the history."
        )


def add_event(calls: Calls, fields: Fields, line: int) -> None:
    """Takes one event as a map of its fields.

    Raises:
      MalformedHistory: a field is missing or wrong; without the path.
    """
    type_ = fields.get("type")
    if type_ not in _TYPES:
        raise MalformedHistory(
            f"must be one of {', '.join(_TYPES)}; found {_found(fields, 'type')}",
            line=line,
            field="type",
        )
    function = fields.get("f")
    time_ns = fields.get("time")
    if time_ns is not None:
        time_ns = time_number(time_ns, line)
    process = fields.get("process")
    if isinstance(process, str):
        name = "fault" if function is None else show_name(function)
        calls.fault(process.removeprefix(":"), name, fields.get("value"), time_ns)
        return
    if not isinstance(function, str) or not function:
        raise MalformedHistory(
            f"must name what was called, found {_found(fields, 'f')}", line=line, field="f"
        )
    function = str(function)
    process = process_number(process, line)
    calls.event(
        process,
        str(type_),
        function,
        fields.get("value"),
        fields.get("key"),
        line,
        time_ns,
        fields.get("error"),
    )


def show_name(function: Hashable) -> str:
    """What a nemesis did, in a word."""
    return str(function) if isinstance(function, str) else show(function)


def _found(fields: Fields, name: str) -> str:
    if name not in fields:
        return "nothing; a key is missing or misspelt"
    value = fields[name]
    return shown(f":{value}" if isinstance(value, Keyword) else value)


def _log_text(text: str | None) -> Hashable:
    """What a nemesis says of itself is often no EDN."""
    if text is None or text == "nil":
        return None
    return text.strip('"')


class _Values:
    """Values by their text: a history has few different ones."""

    def __init__(self) -> None:
        self._known: dict[str, Hashable] = {"nil": None}

    def of(self, text: str, line: int) -> Hashable:
        known = self._known
        if text in known:
            return known[text]
        value: Hashable
        if text[0] == '"' and "\\" not in text and text.count('"') == 2 and text[-1] == '"':
            return text[1:-1]
        if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX:
            value = int(text)
        else:
            value = parse_value(text, line)
        if len(known) < _CACHED_VALUES_MAX and len(text) < _CACHED_LENGTH_MAX:
            known[text] = value
        return value
