"""What conditions name, as it happens: read from recordings while they are written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from coord_sim.moments import BLOCK

_ENDS: Final = ("ok", "fail", "info")


class Happening(NamedTuple):
    """Something that a condition may wait for.

    Attributes:
      kind: `inside` or `after`.
      process: Whose.
      operation: As histories name it, or `block`.
    """

    kind: str
    process: int
    operation: str


class Recording:
    """The recording of one start of a process, read as far as it is written.

    Args:
      process: Whose it is.
      path: The file; it may not be there yet.
    """

    def __init__(self, process: int, path: Path) -> None:
        self._process = process
        self._path = path
        self._position = 0
        self._rest = b""
        self._open: dict[int, tuple[str, str | None]] = {}

    def news(self) -> Iterator[Happening]:
        """What happened since the last time."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                written = file.read()
        except FileNotFoundError:
            return
        self._position += len(written)
        *lines, self._rest = (self._rest + written).split(b"\n")
        for line in lines:
            event = json.loads(line)
            match event.get("type"):
                case "invoke":
                    operation = event["operation"]
                    arguments = event.get("arguments", {})
                    subject = arguments.get("key") or arguments.get("barrier")
                    self._open[event["id"]] = (operation, subject)
                    yield Happening("inside", self._process, operation)
                case "enter":
                    yield Happening("inside", self._process, BLOCK)
                case "exit":
                    yield Happening("after", self._process, BLOCK)
                case kind if kind in _ENDS:
                    operation, _ = self._open.pop(event["id"])
                    yield Happening("after", self._process, operation)

    def open_call(self) -> str | None:
        """The latest operation that has not ended, and its key or barrier, as the simulator says it."""
        operation, subject = next(reversed(self._open.values()), (None, None))
        return operation if subject is None else f"{operation} {subject}"
