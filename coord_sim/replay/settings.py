"""What is known of the service that a history was recorded from, and what is allowed for."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from checker.history import Fail, History, Info
from checker.history.gaps import NOT_RECORDED
from coord_sim.core.identifiers import Incarnation, seconds
from coord_sim.core.semantics import SEMANTICS, SHIPPED, Semantics
from coord_sim.core.service import TASKS_MAX, ServiceConfig

Suspicions: TypeAlias = Literal["none", "faults", "any"]
SUSPICIONS: Final = ("none", "faults", "any")

LATE_NS: Final = seconds(0.5)
"""A service on a busy machine looks at its clock so much later than it should, and no more."""

REORDER_NS: Final = seconds(0.005)
"""Requests that pass a relay closer together than this may reach the service in another order."""

NO_HEARTBEATS: Final = "heartbeats and error polls"
"""How a recorder inside programs says that it sees none (`jax_bridge.recorder`)."""

SERVICE_UNKNOWN: Final = "whether its service was one"
"""How a history says that it may be of several services, or of a part of one's time."""

_NAMED_SERVICE: Final = re.compile(r"currently (\d+)|Shutdown::(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a history is held against.

    Attributes:
      semantics: The face of the model.
      recoverable: Whether tasks may come back.
      is_recoverable_known: Whether somebody said so; else a replay may find out.
      heartbeat_timeout_ns: Of the service; None: not known.
      register_timeout_ns, shutdown_timeout_ns: Of the service.
      service_incarnation: None: not known; then texts that quote it are not compared in it.
      tasks: How many the job has.
      late_ns: How much later than it should a tick of the service may come, and how long an answer may
        be missing while the recording goes on.
      reorder_ns: How close together requests of different processes may have changed places between
        the recorder and the service; 0 for the service's own recording.
      suspicions: When a process that lives may have been declared dead, where heartbeats are not
        recorded: never, from the first recorded fault on, or at any time.
      repeats: Whether any request may arrive twice, as on a network that repeats packets. Registrations
        may in any case, as clients try again.
    """

    semantics: Semantics = SHIPPED
    recoverable: bool = True
    is_recoverable_known: bool = True
    heartbeat_timeout_ns: int | None = None
    register_timeout_ns: int = seconds(3600.0)
    shutdown_timeout_ns: int = seconds(300.0)
    service_incarnation: Incarnation | None = None
    tasks: int
    late_ns: int = LATE_NS
    reorder_ns: int = 0
    suspicions: Suspicions = "faults"
    repeats: bool = False

    def config(self) -> ServiceConfig:
        """What the model is created with."""
        timeout_ns = self.heartbeat_timeout_ns
        return ServiceConfig(
            tasks=self.tasks,
            recoverable=self.recoverable,
            heartbeat_timeout_ns=seconds(100.0) if timeout_ns is None else timeout_ns,
            register_timeout_ns=self.register_timeout_ns,
            shutdown_timeout_ns=self.shutdown_timeout_ns,
            semantics=self.semantics,
        )


class SettingsError(ValueError):
    """A history's header tells what cannot be."""


def settings_of(
    history: History,
    *,
    semantics: str | None = None,
    recoverable: bool | None = None,
    heartbeat_timeout_s: float | None = None,
    late_s: float | None = None,
    suspicions: Suspicions | None = None,
    repeats: bool | None = None,
) -> Settings:
    """What a history tells of its service; arguments that are given take precedence.

    What neither tells: the shipped semantics, a recoverable service unless the history shows that
    errors were propagated, and time-outs of the C++ service's defaults for registering and leaving.

    Raises:
      SettingsError: the header tells of a service that cannot be; with what to do.
    """
    header = history.header
    told = dict(header.details)
    told.update(_of_schedule(told.get("schedule")))
    if semantics is None:
        named = told.get("semantics", SHIPPED.name)
        if not isinstance(named, str) or named not in SEMANTICS:
            raise SettingsError(
                f"details.semantics of the header is {named!r:.80}, which is no face of the service; "
                f"name one of {', '.join(SEMANTICS)} with --semantics"
            )
        semantics = named
    if recoverable is None:
        recoverable = _flag(told, "recoverable")
    is_tap = told.get("observer") == "tap"
    settings = Settings(
        semantics=SEMANTICS[semantics],
        recoverable=True if recoverable is None else recoverable,
        is_recoverable_known=recoverable is not None,
        heartbeat_timeout_ns=_time(told, "heartbeat_timeout_s") or None,
        service_incarnation=_incarnation(told) or _quoted_incarnation(history),
        tasks=_tasks(header.participants),
        reorder_ns=REORDER_NS if is_tap else 0,
    )
    if heartbeat_timeout_s is not None:
        settings = replace(settings, heartbeat_timeout_ns=seconds(heartbeat_timeout_s))
    register_ns, shutdown_ns = (
        _time(told, f"{what}_timeout_s") for what in ("register", "shutdown")
    )
    if register_ns is not None:
        settings = replace(settings, register_timeout_ns=register_ns)
    if shutdown_ns is not None:
        settings = replace(settings, shutdown_timeout_ns=shutdown_ns)
    if late_s is not None:
        settings = replace(settings, late_ns=seconds(late_s))
    if repeats is None:
        repeats = any("duplicate" in fault.name for fault in history.faults)
    settings = replace(settings, repeats=repeats)
    if suspicions is None and (header.clock == "abstract" or misses_stalls(history)):
        suspicions = "any"
    return settings if suspicions is None else replace(settings, suspicions=suspicions)


def misses_stalls(history: History) -> bool:
    """Whether a history is of a recorder inside programs, which does not see them stand still.

    Such a recorder says that it knows nothing of heartbeats, and whoever made the programs stand still
    did not tell it: that is no fault in the history.
    """
    return any(gap.startswith(NO_HEARTBEATS) for gap in history.header.cannot_know)


def may_be_of_several_services(history: History) -> bool:
    """Whether it is not known that one service, just started, gave all answers of a history."""
    return any(gap.startswith(SERVICE_UNKNOWN) for gap in history.header.cannot_know)


def misses_calls(history: History) -> bool:
    """Whether the recording of a process stopped, so that others were answered as it called on."""
    return any(gap.startswith(NOT_RECORDED) for gap in history.header.cannot_know)


def _tasks(participants: tuple[int, ...]) -> int:
    tasks = max(participants) + 1
    if tasks > TASKS_MAX:
        raise SettingsError(
            f"participants of the header names process {tasks - 1}; a service has at most "
            f"{TASKS_MAX} tasks, numbered from 0"
        )
    return tasks


def _time(told: Mapping[str, object], name: str) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e9:
        raise SettingsError(f"details.{name} of the header is {value!r:.80}, which is no time in s")
    return seconds(value)


def _flag(told: Mapping[str, object], name: str) -> bool | None:
    value = told.get(name)
    if value is None or isinstance(value, bool):
        return value
    raise SettingsError(f"details.{name} of the header is {value!r:.80}, which is no truth value")


def _incarnation(told: Mapping[str, object]) -> Incarnation | None:
    value = told.get("service_incarnation")
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) < 1 << 64:
        return Incarnation(int(value))
    raise SettingsError(
        f"details.service_incarnation of the header is {value!r:.80}, which is no incarnation: a "
        "decimal string"
    )


def _quoted_incarnation(history: History) -> Incarnation | None:
    """The service's incarnation, if one of its errors says it."""
    for event in history.events:
        if isinstance(event, Fail | Info):
            found = _NAMED_SERVICE.search(event.message)
            if found is not None:
                return Incarnation(int(found[1] or found[2]) % (1 << 64))
    return None


def _of_schedule(schedule: object) -> dict[str, object]:
    """The fields of a schedule as the simulator writes it into the header."""
    if not isinstance(schedule, str):
        return {}
    defaults: dict[str, object] = {"heartbeat_timeout_s": 3.0, "recoverable": True}
    try:
        call = ast.parse(schedule, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return {}
    if not isinstance(call, ast.Call):
        return {}
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Constant) and keyword.arg is not None:
            defaults[keyword.arg] = keyword.value.value
    return defaults
