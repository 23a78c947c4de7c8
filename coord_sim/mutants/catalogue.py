"""Every known-wrong variant: its name, what is wrong with it, and what must catch it.

Those of the client and of the data plane live beside what they change (`coord_sim.sim`); here are their
names and stories alone, so that a schedule can be checked, and a page printed, without a simulator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from coord_sim.core.service import CoordinationService
from coord_sim.mutants import barriers, deviations, membership, rounds, store

Side: TypeAlias = Literal["service", "client", "data plane"]

LIVE_SETS: Final = "live sets"
BLOCKS: Final = "blocks"
STORE: Final = "store"
BARRIERS: Final = "barriers"
REGISTRATION: Final = "registration"
PROGRESS: Final = "progress"
REFUSALS: Final = "refusals"
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A known-wrong variant.

    Attributes:
      name: As `Schedule.mutant` and the command line name it.
      side: What is wrong: the service, the client, or the data plane.
      wrong: How it is wrong, in a line.
      breaks: Which check catches it.
      service: The wrong service, if it is one.
      switch: The field of `Semantics` in which it does as jaxlib does; empty if nobody ships it.
    """

    name: str
    side: Side
    wrong: str
    breaks: str
    service: type[CoordinationService] | None = None
    switch: str = ""


def _service(name: str, service: type[CoordinationService], breaks: str) -> Mutant:
    described = service.__doc__ or name  # `python -OO` has no docstrings.
    wrong = " ".join(described.split()).removesuffix(".")
    switch = service.switch if issubclass(service, deviations.Deviation) else ""
    return Mutant(name, "service", wrong, breaks, service, switch)


_ALL: Final = (
    _service("answers-at-once", rounds.AnswersAtOnce, LIVE_SETS),
    _service("waits-for-the-dead", rounds.WaitsForTheDead, PROGRESS),
    _service("counts-the-restarted-as-the-old", rounds.CountsTheRestartedAsTheOld, LIVE_SETS),
    _service("answers-differ", rounds.AnswersDiffer, LIVE_SETS),
    _service("merges-rounds", rounds.MergesRounds, LIVE_SETS),
    _service("counts-the-last-twice", rounds.CountsTheLastTwice, LIVE_SETS),
    _service("counts-old-heartbeats", membership.CountsOldHeartbeats, PROGRESS),
    _service("declares-deaths-early", membership.DeclaresDeathsEarly, LIVE_SETS),
    _service("never-declares-deaths", membership.NeverDeclaresDeaths, PROGRESS),
    _service("the-dead-come-back", membership.TheDeadComeBack, LIVE_SETS),
    _service("registers-without-waiting", membership.RegistersWithoutWaiting, REGISTRATION),
    _service("disconnects-another", membership.DisconnectsAnother, REFUSALS),
    _service("overwrites-silently", store.OverwritesSilently, STORE),
    _service("misses-a-wake-up", store.MissesAWakeUp, PROGRESS),
    _service("reads-stale", store.ReadsStale, STORE),
    _service("loses-increments", store.LosesIncrements, STORE),
    _service("directory-misses-a-key", store.DirectoryMissesAKey, STORE),
    _service("delete-leaves-children", store.DeleteLeavesChildren, STORE),
    _service("releases-a-barrier-early", barriers.ReleasesABarrierEarly, BARRIERS),
    _service("forgets-the-counter", barriers.ForgetsTheCounter, BARRIERS),
    _service("passes-for-some", barriers.PassesForSome, BARRIERS),
    _service("times-out-early", barriers.TimesOutEarly, BARRIERS),
    _service("never-times-out", barriers.NeverTimesOut, PROGRESS),
    _service("keeps-ghost-entries", deviations.KeepsGhostEntries, LIVE_SETS),
    _service("serves-stale-callers", deviations.ServesStaleCallers, LIVE_SETS),
    _service("serves-dead-callers", deviations.ServesDeadCallers, LIVE_SETS),
    _service("accepts-stale-heartbeats", deviations.AcceptsStaleHeartbeats, NOTHING),
    _service("revives-the-dead", deviations.RevivesTheDead, LIVE_SETS),
    _service("declares-deaths-one-by-one", deviations.DeclaresDeathsOneByOne, NOTHING),
    _service("forgets-who-passed", deviations.ForgetsWhoPassed, BARRIERS),
    Mutant(
        "live-devices-without-incarnations",
        "client",
        "A block takes a process that restarted for the one that it was",
        BLOCKS,
    ),
    Mutant(
        "live-devices-at-two-program-points",
        "client",
        "A block asks on entry anew: two barriers a block, where a restarted process meets one",
        PROGRESS,
    ),
    Mutant(
        "collective-treated-as-atomic",
        "client",
        "Who got through the body of a block believes that all did",
        BLOCKS,
    ),
    Mutant(
        "communicators-without-incarnations",
        "data plane",
        "Communicators are cached by process numbers: after a come-back, those with the dead",
        PROGRESS,
    ),
)

CATALOGUE: Final[Mapping[str, Mutant]] = MappingProxyType({each.name: each for each in _ALL})
"""All of them, by name."""

service_mutants: Final[Mapping[str, type[CoordinationService]]] = MappingProxyType(
    {each.name: each.service for each in _ALL if each.service is not None}
)
"""Wrong services by name."""


def find(name: str) -> Mutant:
    """The mutant of that name.

    Raises:
      LookupError: with the nearest name.
    """
    found = CATALOGUE.get(name)
    if found is not None:
        return found
    near = get_close_matches(name, CATALOGUE, n=1, cutoff=0.0)
    raise LookupError(f"no mutant is named {name!r}; did you mean {near[0]!r}?")
