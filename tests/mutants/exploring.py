"""The explorer on variants of the published service, with the definition of the checker as its judge."""

from __future__ import annotations

from collections.abc import Sequence

from checker import LiveProcesses
from checker.history import Event
from checker.live_processes.spec import Definition, FailureModel
from checker.live_processes.stepwise import Renaming, StepwiseMonitor
from coord_sim.core.semantics import PUBLISHED, Semantics
from coord_sim.core.service import CoordinationService
from coord_sim.explore import Bounds, Exploration, explore, names

STATES_MAX = 200_000


class MonitorJudge:
    """Reads histories by the definition of `live_processes`, step by step."""

    def __init__(self, processes: int, spec: LiveProcesses) -> None:
        self._monitor = StepwiseMonitor(range(processes), spec)
        self.initial = 0

    def after(self, state: int, events: Sequence[Event]) -> int | None:
        following: int | None = state
        for event in events:
            if following is None:
                return None
            following = self._monitor.after(following, event)
        return following

    def renamed(self, state: int, processes: Sequence[int]) -> int:
        renaming = Renaming(
            processes,
            lambda call: names.renamed_call(call, processes),
            lambda incarnation: names.renamed_incarnation(incarnation, processes),
        )
        return self._monitor.renamed(state, renaming)


def explored(
    service: type[CoordinationService],
    bounds: Bounds,
    *,
    definition: Definition = "round",
    failures: FailureModel = "suspicion",
    semantics: Semantics = PUBLISHED,
) -> Exploration:
    """Explores a service until a violation, or everything."""
    spec = LiveProcesses(definition=definition, failures=failures)
    judge = MonitorJudge(bounds.processes, spec)
    return explore(bounds, semantics, judge, factory=service, states_max=STATES_MAX)
