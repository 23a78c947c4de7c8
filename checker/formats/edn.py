"""Reads and writes EDN, the data format of Clojure and Jepsen.

Values are hashable from the start: vectors and lists are tuples, sets frozen, maps `FrozenMap`s. The
reader is fed line by line and never recurses, so neither a long nor a deep file fills memory or stack.

Source: https://github.com/edn-format/edn, and what Clojure's printer writes beyond it (ratios).
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from checker.errors import MalformedHistory
from checker.formats.source import LINE_BYTES_MAX, NESTING_MAX
from checker.history.fields import shown
from checker.operations import FrozenMap, frozen


class Keyword(str):
    """An EDN keyword, without its colon; equal to the string of the same letters."""

    __slots__ = ()


class Symbol(str):
    """An EDN symbol; equal to the string of the same letters."""

    __slots__ = ()


class Character(str):
    """An EDN character; equal to the string of that letter."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tagged:
    """A value with a tag that has no meaning here, such as `#inst "2026-01-01"`."""

    tag: str
    value: Hashable

    def __str__(self) -> str:
        return edn_text(self)


Fields = dict[str, Hashable]
"""A map whose keys are keywords: one event of a history."""

_TOKEN: Final = re.compile(
    r"""
    (?P<nothing>(?:[\s,]++|;[^\n]*+)++)
    | (?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")
    | (?P<broken>")
    | (?P<open>\#\{|[\[({])
    | (?P<close>[\])}])
    | (?P<discard>\#_)
    | (?P<special>\#\#-?[A-Za-z]+)
    | (?P<tag>\#[A-Za-z][^\s,;"\[\](){}\\^`~@]*+)
    | (?P<character>\\(?:u[0-9a-fA-F]{4}|[a-z]+|.))
    | (?P<atom>[^\s,;"\[\](){}\\^`~@\#][^\s,;"\[\](){}\\^`~@]*+)
    """,
    re.VERBOSE | re.DOTALL,
)
_STRING_END = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "b": "\b", "f": "\f"}
_CHARACTERS = {"newline": "\n", "return": "\r", "space": " ", "tab": "\t", "formfeed": "\f"}
_CHARACTERS["backspace"] = "\b"
_CHARACTER_CODE = re.compile(r"u[0-9a-fA-F]{4}")
_INTEGER = re.compile(r"[+-]?\d++N?", re.ASCII)
_RATIO = re.compile(r"[+-]?\d++/\d++", re.ASCII)
_FLOAT = re.compile(r"[+-]?\d++(?:\.\d*+)?(?:[eE][+-]?\d++)?M?", re.ASCII)
_CLOSER = {"[": "]", "(": ")", "{": "}", "#{": "}"}
_CONSTANTS: dict[str, Hashable] = {"nil": None, "true": True, "false": False}
_INFINITIES = {"##Inf": float("inf"), "##-Inf": float("-inf")}
_DISCARD = "#_"
_SURROGATES = range(0xD800, 0xE000)


class _Frame:
    """A collection that is being read, or the file."""

    __slots__ = ("items", "line", "opener", "prefixes")

    def __init__(self, opener: str, line: int) -> None:
        self.opener = opener
        self.line = line
        self.items: list[Hashable] = []
        self.prefixes: list[str] = []
        """Tags and discards that wait for the value they are about."""


