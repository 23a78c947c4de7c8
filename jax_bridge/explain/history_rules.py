"""Causes that a history shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from checker.history.events import PROTOCOL_OPERATIONS
from jax_bridge.explain.causes import Cause, Confidence, agreeing, named, quoted
from jax_bridge.explain.classes import FailureClass
from jax_bridge.explain.endings import Ending, Way
from jax_bridge.explain.histories import (
    MERGED,
    NS_PER_S,
    SHUTDOWN,
    Complaint,
    HistoryFacts,
    Life,
    OpenCall,
    participants_of,
)
from jax_bridge.explain.log_rules import causes_in_logs
from jax_bridge.explain.logs import ProcessLog

STUCK_AFTER_S = 10.0
"""A call that has waited for so long at the end of a history is stuck, unless the user says else."""

_BY_LAUNCHER = ("ended by the launcher", "interrupted")
_SAME_MOMENT_NS = NS_PER_S // 2

SERVICE_CRASH = "crash of the service"
"""How a history calls that its service was killed as planned."""

_FAULTS_TOLD = 3

_DEATHS = ("silent-death", "leader-lost")
"""Not asked for in errors of calls: the history itself tells who died."""

_WENT_ON_CALLS = 5
"""A program that makes more calls after one that failed has borne that."""

_KILLED = (
    "killed",
    FailureClass.INFRASTRUCTURE,
    "look at the scheduler's events and at the machine's kernel log (out of memory?)",
)
_KINDS_OF_CRASH = {
    Way.KILLED: _KILLED,
    Way.UNTOLD: _KILLED,
    Way.ENDED_ITSELF: _KILLED,
    Way.TOLD_TO_END: (
        "preempted",
        FailureClass.PREEMPTION,
        "run the job again from its checkpoint",
    ),
    Way.INTERRUPTED: (
        "interrupted",
        FailureClass.UNKNOWN,
        "see who sent the signal; if the job hung before, see what the processes were doing",
    ),
    Way.RAISED: ("program-raised", FailureClass.USER_ERROR, "mend the program"),
    Way.FAILED: (
        "program-raised",
        FailureClass.USER_ERROR,
        "its log shows the exception; mend the program",
    ),
}
"""The name of a cause, its class and its remedy, by the way in which a process ended."""


def causes_in_history(
    facts: HistoryFacts, stuck_after_s: float, processes: int | None = None
) -> list[Cause]:
    """What a history shows, in no order.

    Args:
      facts: The history.
      stuck_after_s: Calls that have waited for so long at its end are stuck.
      processes: How many processes the job has, if somebody said so; else the history may tell.
    """
    size = processes or facts.size
    found = [*_crashes(facts), *_never_registered(facts, size), *_stalls(facts), *_strangers(facts)]
    found += _left_out(facts)
    found += _recordings_that_stop(facts)
    found += _nobody_connected(facts)
    found += _stuck(facts, round(stuck_after_s * NS_PER_S))
    found += _raised(facts)
    found += _errors_of_calls(facts, size)
    return found


def _began_ns(life: Life) -> int:
    assert life.ended_ns is not None
    return life.ended_ns if life.ended_since_ns is None else life.ended_since_ns


def _is_echo(life: Life) -> bool:
    return Ending.of(life.cause).is_echo


def _crashes(facts: HistoryFacts) -> Iterator[Cause]:
    crashed = sorted((life for life in facts.lives.values() if life.end == "crash"), key=_began_ns)
    crashed = [life for life in crashed if not life.cause.startswith(_BY_LAUNCHER)]
    origins = [life for life in crashed if not _is_echo(life)]
    left_first = _leader_left(facts, crashed)
    if left_first is not None:
        yield left_first
    lost = _service_killed(facts, crashed)
    if lost is not None:
        yield lost
    if crashed and not origins and left_first is None:
        first = crashed[0]
        words = Ending.of(first.cause).words
        yield Cause(
            name="ended-itself",
            sentence=f"process {first.process} was the first to end itself, at "
            f"{facts.at(_began_ns(first))}"
            + (f": {quoted(words)}" if words else "; why stands in its log"),
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=35,
            processes=(first.process,),
            evidence=(facts.evidence(first.end_line, f"crash: {first.cause}"),),
            details=tuple(
                f"something was done to the system before: {fault.name} at {facts.at(fault.time_ns)}"
                for fault in facts.faults
                if fault.time_ns <= _began_ns(first)
            )[-_FAULTS_TOLD:],
            remedy="give `coordlab explain` the logs of the processes as well",
        )
    for index, life in enumerate(origins):
        yield _crash(facts, life, crashed, index)


def _crash(facts: HistoryFacts, life: Life, crashed: list[Life], index: int) -> Cause:
    ending, cause = Ending.of(life.cause), life.cause or "cause unknown"
    echoes = [other for other in crashed if _is_echo(other) and other.ended_ns is not None]
    later = [other for other in echoes if _began_ns(other) >= _began_ns(life)]
    tail = ""
    if later and index == 0:
        delay_s = max(0.0, (_began_ns(later[0]) - _began_ns(life)) / NS_PER_S)
        others = tuple(sorted({other.process for other in later}))
        everyone = set(others) | {life.process} == set(facts.header.participants)
        who = "all others" if everyone else named(others)
        tail = f"; {who} ended themselves {delay_s:.1f} s later because of it"
        if not everyone and len(others) == 1:
            tail = f"; {who} ended itself {delay_s:.1f} s later because of it"
    details = [
        f"something was done to the system then: {fault.name} at {facts.at(fault.time_ns)}"
        for fault in facts.faults
        if abs(fault.time_ns - _began_ns(life)) <= _SAME_MOMENT_NS
    ]
    if any(
        other.process == life.process and other.lifetime > life.lifetime
        for other in facts.lives.values()
    ):
        details.append(f"process {life.process} was started again later")
    survivors = {other.process for other in facts.lives.values() if other.end == "leave"}
    if survivors:
        details.append(f"{agreeing(tuple(survivors), 'ended', 'ended')} in good order")
    name, failure_class, remedy = _KINDS_OF_CRASH[ending.way]
    return Cause(
        name=name,
        sentence=f"process {life.process} {ending.in_words()} at {facts.at(_began_ns(life))}{tail}",
        failure_class=failure_class,
        confidence=Confidence.HIGH,
        rank=(90 if later else 80) - min(index, 10),
        processes=(life.process,),
        evidence=(facts.evidence(life.end_line, f"crash of process {life.process}: {cause}"),),
        remedy=remedy,
        details=tuple(details),
    )


def _service_killed(facts: HistoryFacts, crashed: list[Life]) -> Cause | None:
    """The service was killed as planned, and clients ended themselves then."""
    killed = next((fault for fault in facts.faults if fault.name == SERVICE_CRASH), None)
    if killed is None:
        return None
    echoes = [life for life in crashed if _is_echo(life) and _began_ns(life) >= killed.time_ns]
    if not echoes:
        return None
    others = tuple(sorted({life.process for life in echoes}))
    delay_s = (_began_ns(echoes[0]) - killed.time_ns) / NS_PER_S
    return Cause(
        name="leader-lost",
        sentence=f"the service was killed at {facts.at(killed.time_ns)}; "
        f"{agreeing(others, 'ended itself', 'ended themselves')} {delay_s:.1f} s later because of it",
        failure_class=FailureClass.INFRASTRUCTURE,
        confidence=Confidence.HIGH,
        rank=88,
        processes=(),
        evidence=(facts.evidence(echoes[0].end_line, f"crash: {echoes[0].cause}"),),
        remedy="look at the machine of the service",
    )


def _leader_left(facts: HistoryFacts, crashed: list[Life]) -> Cause | None:
    """Process 0 left in good order, and only then others ended themselves."""
    if not crashed or not all(_is_echo(life) for life in crashed):
        return None
    left = [life for life in facts.lives.values() if life.process == 0 and life.end == "leave"]
    if not left or left[-1].ended_ns is None or _began_ns(crashed[0]) < left[-1].ended_ns:
        return None
    delay_s = (_began_ns(crashed[0]) - left[-1].ended_ns) / NS_PER_S
    others = tuple(sorted({life.process for life in crashed}))
    at_work = tuple(sorted({life.process for life in crashed if _was_at_work(facts, life)}))
    unrecorded = tuple(sorted({life.process for life in crashed if life.is_stopped}))
    begin = "" if at_work or unrecorded else "the leader left a finished job: "
    tail = ""
    if at_work:
        tail = f"; {agreeing(at_work, 'was', 'were')} at work then, so that it may have ended too early"
    elif unrecorded:
        tail = f"; what {named(unrecorded)} did then was not recorded"
    return Cause(
        name="leader-left",
        sentence=f"{begin}process 0 ended in good order at "
        f"{facts.at(left[-1].ended_ns)}, and {agreeing(others, 'ended itself', 'ended themselves')} "
        f"{delay_s:.1f} s later because the service was gone{tail}",
        failure_class=FailureClass.TEARDOWN if begin else FailureClass.UNKNOWN,
        confidence=Confidence.MEDIUM if begin else Confidence.LOW,
        rank=84,
        processes=(0,),
        evidence=(
            facts.evidence(left[-1].end_line, "process 0 left"),
            facts.evidence(crashed[0].end_line, f"crash: {crashed[0].cause}"),
        ),
        remedy="call jax.distributed.shutdown() in every process; with recoverability, end the program "
        "with a barrier of its own",
    )


def _was_at_work(facts: HistoryFacts, life: Life) -> bool:
    """Whether it was in a call when it ended, of the program's and not the one to leave."""
    return any(
        (call.invoke.process, call.invoke.lifetime) == (life.process, life.lifetime)
        and call.invoke.operation not in (*PROTOCOL_OPERATIONS, SHUTDOWN)
        for call in facts.open_calls.values()
    )


