"""Which format a file has, by what it holds: names of files say nothing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from checker.errors import MalformedHistory
from checker.formats.jepsen import looks_like_log
from checker.history.header import VERSION_KEY

if TYPE_CHECKING:
    from checker.formats.source import Source

JSON_LINES: Final = "coordlab JSON lines"
JEPSEN_EDN: Final = "Jepsen EDN"
JEPSEN_LOG: Final = "Jepsen log"
JEPSEN_JSON: Final = "Jepsen JSON"
PORCUPINE_OPERATIONS: Final = "Porcupine operations"
PORCUPINE_EVENTS: Final = "Porcupine events"
PORCUPINE_PAGE: Final = "Porcupine page"
ETCD_OPERATIONS: Final = "etcd robustness operations"

_KNOWN = (
    "JSON lines of coordlab, Jepsen's EDN, log or JSON, Porcupine's operations, events or page, and "
    "etcd's operations.json are"
)
_FIRST_LINE_MIN = 2
_EDN_START = re.compile(r"(?:[\s,]++|;[^\n]*+(?:\n|\Z))*+(.?)", re.DOTALL)
_FIRST_MAP = re.compile(r"[\[({\s,]*+(?:\#[A-Za-z][\w./-]*+\s*+|\#_)?+\{?+[\s,]*+(.?)", re.DOTALL)
_JSON_NAME = re.compile(r'"((?:[^"\\]|\\.){1,80})"\s*+:')
_JSON_LINE_NAME = re.compile(rf'\s*+\{{\s*+"{VERSION_KEY}"\s*+:|[^\n]*?"{VERSION_KEY}"\s*+:')
_PAGE = re.compile(r"\s*+<(?:!doctype\s|html\b)", re.IGNORECASE)
_ETCD_INPUT = re.compile(
    r'"Input"\s*+:\s*+\{\s*+"Type"\s*+:\s*+'
    r'"(?:range|txn|leaseGrant|leaseRevoke|defragment|compact)"'
)


def format_of(source: Source) -> str:
    """The format of a file.

    Raises:
      MalformedHistory: none that is known; after looking at the head of the file alone.
    """
    text = _head_text(source)
    if not text.strip():
        source.fail("the file is empty; was anything recorded?")
    if _PAGE.match(text):
        return PORCUPINE_PAGE
    start = _EDN_START.match(text)
    first = start[1] if start else ""
    if first and first in "[({#":
        assert start is not None
        found = _of_data(text, start.start(1))
        if found is not None:
            return found
    lines = text.split("\n")
    if len(lines) >= _FIRST_LINE_MIN:
        lines.pop()  # It may be cut.
    if any(map(looks_like_log, lines)):
        return JEPSEN_LOG
    raise MalformedHistory(f"this is no history that can be read here; {_KNOWN}", path=source.path)


def _head_text(source: Source) -> str:
    try:
        return source.head.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and error.start >= len(source.head) - 4:
            return source.head[: error.start].decode().removeprefix("\ufeff")
        line = source.head.count(b"\n", 0, error.start) + 1
        source.fail(f"not UTF-8 text ({error.reason}); is this a history?", line=line)


def _of_data(text: str, begin: int) -> str | None:
    """EDN or JSON, of which kind."""
    if text[begin] == "{" and _JSON_LINE_NAME.match(text, begin):
        return JSON_LINES
    inside = _FIRST_MAP.match(text, begin)
    assert inside is not None
    first = inside[1]
    if first == ":" or (first and first in "#;"):
        return JEPSEN_EDN
    if first == '"':
        return _of_json(text, begin)
    # Nothing but brackets: an empty history, in a notation that several formats share.
    if first and first in "])}" and re.fullmatch(r"[\[({\])}\s,]*+", text[begin:]):
        return JEPSEN_EDN
    return None


def _of_json(text: str, begin: int) -> str | None:
    names = set(_JSON_NAME.findall(text, begin))
    lower = {name.lower() for name in names}
    if lower >= {"clientid", "call", "return"} or lower >= {"input", "call"}:
        return ETCD_OPERATIONS if _ETCD_INPUT.search(text, begin) else PORCUPINE_OPERATIONS
    if lower >= {"kind", "value", "id"} or lower >= {"kind", "clientid"}:
        return PORCUPINE_EVENTS
    if lower >= {"process", "type"}:
        return JEPSEN_JSON
    return None
