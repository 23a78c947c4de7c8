"""What is wrong with the service as shipped: how each finding is found, and played on the real service.

`python -m tests.mutants.findings` looks for all of them again, plays them on the jaxlib that is
installed, and writes histories and pages anew.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Final

from checker import Invalid, LiveProcesses
from checker.history import LIVE_PROCESSES, SHUTDOWN, History
from checker.live_processes.spec import FailureModel
from checker.service import check_service
from coord_sim.core.messages import Request, ShutdownTask
from coord_sim.core.service import CoordinationService
from coord_sim.core.status import Status
from coord_sim.errors import ServiceError
from coord_sim.explore import Bounds
from coord_sim.faults import Degrade
from coord_sim.mutants.deviations import (
    Deviation,
    ForgetsWhoPassed,
    KeepsGhostEntries,
    RevivesTheDead,
    ServesDeadCallers,
    ServesStaleCallers,
)
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate
from tests.conformance.services import ForkServer, RealService
from tests.mutants.catches import RETRYING, SMALL, SUSPICIOUS
from tests.mutants.exploring import explored
from tests.mutants.recorded_job import RecordedJob, record

ROOT: Final = Path(__file__).parents[2]
DATA: Final = ROOT / "tests" / "data" / "findings"
PAGES: Final = ROOT / "docs" / "findings"


class _ServesStaleShutdowns(CoordinationService):
    """Serves a replaced incarnation only if it shuts down: to find the shortest history of that."""

    def _refusal(self, request: Request) -> Status | None:
        return None if isinstance(request, ShutdownTask) else super()._refusal(request)


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation that the service as shipped shows.

    Attributes:
      name: Of its page and its files.
      service: The published service with the one deviation that is to blame.
      failures: The strictest failure model that the history keeps.
      words: What the checker says of it.
      shortest: Finds a shortest history.
      play: Plays it on a real service.
    """

    name: str
    service: type[Deviation]
    failures: FailureModel
    words: str
    shortest: Callable[[], History]
    play: Callable[[RecordedJob], Awaitable[None]]

    @property
    def shortest_file(self) -> Path:
        """The shortest history."""
        return DATA / f"{self.name}.jsonl"

    def real_file(self, jaxlib: str) -> Path:
        """What was recorded of a jaxlib's service."""
        return DATA / f"{self.name}-jaxlib-{jaxlib}.jsonl"


def explanation(history: History, failures: FailureModel) -> str:
    """Why a history is invalid; empty if it is not."""
    rows = check_service(history, live=LiveProcesses(failures=failures))
    return "\n\n".join(row.verdict.explain() for row in rows if isinstance(row.verdict, Invalid))


# --- how they are found ------------------------------------------------------------------------------


def _by_exploring(
    service: type[CoordinationService], bounds: Bounds, failures: FailureModel
) -> Callable[[], History]:
    def find() -> History:
        found = explored(service, bounds, failures=failures).violation
        assert found is not None
        return found.history

    return find


async def _come_twice(process: Process) -> None:
    """Comes to a barrier twice."""
    for _ in range(2):
        await process.sleep(process.random.between(0.1, 0.5))
        with contextlib.suppress(ServiceError):
            await process.client.wait_at_barrier("b", 60_000)


def _simulated_repetition() -> History:
    """The network repeats what a process sends: the first seed that shows it."""
    for seed in range(100):
        schedule = Schedule(
            processes=2,
            seed=seed,
            semantics="published",
            mutant="forgets-who-passed",
            faults=(Degrade(0, 0.0, 10.0, duplicate=1.0, raw=True),),
        )
        history = simulate(_come_twice, schedule).history
        if explanation(history, "crash-stop"):
            return history
    raise AssertionError("not found")


# --- how they are played -----------------------------------------------------------------------------


async def _play_ghost_entry(job: RecordedJob) -> None:
    await job.start(0, 1)
    entry = job.call(0, LIVE_PROCESSES)
    await entry.reached_the_service()
    job.crash(0)
    await job.start(0)
    await job.call(1, LIVE_PROCESSES).answer()