def _never_registered(facts: HistoryFacts, size: int | None) -> Iterator[Cause]:
    """Nobody was let in, as a service waits for all."""
    lives = facts.lives.values()
    if facts.is_cut or any(life.started_ns is not None for life in lives):
        return
    seen = {life.process for life in lives}
    asked = tuple(sorted({life.process for life in lives if life.asked_line}))
    expected = set(facts.header.participants if size is None else range(size))
    missing = tuple(sorted(expected - seen))
    never_seen = f"{agreeing(missing, 'was', 'were')} never seen"
    name, confidence, rank = "never-seen", Confidence.LOW, 55
    remedy = "see whether they were started, and whether they reach the address"
    if size is not None and seen and missing:
        # In a recording from inside, a process that has not connected leaves its end at most.
        sentence = f"{len(expected & seen)} of {size} registered; {never_seen}"
        is_of_service = facts.header.source == "server"
        confidence, rank = (Confidence.HIGH if is_of_service else Confidence.MEDIUM), 75
    elif not asked:
        return
    elif size is None:
        others = f"{never_seen}, and " if missing else ""
        sentence = (
            f"{named(asked)} asked to register and {'was' if len(asked) == 1 else 'were'} never let in; "
            f"{others}how many there should be is not known"
        )
        remedy = f"say how many there are with --processes; {remedy}"
    else:
        name = "never-let-in"
        sentence = f"{named(asked)}, all there are, asked to register, and nobody was let in"
        remedy = "look at the log of the service: it did not answer, or had failed before"
    yield Cause(
        name=name,
        sentence=sentence,
        failure_class=FailureClass.INFRASTRUCTURE,
        confidence=confidence,
        rank=rank,
        processes=missing,
        evidence=tuple(
            facts.evidence(life.asked_line, f"process {life.process} asks to register")
            for life in lives
            if life.asked_line
        )[:3]
        or (facts.evidence(1, sentence),),
        remedy=remedy,
    )


