"""Scenario files: TOML, validated, with all that is wrong said at once."""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from pathlib import Path as FilePath
from typing import Any, Final

from coord_sim import faults
from coord_sim.core.semantics import SEMANTICS
from coord_sim.core.service import TASKS_MAX
from coord_sim.errors import ScheduleError
from coord_sim.faults import Degrade, Fault, Partition
from coord_sim.moments import Member
from coord_sim.scenarios.arguments import read_arguments
from coord_sim.scenarios.expectations import Expectations
from coord_sim.scenarios.lines import Path, lines_of
from coord_sim.scenarios.problems import Problem, ScenarioError, nearest
from coord_sim.scenarios.scenario import Scenario
from coord_sim.scenarios.typed import Reader, shown
from coord_sim.schedule import Schedule
from coord_sim.sim.programs import PROGRAMS, ProcessNumber

FILE_BYTES_MAX: Final = 1 << 20
"""A longer file is no scenario."""

FAULT_KINDS: Final[Mapping[str, type[Fault]]] = {
    kind.__name__.lower(): kind for kind in typing.get_args(faults.Fault)
}

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_TEXTS: Final = {
    "name": str,
    "title": str,
    "what": str,
    "why": str,
    "sources": tuple[str, ...],
    "runs_on": tuple[str, ...],
}
_TABLES: Final = ("job", "program", "faults", "hosts", "expect")
_REQUIRED: Final = ("name", "title", "what", "why")
_NOT_OF_THE_JOB: Final = ("faults", "hosts")
_SAID_BY_TOML = re.compile(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", re.DOTALL)


def read_scenario(path: FilePath) -> Scenario:
    """Reads a file.

    Raises:
      ScenarioError: it is no scenario; it says all that is wrong, with lines.
      OSError: it cannot be read.
    """
    with path.open("rb") as file:
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ScenarioError([Problem(str(path), 0, (), "is longer than 1 MiB")])
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ScenarioError([Problem(str(path), line, (), "is not UTF-8")]) from None
    return parse_scenario(text, str(path))


def parse_scenario(text: str, file: str) -> Scenario:
    """Reads the text of a file.

    Args:
      text: TOML.
      file: What problems name as its file.

    Raises:
      ScenarioError: it is no scenario; it says all that is wrong, with lines.
    """
    text = text.replace("\r\n", "\n")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError([_syntax(text, file, str(error))]) from None
    except RecursionError:
        raise ScenarioError([Problem(file, 0, (), "is nested too deeply")]) from None
    return _Document(document, text, file).scenario()


def _syntax(text: str, file: str, said: str) -> Problem:
    match = _SAID_BY_TOML.fullmatch(said)
    if match is None:
        return Problem(file, 1, (), said)
    line = int(match[2]) if match[2] else text.rstrip("\n").count("\n") + 1
    return Problem(file, line, (), f"no TOML: {match[1]}")


class _Document:
    """One file while it is read."""

    def __init__(self, document: dict[str, Any], text: str, file: str) -> None:
        self._document = document
        self._lines = lines_of(text)
        self._file = file
        self._problems: list[Problem] = []
        self._processes = self._count_processes()
        self._reader = Reader(self._processes, self._report)
        self._fault_tables: list[int] = []
        """For each fault, the number of the table that it comes from."""

    def scenario(self) -> Scenario:
        self._check_names()
        texts: dict[str, Any] = {
            name: self._reader.value((name,), self._document[name], hint)
            for name, hint in _TEXTS.items()
            if name in self._document
        }
        if isinstance(name := texts.get("name"), str) and not _NAME.fullmatch(name):
            self._report(("name",), f"{name!r} is not of the form lower-case-words")
        hosts = self._hosts()
        schedule = self._schedule(hosts, self._faults(hosts))
        program, arguments = self._program()
        expect, expect_of = self._expectations(hosts)
        if self._problems or schedule is None:
            raise self._error()
        try:
            return Scenario(
                **texts,
                schedule=schedule,
                program=program,
                arguments=arguments,
                expect=expect,
                expect_of=expect_of,
            )
        except ScenarioError as error:
            for problem in error.problems:
                self._report(self._place(problem.path), problem.text)
            raise self._error() from None

    # --- problems ------------------------------------------------------------------------------

    def _report(self, path: Path, text: str) -> None:
        known = path
        while known not in self._lines:
            known = known[:-1]
        self._problems.append(Problem(self._file, self._lines[known], path, text))

    def _error(self) -> ScenarioError:
        unique = dict.fromkeys(self._problems)
        return ScenarioError(sorted(unique, key=lambda problem: problem.line))

    def _place(self, path: Path) -> Path:
        """Where in the file something of the scenario was written."""
        if len(path) >= 2 and path[0] == "faults" and isinstance(path[1], int):
            return ("faults", self._fault_tables[path[1]], *path[2:])
        if path in self._lines:
            return path
        if "verdicts" in path:
            return (*path[: path.index("verdicts")], "verdict")
        if path[-1:] == ("processes",):
            short = ((*path[:-1], key) for key in ("process", "host"))
            return next((place for place in short if place in self._lines), path[:-1])
        return path

    # --- sections ------------------------------------------------------------------------------

    def _check_names(self) -> None:
        known = (*_TEXTS, *_TABLES)
        for key in self._document:
            if key not in known:
                self._report((key,), f"unknown key {key!r}{nearest(key, known)}")
        for key in (*_REQUIRED, "job", "program", "expect"):
            if key not in self._document:
                self._report((), f"the key {key!r} is missing")

    def _table(self, name: str) -> dict[str, Any]:
        value = self._document.get(name, {})
        if isinstance(value, dict):
            return value
        self._report((name,), f"must be a table, found {shown(value)}")
        return {}

    def _tables(self, path: Path, value: object) -> Iterator[tuple[int, dict[str, Any]]]:
        if not isinstance(value, list):
            self._report(path, f"must be tables [[{'.'.join(map(str, path))}]]")
            return
        for number, table in enumerate(value):
            if isinstance(table, dict):
                yield number, table
            else:
                self._report((*path, number), f"must be a table, found {shown(table)}")

    def _count_processes(self) -> int | None:
        job = self._document.get("job")
        count = job.get("processes") if isinstance(job, dict) else None
        return count if type(count) is int and count >= 1 else None

    def _hosts(self) -> dict[str, tuple[int, ...]]:
        hosts = {}
        for name, value in self._table("hosts").items():
            members = self._reader.value(("hosts", name), value, tuple[int, ...])
            hosts[name] = members or ()
            for process in hosts[name]:
                if self._processes is not None and not 0 <= process < self._processes:
                    self._report(("hosts", name), self._nobody(process))
        return hosts

    def _nobody(self, process: int) -> str:
        assert self._processes is not None
        return f"process {process} is not one of 0 to {self._processes - 1}"

    def _schedule(
        self, hosts: Mapping[str, tuple[int, ...]], found: tuple[Fault, ...]
    ) -> Schedule | None:
        hints = {
            name: hint
            for name, hint in typing.get_type_hints(Schedule).items()
            if name not in _NOT_OF_THE_JOB
        }
        job = self._reader.table(("job",), self._table("job"), hints, ("processes",))
        if self._processes is not None and self._processes > TASKS_MAX:
            self._report(("job", "processes"), f"a job has at most {TASKS_MAX} processes")
        if self._problems:
            return None
        try:
            return Schedule(**job, hosts=tuple(hosts.values()), faults=found)
        except ScheduleError as error:
            self._report(self._place_of(str(error), found), str(error))
            return None

    def _place_of(self, message: str, found: tuple[Fault, ...]) -> Path:
        """The key that a message of the schedule is about."""
        for number, fault in enumerate(found):
            if message.startswith(str(fault)):
                return ("faults", self._fault_tables[number])
        about = (word for word in re.findall(r"\w+", message) if ("job", word) in self._lines)
        return next((("job", word) for word in about), ("job",))

    def _program(self) -> tuple[str, dict[str, Any]]:
        table = dict(self._table("program"))
        if "name" not in table:
            if "program" in self._document:
                self._report(("program",), "the key 'name' is missing")
            return "", {}
        name = self._reader.value(("program", "name"), table.pop("name"), str)
        if name is None:
            return "", {}
        if name not in PROGRAMS:
            self._report(("program", "name"), f"unknown program {name!r}{nearest(name, PROGRAMS)}")
            return name, {}
        return name, read_arguments(name, table, self._reader)

    # --- faults --------------------------------------------------------------------------------

    def _faults(self, hosts: Mapping[str, tuple[int, ...]]) -> tuple[Fault, ...]:
        found = []
        for number, table in self._tables(("faults",), self._document.get("faults", [])):
            for fault in self._fault(("faults", number), dict(table), hosts):
                found.append(fault)
                self._fault_tables.append(number)
        return tuple(found)

    def _fault(
        self, path: Path, table: dict[str, Any], hosts: Mapping[str, tuple[int, ...]]
    ) -> Iterator[Fault]:
        kind = self._kind(path, table.pop("kind", None))
        if kind is None:
            return
        hints = typing.get_type_hints(kind)
        whom = "side" if kind is Partition else "process"
        if kind is not Partition and Member != hints[whom]:
            hints[whom] = ProcessNumber
        several = self._members(path, table, hosts)
        if several is not None:
            if whom in table:
                self._report(
                    (*path, whom), "stands beside 'processes' or 'host'; write one of them"
                )
                return
            if kind is Partition:
                table[whom] = list(several)
        required = {
            field.name for field in fields(kind) if field.default is MISSING and field.name != whom
        }
        if several is None and kind is not Degrade:
            required.add(whom)
        before = len(self._problems)
        read = self._reader.table(path, table, hints, sorted(required))
        if len(self._problems) > before:
            return
        if several is None or kind is Partition:
            everybody = {"process": None} if kind is Degrade else {}
            yield kind(**(everybody | read))
            return
        for process in several:
            yield kind(**(read | {"process": process}))

    def _kind(self, path: Path, name: object) -> type[Fault] | None:
        if name is None:
            self._report(path, f"the key 'kind' is missing{nearest('', FAULT_KINDS)}")
        elif not isinstance(name, str) or name not in FAULT_KINDS:
            text = f"unknown kind {shown(name)}{nearest(str(name), FAULT_KINDS)}"
            self._report((*path, "kind"), text)
        else:
            return FAULT_KINDS[name]
        return None

    def _members(
        self, path: Path, table: dict[str, Any], hosts: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, ...] | None:
        """Those whom `processes` or `host` name, and takes the keys away; None if neither is there."""
        members: tuple[int, ...] | None = None
        if "host" in table:
            name = table.pop("host")
            if not isinstance(name, str) or name not in hosts:
                said = f"unknown host {shown(name)}{nearest(str(name), hosts)}"
                self._report((*path, "host"), said if hosts else f"{said}; [hosts] names none")
            members = hosts.get(str(name), ())
        if "processes" in table:
            value = table.pop("processes")
            if members is not None:
                self._report((*path, "processes"), "stands beside 'host'; write one of them")
            members = self._reader.value((*path, "processes"), value, tuple[int, ...]) or ()
            for process in members:
                if self._processes is not None and not 0 <= process < self._processes:
                    self._report((*path, "processes"), self._nobody(process))
        return members

    # --- expectations --------------------------------------------------------------------------

    def _expectations(
        self, hosts: Mapping[str, tuple[int, ...]]
    ) -> tuple[Expectations, dict[str, Expectations]]:
        table = dict(self._table("expect"))
        changes = {name: table.pop(name) for name in SEMANTICS if isinstance(table.get(name), dict)}
        expect = self._expect(("expect",), table, hosts)
        return expect, {
            name: self._expect(("expect", name), dict(changed), hosts)
            for name, changed in changes.items()
        }

    def _expect(
        self, path: Path, table: dict[str, Any], hosts: Mapping[str, tuple[int, ...]]
    ) -> Expectations:
        hints = typing.get_type_hints(Expectations)
        verdict = table.pop("verdict", None)
        for name in ("ends", "blocks", "logs", "answers"):
            if name in table:
                table[name] = [
                    self._about((*path, name, number), dict(one), hosts)
                    for number, one in self._tables((*path, name), table[name])
                ]
        read = self._reader.table(path, table, hints, ())
        if verdict is not None:
            word = self._reader.value((*path, "verdict"), verdict, str)
            read["verdicts"] = {"round-suspicion": word or ""} | (read.get("verdicts") or {})
        return Expectations(**read)

    def _about(
        self, path: Path, table: dict[str, Any], hosts: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Any]:
        """`process` and `host` are short for `processes`."""
        if "process" in table and "processes" not in table and "host" not in table:
            table["processes"] = [table.pop("process")]
        else:
            members = self._members(path, table, hosts)
            if members is not None:
                table["processes"] = list(members)
        return table
