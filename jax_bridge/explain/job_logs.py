"""The logs of one job, and what several rules ask of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jax_bridge.explain.causes import Evidence
from jax_bridge.explain.logs import ProcessLog, Raised, Sighting
from jax_bridge.explain.messages import numbers_in

EVIDENCE_MAX = 3

NOT_LET_IN = ("no-registration", "still-in-error")
"""What a start of a process prints that comes when the job has failed."""


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The logs of one job.

    Attributes:
      logs: All of them.
      processes: How many processes the job has, if that is known.
    """

    logs: tuple[ProcessLog, ...]
    processes: int | None

    def of(self, process: int) -> list[ProcessLog]:
        """The logs of a process, a start of it each, in order."""
        return sorted(
            (log for log in self.logs if log.process == process), key=lambda log: log.start
        )

    def leaders(self) -> list[ProcessLog]:
        """The logs of who ran the service: a process of its own if there is one, or process 0."""
        return [log for log in self.logs if log.is_service] or self.of(0)

    def seen(self, *names: str) -> list[Sighting]:
        """All sightings of these messages, in the order of time; those without a time last."""
        found = [sighting for log in self.logs for sighting in log.of(*names)]
        return sorted(found, key=lambda sighting: (sighting.time_s is None, sighting.time_s or 0.0))

    def first_fatal_s(self) -> float | None:
        """When the first process ended itself."""
        times = [log.fatal_s for log in self.logs if log.fatal_s is not None]
        return min(times, default=None)

    def known_size(self) -> int | None:
        """How many processes the job has: told, or as the service counts."""
        if self.processes is not None:
            return self.processes
        counted = [
            int(sighting.fields["all"])
            for sighting in self.seen("registration-timeout", "shutdown-timeout")
            if "all" in sighting.fields
        ]
        return max(counted, default=None)


def clock(time_s: float) -> str:
    """A time of a log, as its lines write it."""
    seconds = time_s % 86400
    return f"{int(seconds // 3600):02}:{int(seconds // 60 % 60):02}:{seconds % 60:06.3f}"


def processes_of(sightings: Iterable[Sighting | Raised | ProcessLog]) -> tuple[int, ...]:
    """Whose they are, ascending."""
    return tuple(sorted({s.process for s in sightings if s.process is not None}))


def a_few(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    """The first of them, without repetitions."""
    return tuple(dict.fromkeys(evidence))[:EVIDENCE_MAX]


def is_late_restart(job: JobLogs, log: ProcessLog) -> bool:
    """Whether it is of a later start of a process that had died, and which was not let in."""
    if log.process is None or not log.start or not log.has(*NOT_LET_IN):
        return False
    died = {
        task
        for sighting in job.seen("tasks-unhealthy", "heartbeat-timeout")
        for task in numbers_in((sighting.fields.get("tasks") or sighting.fields["task"]).strip())
    }
    return log.process in died and any(other.start < log.start for other in job.of(log.process))


def last_lines(job: JobLogs, processes: tuple[int, ...]) -> tuple[str, ...]:
    """What the programs of these processes printed last, as far as they printed anything."""
    return tuple(
        f"the log of process {process} ends: {last.text}"
        for process in processes
        if (logs := job.of(process)) and (last := logs[-1].last)
    )
