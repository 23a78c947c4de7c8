"""The generated parts of `docs/scenarios.md`; `python -m tests.scenarios.page` writes them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from coord_sim.scenarios import names, scenario_named
from coord_sim.sim.programs import PROGRAMS
from tests.generated_parts import with_parts

PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"


def page(text: str) -> str:
    """The page with its generated parts as they should be."""
    return with_parts(text, {"programs": _programs(), "library": _library()})


def _programs() -> Iterator[str]:
    yield "| program | arguments | |"
    yield "| --- | --- | --- |"
    for name, make in sorted(PROGRAMS.items()):
        parameters = inspect.signature(make).parameters.values()
        arguments = ", ".join(
            f"`{parameter.name}`"
            if parameter.default in (inspect.Parameter.empty, None)
            else f"`{parameter.name} = {_toml(parameter.default)}`"
            for parameter in parameters
        )
        summary = (inspect.getdoc(make) or "").split("\n\n")[0]
        yield f"| `{name}` | {arguments} | {' '.join(summary.split())} |"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _library() -> Iterator[str]:
    yield "| scenario | what happens | reported in | runs on |"
    yield "| --- | --- | --- | --- |"
    for name in names():
        scenario = scenario_named(name)
        places = ", ".join(scenario.runs_on)
        yield f"| `{name}` | {scenario.title} | {', '.join(scenario.sources)} | {places} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