def _nobody_connected(facts: HistoryFacts) -> Iterator[Cause]:
    """Not even a try to register is there; a history of the callers' edge has no tries that fail."""
    lives = facts.lives.values()
    asked = any(life.calls or life.started_ns is not None for life in lives)
    if asked or facts.is_cut:
        return
    left = [life for life in lives if life.end == "leave"]
    processes = tuple(sorted({life.process for life in lives}))
    sentence = "nobody connected to the service"
    if left:
        who = agreeing([life.process for life in left], "ended", "ended")
        sentence += f": {who} in good order, and no jax.distributed.initialize() was seen"
    elif processes:
        sentence += f" before {agreeing(processes, 'ended', 'ended')}"
    yield Cause(
        name="nobody-connected",
        sentence=sentence,
        failure_class=FailureClass.USER_ERROR if left else FailureClass.UNKNOWN,
        confidence=Confidence.MEDIUM if left else Confidence.LOW,
        rank=25,
        processes=processes,
        evidence=tuple(
            facts.evidence(life.end_line, f"process {life.process} left") for life in left[:3]
        )
        or (facts.evidence(1, f"{facts.events} events, and no start"),),
        remedy="call jax.distributed.initialize() in every process, with the address of this service",
    )


def _stalls(facts: HistoryFacts) -> Iterator[Cause]:
    timeout_ns = facts.heartbeat_timeout_ns()
    if timeout_ns is None:
        return
    for life in facts.lives.values():
        who = f"process {life.process}"
        if life.gap_ns > timeout_ns:
            yield Cause(
                name="stall",
                sentence=f"{who} stalled: {life.gap_ns / NS_PER_S:.1f} s without a heartbeat, until "
                f"{facts.at(life.gap_end_ns)}, against a time-out of {timeout_ns / NS_PER_S:g} s",
                failure_class=FailureClass.INFRASTRUCTURE,
                confidence=Confidence.HIGH,
                rank=86,
                processes=(life.process,),
                evidence=(facts.evidence(life.gap_line, f"the next heartbeat of {who}"),),
                remedy="see what held it up (swapping, a long compilation, a stopped container, a lost "
                "network); a longer heartbeat_timeout_seconds bears longer stalls",
            )
        elif (
            not life.end
            and life.last_beat_ns is not None
            and facts.last_ns - life.last_beat_ns > timeout_ns
        ):
            yield Cause(
                name="silent-death",
                sentence=f"{who} sent its last heartbeat at {facts.at(life.last_beat_ns)} and nothing "
                f"for {(facts.last_ns - life.last_beat_ns) / NS_PER_S:.1f} s, against a time-out of "
                f"{timeout_ns / NS_PER_S:g} s: it died, or was cut off",
                failure_class=FailureClass.INFRASTRUCTURE,
                confidence=Confidence.MEDIUM,
                rank=74,
                processes=(life.process,),
                evidence=(facts.evidence(life.last_beat_line, f"the last heartbeat of {who}"),),
                remedy=f"look at the log of {who} and at its machine",
            )


