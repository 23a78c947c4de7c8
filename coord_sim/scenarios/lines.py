"""On which line of a TOML document each key stands; `tomllib` does not say.

The document has been accepted by `tomllib`, so that this reader may take its syntax for granted: it only
finds where names and values begin and end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping
from typing import Final, TypeAlias

Path: TypeAlias = tuple[str | int, ...]
"""Keys and, for elements of arrays, indices from 0: `("faults", 1, "at")`."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL = re.compile(r"'[^'\n]*'")
_BASIC = re.compile(r'"(?:[^"\\\n]|\\.)*"')
# A multi-line string may end in up to two quotation marks of its own, before the three that close it.
_LONG_LITERAL = re.compile(r"'''.*?'''(?:''|'(?!'))?", re.DOTALL)
_LONG_BASIC = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""(?:""|"(?!"))?', re.DOTALL)
_SCALAR = re.compile(r"[^,\]}\n#]*")
_STRINGS: Final = (_LONG_BASIC, _LONG_LITERAL, _BASIC, _LITERAL)

_ESCAPES: Final = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")


def lines_of(document: str) -> Mapping[Path, int]:
    """The line, from 1, of every table, key and array element; of a table its first mention.

    Args:
      document: What `tomllib.loads` accepts.
    """
    return _Reader(document).read()


class _Reader:
    def __init__(self, document: str) -> None:
        self._text = document
        self._at = 0
        self._breaks = [match.start() for match in re.finditer("\n", document)]
        self._lines: dict[Path, int] = {(): 1}
        self._sizes: dict[Path, int] = {}

    def read(self) -> Mapping[Path, int]:
        table: Path = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()
        return self._lines

    # --- structure -----------------------------------------------------------------------------

    def _header(self) -> Path:
        is_array = self._text.startswith("[[", self._at)
        line = self._line()
        self._at += 2 if is_array else 1
        names = self._key()
        self._at += 2 if is_array else 1
        table: Path = ()
        for name in names[:-1]:
            table = self._latest((*table, name))
            self._note(table, line)
        if not is_array:
            table = (*table, names[-1])
            self._note(table, line)
            return table
        array = (*table, names[-1])
        self._note(array, line)
        index = self._sizes.get(array, 0)
        self._sizes[array] = index + 1
        self._note((*array, index), line)
        return (*array, index)

    def _latest(self, path: Path) -> Path:
        """A header's inner names mean the latest element where they name an array of tables."""
        size = self._sizes.get(path)
        return path if size is None else (*path, size - 1)

    def _pair(self, table: Path) -> None:
        line = self._line()
        path = table
        for name in self._key():
            path = (*path, name)
            self._note(path, line)
        self._at += 1  # the equals sign
        self._skip()
        self._value(path)

    def _value(self, path: Path) -> None:
        opening = self._text[self._at]
        if opening == "[":
            self._array(path)
        elif opening == "{":
            self._inline_table(path)
        else:
            string = next((found for kind in _STRINGS if (found := self._match(kind))), None)
            if string is None:
                self._match(_SCALAR)

    def _array(self, path: Path) -> None:
        self._at += 1
        self._skip()
        index = 0
        while self._text[self._at] != "]":
            self._note((*path, index), self._line())
            self._value((*path, index))
            index += 1
            self._skip_past_comma()
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        self._skip()
        while self._text[self._at] != "}":
            self._pair(path)
            self._skip_past_comma()
        self._at += 1

    # --- text ----------------------------------------------------------------------------------

    def _key(self) -> list[str]:
        names = []
        while True:
            self._skip()
            quoted = self._match(_BASIC)
            literal = self._match(_LITERAL) if quoted is None else None
            if quoted is not None:
                names.append(_ESCAPE.sub(_unescape, quoted[1:-1]))
            elif literal is not None:
                names.append(literal[1:-1])
            else:
                names.append(self._match(_BARE) or "")
            self._skip()
            if self._text[self._at] != ".":
                return names
            self._at += 1

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        return match[0]

    def _skip(self) -> None:
        self._match(_SPACE)

    def _skip_past_comma(self) -> None:
        self._skip()
        if self._text[self._at] == ",":
            self._at += 1
            self._skip()

    def _line(self) -> int:
        return bisect_right(self._breaks, self._at - 1) + 1

    def _note(self, path: Path, line: int) -> None:
        self._lines.setdefault(path, line)


def _unescape(match: re.Match[str]) -> str:
    digits = match[1] or match[2]
    return chr(int(digits, 16)) if digits else _ESCAPES.get(match[3], match[3])
