"""How each mutant is caught: within how many seeds of which campaign, or by exploring which bounds.

The numbers of seeds are limits, not measurements: most are caught by the first or second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from checker.live_processes.spec import FailureModel
from coord_sim.explore import Bounds
from coord_sim.mutants.catalogue import (
    BARRIERS,
    BLOCKS,
    LIVE_SETS,
    PROGRESS,
    REFUSALS,
    REGISTRATION,
    STORE,
)


@dataclass(frozen=True, slots=True)
class ByCampaign:
    """Caught by simulation.

    Attributes:
      campaign: Its name in `campaigns.CAMPAIGNS`.
      seeds: So many are enough.
      check: Which check catches it.
      words: What its explanation says.
    """

    campaign: str
    seeds: int
    check: str
    words: str


@dataclass(frozen=True, slots=True)
class ByExplorer:
    """Caught by exploring all interleavings of so many processes.

    Attributes:
      bounds: Of the exploration.
      failures: The failure model.
      kind: What is found.
      words: What the checker says of the history that is found; empty if it is no history's fault.
    """

    bounds: Bounds
    failures: FailureModel
    kind: str
    words: str


SMALL: Final = Bounds(processes=2, calls=2, crashes=1, restarts=1, suspicions=0)
SUSPICIOUS: Final = Bounds(processes=2, calls=2, crashes=1, restarts=1, suspicions=1)
RETRYING: Final = Bounds(processes=2, calls=2, crashes=1, restarts=1, suspicions=1, retries=1)

NO_PART: Final = "that was not in the barrier"
NO_INSTANT: Final = "no instant at which all of these were in the barrier"
STILL_ALIVE: Final = "was alive until too late"
NO_ARRIVAL: Final = "can have been its arrival there"
CANNOT: Final = "cannot have happened"

CAMPAIGN_CATCHES: Final = {
    "answers-at-once": ByCampaign("BLOCKS", 5, LIVE_SETS, NO_INSTANT),
    "waits-for-the-dead": ByCampaign("BLOCKS", 5, PROGRESS, "live_processes"),
    "counts-the-restarted-as-the-old": ByCampaign("BLOCKS", 15, LIVE_SETS, NO_PART),
    "answers-differ": ByCampaign("BLOCKS", 5, LIVE_SETS, "instead"),
    "merges-rounds": ByCampaign("SETS", 20, LIVE_SETS, NO_PART),
    "counts-the-last-twice": ByCampaign("BLOCKS", 10, LIVE_SETS, "in the barrier"),
    "counts-old-heartbeats": ByCampaign("DUPLICATES", 5, PROGRESS, "process 0: live_processes"),
    "declares-deaths-early": ByCampaign("SHORT_STALLS", 30, LIVE_SETS, STILL_ALIVE),
    "never-declares-deaths": ByCampaign("BLOCKS", 30, PROGRESS, "live_processes"),
    "the-dead-come-back": ByCampaign("STALLS", 5, LIVE_SETS, STILL_ALIVE),
    "registers-without-waiting": ByCampaign("STAGGERED", 5, REGISTRATION, NO_ARRIVAL),
    "disconnects-another": ByCampaign("BLOCKS", 5, REFUSALS, "is not in the job"),
    "overwrites-silently": ByCampaign("STORE", 5, STORE, CANNOT),
    "misses-a-wake-up": ByCampaign("STORE", 5, PROGRESS, "key_value_get announced/"),
    "reads-stale": ByCampaign("STORE", 5, STORE, "key_value_try_get"),
    "loses-increments": ByCampaign("STORE", 5, STORE, "key_value_increment('n'"),
    "directory-misses-a-key": ByCampaign("STORE", 5, STORE, "key_value_dir_get('a')"),
    "delete-leaves-children": ByCampaign("STORE", 5, STORE, CANNOT),
    "releases-a-barrier-early": ByCampaign("BARRIERS", 5, BARRIERS, NO_ARRIVAL),
    "forgets-the-counter": ByCampaign("BARRIERS", 5, BARRIERS, NO_ARRIVAL),
    "passes-for-some": ByCampaign("BARRIERS", 5, BARRIERS, NO_ARRIVAL),
    "times-out-early": ByCampaign("LATE_ARRIVALS", 20, BARRIERS, "before the time-out of any"),
    "never-times-out": ByCampaign("BARRIERS", 5, PROGRESS, "barrier sync"),
    "keeps-ghost-entries": ByCampaign("DYING_INSIDE", 30, LIVE_SETS, "(a ghost entry)"),
    "serves-stale-callers": ByCampaign("LATE_MESSAGES", 30, LIVE_SETS, "(a ghost entry)"),
    "forgets-who-passed": ByCampaign("REPEATED_MESSAGES", 30, BARRIERS, NO_ARRIVAL),
    "live-devices-without-incarnations": ByCampaign(
        "BLOCKS", 10, BLOCKS, "is another incarnation in the answer that it got on leaving"
    ),
    "live-devices-at-two-program-points": ByCampaign(
        "COLLECTIVES", 20, PROGRESS, "collective psum"
    ),
    "collective-treated-as-atomic": ByCampaign("BLOCKS", 10, BLOCKS, "completed the block"),
    "communicators-without-incarnations": ByCampaign(
        "COLLECTIVES", 30, PROGRESS, "collective psum over 0, 1, 2"
    ),
}
"""Each mutant that simulation catches."""

EXPLORER_CATCHES: Final = {
    "answers-at-once": ByExplorer(SMALL, "crash-stop", "validity", NO_PART),
    "waits-for-the-dead": ByExplorer(SMALL, "crash-stop", "deadlock", ""),
    "counts-the-restarted-as-the-old": ByExplorer(SMALL, "crash-stop", "validity", "was told"),
    "answers-differ": ByExplorer(SMALL, "crash-stop", "agreement", ""),
    "counts-the-last-twice": ByExplorer(SMALL, "crash-stop", "validity", NO_PART),
    "keeps-ghost-entries": ByExplorer(SMALL, "crash-stop", "validity", "(a ghost entry)"),
    "serves-stale-callers": ByExplorer(SMALL, "crash-stop", "validity", "(a ghost entry)"),
    "serves-dead-callers": ByExplorer(
        SUSPICIOUS, "suspicion", "validity", "does not count in the caller itself"
    ),
    "revives-the-dead": ByExplorer(RETRYING, "suspicion", "validity", STILL_ALIVE),
}
"""Mutants that the explorer catches."""

HARMLESS: Final = {
    "accepts-stale-heartbeats": "a replaced incarnation also learns it from its error poll, and from "
    "every call",
    "declares-deaths-one-by-one": "the round between two deaths counts in a process that is dead "
    "already; but when a process failed is known to nobody, so that it may have failed then",
}
"""Deviations that show in no history, and why: within the bounds of the explorer, and in campaigns."""

HARMLESS_CAMPAIGNS: Final = {"LATE_MESSAGES": 10, "TWINS": 20, "STALLS": 10}
"""In which campaigns those are tried, with how many seeds."""
