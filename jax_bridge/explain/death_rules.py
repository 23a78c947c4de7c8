"""Causes that a process does not print: it was killed, the leader went, the service stood still.

Only echoes are there (what everybody prints when somebody fails). So the process that they name is
looked at: an exception in its log, a connection that it lost, a fatal message that shows that it lived,
or nothing, which is how SIGKILL looks.
"""

from __future__ import annotations

from collections.abc import Iterator

from jax_bridge.explain.causes import Cause, Confidence, Evidence, named
from jax_bridge.explain.classes import FailureClass
from jax_bridge.explain.job_logs import (
    EVIDENCE_MAX,
    NOT_LET_IN,
    JobLogs,
    a_few,
    clock,
    is_late_restart,
    processes_of,
)
from jax_bridge.explain.logs import FINISHED, ProcessLog, Sighting
from jax_bridge.explain.messages import by_name, numbers_in

_SAME_MOMENT_S = 0.5

_SHUT_DOWN = "Jax service shutting down"
"""The last word of jaxlib's service when it is ended in good order."""


def silent_deaths(job: JobLogs) -> Iterator[Cause]:
    """Looks at the processes that the service did not hear any more.

    A process that ends itself goes on for seconds, as it prints its stack, and so does a service inside
    it, which then misses everybody: only who is named first matters.
    """
    sightings = job.seen("tasks-unhealthy", "heartbeat-timeout")
    if not sightings:
        return
    first_s = sightings[0].time_s
    told: dict[int, Sighting] = {}
    for sighting in sightings:
        is_first = sighting.time_s is None or sighting.time_s - (first_s or 0.0) <= _SAME_MOMENT_S
        tasks = sighting.fields.get("tasks") or sighting.fields["task"]
        for task in numbers_in(tasks.strip()) if is_first else ():
            told.setdefault(task, sighting)
    for process, sighting in sorted(told.items()):
        logs = job.of(process)
        if not logs:
            yield Cause(
                name="silent-death",
                sentence=f"process {process} stopped sending heartbeats; nothing of it is among the "
                "files",
                failure_class=FailureClass.INFRASTRUCTURE,
                confidence=Confidence.LOW,
                rank=60,
                processes=(process,),
                evidence=(sighting.evidence,),
                remedy=f"look at the log of process {process} and at its machine",
            )
        elif not any(log.has_origin() for log in logs):
            # Of several starts, one that ended without a word was there first.
            log = next((log for log in logs if not log.fatal), logs[-1])
            all_told = 1 < len(told) == (job.known_size() or len(processes_of(job.logs)))
            cause = _silence(job, process, log, sighting, all_told=all_told)
            if cause is not None:
                yield cause


def _lost_alone(job: JobLogs, log: ProcessLog) -> bool:
    """Whether a process lost the service while the service and most others went on."""
    leaders = job.leaders()
    lost = [other for other in job.logs if other.lost_service()]
    return (
        log in lost
        and not any(leader in lost or leader.raised for leader in leaders)
        and 2 * len(lost) < len(job.logs)
    )


def _silence(
    job: JobLogs, process: int, log: ProcessLog, told: Sighting, *, all_told: bool
) -> Cause | None:
    own_s = log.fatal_s
    lost = log.lost_service()
    if lost is not None:
        if not _lost_alone(job, log):
            return None
        details = [s.fields.get("detail", "").strip() for s in log.fatal]
        detail = next((words for words in details if words), "")
        return Cause(
            name="connection-lost",
            sentence=f"process {process} lost its connection to the service"
            + (f" at {clock(own_s)}" if own_s is not None else "")
            + (f" ({detail})" if detail else "")
            + ", while others kept theirs; a lost connection ends the process at once, and the others "
            "a heartbeat time-out later",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.HIGH,
            rank=82,
            processes=(process,),
            evidence=(lost, told.evidence),
            remedy="look at the network between that machine and the service; run the job again",
        )
    if log.fatal:
        if own_s is not None and told.time_s is not None and own_s < told.time_s:
            return None  # It had ended itself for another reason, which has a rule of its own.
        remedy = (
            "see what held it up (swapping, a long compilation, a stopped container, a lost network); "
            "a longer heartbeat_timeout_seconds bears longer stalls"
        )
        if all_told:
            return Cause(
                name="service-stalled",
                sentence="the service declared all processes dead at once, though they lived: it stood "
                "still itself for longer than the heartbeat time-out",
                failure_class=FailureClass.INFRASTRUCTURE,
                confidence=Confidence.MEDIUM,
                rank=78,
                processes=(),
                evidence=(told.evidence, log.verdict),
                remedy="look at process 0 and its machine",
            )
        return Cause(
            name="stall",
            sentence=f"process {process} was alive but silent for longer than the heartbeat time-out: "
            "it was stopped, stalled or cut off, and heard afterwards that it counts as dead",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.HIGH,
            rank=80,
            processes=(process,),
            evidence=(told.evidence, log.verdict),
            remedy=remedy,
        )
    when = f" at {clock(told.time_s)}" if told.time_s is not None else ""
    refused = [other for other in job.of(process) if is_late_restart(job, other)]
    again = "; started again, it was not let in, as the job had failed by then" if refused else ""
    return Cause(
        name="silent-death",
        sentence=f"process {process} died without a word (SIGKILL, out of memory, its machine lost): "
        f"its log ends without an error, and the service missed its heartbeats{when}{again}",
        failure_class=FailureClass.INFRASTRUCTURE,
        confidence=Confidence.MEDIUM,
        rank=75,
        processes=(process,),
        evidence=(
            log.end(),
            told.evidence,
            *a_few(other.of(*NOT_LET_IN)[0].evidence for other in refused),
        )[:EVIDENCE_MAX],
        remedy="look at the machine's kernel log (out of memory?) and at the scheduler's events",
    )


