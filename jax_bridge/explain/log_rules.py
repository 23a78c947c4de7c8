"""Causes that the logs of a job's processes show.

Each rule looks for one kind of origin: those that a process prints (`origin_rules`), deaths that nobody
prints (`death_rules`), and processes that do not meet (`meeting_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable

from jax_bridge.explain.causes import Cause, Evidence
from jax_bridge.explain.death_rules import leader_gone, silent_deaths, unanswered_heartbeats
from jax_bridge.explain.job_logs import JobLogs
from jax_bridge.explain.logs import ProcessLog
from jax_bridge.explain.meeting_rules import (
    barriers,
    broken_collectives,
    late_leavers,
    missing_keys,
    unregistered,
)
from jax_bridge.explain.origin_rules import (
    cut_exceptions,
    exceptions,
    only_echoes,
    origins,
    unknown_errors,
)


def causes_in_logs(logs: Iterable[ProcessLog], processes: int | None) -> list[Cause]:
    """What the logs show, in no order.

    Args:
      logs: All logs of the job.
      processes: How many processes the job has, or None if that is not known.
    """
    job = JobLogs(tuple(logs), processes)
    rules = (
        origins,
        exceptions,
        cut_exceptions,
        silent_deaths,
        leader_gone,
        unregistered,
        unanswered_heartbeats,
        barriers,
        missing_keys,
        late_leavers,
        broken_collectives,
        unknown_errors,
    )
    return [cause for rule in rules for cause in rule(job)] or list(only_echoes(job))


def fatal_echoes(logs: Iterable[ProcessLog]) -> list[tuple[int | None, float | None, Evidence]]:
    """Who ended itself with a fatal message, when, and the line."""
    return [(log.process, log.fatal_s, log.verdict) for log in logs if log.fatal]
