"""Turns a contradiction into an anomaly: a cycle of constraints, each with its reason."""

from __future__ import annotations

from collections.abc import Iterable

from checker.anomaly import Anomaly, Reason
from checker.clock_text import ClockText
from checker.history.events import Event, Fail, Info, Invoke, LiveSet, Ok
from checker.live_processes.instants import (
    Answer,
    Contradiction,
    LeastInstants,
    NotCovered,
    OutlivesSuccessor,
    TooLate,
)
from checker.live_processes.lifetimes import Call, Lifetime, Lifetimes, short
from checker.live_processes.rounds import (
    NoCall,
    NoCommonInstant,
    NoSuchLifetime,
    NotInOwnAnswer,
    Obstacle,
    ToldOtherwise,
)


def live_set_text(live: LiveSet) -> str:
    """An answer as people read it: `{0, 1, 2}`."""
    return "{" + ", ".join(str(process) for process in sorted(live)) + "}"


RULE_OF_MEMBERS = "Rule: every process of a live set is in the barrier at one instant."
RULE_OF_AGREEMENT = (
    "Rule: all processes of a round are told the same live set; else their programs part ways."
)
RULE_OF_ABSENT = "Rule: whoever is left out of a live set is dead at that instant."


class Explainer:
    """Explains contradictions of one history."""

    def __init__(self, lifetimes: Lifetimes, clock: ClockText, *, of_rounds: bool) -> None:
        self._lifetimes = lifetimes
        self._clock = clock
        self._of_rounds = of_rounds

    def obstacle(self, obstacle: Obstacle) -> Anomaly:
        """Explains why no round can be formed."""
        match obstacle:
            case NotInOwnAnswer(call):
                return self._anomaly(
                    "not-in-own-answer",
                    f"{self._told(call)}, which does not count in the caller itself, "
                    f"{call.lifetime}.",
                    calls=[call],
                )
            case NoSuchLifetime(call, process, incarnation):
                named = "" if incarnation is None else f" in incarnation {short(incarnation)}"
                return self._anomaly(
                    "never-started",
                    f"{self._told(call)}, but process {process} never started{named} "
                    "as far as this history tells.",
                    calls=[call],
                    processes=[process],
                )
            case NoCall(call, lifetime):
                return self._no_call(call, lifetime)
            case ToldOtherwise(call, other):
                assert other.answer is not None
                return self._anomaly(
                    "told-otherwise",
                    f"{self._told(call)}, and that round needs a call of {other.lifetime}; its "
                    f"first call without a round (operation {other.id}) was told "
                    f"{live_set_text(other.answer)} instead.",
                    details=[RULE_OF_AGREEMENT],
                    calls=[call, other],
                )
            case NoCommonInstant():
                return self._no_common_instant(obstacle)

    def contradiction(self, found: Contradiction, solver: LeastInstants) -> Anomaly:
        """Explains why the instants cannot be placed."""
        match found:
            case TooLate(answer):
                return self._too_late(answer, solver)
            case NotCovered(answer, lifetime):
                return self._not_covered(answer, lifetime)
            case OutlivesSuccessor(lifetime, sign):
                return self._outlives(lifetime, sign)

    # --- each kind -----------------------------------------------------------------------------

    def _no_call(self, call: Call, lifetime: Lifetime) -> Anomaly:
        started = f"{lifetime} had connected by {self._clock.at(lifetime.start_ns)}"
        calls = lifetime.calls.get(call.group)
        if calls:
            why = f"{started}, and all its calls belong to other rounds"
        else:
            why = f"{started}, and never called live_processes"
        details = []
        ghost = self._pending_predecessor(lifetime, call.group)
        if ghost is not None:
            details.append(
                f"What happened: {ghost.lifetime} had called (operation {ghost.id} at "
                f"{self._clock.at(ghost.invoked_ns)}) and died before it was answered; its place in "
                "the barrier was kept and counted for its successor, which is no part of it "
                "(a ghost entry)."
            )
        return self._anomaly(
            "counted-without-call",
            f"{self._told(call)}, which counts in {lifetime}, but that was not in the barrier: "
            f"{why}.",
            details=[
                *details,
                RULE_OF_MEMBERS,
            ],
            calls=[call, *([ghost] if ghost else [])],
            lifetimes=[lifetime],
        )

    def _pending_predecessor(self, lifetime: Lifetime, group: int) -> Call | None:
        for earlier in reversed(self._lifetimes.by_process[lifetime.process]):
            if earlier.next is lifetime:
                calls = earlier.calls.get(group)
                return calls[-1] if calls and calls[-1].answer is None else None
        return None

    def _no_common_instant(self, found: NoCommonInstant) -> Anomaly:
        told, first, late, restarted = found.call, found.first, found.late, found.restarted
        round_ = f"the round of operation {told.id}"
        points = _Points()
        called = f"the call of {late.lifetime} at {self._clock.at(late.invoked_ns)}"
        points.add(called, round_, f"{late.lifetime} is counted in, so it must have called")
        if restarted is None:
            assert first.answered_ns is not None
            end = f"the answer to process {first.lifetime.process} at "
            end += self._clock.at(first.answered_ns)
            points.add(round_, end, f"{self._told(first)}")
        else:
            assert restarted.next is not None
            end = f"the start of {restarted.next} at {self._clock.at(restarted.next.start_ns)}"
            points.add(round_, end, f"{restarted} is counted in and cannot outlive its restart")
        points.add(end, called, "it was earlier")
        details = []
        ghost = self._pending_predecessor(late.lifetime, late.group)
        if ghost is not None and restarted is None:
            details.append(
                f"What happened: {ghost.lifetime} had called (operation {ghost.id}) and died before "
                "it was answered; its place in the barrier was counted for its successor (a ghost "
                "entry)."
            )
        return self._anomaly(
            "no-common-instant",
            f"{self._told(told)}, but there is no instant at which all of these were in the "
            "barrier.",
            details=[*details, RULE_OF_MEMBERS],
            cycle=points.cycle(),
            calls=[told, first, late, *([ghost] if ghost else [])],
            lifetimes=[restarted] if restarted else [],
        )

    def _too_late(self, answer: Answer, solver: LeastInstants) -> Anomaly:
        points = _Points()
        point = self._point(answer)
        if answer.hi_call is not None:
            end = f"the answer to operation {answer.hi_call.id} of process "
            end += f"{answer.hi_call.lifetime.process} at {self._clock.at(answer.hi_ns or 0)}"
            points.add(point, end, self._told(answer.hi_call))
        else:
            assert answer.hi_lifetime is not None
            end = f"the restart of process {answer.hi_lifetime.process} at "
            end += self._clock.at(answer.hi_ns or 0)
            points.add(
                point, end, f"{answer.hi_lifetime} is counted in and cannot outlive its restart"
            )
        base = self._chain(answer, solver, points)
        if base is not None:
            points.add(end, base, "it was earlier")
        told = next(call for call in answer.calls if call.answer is not None)
        left_out = answer.raised_by
        summary = f"{self._told(told)}"
        if isinstance(left_out, Lifetime):
            summary += f", which leaves out {left_out}, but that was alive until too late."
        else:
            summary += ", but its members were not in the barrier together."
        return self._anomaly(
            "left-out-while-alive" if isinstance(left_out, Lifetime) else "no-common-instant",
            summary,
            details=[RULE_OF_ABSENT] if isinstance(left_out, Lifetime) else (),
            cycle=points.cycle(),
            calls=points.calls,
            lifetimes=points.lifetimes,
            signs=points.signs,
        )

    def _chain(self, answer: Answer, solver: LeastInstants, points: _Points) -> str | None:
        """Adds the reasons that pushed `answer` up; returns the event where they begin."""
        seen: set[int] = set()
        while answer.number not in seen:
            seen.add(answer.number)
            points.calls.extend(answer.calls)
            point = self._point(answer)
            reason = answer.raised_by
            if reason is None:
                base = self._called(answer.lo_call)
                points.add(base, point, "the caller is counted in, so it must have called")
                return base
            if isinstance(reason, Call):
                base = self._called(reason)
                points.calls.append(reason)
                points.add(base, point, f"{reason.lifetime} is counted in by this call")
                return base
            failure = f"the failure of {reason}"
            points.lifetimes.append(reason)
            points.add(failure, point, f"process {reason.process} is left out, so it must be dead")
            source = solver.failure_raised_by[reason.index]
            if source is None:
                sign = solver.sign_of_life(reason)
                assert sign is not None
                points.signs.append(sign)
                base = self._sign(sign)
                points.add(base, failure, f"{reason} was still alive then")
                return base
            points.add(self._point(source), failure, f"{reason} is counted in there")
            answer = source
        return None

    def _not_covered(self, answer: Answer, lifetime: Lifetime) -> Anomaly:
        call = answer.calls[0]
        if not lifetime.calls.get(call.group):
            return self._no_call(call, lifetime)
        details = []
        if answer.raised_by is not None:
            details.append(
                f"The answer cannot hold earlier, because {answer.raised_by} was alive until then."
                if isinstance(answer.raised_by, Lifetime)
                else f"The answer cannot hold earlier, because process "
                f"{answer.raised_by.lifetime.process} called only then."
            )
        return self._anomaly(
            "counted-without-call",
            f"{self._told(call)}, which counts in {lifetime}, but that was in no call of "
            "live_processes when the answer could hold.",
            details=[*details, RULE_OF_MEMBERS],
            calls=[call],
            lifetimes=[lifetime],
        )

    def _outlives(self, lifetime: Lifetime, sign: Event) -> Anomaly:
        successor = lifetime.next
        assert successor is not None
        points = _Points()
        failure = f"the failure of {lifetime}"
        start = f"the start of {successor} at {self._clock.at(successor.start_ns)}"
        act = self._sign(sign)
        points.add(act, failure, "it is a sign of life")
        points.add(failure, start, "a process fails before it restarts")
        points.add(start, act, "it was earlier")
        return self._anomaly(
            "outlives-successor",
            f"{lifetime} was still served after its process had restarted as {successor}.",
            cycle=points.cycle(),
            lifetimes=[lifetime, successor],
            signs=[sign],
        )

    # --- words ---------------------------------------------------------------------------------

    def _told(self, call: Call) -> str:
        assert call.answer is not None
        assert call.answered_ns is not None
        return (
            f"process {call.lifetime.process} was told {live_set_text(call.answer)} "
            f"(operation {call.id}, answered at {self._clock.at(call.answered_ns)})"
        )

    def _called(self, call: Call) -> str:
        at = self._clock.at(call.invoked_ns)
        return f"the call of process {call.lifetime.process} (operation {call.id}) at {at}"

    def _point(self, answer: Answer) -> str:
        told = next(call for call in answer.calls if call.answer is not None)
        assert told.answer is not None
        live = live_set_text(told.answer)
        if self._of_rounds:
            return f"round {answer.number + 1} with answer {live}"
        return f"the instant of answer {live} to operation {told.id}"

    def _sign(self, sign: Event) -> str:
        at = self._clock.at(sign.time_ns)
        match sign:
            case Invoke():
                what = f"the call of {sign.operation} (operation {sign.id})"
            case Ok():
                what = f"the return of operation {sign.id}"
            case _:
                what = f"the event '{type(sign).__name__.lower()}'"
        return f"{what} of process {sign.process} at {at}"

    def _anomaly(
        self,
        kind: str,
        summary: str,
        *,
        details: Iterable[str] = (),
        cycle: tuple[Reason, ...] = (),
        calls: Iterable[Call] = (),
        lifetimes: Iterable[Lifetime] = (),
        processes: Iterable[int] = (),
        signs: Iterable[Event] = (),
    ) -> Anomaly:
        calls, lifetimes = list(calls), list(lifetimes)
        involved = {call.lifetime.process for call in calls}
        involved.update(lifetime.process for lifetime in lifetimes)
        for call in calls:
            involved.update(call.answer or ())
        times = [call.invoked_ns for call in calls]
        times += [call.answered_ns for call in calls if call.answered_ns is not None]
        times += [lifetime.start_ns for lifetime in lifetimes]
        times += [sign.time_ns for sign in signs]
        operations = {call.id for call in calls}
        operations.update(sign.id for sign in signs if isinstance(sign, Invoke | Ok | Fail | Info))
        return Anomaly(
            kind=kind,
            summary=_capitalised(summary),
            details=tuple(_capitalised(detail) for detail in details),
            cycle=cycle,
            processes=tuple(sorted({*involved, *processes})),
            operations=tuple(sorted(operations)),
            from_ns=min(times, default=0),
            to_ns=max(times, default=0),
        )


class _Points:
    """Points in time with "must come before" between them; finds the shortest cycle.

    Attributes:
      calls, lifetimes, signs: What the points speak of.
    """

    def __init__(self) -> None:
        # Here, because every recorded process imports the checker, and explains nothing.
        import networkx as nx

        self.calls: list[Call] = []
        self.lifetimes: list[Lifetime] = []
        self.signs: list[Event] = []
        self._graph: nx.DiGraph[str] = nx.DiGraph()

    def add(self, before: str, after: str, because: str) -> None:
        if not self._graph.has_edge(before, after):
            self._graph.add_edge(before, after, because=because)

    def cycle(self) -> tuple[Reason, ...]:
        import networkx as nx

        order = {point: number for number, point in enumerate(self._graph)}
        cycles = [
            # networkx may begin a cycle anywhere; begin where the explanation began.
            points[(first := points.index(min(points, key=order.__getitem__))) :] + points[:first]
            for points in nx.simple_cycles(self._graph)
        ]
        points = min(cycles, key=lambda c: (len(c), [order[p] for p in c]), default=[])
        return tuple(
            Reason(before, after, self._graph.edges[before, after]["because"])
            for before, after in zip(points, [*points[1:], *points[:1]], strict=True)
        )


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
