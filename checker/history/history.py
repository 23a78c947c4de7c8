"""A history in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from checker.history.events import Event, Fault
from checker.history.header import Header


@dataclass(frozen=True, slots=True)
class History:
    """A header and its events in the order of time.

    `notes` says what the reader had to leave out (a torn last line of a killed recorder); it is
    empty for a whole history. `faults` are what was done to the system, in the order of time; they are
    nobody's events, and no checker needs them.
    """

    header: Header
    events: Sequence[Event]
    notes: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = ()

    def save(self, path: str | Path) -> None:
        """Writes the history as JSON lines; an existing file is replaced in one step."""
        from checker.history import jsonl_writer

        jsonl_writer.write(self, path)

    def to_text(self) -> str:
        """The history as JSON lines, exactly as `save` writes it."""
        from checker.history import jsonl_writer

        return jsonl_writer.dumps(self)
