"""Causes that the logs of a job's processes show.

Each rule looks for one kind of origin. The echoes of it (what everybody prints when somebody fails)
are no causes; where only echoes are there, the process that they name is looked at: an exception in
its log, a connection that it lost, a fatal message that shows that it lived, or nothing, which is how
SIGKILL looks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from jax_bridge.explain.causes import Cause, Confidence, Evidence, agreeing, named
from jax_bridge.explain.classes import FailureClass
from jax_bridge.explain.logs import ProcessLog, Raised, Sighting
from jax_bridge.explain.messages import Role, by_name, numbers_in

_EVIDENCE_MAX = 3
_SAME_MOMENT_S = 0.5
_FINISHED = re.compile(
    r"\b(?:finish(?:ed)?|done|complete(?:d)?|end(?:ed)? of training|success(?:ful)?(?:ly)?)\b",
    re.IGNORECASE,
)

_PART_OF_WORK = re.compile(r"\b(?:step|epoch|iteration|batch|round|checkpoint)\b", re.IGNORECASE)
"""What may be done although the work is not."""

_CAUSE_OF_ORIGIN = {
    "different-incarnation": "restart-into-session",
    "unexpected-task": "two-jobs",
    "wrong-service": "stale-endpoint",
    "sigterm": "preempted",
    "cancelled-by-scheduler": "preempted",
}
"""Origins whose cause has a name of its own; others are called as their message."""

_WHY_SIGTERM = ("cancelled-by-scheduler", "time-limit")
"""A scheduler ends processes by SIGTERM, and says why in a line of its own."""

_SHUT_DOWN = "Jax service shutting down"
"""The last word of jaxlib's service when it is ended in good order."""

_NOT_LET_IN = ("no-registration", "still-in-error")
"""What a start of a process prints that comes when the job has failed."""

_NAMES_A_TASK = ("different-incarnation", "unexpected-task")


@dataclass(frozen=True, slots=True)
class JobLogs:
    """The logs of one job.

    Attributes:
      logs: All of them.
      processes: How many processes the job has, if that is known.
    """

    logs: tuple[ProcessLog, ...]
    processes: int | None

    def of(self, process: int) -> list[ProcessLog]:
        """The logs of a process, a start of it each, in order."""
        return sorted(
            (log for log in self.logs if log.process == process), key=lambda log: log.start
        )

    def leaders(self) -> list[ProcessLog]:
        """The logs of who ran the service: a process of its own if there is one, or process 0."""
        return [log for log in self.logs if log.is_service] or self.of(0)

    def seen(self, *names: str) -> list[Sighting]:
        """All sightings of these messages, in the order of time; those without a time last."""
        found = [sighting for log in self.logs for sighting in log.of(*names)]
        return sorted(found, key=lambda sighting: (sighting.time_s is None, sighting.time_s or 0.0))

    def first_fatal_s(self) -> float | None:
        """When the first process ended itself."""
        times = [log.fatal_s for log in self.logs if log.fatal_s is not None]
        return min(times, default=None)

    def known_size(self) -> int | None:
        """How many processes the job has: told, or as the service counts."""
        if self.processes is not None:
            return self.processes
        counted = [
            int(sighting.fields["all"])
            for sighting in self.seen("registration-timeout", "shutdown-timeout")
            if "all" in sighting.fields
        ]
        return max(counted, default=None)


def causes_in_logs(logs: Iterable[ProcessLog], processes: int | None) -> list[Cause]:
    """What the logs show, in no order.

    Args:
      logs: All logs of the job.
      processes: How many processes the job has, or None if that is not known.
    """
    job = JobLogs(tuple(logs), processes)
    rules = (
        _origins,
        _exceptions,
        _cut_exceptions,
        _silent,
        _leader,
        _unregistered,
        _heartbeats_unanswered,
        _barriers,
        _keys,
        _late_leavers,
        _collectives,
        _unknown_errors,
    )
    return [cause for rule in rules for cause in rule(job)] or list(_only_echoes(job))


def fatal_echoes(logs: Iterable[ProcessLog]) -> list[tuple[int | None, float | None, Evidence]]:
    """Who ended itself with a fatal message, when, and the line."""
    return [(log.process, log.fatal_s, log.verdict) for log in logs if log.fatal]


