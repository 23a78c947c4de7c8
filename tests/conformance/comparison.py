"""Which observations of two arms differ, and which of these differences are known."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.conformance.known_differences import KNOWN, KnownDifference
from tests.conformance.scenario import Arm, Result

NOTHING = "(not observed)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One observation that two arms made differently.

    Attributes:
      observation: Its name.
      expected: What the baseline observed.
      found: What the other arm observed.
    """

    observation: str
    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The differences of an arm, against the table of known ones.

    Attributes:
      unexplained: Differences that nobody has entered.
      stale: Entries for this arm whose difference did not occur.
    """

    unexplained: tuple[Difference, ...]
    stale: tuple[KnownDifference, ...]


def baseline(arm: Arm) -> Arm:
    """What an arm is compared with: the real service, under stubs or under jaxlib's client."""
    return Arm("stub" if arm.raw else "jaxlib", "real")


def differences(base: Result, other: Result) -> tuple[Difference, ...]:
    """The observations that are not equal; the n-th of a name is compared with the n-th."""
    found = _numbered(other)
    expected = _numbered(base)
    return tuple(
        Difference(key[0], expected.get(key, NOTHING), found.get(key, NOTHING))
        for key in expected | found
        if expected.get(key) != found.get(key)
    )


def judge(scenario: str, arm: Arm, jaxlib: str, found: tuple[Difference, ...]) -> Judgement:
    """Separates known differences from others.

    Args:
      scenario: Its id.
      arm: That was compared with its baseline.
      jaxlib: Version of the installed jaxlib.
      found: What differed.
    """
    entries = [each for each in KNOWN if each.concerns(scenario, str(arm), jaxlib)]
    names = {each.observation for each in found}
    known = {entry.observation for entry in entries}
    return Judgement(
        tuple(each for each in found if each.observation not in known),
        tuple(entry for entry in entries if entry.observation not in names),
    )


def _numbered(result: Result) -> dict[tuple[str, int], str]:
    seen: Counter[str] = Counter()
    numbered = {}
    for name, text in result.observations:
        numbered[name, seen[name]] = text
        seen[name] += 1
    return numbered
