"""A scenario as the text of a file: what `parse_scenario` reads again as the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from coord_sim.moments import When
from coord_sim.scenarios.scenario import Scenario
from coord_sim.scenarios.typed import ALIASES, NEVER

_TABLES: Final = ("faults", "hosts")
"""Fields of a schedule that are tables of their own in a file."""

_KEYS: Final = {name: key for key, name in ALIASES.items()}


def to_toml(scenario: Scenario) -> str:
    """The scenario as a TOML file; hosts are named `host0`, `host1`, ..."""
    texts = {
        name: getattr(scenario, name)
        for name in ("name", "title", "what", "why", "sources", "runs_on")
        if getattr(scenario, name)
    }
    schedule = scenario.schedule
    job = {name: value for name, value in _told(schedule).items() if name not in _TABLES}
    lines = [*_pairs(texts), "", "[job]", *_pairs(job)]
    lines += ["", "[program]", *_pairs({"name": scenario.program, **scenario.arguments})]
    if schedule.hosts:
        lines += ["", "[hosts]"]
        lines += _pairs({f"host{number}": host for number, host in enumerate(schedule.hosts)})
    for fault in schedule.faults:
        lines += ["", "[[faults]]", *_pairs({"kind": type(fault).__name__.lower(), **_told(fault)})]
    lines += ["", "[expect]", *_pairs(_told(scenario.expect))]
    for semantics, changes in scenario.expect_of.items():
        lines += ["", f"[expect.{semantics}]", *_pairs(_told(changes))]
    return "\n".join(lines) + "\n"


def pairs_of(value: Any) -> Iterator[tuple[str, str]]:
    """The keys and values of a dataclass, where they are not as they are by default."""
    for name, inner in _told(value).items():
        yield _KEYS.get(name, name), _value(inner)


def _told(value: Any) -> Mapping[str, Any]:
    """The fields of a dataclass that are not as they are by default."""
    return {
        field.name: inner
        for field in dataclasses.fields(value)
        if (inner := getattr(value, field.name)) != field.default and inner is not None
    }


def _pairs(table: Mapping[str, Any]) -> Iterator[str]:
    for name, value in table.items():
        yield f"{_KEYS.get(name, name)} = {_value(value)}"


def _value(value: Any) -> str:
    match value:
        case None:
            return json.dumps(NEVER)  # In lists of times; nothing else is written when it is None.
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case When():
            return json.dumps(str(value))
        case Mapping():
            inner = (f"{json.dumps(key)} = {_value(item)}" for key, item in value.items())
            return f"{{ {', '.join(inner)} }}"
        case tuple() | list():
            return f"[{', '.join(_value(item) for item in value)}]"
        case _:
            return _value({_KEYS.get(name, name): item for name, item in _told(value).items()})
