"""The scenarios, by topic. Importing this package enters them all.

Numbers are those of section 16 of the design note "Semantics of the XLA/JAX coordination service"; ids
that begin with a letter are additions.
"""

from __future__ import annotations

from tests.conformance.catalogue import (
    aliveness,
    barriers,
    errors,
    processes,
    registration,
    shutdown,
    store,
)
from tests.conformance.scenario import ENTERED, Scenario


def _position(scenario: Scenario) -> tuple[bool, int, str]:
    """Numbers of the note first."""
    digits = "".join(char for char in scenario.id if char.isdigit())
    return (not scenario.id[0].isdigit(), int(digits), scenario.id)


SCENARIOS: dict[str, Scenario] = {each.id: each for each in sorted(ENTERED, key=_position)}
"""The catalogue, by id and in the order of their numbers."""

__all__ = [
    "SCENARIOS",
    "aliveness",
    "barriers",
    "errors",
    "processes",
    "registration",
    "shutdown",
    "store",
]