def clock(time_s: float) -> str:
    """A time of a log, as its lines write it."""
    seconds = time_s % 86400
    return f"{int(seconds // 3600):02}:{int(seconds // 60 % 60):02}:{seconds % 60:06.3f}"


def _processes(sightings: Iterable[Sighting | Raised | ProcessLog]) -> tuple[int, ...]:
    return tuple(sorted({s.process for s in sightings if s.process is not None}))


def _some(evidence: Iterable[Evidence]) -> tuple[Evidence, ...]:
    return tuple(dict.fromkeys(evidence))[:_EVIDENCE_MAX]


def _origins(job: JobLogs) -> Iterator[Cause]:
    by_message: dict[str, list[Sighting]] = defaultdict(list)
    for log in job.logs:
        for sighting in log.sightings:
            if sighting.message.role is Role.ORIGIN:
                by_message[sighting.message.name].append(sighting)
    for name, sightings in by_message.items():
        message = sightings[0].message
        processes = _processes(sightings)
        if name in _NAMES_A_TASK:
            processes = tuple(sorted({int(s.fields["task"]) for s in sightings}))
        details: list[str] = []
        rank = 85
        sentence = f"{named(processes)}: {message.meaning}" if processes else message.meaning
        if name == "different-incarnation":
            sentence, rank = _restarted(job, processes), 95
        elif name == "unexpected-task":
            verb = "belongs" if len(processes) == 1 else "belong"
            sentence = (
                f"two jobs on one service, or different num_processes: {named(processes)} {verb} to no "
                "job of this size"
            )
            rank = 95
        elif name in _WHY_SIGTERM:
            rank = 86
        elif name == "sigterm":
            first, fatal_s = sightings[0], job.first_fatal_s()
            sentence = f"{agreeing(processes, 'was', 'were')} told to end (SIGTERM): a preemption"
            if first.time_s is not None and fatal_s is not None and first.time_s > fatal_s:
                rank = 15
                details.append(
                    "the signal came after the first process had failed: whoever started the job was "
                    "clearing up"
                )
        yield Cause(
            name=_CAUSE_OF_ORIGIN.get(name, name),
            sentence=sentence,
            failure_class=message.failure_class,
            confidence=Confidence.HIGH if rank > 50 else Confidence.LOW,
            rank=rank,
            processes=processes,
            evidence=_some(sighting.evidence for sighting in sightings),
            remedy=message.remedy,
            details=tuple(details),
        )


def _restarted(job: JobLogs, processes: tuple[int, ...]) -> str:
    starts = [log for process in processes for log in job.of(process)]
    who = named(processes)
    if any(log.start > 0 for log in starts):
        return f"{who} was restarted into a session that was still alive; that ends all processes"
    if len(starts) > len(processes):
        return (
            f"two programs registered as {who} at one service: a restart into a live session, a child "
            "process, or another job"
        )
    return f"a second start of {who} joined a session that was still alive; that ends all processes"


def _exceptions(job: JobLogs) -> Iterator[Cause]:
    by_text: dict[str, list[Raised]] = defaultdict(list)
    for log in job.logs:
        for raised in log.raised:
            if raised.is_origin:
                by_text[raised.text].append(raised)
    for text, all_raised in by_text.items():
        processes = _processes(all_raised)
        went_on = all(raised.went_on for raised in all_raised)
        interrupted = text.startswith("KeyboardInterrupt")
        details = []
        if went_on:
            details.append("the program went on afterwards, so that this may be no cause")
        first_out = {
            int(s.fields["first"]) for s in job.seen("shutdown-timeout") if "first" in s.fields
        }
        if first_out & set(processes):
            details.append(
                f"{agreeing(processes, 'waited', 'waited')} in the exit barrier then, as JAX does; to "
                "the others that looked like a hang until the shutdown time-out"
            )
        yield Cause(
            name="interrupted" if interrupted else "program-raised",
            sentence=f"{named(processes)} raised {text}{_place(all_raised)}",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.LOW if went_on or interrupted else Confidence.HIGH,
            rank=30 if went_on or interrupted else 80,
            processes=processes,
            evidence=_some(raised.evidence for raised in all_raised),
            remedy="mend the program; python -u shows what it printed before",
            details=tuple(details),
        )


def _place(all_raised: list[Raised]) -> str:
    frame = next((raised.frame for raised in all_raised if raised.frame), "")
    return f", at {frame}" if frame else ""


