"""Which recordings are of one service: of one job, that is.

Jobs that follow one another may use the same port, as those of a launcher that tries again do. A program
that makes a service notes when (`Part.service_made_ns`), and every start of a process belongs to the
latest service at its port that was made before it connected. So a process that comes back belongs to the
job that it was in, unless a service was made since. Of a service that nobody noted the port alone is
known, and not whether it was the same before and after a time when nobody was connected.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from checker.clocks.jobs import clock_key, port_of
from checker.history.events import Start
from checker.history.parts import Part, with_lifetimes_only

CLOCKS_APART_NS: Final = 2 * 10**9
"""A start by another host's clock may seem to be so much earlier than the service that it was at."""


@dataclass(frozen=True, slots=True)
class _Made:
    """A service was made, by the clock of its host and by the wall clock of that."""

    clock: str
    time_ns: int
    wall_ns: int


@dataclass(frozen=True, slots=True)
class Job:
    """What the processes of a job recorded.

    Attributes:
      parts: Their recordings, as far as they are of this job.
      is_noted: Whether it is known that its service was made for it.
    """

    parts: list[Part]
    is_noted: bool


def jobs_of(parts: Sequence[Part]) -> list[Job]:
    """The recordings of each service's clients, and of those the starts that it has seen.

    In the order of their first starts; services to which nobody connected come last.

    Args:
      parts: Of processes, and the notes on services among them.
    """
    ahead_ns = _wall_clocks(parts)
    made: defaultdict[str | None, list[_Made]] = defaultdict(list)
    for part in parts:
        time_ns = part.service_made_ns
        if time_ns is not None:
            key = clock_key(part)
            made[port_of(part)].append(_Made(key, time_ns, time_ns + ahead_ns[key]))
    for services in made.values():
        services.sort(key=lambda service: service.wall_ns)
    jobs: defaultdict[tuple[str | None, int], list[Part]] = defaultdict(list)
    for part in parts:
        if part.service_made_ns is None:
            port = port_of(part)
            split = _by_service(part, made[port], ahead_ns)
            for number, of_service in split.items():
                jobs[port, number].append(of_service)
    found = [Job(job, number > 0) for (_, number), job in jobs.items()]
    return sorted(found, key=lambda job: _begun(job.parts))


def in_turn(parts: Sequence[Part]) -> list[list[Part]]:
    """The recordings of a job, taken apart where everybody had gone before others came."""
    ahead_ns = _wall_clocks(parts)
    spans: dict[tuple[int, int, int], list[int]] = {}
    for index, part in enumerate(parts):
        for event in part.history.events:
            since_ns = event.since_ns if isinstance(event, Start) else None
            begun_ns = event.time_ns if since_ns is None else since_ns
            span = spans.setdefault((index, event.process, event.lifetime), [begun_ns, 0])
            span[:] = min(span[0], begun_ns), max(span[1], event.time_ns)
    by_wall_clock = sorted(
        (begun_ns + ahead_ns[key], ended_ns + ahead_ns[key], key, begun_ns)
        for (index, _, _), (begun_ns, ended_ns) in spans.items()
        for key in (clock_key(parts[index]),)
    )
    apart_ns = CLOCKS_APART_NS if len(ahead_ns) > 1 else 0
    anew: list[_Made] = []
    latest_ns = by_wall_clock[0][1] if by_wall_clock else 0
    for wall_ns, ended_ns, key, begun_ns in by_wall_clock:
        if wall_ns > latest_ns + apart_ns:
            anew.append(_Made(key, begun_ns, wall_ns))
        latest_ns = max(latest_ns, ended_ns)
    found: defaultdict[int, list[Part]] = defaultdict(list)
    for part in parts:
        for number, piece in _by_service(part, anew, ahead_ns).items():
            found[number].append(piece)
    return [found[number] for number in sorted(found)]


def _wall_clocks(parts: Sequence[Part]) -> dict[str, int]:
    """How far the wall clock of each host is ahead of the clock of its recordings."""
    ahead_ns: dict[str, int] = {}
    for part in parts:
        ahead_ns.setdefault(clock_key(part), part.number("wall_clock_ahead_ns") or 0)
    return ahead_ns


def _by_service(
    part: Part, services: Sequence[_Made], ahead_ns: Mapping[str, int]
) -> dict[int, Part]:
    """What a recording tells of each service, by its number; 0 is one from before all that are noted."""
    key = clock_key(part)

    def number_at(time_ns: int) -> int:
        """How many services had been made by then."""
        wall_ns = time_ns + ahead_ns[key] + CLOCKS_APART_NS
        return sum(
            time_ns >= service.time_ns if service.clock == key else wall_ns >= service.wall_ns
            for service in services
        )

    connected_ns: dict[tuple[int, int], int] = {}
    for event in part.history.events:
        lifetime = (event.process, event.lifetime)
        if isinstance(event, Start) or lifetime not in connected_ns:
            connected_ns[lifetime] = event.time_ns
    number_of = {lifetime: number_at(time_ns) for lifetime, time_ns in connected_ns.items()}
    numbers = sorted(set(number_of.values()))
    if len(numbers) < 2:
        # Of one that never connected only remarks have a time.
        remarks = [number_at(fault.time_ns) for fault in part.history.faults]
        return {min([*numbers, *remarks], default=len(services)): part}
    found = {}
    for number in numbers:
        of_service = with_lifetimes_only(part, lambda p, n, at=number: number_of[p, n] == at)  # type: ignore[misc]
        faults = tuple(
            fault
            for fault in part.history.faults
            if max((n for n in numbers if n <= number_at(fault.time_ns)), default=numbers[0])
            == number
        )
        found[number] = replace(of_service, history=replace(of_service.history, faults=faults))
    return found


def _begun(job: Sequence[Part]) -> tuple[bool, int]:
    starts = [e.time_ns for part in job for e in part.history.events if isinstance(e, Start)]
    spans = [part.span_ns[0] for part in job if part.span_ns is not None]
    return not starts, min(starts or spans, default=0)
