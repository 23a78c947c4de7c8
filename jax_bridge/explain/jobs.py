"""Tells whether histories are of one job.

One job may have left several: a recording of its service, and one from inside its processes; parts of
many hosts. They agree in what they tell about the job. What differs between two runs is looked for;
where nothing is told, histories count as of one job.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from jax_bridge.explain.causes import named, quoted
from jax_bridge.explain.histories import ZERO, HistoryFacts

_TOLD = ("script", "program", "arguments")
"""What the headers of one job's histories tell alike, if they tell it."""


class DifferentJobs(Exception):
    """Histories of more than one job; says which, and what shows it."""


def check_that_of_one_job(histories: Sequence[HistoryFacts]) -> None:
    """Refuses histories of different jobs, whose causes would be mixed.

    Raises:
      DifferentJobs: they are of different jobs.
    """
    for one, other in combinations(histories, 2):
        if reasons := list(_differences(one, other)):
            raise DifferentJobs(
                f"{one.path} and {other.path} are of two jobs: {'; '.join(reasons)}. Explain each by "
                "itself, with its own logs"
            )


def _differences(one: HistoryFacts, other: HistoryFacts) -> Iterator[str]:
    zeros = [facts.header.details.get(ZERO) for facts in (one, other)]
    if None not in zeros and zeros[0] != zeros[1]:
        yield "they are of two starts of `coordlab run`"
    for name in _TOLD:
        told = [facts.header.details.get(name) for facts in (one, other)]
        if None not in told and told[0] != told[1]:
            yield f"{name} {quoted(str(told[0]))} and {quoted(str(told[1]))}"
    services = [facts.header.details.get("service_incarnation") for facts in (one, other)]
    if None not in services and services[0] != services[1]:
        yield "two starts of a service"
    shared = sorted(one.incarnations.keys() & other.incarnations.keys())
    if shared and not any(one.incarnations[p] & other.incarnations[p] for p in shared):
        # Parts of two starts of one process share nothing but its number.
        if len(shared) > 1 or not (_is_part(one) or _is_part(other)):
            yield f"no incarnation of {named(shared)} is in both"


def _is_part(facts: HistoryFacts) -> bool:
    """Whether it is what one start of one process recorded."""
    return "pid" in facts.header.details