def _cut_exceptions(job: JobLogs) -> Iterator[Cause]:
    """Tracebacks that do not tell what was raised: an echo may be cut like anything else."""
    by_end: dict[bool, list[Raised]] = defaultdict(list)
    for log in job.logs:
        by_end[bool(log.fatal)] += [one for one in log.raised if not (one.text or one.known)]
    for ended_itself, cut in by_end.items():
        if not cut:
            continue
        yield Cause(
            name="exception-cut-off",
            sentence=f"{named(_processes(cut))} raised an exception whose text is cut off{_place(cut)}",
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=45 if ended_itself else 61,
            processes=_processes(cut),
            evidence=_some(raised.evidence for raised in cut),
            remedy="look at that place in the program, and at what the other causes say",
        )


def _silent(job: JobLogs) -> Iterator[Cause]:
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
            all_told = 1 < len(told) == (job.known_size() or len(_processes(job.logs)))
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
    refused = [other for other in job.of(process) if _is_late_restart(job, other)]
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
            *_some(other.of(*_NOT_LET_IN)[0].evidence for other in refused),
        )[:_EVIDENCE_MAX],
        remedy="look at the machine's kernel log (out of memory?) and at the scheduler's events",
    )


def _is_late_restart(job: JobLogs, log: ProcessLog) -> bool:
    """Whether it is of a later start of a process that had died, and which was not let in."""
    if log.process is None or not log.start or not log.has(*_NOT_LET_IN):
        return False
    died = {
        task
        for sighting in job.seen("tasks-unhealthy", "heartbeat-timeout")
        for task in numbers_in((sighting.fields.get("tasks") or sighting.fields["task"]).strip())
    }
    return log.process in died and any(other.start < log.start for other in job.of(log.process))


def _leader(job: JobLogs) -> Iterator[Cause]:
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
    evidence = _some(shown for log in lost if (shown := log.lost_service()))
    times = [log.fatal_s for log in lost if log.fatal_s is not None]
    when = f" at {clock(min(times))}" if times else ""
    tail = f"; {named(_processes(lost))} ended at once because of it" if _processes(lost) else ""
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
    finished = _FINISHED.search(end.text) is not None
    if finished:
        yield Cause(
            name="leader-left",
            sentence=f"the leader left a finished job: {who} ended without waiting for the others{when}"
            f"{tail}",
            failure_class=FailureClass.TEARDOWN,
            confidence=Confidence.MEDIUM,
            rank=76,
            processes=_processes([leader]),
            evidence=(end, *evidence)[:_EVIDENCE_MAX],
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
        processes=_processes([leader]),
        evidence=(end, *evidence)[:_EVIDENCE_MAX],
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
    evidence = (service.end_of_messages(), *shown)[:_EVIDENCE_MAX]
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


def _unregistered(job: JobLogs) -> Iterator[Cause]:
    counted = job.seen("registration-timeout")
    waiting = [
        sighting
        for log in job.logs
        if not _is_late_restart(job, log)  # It is told with the death before it.
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
            sentence=f"{agreeing(_processes(waiting), 'was', 'were')} not registered until the time-out,"
            f" and proxies are set ({proxies[0].fields['names']}): gRPC goes through them",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.MEDIUM,
            rank=73,
            processes=_processes(waiting),
            evidence=_some(sighting.evidence for sighting in (*proxies, *waiting)),
            remedy=proxies[0].message.remedy,
        )
    leader_waited = any(log.has("no-registration") for log in job.leaders())
    waiters = _processes(waiting)
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
            evidence=_some(sighting.evidence for sighting in waiting),
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
            evidence=_some(sighting.evidence for sighting in waiting),
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
            evidence=_some(sighting.evidence for sighting in waiting),
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
        evidence=_some(sighting.evidence for sighting in sightings),
        remedy=remedy,
        details=tuple(details),
    )


def _heartbeats_unanswered(job: JobLogs) -> Iterator[Cause]:
    sightings = [s for s in job.seen("heartbeat-unanswered") if s.is_fatal]
    if not sightings:
        return
    processes = _processes(sightings)
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
            evidence=_some(sighting.evidence for sighting in sightings),
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
        evidence=_some(sighting.evidence for sighting in sightings),
        remedy="look at the network between that machine and the service",
    )


def _stem(barrier: str) -> str:
    return re.sub(r"\d+", "#", barrier)