def _left_out(facts: HistoryFacts) -> Iterator[Cause]:
    """Processes that the service does not count as live, and of which nothing is seen any more."""
    for life in facts.lives.values():
        if life.left_out is None or not (_is_silent(life) and _is_left_out(life)):
            continue
        who, (seen_ns, line) = f"process {life.process}", life.left_out
        yield Cause(
            name="silent-death",
            sentence=f"{who} died without a word, or was cut off: the last of it is at "
            f"{facts.at(life.last_ns)}, and from {facts.at(seen_ns)} on the service leaves it out of "
            "the live processes",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.MEDIUM,
            rank=73,
            processes=(life.process,),
            evidence=(facts.evidence(line, f"live processes without {who}"),),
            remedy=f"look at the log of {who} and at its machine",
        )


def _recordings_that_stop(facts: HistoryFacts) -> Iterator[Cause]:
    """Recordings from inside processes end with a remark, unless the process was ended."""
    details = facts.header.details
    if facts.header.source != "processes" or not (MERGED in details or "pid" in details):
        return
    stopped = [
        life
        for life in facts.lives.values()
        if _is_silent(life) and not (_is_left_out(life) or life.is_told_by_others)
    ]
    if stopped:
        processes = tuple(sorted({life.process for life in stopped}))
        many, they = ("recordings", "they") if len(processes) > 1 else ("recording", "it")
        yield Cause(
            name="recording-stops",
            sentence=f"the {many} of {agreeing(processes, 'stops', 'stop')} at "
            f"{facts.at(max(life.last_ns for life in stopped))}, without a word on how {they} ended",
            failure_class=FailureClass.UNKNOWN,
            confidence=Confidence.LOW,
            rank=22,
            processes=processes,
            evidence=tuple(
                facts.evidence(life.last_line, f"the last event of process {life.process}")
                for life in stopped[:3]
            ),
            remedy="give `coordlab explain` the logs of the processes as well; the scheduler's events "
            "may tell how they ended",
        )


def _is_left_out(life: Life) -> bool:
    """Whether the service left it out of the live processes, and nothing of it is seen from then on.

    If its recording had stopped before, it may have left in good order.
    """
    return life.left_out is not None and life.last_ns <= life.left_out[0] and not life.is_stopped


def _is_silent(life: Life) -> bool:
    """Whether nothing tells that it ended, or was about to."""
    return not (life.end or life.is_leaving or life.is_ended_by_itself)


def _strangers(facts: HistoryFacts) -> Iterator[Cause]:
    if facts.strangers:
        line, _, told = facts.strangers[0]
        processes = tuple(sorted({process for _, process, _ in facts.strangers}))
        yield Cause(
            name="stale-endpoint",
            sentence=f"{agreeing(processes, 'speaks', 'speak')} to another start of the service than "
            "they registered with: it was restarted, or two jobs share its address",
            failure_class=FailureClass.INFRASTRUCTURE,
            confidence=Confidence.HIGH,
            rank=83,
            processes=processes,
            evidence=(facts.evidence(line, f"a call for the service incarnation {told}"),),
            remedy="start the whole job again; scope the address to the attempt",
        )


