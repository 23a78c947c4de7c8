"""Causes that a process prints itself: a message that is an origin, an exception, an unknown error.

Where only echoes are there, that is told too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from jax_bridge.explain.causes import Cause, Confidence, agreeing, named
from jax_bridge.explain.classes import FailureClass
from jax_bridge.explain.job_logs import JobLogs, a_few, processes_of
from jax_bridge.explain.logs import Raised, Sighting
from jax_bridge.explain.messages import Role

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

_NAMES_A_TASK = ("different-incarnation", "unexpected-task")


def origins(job: JobLogs) -> Iterator[Cause]:
    """Messages that are no echoes."""
    by_message: dict[str, list[Sighting]] = defaultdict(list)
    for log in job.logs:
        for sighting in log.sightings:
            if sighting.message.role is Role.ORIGIN:
                by_message[sighting.message.name].append(sighting)
    for name, sightings in by_message.items():
        message = sightings[0].message
        processes = processes_of(sightings)
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
            evidence=a_few(sighting.evidence for sighting in sightings),
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


def exceptions(job: JobLogs) -> Iterator[Cause]:
    """Exceptions of the program, by what they say."""
    by_text: dict[str, list[Raised]] = defaultdict(list)
    for log in job.logs:
        for raised in log.raised:
            if raised.is_origin:
                by_text[raised.text].append(raised)
    for text, all_raised in by_text.items():
        processes = processes_of(all_raised)
        went_on = all(raised.went_on for raised in all_raised)
        may_go_on = all(raised.lines_after for raised in all_raised)
        details = []
        if went_on:
            details.append("the program went on afterwards, so that this may be no cause")
        elif may_go_on:
            details.append("the program printed more afterwards, so that it may have borne this")
        first_out = {
            int(s.fields["first"]) for s in job.seen("shutdown-timeout") if "first" in s.fields
        }
        if first_out & set(processes):
            details.append(
                f"{agreeing(processes, 'waited', 'waited')} in the exit barrier then, as JAX does; to "
                "the others that looked like a hang until the shutdown time-out"
            )
        if text.startswith("KeyboardInterrupt"):
            yield _interrupted(all_raised, tuple(details))
            continue
        yield Cause(
            name="program-raised",
            sentence=f"{named(processes)} raised {text}{_place(all_raised)}",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.LOW
            if went_on
            else Confidence.MEDIUM
            if may_go_on
            else Confidence.HIGH,
            rank=30 if went_on else 80,
            processes=processes,
            evidence=a_few(raised.evidence for raised in all_raised),
            remedy="mend the program; python -u shows what it printed before",
            details=tuple(details),
        )


def _interrupted(all_raised: list[Raised], details: tuple[str, ...]) -> Cause:
    """Somebody ended the program, which may have been since something else had gone wrong."""
    processes = processes_of(all_raised)
    return Cause(
        name="interrupted",
        sentence=f"{agreeing(processes, 'was', 'were')} interrupted (Ctrl-C, or SIGINT from a launcher "
        f"or a scheduler){_place(all_raised)}; nothing tells why",
        failure_class=FailureClass.UNKNOWN,
        confidence=Confidence.LOW,
        rank=30,
        processes=processes,
        evidence=a_few(raised.evidence for raised in all_raised),
        remedy="see who sent the signal; if the job hung before, see what the processes were doing",
        details=details,
    )


def _place(all_raised: list[Raised]) -> str:
    frame = next((raised.frame for raised in all_raised if raised.frame), "")
    return f", at {frame}" if frame else ""


def cut_exceptions(job: JobLogs) -> Iterator[Cause]:
    """Tracebacks that do not tell what was raised: an echo may be cut like anything else."""
    by_end: dict[bool, list[Raised]] = defaultdict(list)
    for log in job.logs:
        by_end[bool(log.fatal)] += [one for one in log.raised if not (one.text or one.known)]
    for ended_itself, cut in by_end.items():
        if not cut:
            continue
        yield Cause(
            name="exception-cut-off",
            sentence=f"{named(processes_of(cut))} raised an exception whose text is cut off"
            f"{_place(cut)}",
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=45 if ended_itself else 61,
            processes=processes_of(cut),
            evidence=a_few(raised.evidence for raised in cut),
            remedy="look at that place in the program, and at what the other causes say",
        )


def unknown_errors(job: JobLogs) -> Iterator[Cause]:
    """Errors that the table of messages does not have."""
    with_errors = [log for log in job.logs if log.errors]
    if with_errors:
        processes = processes_of(with_errors)
        yield Cause(
            name="unknown-error",
            sentence="errors that are not in the table of known messages"
            + (f", in the log of {named(processes)}" if processes else ""),
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=20,
            processes=processes,
            evidence=a_few(error for log in with_errors for error in log.errors),
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
            processes=processes_of(fatal),
            evidence=a_few(log.verdict for log in fatal),
            remedy="read the status at the end of the message",
        )


def only_echoes(job: JobLogs) -> Iterator[Cause]:
    """Nothing tells what began; but processes ended themselves, or calls failed."""
    shown = [
        one
        for log in job.logs
        for one in ([log.verdict] if log.fatal else [raised.evidence for raised in log.raised])
    ]
    if shown:
        processes = processes_of(log for log in job.logs if log.fatal or log.raised)
        yield Cause(
            name="only-echoes",
            sentence=f"{named(processes)} failed because of something else, which these files do not "
            "show",
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=10,
            processes=(),
            evidence=a_few(shown),
            remedy="give the logs of all processes, and the history if there is one",
        )
