"""Merges what all files of a job show, and ranks the causes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from jax_bridge.explain.causes import Cause, Confidence, Evidence, quoted
from jax_bridge.explain.classes import ADVICE, EXIT_CODES, NOTHING_WRONG, FailureClass
from jax_bridge.explain.histories import HistoryFacts, is_history, read_history
from jax_bridge.explain.history_rules import STUCK_AFTER_S, causes_in_history
from jax_bridge.explain.jobs import check_that_of_one_job
from jax_bridge.explain.log_rules import causes_in_logs, fatal_echoes
from jax_bridge.explain.logs import LogFile, ProcessLog, Sighting, read_log, with_streams_joined
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
      times_since: Of a history, when its times are zero, in words.
    """

    path: str
    kind: str
    processes: tuple[int, ...]
    lines: int
    notes: tuple[str, ...]
    times_since: str = ""


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
                    "times_since": file.times_since or None,
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
      DifferentJobs: the histories are of more than one job.
    """
    material = _Material()
    for path in _files(paths):
        material.read(path, report)
    check_that_of_one_job(material.histories)
    logs = with_streams_joined(material.logs)
    causes = causes_in_logs(logs, processes or _size_of(material.histories))
    for history in material.histories:
        causes += causes_in_history(history, stuck_after_s, processes)
    ranked = _ranked(causes or list(_cannot_tell(material)))
    return Explanation(
        ranked,
        _echoes(logs, ranked),
        tuple(s for log in logs for s in log.sightings if s.message.role is Role.HARMLESS),
        tuple(s for log in logs for s in log.of("proxies-set")),
        tuple(material.files),
        tuple(material.unread),
    )


@dataclass(slots=True)
class _Material:
    """What was read of all files.

    Attributes:
      logs, histories, files, unread: As they were found.
      empty: Logs with nothing in them.
      doubts: What could not be read, or not to its end, or is no text.
    """

    logs: list[ProcessLog] = field(default_factory=list)
    histories: list[HistoryFacts] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    unread: list[tuple[str, str]] = field(default_factory=list)
    empty: list[Evidence] = field(default_factory=list)
    doubts: list[Evidence] = field(default_factory=list)

    def read(self, path: Path, report: Callable[[str, int], object] | None) -> None:
        """Reads one more file."""

        def said(count: int) -> None:
            if report is not None:
                report(str(path), count)

        said(0)
        found: HistoryFacts | LogFile | str
        try:
            found = read_history(path, said) if is_history(path) else read_log(path, said)
        except OSError as error:
            found = error.strerror or str(error)
        if isinstance(found, str):
            self.unread.append((str(path), found))
            self._doubt(path, found)
        elif isinstance(found, LogFile):
            self._take_log(found)
        else:
            self._take_history(found)

    def _take_log(self, log: LogFile) -> None:
        self.logs += log.logs
        whose = tuple(sorted({one.process for one in log.logs if one.process is not None}))
        self.files.append(File(str(log.path), "log", whose, log.lines, log.notes))
        if log.is_empty:
            self.empty.append(Evidence(str(log.path), 0, "nothing is in it"))
        if log.doubt:
            self._doubt(log.path, log.doubt)

    def _take_history(self, history: HistoryFacts) -> None:
        self.histories.append(history)
        begins = (
            "the beginning of the run" if history.counts_from_its_beginning else "its first event"
        )
        participants, notes = history.header.participants, tuple(history.notes)
        self.files.append(
            File(str(history.path), "history", participants, history.events, notes, begins)
        )
        if history.is_cut:
            self._doubt(history.path, notes[0])

    def _doubt(self, path: Path, why: str) -> None:
        self.doubts.append(Evidence(str(path), 0, quoted(why)))


def _cannot_tell(material: _Material) -> Iterator[Cause]:
    """Nothing was found: is that because there is nothing, or because nothing was to be seen?"""
    doubts = material.doubts
    sentence = (
        "no failure was found, but not everything could be read: it may be in what is missing"
    )
    # Programs that have nothing to say leave empty logs; they tell nothing if there is nothing else.
    if not doubts and len(material.empty) == len(material.files):
        doubts, sentence = material.empty, "nothing is in the files: they do not tell what happened"
    if doubts:
        yield Cause(
            name="cannot-tell",
            sentence=sentence,
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=1,
            processes=(),
            evidence=tuple(doubts[:_EVIDENCE_MAX]),
            remedy="give whole, unpacked logs of all processes, and the history if there is one",
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
    sizes = {history.size for history in histories} - {None}
    return sizes.pop() if len(sizes) == 1 else None


def _ranked(causes: list[Cause]) -> tuple[Cause, ...]:
    """Joins what logs and histories say about the same thing, and sorts: the best first."""
    joined: dict[tuple[str, tuple[int, ...]], Cause] = {}
    for cause in sorted(causes, key=lambda cause: (-cause.rank, -cause.confidence)):
        name = "killed" if cause.name == "silent-death" else cause.name
        key = (name, cause.processes)
        if not cause.processes:  # The same, from somebody who was not told whose doing it was.
            key = next((other for other in joined if other[0] == name), key)
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
