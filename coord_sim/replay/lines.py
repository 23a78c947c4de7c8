"""Where an event of a history stands in its file."""

from __future__ import annotations

import json
from collections.abc import Iterator

from checker.formats.source import Source

_NO_EVENTS = ("answer", "fault")


def line_of_event(path: str, index: int) -> int:
    """The number of the line of an event, counted from 1.

    Args:
      path: A history of ours that was read before.
      index: Of the event, counted from 0.

    Raises:
      OSError: the file cannot be read any more.
    """
    seen = -1
    for number, line in enumerate(_lines(path), start=1):
        if number == 1 or not line.strip():
            continue
        # Only these two types of line are no events; they are rare, so most lines need no parsing.
        if any(kind in line for kind in _NO_EVENTS) and json.loads(line).get("type") in _NO_EVENTS:
            continue
        seen += 1
        if seen == index:
            return number
    raise IndexError(
        f"{path} has {seen + 1} events, not {index + 1}: it has changed since it was read"
    )


def _lines(path: str) -> Iterator[str]:
    with open(path, "rb") as file:
        yield from Source(file, path).lines()