def leader_gone(job: JobLogs) -> Iterator[Cause]:
    """Looks at process 0 where connections to the service ended."""
    unhealthy = {
        task
        for sighting in job.seen("tasks-unhealthy")
        for task in numbers_in(sighting.fields["tasks"])
    }
    leaders = job.leaders()
    all_lost = [log for log in job.logs if log.lost_service() and log.process not in unhealthy]
    where = "nothing of process 0 is among the files"
    if leaders and all(leader in all_lost for leader in leaders):
        where = "process 0 lost it as the others did, so that it ran elsewhere; its log is missing"
        leaders = []
    lost = [log for log in all_lost if log not in leaders]
    if not lost or any(log.has_origin() or log.fatal or log.ended_by for log in leaders):
        return
    evidence = a_few(shown for log in lost if (shown := log.lost_service()))
    times = [log.fatal_s for log in lost if log.fatal_s is not None]
    when = f" at {clock(min(times))}" if times else ""
    tail = (
        f"; {named(processes_of(lost))} ended at once because of it" if processes_of(lost) else ""
    )
    remedy = by_name("service-lost").remedy
    if not leaders:
        yield Cause(
            name="leader-lost",
            sentence=f"the service was lost{when}; {where}{tail}",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.LOW,
            rank=50,
            processes=(),
            evidence=evidence,
            remedy=remedy,
        )
        return
    leader = leaders[-1]
    if leader.is_service and (doubted := _service_doubted(leader, lost, evidence, when, tail)):
        yield doubted
        return
    who = (
        "the service" if leader.is_service else f"process {leader.process}, which runs the service,"
    )
    end = leader.end()
    finished = FINISHED.search(end.text) is not None
    if finished:
        yield Cause(
            name="leader-left",
            sentence=f"the leader left a finished job: {who} ended without waiting for the others{when}"
            f"{tail}",
            failure_class=FailureClass.TEARDOWN,
            confidence=Confidence.MEDIUM,
            rank=76,
            processes=processes_of([leader]),
            evidence=(end, *evidence)[:EVIDENCE_MAX],
            remedy="call jax.distributed.shutdown() in every process; with recoverability, end the "
            "program with a barrier of its own",
        )
        return
    yield Cause(
        name="leader-lost",
        sentence=f"{who} died without a word{when}: its log ends without an error{tail}",
        failure_class=FailureClass.INFRASTRUCTURE,
        confidence=Confidence.MEDIUM,
        rank=74,
        processes=processes_of([leader]),
        evidence=(end, *evidence)[:EVIDENCE_MAX],
        remedy="look at that machine's kernel log (out of memory?) and at the scheduler's events",
    )


def _service_doubted(
    service: ProcessLog,
    lost: list[ProcessLog],
    shown: tuple[Evidence, ...],
    when: str,
    tail: str,
) -> Cause | None:
    """What the log of a service says against its having died without a word; None if nothing."""
    evidence = (service.end_of_messages(), *shown)[:EVIDENCE_MAX]
    times = [log.fatal_s for log in lost if log.fatal_s is not None]
    if service.services > 1:
        return Cause(
            name="leader-lost",
            sentence=f"the service was lost{when}, and there was another start of it: its log has "
            f"{service.services}{tail}",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.MEDIUM,
            rank=74,
            processes=(),
            evidence=evidence,
            remedy="look at the machine of the service; start the whole job again when it was lost",
        )
    if service.last_s is not None and times and service.last_s >= min(times):
        return Cause(
            name="connections-lost",
            sentence=f"all connections to the service broke{when}, and the service lived on until "
            f"{clock(service.last_s)}: what stands between it and the processes broke (a relay, a "
            f"proxy, the network){tail}",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.MEDIUM,
            rank=74,
            processes=(),
            evidence=evidence,
            remedy="look at what stands between the service and the processes",
        )
    if _SHUT_DOWN in evidence[0].text:
        return Cause(
            name="service-ended",
            sentence=f"the service was ended in good order before the processes had left{tail}",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.MEDIUM,
            rank=74,
            processes=(),
            evidence=evidence,
            remedy="end the service after the processes",
        )
    if not service.lines:
        return Cause(
            name="leader-lost",
            sentence=f"the service was lost{when}: it died, or what stands between it and the processes "
            f"broke; its log says nothing{tail}",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.LOW,
            rank=50,
            processes=(),
            evidence=evidence,
            remedy="look at the machine of the service, and at the way there",
        )
    return None


def unanswered_heartbeats(job: JobLogs) -> Iterator[Cause]:
    """Clients ended themselves as nobody answered their heartbeats."""
    sightings = [s for s in job.seen("heartbeat-unanswered") if s.is_fatal]
    if not sightings:
        return
    processes = processes_of(sightings)
    message = by_name("heartbeat-unanswered")
    if len(processes) > 1 or len(job.logs) == 1:
        yield Cause(
            name="service-stalled",
            sentence="the service stood still: it did not answer the heartbeats of "
            f"{named(processes)}",
            failure_class=message.failure_class,
            confidence=Confidence.HIGH if len(processes) > 1 else Confidence.LOW,
            rank=72,
            processes=(),
            evidence=a_few(sighting.evidence for sighting in sightings),
            remedy=message.remedy,
        )
        return
    yield Cause(
        name="cut-off",
        sentence=f"{named(processes)} alone got no answer to its heartbeats: its network swallowed them",
        failure_class=message.failure_class,
        confidence=Confidence.MEDIUM,
        rank=79,
        processes=processes,
        evidence=a_few(sighting.evidence for sighting in sightings),
        remedy="look at the network between that machine and the service",
    )