class EdnEvents:
    """Reads the maps of a file: one after the other, or all of them in one vector or list.

    Attributes:
      idle: Whether nothing is open but the outermost vector or list, so that a line with a whole map
        need not be fed here.
    """

    def __init__(self) -> None:
        self.idle = True
        self._stack = [_Frame("", 1)]
        self._level = 0
        """Depth of the collection whose items are events: 1 within a vector, else 0."""
        self._has_ended = False
        self._string: list[str] = []
        self._string_line = 0
        self._string_length = 0
        self._length = 0
        """Letters since the beginning of the event that is being read."""
        self._ready: list[tuple[int, Fields]] = []

    def feed(self, line: str, number: int) -> list[tuple[int, Fields]]:
        """Reads a line; returns the events that it completes, each with the line of its beginning.

        Raises:
          MalformedHistory: without the path.
        """
        position = 0
        if self._string:
            end = _STRING_END.match(line)
            self._string.append(line if end is None else end[0])
            self._string_length += len(line)
            if self._string_length > LINE_BYTES_MAX:
                raise _malformed("the string is too long; a quote is missing?", self._string_line)
            if end is None:
                return []
            text, self._string = "".join(self._string), []
            self._value(_string(text, self._string_line), self._string_line)
            position = end.end()
        while position < len(line):
            token = _TOKEN.match(line, position)
            if token is None:
                raise _malformed(
                    f"{shown(line[position : position + 1])} has no meaning in EDN", number
                )
            position = token.end()
            group, text = token.lastgroup, token[0]
            if group == "atom":
                self._value(_atom(text, number), number)
            elif group == "open":
                self._open(text, number)
            elif group == "close":
                self._close(text, number)
            elif group == "string":
                self._value(_string(text, number), number)
            elif group == "tag":
                self._stack[-1].prefixes.append(text[1:])
            elif group == "discard":
                self._stack[-1].prefixes.append(_DISCARD)
            elif group == "broken":
                self._string = [line[position - 1 :]]
                self._string_line, self._string_length = number, len(line)
                break
            elif group == "special":
                self._value(_special(text, number), number)
            elif group == "character":
                self._value(_character(text, number), number)
            if len(self._stack[-1].prefixes) > NESTING_MAX:
                raise _malformed(f"more than {NESTING_MAX} tags in a row", number)
        top = self._stack[-1]
        self.idle = len(self._stack) == self._level + 1 and not (
            top.prefixes or self._string or self._has_ended
        )
        # An event over many lines is as bounded as a line.
        self._length = 0 if self.idle or self._ready else self._length + len(line)
        if self._length > LINE_BYTES_MAX:
            raise _malformed(
                f"an event has more than {LINE_BYTES_MAX} letters; is a bracket missing?",
                self._stack[-1].line,
            )
        ready, self._ready = self._ready, []
        return ready

    def finish(self, number: int) -> None:
        """Says that there are no more lines.

        Raises:
          MalformedHistory: something is still open.
        """
        if self._string:
            raise _malformed(
                "the string that begins here never ends; add the quote", self._string_line
            )
        top = self._stack[-1]
        if top.opener:
            raise _malformed(
                f"the '{top.opener}' of this line is never closed; add '{_CLOSER[top.opener]}', or "
                "was the file cut?",
                top.line,
            )
        if top.prefixes:
            raise _malformed(f"nothing follows '#{top.prefixes[-1].lstrip('#')}'", number)

    def _open(self, opener: str, line: int) -> None:
        if len(self._stack) > NESTING_MAX:
            raise _malformed(f"nested more than {NESTING_MAX} levels deep", line)
        if len(self._stack) == 1 and opener != "{":
            if self._has_ended or self._level or opener == "#{":
                raise _malformed(f"an event is a map, found '{opener}'", line)
            self._level = 1
        elif len(self._stack) == 1 and self._has_ended:
            raise _malformed(
                "there is more after the end of the history; a file holds one history", line
            )
        self._stack.append(_Frame(opener, line))

    def _close(self, closer: str, line: int) -> None:
        frame = self._stack[-1]
        if _CLOSER.get(frame.opener) != closer:
            what = f"'{frame.opener}' of line {frame.line}" if frame.opener else "nothing"
            raise _malformed(f"'{closer}' closes {what}; the brackets are unbalanced", line)
        if frame.prefixes:
            raise _malformed(f"nothing follows '#{frame.prefixes[-1].lstrip('#')}'", line)
        self._stack.pop()
        depth = len(self._stack)
        if frame.opener == "{":
            if depth == self._level + 1 and not self._is_discarded():
                self._event(frame)
                return
            self._value(_map(frame), frame.line)
        elif frame.opener == "#{":
            self._value(frozenset(frame.items), frame.line)
        elif depth == 1 and self._level:
            self._has_ended = True
            self._level = 0
            self._stack[-1].prefixes.clear()
        else:
            self._value(tuple(frame.items), frame.line)

    def _is_discarded(self) -> bool:
        return _DISCARD in self._stack[-1].prefixes

    def _event(self, frame: _Frame) -> None:
        self._stack[-1].prefixes.clear()  # Tags of records, such as jepsen.history.Op.
        _check_pairs(frame)
        fields: Fields = {}
        for name, value in zip(frame.items[::2], frame.items[1::2], strict=True):
            if not isinstance(name, str):
                raise _malformed(
                    f"the keys of an event are keywords, found {edn_text(name)}", frame.line
                )
            if name in fields:
                raise _malformed("occurs twice in a map", frame.line, field=name)
            fields[str(name)] = value
        self._ready.append((frame.line, fields))

    def _value(self, value: Hashable, line: int) -> None:
        frame = self._stack[-1]
        while frame.prefixes:
            tag = frame.prefixes.pop()
            if tag == _DISCARD:
                return
            value = Tagged(tag, value)
        if len(self._stack) == self._level + 1:
            raise _malformed(f"an event is a map, found {shown(edn_text(value))}", line)
        frame.items.append(value)


def parse_value(text: str, line: int) -> Hashable:
    """Parses one value that stands in a text, such as `[3 0]`.

    Raises:
      MalformedHistory: it is no single value; without the path.
    """
    # An event with one field, so that there is one way of reading.
    reader = EdnEvents()
    try:
        events = reader.feed(f"{{:value {text}\n}}", line)
        reader.finish(line)
    except MalformedHistory:
        events = []  # Its words are about the event around the value.
    if len(events) != 1 or set(events[0][1]) != {"value"}:
        raise _malformed(f"{shown(text)} is not one EDN value", line)
    return events[0][1]["value"]


