"""The small executions with known verdicts, most of them the pictures of the JAX guide.

The file uses the guide's four words: `start`, `send` (a call of `live_processes`), `receive` (its
answer) and `fail` (a crash). It tells no incarnations unless an execution needs them: then `start`
has an `incarnation`, and `live` maps processes to incarnations instead of listing the processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypeAlias, TypedDict

from checker.history import (
    LIVE_PROCESSES,
    Crash,
    Event,
    Header,
    History,
    Invoke,
    LiveSet,
    Ok,
    Start,
)

PATH = Path(__file__).parent / "data" / "live_processes_executions.json"

Reading: TypeAlias = tuple[str, str]
"""A definition (`round` or `published`) and a failure model (`suspicion` or `crash-stop`)."""

_READING_BY_NAME: Mapping[str, Reading] = {
    "published": ("published", "crash-stop"),
    "round": ("round", "crash-stop"),
    "round_with_suspicion": ("round", "suspicion"),
}


@dataclass(frozen=True, slots=True)
class Execution:
    """A history and whether it is valid, under each reading for which that is known."""

    name: str
    history: History
    expect: Mapping[Reading, bool]


def load() -> list[Execution]:
    """All executions, in the order of the file.

    The guide's pictures put several events at one time. They are read in the order of the file,
    each at a time of its own (its position), because the definitions are about totally ordered
    events.
    """
    written: list[_WrittenExecution] = json.loads(PATH.read_text(encoding="utf-8"))
    return [
        Execution(
            name=execution["name"],
            history=_history(execution),
            expect={_READING_BY_NAME[name]: valid for name, valid in execution["expect"].items()},
        )
        for execution in written
    ]


class _WrittenEvent(TypedDict):
    time: int
    process: int
    event: str
    live: NotRequired[list[int] | dict[str, int]]
    incarnation: NotRequired[int]


class _WrittenExecution(TypedDict):
    name: str
    source: str
    processes: list[int]
    events: list[_WrittenEvent]
    expect: dict[str, bool]


def _history(execution: _WrittenExecution) -> History:
    header = Header(
        source="manual",
        participants=tuple(sorted(execution["processes"])),
        clock="abstract",
        details={"name": execution["name"], "source": execution["source"]},
    )
    lifetimes: dict[int, int] = {}
    last_call: dict[int, int] = {}
    events: list[Event] = []
    for time_ns, written in enumerate(execution["events"]):
        process = written["process"]
        if written["event"] == "start":
            lifetimes[process] = lifetimes.get(process, -1) + 1
        lifetime = lifetimes[process]
        match written["event"]:
            case "start":
                event: Event = Start(
                    time_ns=time_ns,
                    process=process,
                    lifetime=lifetime,
                    incarnation=written.get("incarnation"),
                )
            case "send":
                last_call[process] = time_ns
                event = Invoke(
                    time_ns=time_ns,
                    process=process,
                    lifetime=lifetime,
                    id=time_ns,
                    operation=LIVE_PROCESSES,
                    arguments={},
                )
            case "receive":
                event = Ok(
                    time_ns=time_ns,
                    process=process,
                    lifetime=lifetime,
                    id=last_call[process],
                    result=_live_set(written),
                )
            case "fail":
                event = Crash(time_ns=time_ns, process=process, lifetime=lifetime)
            case unknown:
                raise ValueError(f"{execution['name']}: unknown event {unknown!r}")
        events.append(event)
    return History(header, events)


def _live_set(written: _WrittenEvent) -> LiveSet:
    live = written["live"]
    if isinstance(live, list):
        return dict.fromkeys(live)
    return {int(process): incarnation for process, incarnation in live.items()}
