"""Causes by which processes do not meet: registration, barriers, keys, collectives, leaving."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from jax_bridge.explain.causes import Cause, Confidence, agreeing, named
from jax_bridge.explain.classes import FailureClass
from jax_bridge.explain.job_logs import (
    JobLogs,
    a_few,
    is_late_restart,
    last_lines,
    processes_of,
)
from jax_bridge.explain.logs import FINISHED, Sighting
from jax_bridge.explain.messages import by_name, numbers_in

_PART_OF_WORK = re.compile(r"\b(?:step|epoch|iteration|batch|round|checkpoint)\b", re.IGNORECASE)
"""What may be done although the work is not."""


def unregistered(job: JobLogs) -> Iterator[Cause]:
    """Not all processes came to register."""
    counted = job.seen("registration-timeout")
    waiting = [
        sighting
        for log in job.logs
        if not is_late_restart(job, log)  # It is told with the death before it.
        for sighting in log.of("no-registration")
    ]
    if not counted and not waiting:
        return
    size = job.known_size()
    with_log = {log.process for log in job.logs if log.process is not None and log.lines > 0}
    remedy = by_name("registration-timeout").remedy
    if counted:
        missing = {
            number
            for sighting in counted
            for number in numbers_in(sighting.fields.get("missing", "").strip())
        }
        if size is not None:
            missing |= set(range(size)) - with_log
        arrived = next((s.fields["arrived"] for s in counted if "arrived" in s.fields), None)
        count = f"{arrived} of {size} registered; " if arrived and size is not None else ""
        yield _never_seen(job, count, tuple(sorted(missing)), counted, Confidence.HIGH, remedy)
        return
    # A refused restart and a failed job keep asking, too: others' logs say so.
    if job.seen("different-incarnation", "unexpected-task", "address-in-use"):
        return
    proxies = job.seen("proxies-set")
    if proxies:
        yield Cause(
            name="proxy-in-the-way",
            sentence=f"{agreeing(processes_of(waiting), 'was', 'were')} not registered until the "
            f"time-out, and proxies are set ({proxies[0].fields['names']}): gRPC goes through them",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.MEDIUM,
            rank=73,
            processes=processes_of(waiting),
            evidence=a_few(sighting.evidence for sighting in (*proxies, *waiting)),
            remedy=proxies[0].message.remedy,
        )
    leader_waited = any(log.has("no-registration") for log in job.leaders())
    waiters = processes_of(waiting)
    if leader_waited and size is not None and (missing_ids := set(range(size)) - set(waiters)):
        count = f"{len(waiters)} of {size} registered; "
        yield _never_seen(
            job, count, tuple(sorted(missing_ids)), waiting, Confidence.MEDIUM, remedy
        )
    elif leader_waited and size is not None:
        yield Cause(
            name="service-not-reached",
            sentence=f"{named(waiters)}, all there are, were started and waited to register, but the "
            "service did not see all of them: some did not reach it, as they were given another "
            "address or port, or something stands between; the logs do not tell which",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.LOW,
            rank=55,
            processes=(),
            evidence=a_few(sighting.evidence for sighting in waiting),
            remedy="compare the coordinator addresses that the processes were given; "
            + by_name("no-registration").remedy,
        )
    elif leader_waited:
        yield Cause(
            name="never-seen",
            sentence=f"{agreeing(waiters, 'waited', 'waited')} for others to register, and some never "
            "did; the logs do not tell which: say how many there are with --processes",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.LOW,
            rank=55,
            processes=(),
            evidence=a_few(sighting.evidence for sighting in waiting),
            remedy=remedy,
        )
    else:
        yield Cause(
            name="service-not-reached",
            sentence=f"{agreeing(waiters, 'was', 'were')} not registered until the time-out: the "
            "service was not there, refused, did not reply (a firewall), its name did not resolve, or "
            "other processes were missing; such a log cannot tell which",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.LOW,
            rank=50,
            processes=waiters,
            evidence=a_few(sighting.evidence for sighting in waiting),
            remedy=by_name("no-registration").remedy,
        )


def _never_seen(  # noqa: PLR0917 - all of one cause
    job: JobLogs,
    count: str,
    missing: tuple[int, ...],
    sightings: list[Sighting],
    confidence: Confidence,
    remedy: str,
) -> Cause:
    details = []
    for process in missing:
        logs = job.of(process)
        if logs and logs[-1].lines:
            last = logs[-1].last
            details.append(
                f"process {process} did start" + (f"; its log ends: {last.text}" if last else "")
            )
    who = f"{agreeing(missing, 'was', 'were')} never seen" if missing else "some were never seen"
    return Cause(
        name="never-seen",
        sentence=f"{count}{who} by the service",
        failure_class=FailureClass.INFRASTRUCTURE,
        confidence=confidence,
        rank=70,
        processes=missing,
        evidence=a_few(sighting.evidence for sighting in sightings),
        remedy=remedy,
        details=tuple(details),
    )


def _stem(barrier: str) -> str:
    return re.sub(r"\d+", "#", barrier)


def barriers(job: JobLogs) -> Iterator[Cause]:
    """Not all processes came to a barrier."""
    sightings = job.seen("barrier-timeout")
    by_barrier: dict[str, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        by_barrier[sighting.fields["barrier"]].append(sighting)
    stems: dict[str, list[str]] = defaultdict(list)
    for barrier in by_barrier:
        stems[_stem(barrier)].append(barrier)
    for barriers in stems.values():
        waiters = {barrier: set(processes_of(by_barrier[barrier])) for barrier in barriers}
        if len(barriers) > 1 and len(set().union(*waiters.values())) > 1 and _disjoint(waiters):
            who = "; ".join(
                f"{named(tuple(ids))} at {name!r}" for name, ids in waiters.items() if ids
            )
            yield Cause(
                name="barrier-drift",
                sentence=f"barrier names drifted apart: {who}",
                failure_class=FailureClass.USER_ERROR,
                confidence=Confidence.HIGH,
                rank=78,
                processes=tuple(sorted(set().union(*waiters.values()))),
                evidence=a_few(by_barrier[barrier][0].evidence for barrier in barriers),
                remedy="make names from what all processes share (the step), not from a counter of each "
                "process's own calls",
            )
            continue
        for barrier in barriers:
            yield _barrier_timeout(job, barrier, by_barrier[barrier])


def _disjoint(waiters: dict[str, set[int]]) -> bool:
    groups = list(waiters.values())
    return all(
        not groups[i] & groups[j] for i in range(len(groups)) for j in range(i + 1, len(groups))
    )


def _barrier_timeout(job: JobLogs, barrier: str, sightings: list[Sighting]) -> Cause:
    fields = sightings[0].fields
    missing = numbers_in(fields.get("missing", "").strip())
    arrived, total = fields.get("arrived"), fields.get("all")
    if arrived and total and int(total) - int(arrived) > len(missing):
        waiters = set(processes_of(sightings))
        missing = tuple(sorted(set(range(int(total))) - waiters))
    count = f" ({arrived} of {total} came)" if arrived and total else ""
    who = f"{agreeing(missing, 'did', 'did')} not reach" if missing else "not all reached"
    return Cause(
        name="barrier-timeout",
        sentence=f"{who} barrier {barrier!r} within its time-out{count}",
        failure_class=FailureClass.USER_ERROR,
        confidence=Confidence.MEDIUM,
        rank=65,
        processes=missing,
        evidence=a_few(sighting.evidence for sighting in sightings),
        remedy=sightings[0].message.remedy,
        details=last_lines(job, missing),
    )


def missing_keys(job: JobLogs) -> Iterator[Cause]:
    """Nobody set a key that others waited for."""
    sightings = job.seen("key-timeout")
    if sightings:
        key = sightings[0].fields["key"]
        yield Cause(
            name="key-timeout",
            sentence=f"nobody set the key {key!r}, which "
            f"{named(processes_of(sightings)) or 'a process'} waited for"
            if processes_of(sightings)
            else f"nobody set the key {key!r}",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.MEDIUM,
            rank=64,
            processes=processes_of(sightings),
            evidence=a_few(sighting.evidence for sighting in sightings),
            remedy=sightings[0].message.remedy,
        )


def late_leavers(job: JobLogs) -> Iterator[Cause]:
    """Some left the job, and others did not."""
    sightings = job.seen("shutdown-timeout")
    if not sightings:
        return
    fields = next((s.fields for s in sightings if "missing" in s.fields), sightings[0].fields)
    missing = numbers_in(fields.get("missing", "").strip())
    first = fields.get("first")
    arrived, total = fields.get("arrived"), fields.get("all")
    count = f"{arrived} of {total} left; " if arrived and total else ""
    details = list(last_lines(job, missing))
    if first is not None:
        details.append(f"process {first} was the first to leave")
    who = f"{named(missing)} did" if missing else "some did"
    sentence = f"{count}{who} not leave within the shutdown time-out, which ends all processes"
    was_done = _was_done(job, fields)
    if not was_done:
        sentence += "; nothing shows that the work was done: who left may have ended too early"
    yield Cause(
        name="late-leaver",
        sentence=sentence,
        failure_class=FailureClass.TEARDOWN if was_done else FailureClass.UNKNOWN,
        confidence=Confidence.MEDIUM if was_done else Confidence.LOW,
        rank=60,
        processes=missing,
        evidence=a_few(sighting.evidence for sighting in sightings),
        remedy=by_name("shutdown-timeout").remedy,
        details=tuple(details),
    )


def _was_done(job: JobLogs, fields: dict[str, str]) -> bool:
    """Whether most processes were leaving, or who left first says that it has finished."""
    if 2 * int(fields.get("arrived", 0)) > int(fields.get("all", 0)):
        return True
    logs = job.of(int(fields["first"])) if "first" in fields else job.logs
    return any(
        log.last is not None
        and FINISHED.search(log.last.text)
        and not _PART_OF_WORK.search(log.last.text)
        for log in logs
    )


def broken_collectives(job: JobLogs) -> Iterator[Cause]:
    """A collective failed, and nothing else tells why."""
    for name in (
        "peer-closed-collective",
        "collective-timeout",
        "collective-cancelled",
        "nccl-failed",
    ):
        if sightings := job.seen(name):
            message = sightings[0].message
            yield Cause(
                name=name,
                sentence=f"{named(processes_of(sightings))}: {message.meaning}",
                failure_class=message.failure_class,
                confidence=Confidence.LOW,
                rank=40,
                processes=processes_of(sightings),
                evidence=a_few(sighting.evidence for sighting in sightings),
                remedy=message.remedy,
            )
