"""Values of a file as the types that Python code asks for, or what is wrong with them."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, TypeAlias, Union

from coord_sim.moments import FORMS, SERVICE, Member, Moment, parse_moment
from coord_sim.scenarios.lines import Path
from coord_sim.scenarios.problems import nearest
from coord_sim.sim.programs import PROCESS

NEVER: Final = "never"
"""In a list of times: no time at all."""

ALIASES: Final = {"at": "at_s"}
"""Keys of files that have another name in Python."""

Report: TypeAlias = Callable[[Path, str], None]
"""Takes what is wrong, and where."""

_NAMES: Final = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class Reader:
    """Reads typed values, and reports what is not one.

    Args:
      processes: How many the job has; None if that is not known.
      report: Takes the problems.

    Attributes:
      report: The same.
    """

    def __init__(self, processes: int | None, report: Report) -> None:
        self._processes = processes
        self.report = report

    def table(
        self,
        path: Path,
        table: Mapping[str, object],
        hints: Mapping[str, Any],
        required: typing.Collection[str],
    ) -> dict[str, Any]:
        """The values of the keys that are right, by their names in Python.

        Args:
          path: Of the table.
          table: As `tomllib` gives it.
          hints: Type of each name.
          required: Names without which nothing works.
        """
        keys = {name: key for key, name in ALIASES.items() if name in hints}
        known = {keys.get(name, name): name for name in hints}
        read: dict[str, Any] = {}
        for key, value in table.items():
            if key not in known:
                self.report((*path, key), f"unknown key {key!r}{nearest(key, known)}")
            else:
                read[known[key]] = self.value((*path, key), value, hints[known[key]])
        for name in required:
            if keys.get(name, name) not in table:
                self.report(path, f"the key {keys.get(name, name)!r} is missing")
        return read

    def value(self, path: Path, value: object, hint: Any) -> Any:
        """The value as `hint` asks for; None, and a report, if it is none."""
        if hint == Moment:
            return self._moment(path, value)
        if hint in (Member, Member | None):
            return self._member(path, value)
        if hint == Annotated[int, PROCESS]:
            return self._process(path, value)
        origin = typing.get_origin(hint)
        if origin in (Union, types.UnionType):
            (inner,) = (part for part in typing.get_args(hint) if part is not types.NoneType)
            return self.value(path, value, inner)
        if origin is tuple:
            return self._tuple(path, value, typing.get_args(hint)[0])
        if origin is not None:  # a mapping
            return self._mapping(path, value, typing.get_args(hint)[1])
        if dataclasses.is_dataclass(hint):
            return self.record(path, value, typing.cast("type[Any]", hint))
        return self._scalar(path, value, hint)

    def record(self, path: Path, value: object, kind: type[Any]) -> Any:
        """A dataclass from a table."""
        if not isinstance(value, dict):
            self.report(path, f"must be a table, found {shown(value)}")
            return None
        hints = typing.get_type_hints(kind, include_extras=True)
        required = [
            field.name
            for field in dataclasses.fields(kind)
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]
        read = self.table(path, value, hints, required)
        if None in read.values() or not set(required) <= read.keys():
            return None
        return kind(**read)

    # --- kinds of values -----------------------------------------------------------------------

    def _scalar(self, path: Path, value: object, kind: type) -> object:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.report(path, f"must be {_NAMES[kind]}, found {shown(value)}")
            return None
        if isinstance(value, float) and not math.isfinite(value):
            self.report(path, f"must be finite, found {value}")
            return None
        return value

    def _process(self, path: Path, value: object) -> object:
        number = self._scalar(path, value, int)
        if isinstance(number, int) and self._processes is not None:
            if not 0 <= number < self._processes:
                self.report(path, f"process {number} is not one of 0 to {self._processes - 1}")
                return None
        return number

    def _member(self, path: Path, value: object) -> object:
        if isinstance(value, str):
            if value == SERVICE:
                return value
            self.report(path, f"unknown member {value!r}{nearest(value, [SERVICE])}")
            return None
        return self._process(path, value)

    def _moment(self, path: Path, value: object) -> object:
        if not isinstance(value, str):
            time_s = self._scalar(path, value, float)
            if isinstance(time_s, float) and time_s < 0:
                self.report(path, f"{time_s:g} s is before the run begins")
                return None
            return time_s
        try:
            moment = parse_moment(value)
        except ValueError:
            self.report(path, f"{value!r} is no moment; write {FORMS}")
            return None
        if isinstance(moment, float):
            return self._moment(path, moment)
        if self._process(path, moment.process) is None:
            return None
        return moment

    def _tuple(self, path: Path, value: object, hint: Any) -> object:
        if not isinstance(value, list):
            self.report(path, f"must be a list, found {shown(value)}")
            return None
        may_be_none = types.NoneType in typing.get_args(hint)
        read: list[object] = []
        for index, element in enumerate(value):
            if may_be_none and element == NEVER:
                read.append(None)
                continue
            inner = self.value((*path, index), element, hint)
            if inner is not None:
                read.append(inner)
        return tuple(read) if len(read) == len(value) else None

    def _mapping(self, path: Path, value: object, hint: Any) -> object:
        if not isinstance(value, dict):
            self.report(path, f"must be a table, found {shown(value)}")
            return None
        read = {key: self.value((*path, key), inner, hint) for key, inner in value.items()}
        return None if None in read.values() else read


def shown(value: object) -> str:
    """A value as a message names it."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, str | int | float) else str(value)  # Dates and times.
