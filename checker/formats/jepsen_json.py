"""Jepsen's history as JSON: an array of objects or one object after the other, keys as strings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from checker.formats.calls import Calls
from checker.formats.edn import Fields
from checker.formats.jepsen import add_event
from checker.formats.json_values import frozen_json, json_objects

if TYPE_CHECKING:
    from checker.formats.source import Source

_WORDS = ("type", "f", "process")
"""Fields that are keywords in EDN; some exporters keep the colon."""


def read_json(source: Source, calls: Calls) -> None:
    """Reads the events."""
    for line, raw in json_objects(source):
        fields: Fields = {
            name.removeprefix(":"): frozen_json(value, line, name) for name, value in raw.items()
        }
        for name in _WORDS:
            word = fields.get(name)
            if isinstance(word, str):
                fields[name] = word.removeprefix(":")
        add_event(calls, fields, line)
