"""Recordings of processes as histories: one for each service, as far as that can be known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from checker import Invalid, MalformedHistory
from checker.clocks import Job, Joined, in_turn, join
from checker.history import History
from checker.history.parts import Part
from checker.service import check_service
from coord_sim.replay.settings import SERVICE_UNKNOWN

_CHECK_S: Final = 30.0
"""So long a history is judged at most to find out whether it is of one service."""

_NOBODY: Final = (
    "no recorded program made the service, and for some time nobody was connected to it: "
)
_MAY_BE_ANOTHER: Final = (
    _NOBODY
    + "it is taken to be the same before and after; if it was not, what is judged of it means nothing"
)
_TAKEN_APART: Final = (
    _NOBODY
    + "as one service it would have broken its promises, as one before and one after it would not, so "
    "these are separate histories"
)


def histories_of(
    jobs: Sequence[Job],
    *,
    servers: Sequence[Part] = (),
    largest_ns: int | None = None,
    is_one_job: bool = False,
    lost: Sequence[int] = (),
) -> list[tuple[Joined, int]]:
    """The history of each job, and of how many recordings it is.

    Where it is not known whether a job had one service or several in turn, it is taken to be one, unless
    that alone makes it a broken run.

    Args:
      jobs: Of different services.
      servers: As `checker.clocks.join` takes them.
      largest_ns: As there.
      is_one_job: As there.
      lost: As there.

    Raises:
      DifferentJobs: recordings of one service cannot be of one run.
      UnknownClocks: the clocks of two hosts cannot be compared.
    """

    def joined(parts: Sequence[Part]) -> Joined:
        return join(parts, servers=servers, largest_ns=largest_ns, is_one_job=is_one_job, lost=lost)

    found: list[tuple[Joined, int]] = []
    for job in jobs:
        whole = joined(job.parts)
        turns = [] if job.is_noted else in_turn(job.parts)
        if len(turns) < 2:
            found.append((whole, len(job.parts)))
            continue
        apart = [(joined(parts), len(parts)) for parts in turns] if _is_broken(whole) else []
        if apart and not any(_is_broken(one) for one, _ in apart):
            found += [(_noted(one, _TAKEN_APART), parts) for one, parts in apart]
        else:
            found.append((_noted(whole, _MAY_BE_ANOTHER), len(job.parts)))
    return found


def _is_broken(joined: Joined) -> bool:
    try:
        rows = check_service(joined.history, timeout_s=_CHECK_S)
    except MalformedHistory:
        return False
    return any(isinstance(row.verdict, Invalid) for row in rows)


def _noted(joined: Joined, sentence: str) -> Joined:
    header = joined.history.header
    unknown = f"{SERVICE_UNKNOWN}: {sentence}"
    header = replace(header, cannot_know=(*header.cannot_know, unknown))
    history = joined.history
    told = History(header, history.events, history.notes, history.faults)
    return replace(joined, history=told, notes=(*joined.notes, sentence))