def _stuck(facts: HistoryFacts, stuck_after_ns: int) -> Iterator[Cause]:
    """Calls that still wait at the end, of processes that live."""
    waiting: dict[tuple[str, object, tuple[int, ...]], list[OpenCall]] = defaultdict(list)
    for call in facts.open_calls.values():
        invoke = call.invoke
        life = facts.lives[invoke.process, invoke.lifetime]
        participants = participants_of(facts, call)
        if not life.end and participants is not None:
            name = invoke.arguments.get("barrier")
            waiting[invoke.operation, name, tuple(sorted(set(participants)))].append(call)
    for (operation, name, members), calls in waiting.items():
        since_ns = max(call.invoke.time_ns for call in calls)
        if facts.last_ns - since_ns < stuck_after_ns:
            continue
        callers = tuple(sorted({call.invoke.process for call in calls}))
        alive = {
            life.process
            for life in facts.lives.values()
            if not life.end and life.started_ns is not None
        }
        awaited = tuple(sorted((set(members) & alive) - set(callers)))
        if not awaited and operation == "barrier":
            awaited = tuple(sorted(set(members) - set(callers)))
        if not awaited:
            continue
        lives = facts.lives.values()
        unrecorded = {life.process for life in lives if life.is_stopped and not life.end}
        unrecorded &= set(awaited)
        what = f"barrier {name!r}" if operation == "barrier" else operation
        seconds = (facts.last_ns - since_ns) / NS_PER_S
        who = "everyone else" if len(callers) + len(awaited) == len(alive) else named(callers)
        yield Cause(
            name="alive-but-stuck",
            sentence=f"alive but stuck: {who} {_waits(who, callers)} for {named(awaited)} in {what} "
            f"since {seconds:.1f} s; nobody failed, and nothing will end this wait",
            failure_class=FailureClass.UNKNOWN if unrecorded else FailureClass.USER_ERROR,
            confidence=Confidence.LOW if unrecorded else Confidence.MEDIUM,
            rank=21 if unrecorded else 68,
            processes=awaited,
            evidence=tuple(
                facts.evidence(call.line, f"process {call.invoke.process} waits in {what}")
                for call in calls[:3]
            ),
            remedy=f"see what {named(awaited)} did instead (py-spy dump); give the wait a time-out, as "
            "a barrier with one names who is missing",
            details=(f"what {named(sorted(unrecorded))} did at last was not recorded",)
            if unrecorded
            else (),
        )


def _waits(who: str, callers: tuple[int, ...]) -> str:
    return "waits" if len(callers) == 1 or who == "everyone else" else "wait"


def _raised(facts: HistoryFacts) -> Iterator[Cause]:
    for life in facts.lives.values():
        if life.raised is None:
            continue
        line, message = life.raised
        went_on = life.end != "crash" or _is_echo(life)
        yield Cause(
            name="program-raised",
            sentence=f"process {life.process} raised in a live_devices block: {message or 'no message'}",
            failure_class=FailureClass.USER_ERROR,
            confidence=Confidence.LOW if went_on else Confidence.HIGH,
            rank=30 if went_on else 92,
            processes=(life.process,),
            evidence=(facts.evidence(line, f"block of process {life.process}: {message}"),),
            remedy="mend the program",
        )


def _errors_of_calls(facts: HistoryFacts, size: int | None) -> Iterator[Cause]:
    """Errors that calls ended with, read as a log is; programs may have expected them."""
    fine = {life.process for life in facts.lives.values() if life.end == "leave"}
    complaints = [one for one in facts.kept_complaints() if one.process not in fine]
    # Who has borne such an error once is likely to have been ready for the last one, too.
    used_to = {_kind(one) for one in complaints if _went_on(facts, one)}
    last: dict[int, ProcessLog] = {}
    borne: dict[int, ProcessLog] = {}
    for complaint in complaints:
        sighting, process = complaint.sighting, complaint.process
        is_end = sighting.evidence.line == facts.lives[process, complaint.lifetime].end_line
        logs = borne if _kind(complaint) in used_to and not is_end else last
        log = logs.setdefault(process, ProcessLog(facts.path, process))
        log.sightings.append(sighting)
        log.counts[sighting.message.name] = log.counts.get(sighting.message.name, 0) + 1
    for cause in causes_in_logs(last.values(), size):
        if cause.name not in _DEATHS:
            yield replace(cause, rank=min(cause.rank, 79))
    for cause in causes_in_logs(borne.values(), size):
        if cause.name not in _DEATHS:
            yield replace(
                cause,
                rank=min(cause.rank, 25),
                confidence=Confidence.LOW,
                details=(
                    *cause.details,
                    "the program went on afterwards, so that this may be no cause",
                ),
            )


def _kind(complaint: Complaint) -> tuple[int, str]:
    return complaint.process, complaint.sighting.message.name


def _went_on(facts: HistoryFacts, complaint: Complaint) -> bool:
    life = facts.lives[complaint.process, complaint.lifetime]
    return life.calls - complaint.calls_before > _WENT_ON_CALLS
