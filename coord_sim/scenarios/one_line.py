"""Faults and settings in one line, as a command line takes them.

A fault is its kind and its fields as in a scenario file: `pause process=1 at=2.5 for_s=4`,
`crash process=1 at="inside 1 live_processes#3"`. Quotes of words may be left out, as in
`partition side=[0, service]`, and so may the brackets of a list of one. A setting of the job is
`KEY=VALUE`.
"""

from __future__ import annotations

import json
import shlex
import tomllib
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final

from coord_sim.faults import Degrade, Fault
from coord_sim.scenarios.lines import Path
from coord_sim.scenarios.problems import nearest
from coord_sim.scenarios.reading import FAULT_KINDS
from coord_sim.scenarios.typed import Reader
from coord_sim.scenarios.writing import pairs_of
from coord_sim.schedule import Schedule

NOT_SETTINGS: Final = ("processes", "seed", "faults", "semantics", "mutant")
"""Fields of a schedule that a command line has options for."""


def parse_fault(text: str, processes: int) -> Fault:
    """Reads a fault.

    Args:
      text: Its kind and its fields.
      processes: How many the job has.

    Raises:
      ValueError: it is none; says what is wrong and what may be meant.
    """
    words = _words(text)
    name = words[0] if words else ""
    kind = FAULT_KINDS.get(name)
    if kind is None:
        raise ValueError(f"unknown kind of fault {name!r}{nearest(name, FAULT_KINDS)}")
    required = [field.name for field in fields(kind) if field.default is MISSING]
    pairs = [_pair(word) for word in words[1:]]
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError(f"{text!r} says something twice")
    everybody: dict[str, Any] = {}
    if kind is Degrade and "process" not in table:
        required.remove("process")
        everybody["process"] = None
    hints = typing.get_type_hints(kind)
    for key, value in table.items():
        if typing.get_origin(hints.get(key)) is tuple and not isinstance(value, list):
            table[key] = [value]
    return kind(**everybody, **_read(table, hints, required, processes))


def parse_setting(text: str, processes: int) -> tuple[str, Any]:
    """Reads a setting of the job: a field of `Schedule` and its value.

    Raises:
      ValueError: there is no such field, or it has other values.
    """
    hints = {
        name: hint
        for name, hint in typing.get_type_hints(Schedule).items()
        if name not in NOT_SETTINGS
    }
    [setting] = _read(dict([_pair(text)]), hints, (), processes).items()
    return setting


def fault_line(fault: Fault) -> str:
    """A fault as `parse_fault` reads it."""
    words = [f"{key}={shlex.quote(_bare(value))}" for key, value in pairs_of(fault)]
    return " ".join([type(fault).__name__.lower(), *words])


def setting_lines(schedule: Schedule) -> list[str]:
    """The settings that are not as they are by default, as `parse_setting` reads them."""
    return [f"{key}={_bare(value)}" for key, value in pairs_of(schedule) if key not in NOT_SETTINGS]


def _words(text: str) -> list[str]:
    """As a shell splits them; a list is one word."""
    words: list[str] = []
    for word in shlex.split(text):
        if words and "=[" in words[-1] and not words[-1].endswith("]"):
            words[-1] += f" {word}"
        else:
            words.append(word)
    return words


def _pair(word: str) -> tuple[str, object]:
    key, separator, text = word.partition("=")
    if not separator:
        raise ValueError(f"{word!r} is not of the form KEY=VALUE")
    return key, _value(text)


def _value(text: str) -> object:
    """What TOML makes of it; a list of words without quotes, or text, where that is nothing."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        if text.startswith("[") and text.endswith("]"):
            return [_value(element.strip()) for element in text[1:-1].split(",")]
        return text


def _bare(value: str) -> str:
    """A value of a TOML file; a text loses its quotes, if it is still a text without them."""
    if value.startswith('"'):
        text = str(json.loads(value))
        if _pair(f"text={text}") == ("text", text):
            return text
    return value


def _read(
    table: Mapping[str, object],
    hints: Mapping[str, Any],
    required: typing.Collection[str],
    processes: int,
) -> dict[str, Any]:
    problems: list[str] = []

    def report(path: Path, problem: str) -> None:
        where = ".".join(str(part) for part in path)
        problems.append(f"{where}: {problem}" if where else problem)

    read = Reader(processes, report).table((), table, hints, required)
    if problems:
        raise ValueError("; ".join(problems))
    return read
