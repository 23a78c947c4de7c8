"""The service as shipped, one deviation from the published semantics at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from coord_sim.core.identifiers import Incarnation
from coord_sim.core.service import CoordinationService, ServiceConfig


class Deviation(CoordinationService):
    """A service with the semantics it is created with, but for one switch.

    Attributes:
      switch: A field of `Semantics`.
    """

    switch: ClassVar[str]

    def __init__(self, config: ServiceConfig, incarnation: Incarnation, now_ns: int) -> None:
        changed: dict[str, Any] = {self.switch: True}
        semantics = replace(config.semantics, **changed)
        super().__init__(replace(config, semantics=semantics), incarnation, now_ns)


class KeepsGhostEntries(Deviation):
    """A place in a round outlives its incarnation."""

    switch = "keeps_ghost_entries"


class ServesStaleCallers(Deviation):
    """A replaced incarnation is served as its successor."""

    switch = "serves_stale_callers"


class ServesDeadCallers(Deviation):
    """Whoever was declared dead, or has left, is served."""

    switch = "serves_dead_callers"


class AcceptsStaleHeartbeats(Deviation):
    """A replaced incarnation does not learn from its heartbeats that it is over."""

    switch = "accepts_stale_heartbeats"


class RevivesTheDead(Deviation):
    """An incarnation that was declared dead may register again, and is not told that it is dead."""

    switch = "revives_the_dead"


class DeclaresDeathsOneByOne(Deviation):
    """A round may end between two deaths that were found at once."""

    switch = "declares_deaths_one_by_one"


class ForgetsWhoPassed(Deviation):
    """A call of a barrier that was passed, repeated, counts for the next instance."""

    switch = "forgets_who_passed"