async def _play_zombie_calls(job: RecordedJob) -> None:
    await job.start(0, 1)
    waiting = job.call(0, LIVE_PROCESSES)
    await waiting.reached_the_service()
    late = job.plan(1, LIVE_PROCESSES)
    job.crash(1)
    await job.start(1)
    late.send()
    await waiting.answer()


async def _play_dead_served(job: RecordedJob) -> None:
    await job.start(0, 1)
    job.stall(1)
    await job.call(0, LIVE_PROCESSES).answer()
    await job.call(1, "key_value_set").answer()


async def _play_dead_come_back(job: RecordedJob) -> None:
    await job.start(0, 1)
    job.stall(1)
    await job.call(0, LIVE_PROCESSES).answer()
    await job.register_again(1)
    calls = [job.call(process, LIVE_PROCESSES) for process in (0, 1)]
    for call in calls:
        await call.answer()


async def _play_zombie_shuts_down(job: RecordedJob) -> None:
    await job.start(0, 1)
    late = job.plan(1, SHUTDOWN)
    job.crash(1)
    await job.start(1)
    late.send()
    await late.answer()
    await job.call(0, LIVE_PROCESSES).answer()
    await job.call(1, "key_value_set").answer()


async def _play_repeated_arrival(job: RecordedJob) -> None:
    await job.start(0, 1)
    first = [job.call(process, "barrier") for process in (0, 1)]
    for call in first:
        await call.answer()
    first[1].send()
    await job.call(0, "barrier").answer()


# --- all of them -------------------------------------------------------------------------------------

FINDINGS: Final[Mapping[str, Finding]] = {
    finding.name: finding
    for finding in (
        Finding(
            "ghost-entry",
            KeepsGhostEntries,
            "crash-stop",
            "(a ghost entry)",
            _by_exploring(KeepsGhostEntries, SMALL, "crash-stop"),
            _play_ghost_entry,
        ),
        Finding(
            "zombie-calls",
            ServesStaleCallers,
            "crash-stop",
            "(a ghost entry)",
            _by_exploring(ServesStaleCallers, SMALL, "crash-stop"),
            _play_zombie_calls,
        ),
        Finding(
            "zombie-shuts-down",
            ServesStaleCallers,
            "crash-stop",
            "was alive until too late",
            _by_exploring(_ServesStaleShutdowns, replace(SMALL, program="leave"), "crash-stop"),
            _play_zombie_shuts_down,
        ),
        Finding(
            "dead-served",
            ServesDeadCallers,
            "suspicion",
            "was alive until too late",
            _by_exploring(ServesDeadCallers, replace(SUSPICIOUS, program="store"), "suspicion"),
            _play_dead_served,
        ),
        Finding(
            "dead-come-back",
            RevivesTheDead,
            "suspicion",
            "was alive until too late",
            _by_exploring(RevivesTheDead, RETRYING, "suspicion"),
            _play_dead_come_back,
        ),
        Finding(
            "repeated-arrival",
            ForgetsWhoPassed,
            "crash-stop",
            "can have been its arrival there",
            _simulated_repetition,
            _play_repeated_arrival,
        ),
    )
}
"""By name, in the order of the pages."""


async def play_all() -> dict[str, History]:
    """Plays all findings at once on jaxlib's service; the histories by name."""
    jaxlib = version("jaxlib")
    async with ForkServer() as forks:
        histories = await asyncio.gather(
            *(
                record(
                    RealService(forks),
                    finding.play,
                    {"service": f"jaxlib {jaxlib}", "finding": finding.name},
                )
                for finding in FINDINGS.values()
            )
        )
    return dict(zip(FINDINGS, histories, strict=True))


def main() -> None:
    """Writes all anew."""
    DATA.mkdir(parents=True, exist_ok=True)
    for finding in FINDINGS.values():
        finding.shortest().save(finding.shortest_file)
    for name, history in asyncio.run(play_all()).items():
        history.save(FINDINGS[name].real_file(version("jaxlib")))


if __name__ == "__main__":
    main()
