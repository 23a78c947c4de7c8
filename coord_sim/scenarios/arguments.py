"""Programs by name, and whether arguments fit them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from coord_sim.scenarios.lines import Path
from coord_sim.scenarios.problems import nearest
from coord_sim.scenarios.typed import Reader
from coord_sim.sim.programs import PROGRAMS


def argument_problems(
    program: str, arguments: Mapping[str, object], processes: int
) -> Iterator[tuple[Path, str]]:
    """What is wrong with the arguments of a program, or with its name."""
    if program not in PROGRAMS:
        yield ("program", "name"), f"unknown program {program!r}{nearest(program, PROGRAMS)}"
        return
    found: list[tuple[Path, str]] = []
    as_in_a_file = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in arguments.items()
    }
    read_arguments(program, as_in_a_file, Reader(processes, lambda *problem: found.append(problem)))
    if not found:
        try:
            PROGRAMS[program](**arguments)
        except ValueError as error:
            found.append((("program",), str(error)))
    yield from found


def read_arguments(program: str, table: Mapping[str, object], reader: Reader) -> dict[str, Any]:
    """The arguments of a program that exists, from the table of a file: counts and times from 0 on."""
    parameters = inspect.signature(PROGRAMS[program]).parameters
    hints = typing.get_type_hints(PROGRAMS[program], include_extras=True)
    read = reader.table(
        ("program",),
        table,
        {name: hints[name] for name in parameters},
        [name for name, known in parameters.items() if known.default is inspect.Parameter.empty],
    )
    for name, value in read.items():
        if isinstance(value, int | float) and value < 0:
            reader.report(("program", name), f"must be at least 0, found {value}")
    return read