def _malformed(problem: str, line: int, field: str | None = None) -> MalformedHistory:
    return MalformedHistory(problem, line=line, field=field)


def _check_pairs(frame: _Frame) -> None:
    if len(frame.items) % 2:
        raise _malformed(
            "a map needs a value for every key; a key or a value is missing"
            + (f" near {shown(edn_text(frame.items[-1]))}" if frame.items else ""),
            frame.line,
        )


def _map(frame: _Frame) -> Hashable:
    _check_pairs(frame)
    items = dict(zip(frame.items[::2], frame.items[1::2], strict=True))
    if 2 * len(items) != len(frame.items):
        raise _malformed("a key occurs twice in a map", frame.line)
    return frozen(items)


def _atom(text: str, line: int) -> Hashable:
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text[0] == ":":
        if len(text) == 1:
            raise _malformed("a lone ':' is not a keyword", line)
        return Keyword(text[1:])
    if text[0].isdigit() or (text[0] in "+-" and text[1:2].isdigit()):
        return _number(text, line)
    return Symbol(text)


def _number(text: str, line: int) -> Hashable:
    try:
        if _INTEGER.fullmatch(text):
            return int(text.rstrip("N"))
        if _RATIO.fullmatch(text):
            from fractions import Fraction

            return Fraction(text)
        if _FLOAT.fullmatch(text):
            return _decimal(text[:-1]) if text.endswith("M") else float(text)
    except ArithmeticError:
        pass
    except ValueError:  # Python refuses integers of more than 4300 digits.
        raise _malformed("a number has too many digits", line) from None
    raise _malformed(f"{shown(text)} is not a number", line)


def _decimal(text: str) -> Hashable:
    from decimal import Decimal  # Imported where it is used: it is rare, and slow to import.

    return Decimal(text)


def _special(text: str, line: int) -> Hashable:
    if text in _INFINITIES:
        return _INFINITIES[text]
    raise _malformed(f"{shown(text)} cannot be a value here: it is not equal to itself", line)


def _string(text: str, line: int) -> str:
    inside = text[1:-1]
    if "\\" not in inside:
        return inside

    def unescape(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        if escape[2] in _ESCAPES:
            return _ESCAPES[escape[2]]
        raise _malformed(f"{shown(escape[0])} is not an escape in a string", line)

    text = _ESCAPE.sub(unescape, inside)
    if any(ord(letter) in _SURROGATES for letter in text):
        # Java writes characters beyond 16 bits as two escapes.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return text


def _character(text: str, line: int) -> Hashable:
    name = text[1:]
    if len(name) == 1 and not name.isspace():
        return Character(name)
    if name in _CHARACTERS:
        return Character(_CHARACTERS[name])
    if _CHARACTER_CODE.fullmatch(name) and (code := int(name[1:], 16)) not in _SURROGATES:
        return Character(chr(code))
    raise _malformed(f"{shown(text)} is not a character", line)


# --- writing -----------------------------------------------------------------------------------

_TO_ESCAPE = str.maketrans(
    {"\t": "\\t", "\r": "\\r", "\n": "\\n", "\\": "\\\\", '"': '\\"', "\b": "\\b", "\f": "\\f"}
)
_WRITABLE_KEYWORD = re.compile(r"[^\s,;\"\[\](){}\\^`~@]+")
_NAMES = {letter: name for name, letter in _CHARACTERS.items()}


def edn_text(value: object) -> str:
    """A value as EDN.

    Raises:
      ValueError: it is nothing that EDN has.
    """
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _str_text(value)
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return f"[{' '.join(map(edn_text, value))}]"
    if isinstance(value, FrozenMap):
        pairs = (f"{edn_text(key)} {edn_text(item)}" for key, item in value.items)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, frozenset):
        return f"#{{{' '.join(sorted(map(edn_text, value)))}}}"
    if isinstance(value, Tagged):
        return f"#{value.tag} {edn_text(value.value)}"
    if type(value).__name__ in {"Decimal", "Fraction"}:
        return f"{value}M" if type(value).__name__ == "Decimal" else str(value)
    raise ValueError(f"{shown(value)} cannot be written as EDN")


def _str_text(value: str) -> str:
    if isinstance(value, Keyword):
        return f":{value}"
    if isinstance(value, Symbol):
        return str(value)
    if isinstance(value, Character):
        return "\\" + _NAMES.get(value, value if value.isprintable() else f"u{ord(value):04x}")
    text = value.translate(_TO_ESCAPE)
    if any(ord(letter) in _SURROGATES for letter in text):
        text = "".join(f"\\u{ord(x):04x}" if ord(x) in _SURROGATES else x for x in text)
    return f'"{text}"'


def keyword_text(name: str) -> str:
    """A name as a keyword, or as a string if it has letters that a keyword cannot have."""
    return f":{name}" if _WRITABLE_KEYWORD.fullmatch(name) else edn_text(str(name))


def _float_text(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "##Inf" if value > 0 else "##-Inf"
    return repr(value)
