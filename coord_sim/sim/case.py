"""A case: everything that determines a simulated run, as a value and as text.

The text is JSON: an object per value, whose class is named by `is`, with the fields that differ from
their defaults.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import json
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, cast

from coord_sim import faults
from coord_sim.errors import CoordSimError
from coord_sim.moments import When
from coord_sim.schedule import Place, Schedule
from coord_sim.sim.process import Program
from coord_sim.sim.programs import PROGRAMS
from coord_sim.sim.run import Run
from coord_sim.sim.service_host import Observer
from coord_sim.sim.simulation import simulate

FORMAT: Final = "coordlab case"
VERSION: Final = 1
FILE_BYTES_MAX: Final = 1 << 20


class CaseError(CoordSimError, ValueError):
    """A case that cannot be read, or whose program cannot be found or made."""


@dataclass(frozen=True, slots=True)
class Case:
    """A run, before it is run.

    Attributes:
      program: A name of `PROGRAMS`, or `module:function` or `file.py:function`: an async function of a
        `Process`, or a function that makes one of its arguments.
      arguments: Of the function that makes the program.
      schedule: Everything else.
    """

    program: str
    schedule: Schedule
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def make_program(self) -> Program:
        """The program.

        Raises:
          CaseError: there is none, or its arguments do not fit.
        """
        function = function_of(self.program)
        if inspect.iscoroutinefunction(function):
            if self.arguments:
                raise CaseError(f"{self.program} is a program itself and takes no arguments")
            return function
        try:
            inspect.signature(function).bind(**self.arguments)
        except TypeError as error:
            raise CaseError(f"program {self.program}: {error}") from None
        try:
            program = function(**self.arguments)
        except (TypeError, ValueError) as error:
            raise CaseError(f"program {self.program}: {error}") from None
        if not callable(program):
            raise CaseError(f"{self.program} made {program!r}, which is no program")
        return cast("Program", program)

    def run(self, observer: Observer | None = None) -> Run:
        """Simulates it.

        Raises:
          CaseError: there is no such program.
          ProgramError: the program does something that the simulator cannot follow.
        """
        return simulate(self.make_program(), self.schedule, observer=observer)

    def to_text(self) -> str:
        """The case as JSON, to keep in a file."""
        document = {"format": FORMAT, "version": VERSION, **_encoded(self)}
        return json.dumps(document, indent=2) + "\n"


def read_case(path: str | Path) -> Case:
    """Reads a file.

    Raises:
      CaseError: it is no case, naming the file and what is wrong.
      OSError: it cannot be read.
    """
    with Path(path).open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise CaseError(f"{path}: is longer than 1 MiB")
    try:
        return parse_case(data.decode())
    except UnicodeDecodeError:
        raise CaseError(f"{path}: is not UTF-8") from None
    except CaseError as error:
        raise CaseError(f"{path}: {error}") from None


def parse_case(text: str) -> Case:
    """The case that `Case.to_text` wrote.

    Raises:
      CaseError: it is none.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CaseError(f"no JSON: {error}") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise CaseError("is no case")
    if document.pop("version", None) != VERSION:
        raise CaseError(f"is of another version than {VERSION}")
    case = _decoded(document)
    if not isinstance(case, Case) or not isinstance(case.schedule, Schedule):
        raise CaseError("is no case")
    if not isinstance(case.program, str):
        raise CaseError(f"names no program but {case.program!r:.80}")
    return case


def digest_of(run: Run) -> bytes:
    """16 bytes that tell apart what two runs recorded; the same on every supported Python."""
    history = run.history
    told = f"{history.events!r}{history.faults!r}{run.end_s!r}{run.finished}"
    return hashlib.blake2b(told.encode(), digest_size=16).digest()


# --- programs ----------------------------------------------------------------------------------


def function_of(program: str) -> Callable[..., Any]:
    """The function that a name stands for.

    Raises:
      CaseError: there is none.
    """
    if program in PROGRAMS:
        return PROGRAMS[program]
    home, colon, name = program.rpartition(":")
    if not colon or not home or not name:
        known = ", ".join(sorted(PROGRAMS))
        raise CaseError(
            f"no program {program!r}; write module:function, file.py:function or one of {known}"
        )
    module = _module_of_file(home) if home.endswith(".py") else _module_named(home)
    function = getattr(module, name, None)
    if not callable(function):
        raise CaseError(f"{home} has no function {name!r}")
    return cast("Callable[..., Any]", function)


def _module_named(name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # As `python -m` has it; a command that was installed has not.
    try:
        return importlib.import_module(name)
    except Exception as error:  # noqa: BLE001 - it is the user's code
        raise CaseError(f"cannot import {name}: {type(error).__name__}: {error}") from None


def _module_of_file(file: str) -> Any:
    path = Path(file).resolve()
    name = f"coordlab_program_{hashlib.blake2b(str(path).encode(), digest_size=8).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CaseError(f"there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # noqa: BLE001
        del sys.modules[name]
        raise CaseError(f"cannot import {file}: {type(error).__name__}: {error}") from None
    return module


# --- text --------------------------------------------------------------------------------------

_CLASSES: Final[Mapping[str, type[Any]]] = {
    kind.__name__: kind for kind in (Case, Schedule, Place, When, *typing.get_args(faults.Fault))
}


def _encoded(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        told = {
            each.name: _encoded(getattr(value, each.name))
            for each in fields(value)
            if getattr(value, each.name) != _default_of(each)
        }
        return {"is": type(value).__name__, **told}
    if isinstance(value, Mapping):
        return {key: _encoded(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        return [_encoded(each) for each in value]
    return value


def _default_of(each: dataclasses.Field[Any]) -> Any:
    if each.default_factory is not MISSING:
        return each.default_factory()
    return each.default


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_decoded(each) for each in value)
    if not isinstance(value, dict):
        return value
    if "is" not in value:
        return {key: _decoded(each) for key, each in value.items()}
    kind = _CLASSES.get(str(value["is"]))
    if kind is None:
        raise CaseError(f"holds something unknown, a {value['is']!r}")
    told = {key: _decoded(each) for key, each in value.items() if key != "is"}
    for key, each in told.items():
        if isinstance(each, dict) != (key == "arguments"):
            raise CaseError(f"holds a {kind.__name__} that cannot be: {key} is {each!r:.80}")
    try:
        return kind(**told)
    except (TypeError, ValueError, AttributeError) as error:
        raise CaseError(f"holds a {kind.__name__} that cannot be: {error}") from None
