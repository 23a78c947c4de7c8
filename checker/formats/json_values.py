"""JSON values one after the other, or in one array, without reading the file at once."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

from checker.errors import MalformedHistory
from checker.formats.source import LINE_BYTES_MAX, NESTING_MAX
from checker.history.fields import shown
from checker.operations import frozen

if TYPE_CHECKING:
    from checker.formats.source import Source

Object = dict[str, object]

_SPACE: Final = re.compile(r"[ \t\r\n]*+")
_READ_LINES = 256
_CUT_LETTERS_MAX = 8
"""The decoder blames a missing part at most so many letters before the end."""


class _ConstantError(ValueError):
    pass


def _refuse_constant(name: str) -> NoReturn:
    raise _ConstantError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def json_objects(source: Source) -> Iterator[tuple[int, Object]]:
    """The objects of a file, each with the line of its beginning.

    Raises:
      MalformedHistory: the file is no JSON, or has something else than objects.
    """
    reader = _Buffer(source)
    in_array = reader.peek() == "["
    if in_array:
        reader.skip()
    first = True
    while True:
        letter = reader.peek()
        if in_array and letter == "]":
            reader.skip()
            if reader.peek():
                source.fail("there is more after the end of the array", line=reader.line)
            return
        if not letter:
            if in_array:
                source.fail(
                    "the array is never closed; add ']', or was the file cut?", line=reader.line
                )
            return
        if in_array and not first:
            if letter != ",":
                source.fail("a ',' is missing between two elements of the array", line=reader.line)
            reader.skip()
        reader.peek()
        first = False
        yield reader.line, reader.read_object()


class _Buffer:
    """The part of a file that has been read and not used."""

    def __init__(self, source: Source) -> None:
        self.line = 1
        """Line of the next value, after `peek`."""
        self._source = source
        self._lines = source.lines()
        self._text = ""
        self._position = 0
        self._counted = 0
        """Up to here, lines have been counted."""
        self._at_end = False

    def peek(self) -> str:
        """The next letter that is no space; empty at the end."""
        while True:
            space = _SPACE.match(self._text, self._position)
            assert space is not None
            self._position = space.end()
            if self._position < len(self._text):
                break
            if not self._more(1):
                break
        self.line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        return self._text[self._position : self._position + 1]

    def skip(self) -> None:
        """Skips a letter."""
        self._position += 1

    def read_object(self) -> Object:
        """Reads the value at the position, which `peek` has found."""
        wanted = _READ_LINES
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._position)
            except json.JSONDecodeError as error:
                # What is read ends with a whole line, so only at its end can anything be missing.
                is_cut = error.pos >= len(self._text.rstrip()) - _CUT_LETTERS_MAX
                if is_cut and self._more(wanted):
                    wanted *= 2
                    continue
                self._source.fail(
                    f"not JSON: {error.msg}",
                    line=self.line + self._text.count("\n", self._position, error.pos),
                )
            except RecursionError:
                self._source.fail("a value is nested too deeply", line=self.line)
            except _ConstantError as error:
                self._source.fail(str(error), line=self.line)
            except ValueError:  # Python refuses integers of more than 4300 digits.
                self._source.fail("a number has too many digits", line=self.line)
            self._position = end
            if not isinstance(value, dict):
                self._source.fail(f"must be an object, found {shown(value)}", line=self.line)
            return value

    def _more(self, lines: int) -> bool:
        """Reads more lines; whether there were any."""
        if self._at_end:
            return False
        self.line += self._text.count("\n", self._counted, self._position)
        rest = self._text[self._position :]
        if len(rest) > LINE_BYTES_MAX:
            self._source.fail(
                f"a value has more than {LINE_BYTES_MAX} letters; is a bracket missing?",
                line=self.line,
            )
        parts = [rest]
        for _ in range(lines):
            line = next(self._lines, None)
            if line is None:
                self._at_end = True
                break
            parts.append(line)
            if len(line) > LINE_BYTES_MAX // _READ_LINES:
                break
        self._text, self._position, self._counted = "".join(parts), 0, 0
        return len(parts) > 1


def frozen_json(value: object, line: int, field: str) -> Hashable:
    """A JSON value as something hashable.

    Raises:
      MalformedHistory: it is nested too deeply; without the path.
    """
    if value is None or isinstance(value, str | int | float):
        return value
    level, nested = 0, [value]
    while nested:
        level += 1
        if level > NESTING_MAX:
            raise MalformedHistory(
                f"nested more than {NESTING_MAX} levels deep", line=line, field=field
            )
        nested = [
            inner
            for outer in nested
            for inner in (outer.values() if isinstance(outer, dict) else _items(outer))
            if isinstance(inner, dict | list)
        ]
    return frozen(value)


def _items(value: object) -> list[object]:
    return value if isinstance(value, list) else []