def _barriers(job: JobLogs) -> Iterator[Cause]:
    sightings = job.seen("barrier-timeout")
    by_barrier: dict[str, list[Sighting]] = defaultdict(list)
    for sighting in sightings:
        by_barrier[sighting.fields["barrier"]].append(sighting)
    stems: dict[str, list[str]] = defaultdict(list)
    for barrier in by_barrier:
        stems[_stem(barrier)].append(barrier)
    for barriers in stems.values():
        waiters = {barrier: set(_processes(by_barrier[barrier])) for barrier in barriers}
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
                evidence=_some(by_barrier[barrier][0].evidence for barrier in barriers),
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
        waiters = set(_processes(sightings))
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
        evidence=_some(sighting.evidence for sighting in sightings),
        remedy=sightings[0].message.remedy,
        details=_last_lines(job, missing),
    )


def _last_lines(job: JobLogs, processes: tuple[int, ...]) -> tuple[str, ...]:
    """What the programs of these processes printed last, as far as they printed anything."""
    return tuple(
        f"the log of process {process} ends: {last.text}"
        for process in processes
        if (logs := job.of(process)) and (last := logs[-1].last)
    )


def _keys(job: JobLogs) -> Iterator[Cause]:
    sightings = job.seen("key-timeout")
    if sightings:
        key = sightings[0].fields["key"]
        yield Cause(
            name="key-timeout",
            sentence=f"nobody set the key {key!r}, which {named(_processes(sightings)) or 'a process'} "
            "waited for"
            if _processes(sightings)
            else f"nobody set the key {key!r}",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.MEDIUM,
            rank=64,
            processes=_processes(sightings),
            evidence=_some(sighting.evidence for sighting in sightings),
            remedy=sightings[0].message.remedy,
        )


def _late_leavers(job: JobLogs) -> Iterator[Cause]:
    sightings = job.seen("shutdown-timeout")
    if not sightings:
        return
    fields = next((s.fields for s in sightings if "missing" in s.fields), sightings[0].fields)
    missing = numbers_in(fields.get("missing", "").strip())
    first = fields.get("first")
    arrived, total = fields.get("arrived"), fields.get("all")
    count = f"{arrived} of {total} left; " if arrived and total else ""
    details = list(_last_lines(job, missing))
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
        evidence=_some(sighting.evidence for sighting in sightings),
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
        and _FINISHED.search(log.last.text)
        and not _PART_OF_WORK.search(log.last.text)
        for log in logs
    )


def _collectives(job: JobLogs) -> Iterator[Cause]:
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
                sentence=f"{named(_processes(sightings))}: {message.meaning}",
                failure_class=message.failure_class,
                confidence=Confidence.LOW,
                rank=40,
                processes=_processes(sightings),
                evidence=_some(sighting.evidence for sighting in sightings),
                remedy=message.remedy,
            )


def _unknown_errors(job: JobLogs) -> Iterator[Cause]:
    with_errors = [log for log in job.logs if log.errors]
    if with_errors:
        processes = _processes(with_errors)
        yield Cause(
            name="unknown-error",
            sentence="errors that are not in the table of known messages"
            + (f", in the log of {named(processes)}" if processes else ""),
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=20,
            processes=processes,
            evidence=_some(error for log in with_errors for error in log.errors),
            remedy="read them; the first may tell more than the last",
        )
    fatal = [
        log
        for log in job.logs
        if log.fatal and all(s.message.name == "process-terminated" for s in log.fatal)
    ]
    if fatal:
        yield Cause(
            name="unknown-fatal-error",
            sentence="the client ended its process for an error that is not in the table",
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=45,
            processes=_processes(fatal),
            evidence=_some(log.verdict for log in fatal),
            remedy="read the status at the end of the message",
        )


def _only_echoes(job: JobLogs) -> Iterator[Cause]:
    """Nothing tells what began; but processes ended themselves, or calls failed."""
    shown = [
        one
        for log in job.logs
        for one in ([log.verdict] if log.fatal else [raised.evidence for raised in log.raised])
    ]
    if shown:
        processes = _processes(log for log in job.logs if log.fatal or log.raised)
        yield Cause(
            name="only-echoes",
            sentence=f"{named(processes)} failed because of something else, which these files do not "
            "show",
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=10,
            processes=(),
            evidence=_some(shown),
            remedy="give the logs of all processes, and the history if there is one",
        )
