"""Merges what all files of a job show, and ranks the causes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jax_bridge.explain.causes import Cause, Evidence
from jax_bridge.explain.classes import ADVICE, EXIT_CODES, NOTHING_WRONG, FailureClass
from jax_bridge.explain.histories import HistoryFacts, is_history, read_history
from jax_bridge.explain.history_rules import STUCK_AFTER_S, causes_in_history
from jax_bridge.explain.log_rules import causes_in_logs, fatal_echoes
from jax_bridge.explain.logs import LogFile, ProcessLog, Sighting, read_log
from jax_bridge.explain.messages import Role

_EVIDENCE_MAX = 4


@dataclass(frozen=True, slots=True)
class File:
    """A file that was used.

    Attributes:
      path: The file.
      kind: `log` or `history`.
      processes: Whose it is, as far as that is known.
      lines: How many were read; events of a history.
      notes: What was odd about it.
    """

    path: str
    kind: str
    processes: tuple[int, ...]
    lines: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Echo:
    """A process that ended itself because of something else.

    Attributes:
      process: Which, if known.
      time_s: When, in seconds since a year's beginning by its host's clock, if known.
      evidence: Its fatal line.
    """

    process: int | None
    time_s: float | None
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a job failed of.

    Attributes:
      causes: The most likely first; empty if nothing is wrong.
      echoes: Fatal messages of processes that are no cause.
      harmless: Messages that look bad and mean nothing.
      warnings: Known messages that are no cause by themselves.
      files: What was read.
      unread: Files that could not be, each with the reason.
    """

    causes: tuple[Cause, ...]
    echoes: tuple[Echo, ...]
    harmless: tuple[Sighting, ...]
    warnings: tuple[Sighting, ...]
    files: tuple[File, ...]
    unread: tuple[tuple[str, str], ...]

    @property
    def failure_class(self) -> FailureClass | None:
        """Of the first cause; None if nothing is wrong."""
        return self.causes[0].failure_class if self.causes else None

    @property
    def exit_code(self) -> int:
        """For schedulers."""
        failure_class = self.failure_class
        return NOTHING_WRONG if failure_class is None else EXIT_CODES[failure_class]

    def to_json(self) -> dict[str, object]:
        """As plain data."""
        failure_class = self.failure_class
        return {
            "class": None if failure_class is None else failure_class.value,
            "exit_code": self.exit_code,
            "advice": None if failure_class is None else ADVICE[failure_class],
            "causes": [_json_of_cause(cause) for cause in self.causes],
            "echoes": [
                {"process": echo.process, "evidence": _json_of_evidence(echo.evidence)}
                for echo in self.echoes
            ],
            "harmless": [_json_of_evidence(sighting.evidence) for sighting in self.harmless],
            "warnings": [_json_of_evidence(sighting.evidence) for sighting in self.warnings],
            "files": [
                {
                    "path": file.path,
                    "kind": file.kind,
                    "processes": list(file.processes),
                    "lines": file.lines,
                    "notes": list(file.notes),
                }
                for file in self.files
            ],
            "unread": [{"path": path, "problem": problem} for path, problem in self.unread],
        }


def explain(
    paths: Iterable[str | os.PathLike[str]],
    *,
    processes: int | None = None,
    stuck_after_s: float = STUCK_AFTER_S,
    report: Callable[[str, int], object] | None = None,
) -> Explanation:
    """Says why a job failed.

    Args:
      paths: Histories and logs; of a folder, all files in it and below.
      processes: How many processes the job has, if that is known.
      stuck_after_s: Calls that have waited for so long at a history's end are stuck.
      report: Told now and then which file is read, and how far.

    Raises:
      OSError: a path does not exist.
    """
    logs: list[ProcessLog] = []
    histories: list[HistoryFacts] = []
    files: list[File] = []
    unread: list[tuple[str, str]] = []
    for path in _files(paths):

        def said(count: int, path: Path = path) -> None:
            if report is not None:
                report(str(path), count)

        said(0)
        try:
            read = read_history(path, said) if is_history(path) else read_log(path, said)
        except OSError as error:
            unread.append((str(path), error.strerror or str(error)))
            continue
        if isinstance(read, str):
            unread.append((str(path), read))
        elif isinstance(read, LogFile):
            logs += read.logs
            whose = tuple(sorted({log.process for log in read.logs if log.process is not None}))
            files.append(File(str(path), "log", whose, read.lines, read.notes))
        else:
            histories.append(read)
            whose = read.header.participants
            files.append(File(str(path), "history", whose, read.events, tuple(read.notes)))
    causes = causes_in_logs(logs, processes or _size_of(histories))
    for history in histories:
        causes += causes_in_history(history, stuck_after_s)
    ranked = _ranked(causes)
    return Explanation(
        ranked,
        _echoes(logs, ranked),
        tuple(s for log in logs for s in log.sightings if s.message.role is Role.HARMLESS),
        tuple(s for log in logs for s in log.of("proxies-set")),
        tuple(files),
        tuple(unread),
    )


def _files(paths: Iterable[str | os.PathLike[str]]) -> list[Path]:
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if path.is_dir():
            for inside in sorted(path.rglob("*")):
                if inside.is_file() and not inside.name.startswith("."):
                    found[inside] = None
        else:
            path.stat()
            found[path] = None
    return list(found)


def _size_of(histories: list[HistoryFacts]) -> int | None:
    sizes = {len(history.header.participants) for history in histories}
    return sizes.pop() if len(sizes) == 1 else None


def _ranked(causes: list[Cause]) -> tuple[Cause, ...]:
    """Joins what logs and histories say about the same thing, and sorts: the best first."""
    joined: dict[tuple[str, tuple[int, ...]], Cause] = {}
    for cause in sorted(causes, key=lambda cause: (-cause.rank, -cause.confidence)):
        name = "killed" if cause.name == "silent-death" else cause.name
        key = (name, cause.processes)
        first = joined.get(key)
        if first is None:
            joined[key] = cause
            continue
        evidence = tuple(dict.fromkeys((*first.evidence, *cause.evidence)))[:_EVIDENCE_MAX]
        details = tuple(dict.fromkeys((*first.details, *cause.details)))
        joined[key] = replace(
            first,
            evidence=evidence,
            details=details,
            confidence=max(first.confidence, cause.confidence),
        )
    return tuple(joined.values())


def _echoes(logs: list[ProcessLog], causes: tuple[Cause, ...]) -> tuple[Echo, ...]:
    origins = set(causes[0].processes) if causes else set()
    return tuple(
        Echo(process, time_s, evidence)
        for process, time_s, evidence in fatal_echoes(logs)
        if process is None or process not in origins
    )


def _json_of_cause(cause: Cause) -> dict[str, object]:
    return {
        "name": cause.name,
        "sentence": cause.sentence,
        "class": cause.failure_class.value,
        "confidence": cause.confidence.name.lower(),
        "processes": list(cause.processes),
        "details": list(cause.details),
        "evidence": [_json_of_evidence(evidence) for evidence in cause.evidence],
        "remedy": cause.remedy,
    }


def _json_of_evidence(evidence: Evidence) -> dict[str, object]:
    return {"path": evidence.path, "line": evidence.line, "text": evidence.text}
