"""Replays what a service saw: every request at its time, the ticks where they can have been.

The requests are given to the model in the order of the recording, at their times, and every recorded
answer must be one that the model has given by then. What the recording does not decide is searched:

* When the service looked at its clock. A tick matters only when something is overdue: a silent task, a
  barrier whose time is up. Then it may come before or after the requests that would see the difference,
  within one second and what `Settings.late_ns` allows; and all of them must fit one phase.
* In which order it declared the dead of one tick.
* In which order requests arrived that passed a relay nearly at once, where the order shows.

The search goes back to the latest choice when an answer contradicts the model. If no choice is left, the
answer that was reached last is the finding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, permutations
from typing import Final, NoReturn

from checker.history import Event, Fail, History, Info, Invoke, Ok, Response, Start
from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.membership import NEVER
from coord_sim.core.messages import (
    Answer,
    Barrier,
    CancelBarrier,
    GetAliveTasks,
    RegisterTask,
    ReportErrorToService,
    Request,
    ShutdownTask,
    WatchTasks,
)
from coord_sim.core.semantics import Semantics
from coord_sim.core.status import Code, Status
from coord_sim.recording.service_recorder import (
    GIVEN_UP,
    HEARTBEAT,
    POLL_FOR_ERROR,
    RECORDER_LANE,
    REGISTER,
)
from coord_sim.replay.answers import Comparison, answer_in_words, response_in_words
from coord_sim.replay.interference import interfere
from coord_sim.replay.model import NEVER_NS, UNKNOWN_SERVICE, Model
from coord_sim.replay.outcome import COULD, COULD_NOT, UNKNOWN, Finding, Replayed
from coord_sim.replay.phases import Phases
from coord_sim.replay.requests import OPERATIONS, Requests
from coord_sim.replay.settings import Settings
from coord_sim.replay.wording import asked_in_words, state_in_words, time_in_words

CHOICES_MAX: Final = 128
"""So many choices are remembered; with older ones forgotten, no answer is called impossible."""

STEPS_PER_EVENT: Final = 20
STEPS_MIN: Final = 200_000

_ORDERS_MAX: Final = 4
"""Of so many deaths in one tick, or requests at once, all orders are tried; of more, some."""

_STOPPING: Final = ("The coordination service is shutting down.", "Socket closed")
_OPEN_SOMETHING: Final = frozenset({Barrier, RegisterTask, ShutdownTask})
_SEE_DEATHS: Final = (
    GetAliveTasks,
    Barrier,
    CancelBarrier,
    RegisterTask,
    ReportErrorToService,
    ShutdownTask,
    WatchTasks,
)


def has_all_calls(history: History) -> bool:
    """Whether a history of a service holds every call, heartbeats and registrations too."""
    if history.header.details.get("records") == "all calls":
        return True
    return any(type(e) is Invoke and e.operation in (REGISTER, HEARTBEAT) for e in history.events)


def incarnations_of(events: Sequence[Event]) -> dict[tuple[int, int], Incarnation]:
    """The incarnation of every lifetime that tells it, by process and lifetime."""
    found: dict[tuple[int, int], Incarnation] = {}
    for event in events:
        incarnation = event.incarnation
        if incarnation is None and type(event) is Invoke and event.operation == REGISTER:
            told = event.arguments.get("incarnation")
            if isinstance(told, str) and told.isascii() and told.isdigit():
                incarnation = int(told)
        if incarnation is not None:
            found.setdefault((event.process, event.lifetime), Incarnation(incarnation))
    return found


class _Contradiction(Exception):
    """The model could not have answered so, as it was brought here."""

    def __init__(self, finding: Finding) -> None:
        super().__init__()
        self.finding = finding


@dataclass(slots=True)
class _State:
    """Everything that a choice changes.

    Attributes:
      index: The event that is next.
      model: The service.
      given: Answers of the model that the recording has not shown yet, and when they were given.
      open: Calls that the recording has not ended, and which events they are.
      early: Events that were taken before their turn.
      phases: What is known of the tick.
      due_ns: Nothing is overdue up to this time.
      waited_ns: Up to here nothing that is overdue was noticed.
      arranged: The event at which the order of requests was chosen last.
    """

    index: int
    model: Model
    phases: Phases
    given: dict[int, tuple[Answer, int]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)
    early: frozenset[int] = frozenset()
    due_ns: int = 0
    waited_ns: int = 0
    arranged: int = -1

    def frozen(self) -> Callable[[], _State]:
        """Makes this state again."""
        index, phases, early = self.index, self.phases, self.early
        model, given, open_ = self.model.frozen(), dict(self.given), dict(self.open)
        due_ns, waited_ns, arranged = self.due_ns, self.waited_ns, self.arranged
        return lambda: _State(
            index=index,
            model=Model.thawed(model),
            phases=phases,
            given=dict(given),
            open=dict(open_),
            early=early,
            due_ns=due_ns,
            waited_ns=waited_ns,
            arranged=arranged,
        )


@dataclass(frozen=True, slots=True)
class _Tick:
    """A way to go on: the service looks at its clock now."""

    time_ns: int
    order: tuple[TaskId, ...]
    phases: Phases


@dataclass(frozen=True, slots=True)
class _Wait:
    """A way to go on: it has not looked yet."""

    phases: Phases


@dataclass(frozen=True, slots=True)
class _Arrange:
    """A way to go on: these requests arrive in this order."""

    order: tuple[int, ...]


_Way = _Tick | _Wait | _Arrange


class ServiceReplay:
    """One replay.

    Args:
      history: What the service saw, with every call.
      settings: What it is held against.
      late_ns: How late ticks may come, if less than the settings allow.
      steps_max: Events and ticks to try in all; None: some times as many as there are.

    Raises:
      MalformedHistory: an operation's arguments are not what they must be.
    """

    def __init__(
        self,
        history: History,
        settings: Settings,
        *,
        late_ns: int | None = None,
        steps_max: int | None = None,
    ) -> None:
        self._history = history
        self._events: Sequence[Event] = history.events
        self._settings = settings
        self._late_ns = settings.late_ns if late_ns is None else late_ns
        self._incarnations = incarnations_of(history.events)
        self._requests = Requests(settings.tasks)
        self._beats: dict[tuple[int, int], Request] = {}
        service = settings.service_incarnation
        self._service = UNKNOWN_SERVICE if service is None else service
        self._comparison = Comparison(
            words=True, counters=True, service_is_known=service is not None
        )
        self._origin_ns = history.events[0].time_ns if history.events else 0
        self._end_ns = history.events[-1].time_ns if history.events else 0
        self._steps = 0
        self._steps_max = (
            max(STEPS_MIN, STEPS_PER_EVENT * len(history.events))
            if steps_max is None
            else steps_max
        )
        self._choices: list[tuple[Callable[[], _State], list[_Way]]] = []
        self._had_choices = False
        self._forgot = False
        self._untried = False
        self._gone_ns: int | None = None
        self._replaced = False
        self._limits: list[str] = []
        self._deepest: Finding | None = None

    def run(self) -> Replayed:
        """Replays."""
        if self._starts_in_the_middle():
            self._limits.append(
                "the recording begins in the middle of a job: what the service knew then is not in it"
            )
            return self._replayed(UNKNOWN, None, Phases(self._late_ns))
        state = _State(
            index=0,
            model=Model(self._settings.config(), self._service, self._origin_ns),
            phases=Phases(self._late_ns),
        )
        while True:
            try:
                self._forward(state)
                return self._replayed(COULD, None, state.phases)
            except _Contradiction as contradiction:
                found = contradiction.finding
                if self._deepest is None or found.event > self._deepest.event:
                    self._deepest = found
            if self._steps > self._steps_max:
                return self._replayed(UNKNOWN, self._deepest, state.phases)
            following = self._back()
            if following is None:
                self._doubt()
                verdict = UNKNOWN if self._limits else COULD_NOT
                return self._replayed(verdict, self._deepest, state.phases)
            state = following

    def _replayed(self, verdict: str, finding: Finding | None, phases: Phases) -> Replayed:
        notes = []
        if phases.is_narrowed and verdict == COULD:
            notes.append(
                f"the ticks of the service fit phases from {phases.words()} after a full second of "
                f"the recorder's clock, if none is more than {self._late_ns / 1e6:g} ms late"
            )
        if self._gone_ns is not None:
            notes.append(
                f"from {time_in_words(self._gone_ns, self._origin_ns)} on, calls ended because the "
                "service or the connection went away; these ends were not judged"
            )
        if self._steps > self._steps_max:
            self._limits.append(f"the search was given up after {self._steps:,} steps")
        notes += self._limits if verdict == UNKNOWN else []
        notes += [fault.name for fault in self._history.faults if fault.lane == RECORDER_LANE]
        assert verdict in (COULD, COULD_NOT, UNKNOWN)
        return Replayed(
            verdict=verdict,  # type: ignore[arg-type]  # as asserted
            finding=finding,
            side="service",
            events=len(self._events),
            operations=sum(
                1 for e in self._events if type(e) is Invoke and e.operation in OPERATIONS
            ),
            steps=self._steps,
            had_choices=self._had_choices,
            notes=tuple(notes),
        )

    def _doubt(self) -> None:
        """Says why an answer that no way explains may yet be right."""
        assert self._deepest is not None
        found_ns = self._events[self._deepest.event].time_ns
        if self._forgot:
            self._limits.append(f"only the latest {CHOICES_MAX} choices were tried otherwise")
        if self._untried:
            self._limits.append(
                f"of more than {_ORDERS_MAX} things at once not all orders were tried"
            )
        if self._replaced:
            self._limits.append(
                "from this answer on another service answers, which is not replayed"
            )
        faults = self._history.faults
        if any(f.lane == RECORDER_LANE and f.time_ns <= found_ns for f in faults):
            self._limits.append("the recording lacks calls that came before this answer")

    def _starts_in_the_middle(self) -> bool:
        """Whether somebody is in the job whose registration is not recorded."""
        registered: set[tuple[int, int]] = set()
        for event in self._events:
            if isinstance(event, Invoke):
                if event.operation == REGISTER:
                    registered.add((event.process, event.lifetime))
            elif isinstance(event, Start) and (event.process, event.lifetime) not in registered:
                return True
        return False

    # --- going on ------------------------------------------------------------------------------

    def _forward(self, state: _State) -> None:
        """Takes all events that are left.

        Raises:
          _Contradiction: one of them cannot be.
        """
        events, beats, request_of = self._events, self._beats, self._request
        given, open_, early = state.given, state.open, state.early
        handle, agrees, may_reorder = (
            state.model.handle,
            self._comparison.agrees,
            self._settings.reorder_ns > 0,
        )
        began = state.index
        try:
            for index in range(began, len(events)):
                event = events[index]
                if isinstance(event, Invoke):
                    if event.operation not in OPERATIONS or index in early:
                        continue
                    request = None
                    if event.operation == HEARTBEAT and not event.arguments:
                        request = beats.get((event.process, event.lifetime))
                    if request is None:
                        request = request_of(event)
                    time_ns = event.time_ns
                    if time_ns > state.due_ns:
                        state.index = index
                        self._look_at_time(state, time_ns, request, needed=False)
                    if may_reorder and state.arranged < index:
                        state.index = index
                        self._arrange(state, index, request)
                    open_[event.id] = index
                    for effect in handle(event.id, request, time_ns):  # type: ignore[arg-type]
                        if type(effect) is Reply:
                            given[effect.call] = (effect.answer, time_ns)
                    if type(request) in _OPEN_SOMETHING:
                        self._note_deadlines(state, request, time_ns)
                elif isinstance(event, Ok | Fail | Info):
                    called = open_.pop(event.id, None)
                    if called is None:
                        continue  # None of the service's operations.
                    state.index = index
                    answer = given.pop(event.id, None) or self._awaited(state, event, called)
                    if answer is None:
                        continue
                    if not agrees(events[called].operation, event, answer[0]):  # type: ignore[union-attr]
                        self._differs(state, event, called, answer)
                state.index = index
        finally:
            taken = state.index - began + 1
            self._steps += taken
        state.index = len(events)
        self._look_for_missing(state)

    def _request(self, event: Invoke) -> Request:
        """The request that a call is; a lifetime's usual heartbeat is made once."""
        incarnation = self._incarnations.get((event.process, event.lifetime), NEVER)
        request = self._requests.request_of(event, incarnation, self._service)
        assert request is not None, "of one of the service's operations"
        if event.operation == HEARTBEAT and not event.arguments:
            self._beats[event.process, event.lifetime] = request
        return request

    def _note_deadlines(self, state: _State, request: Request, time_ns: int) -> None:
        """What a request may have made due earlier than all else."""
        config = state.model.config
        if isinstance(request, Barrier):  # A negative time-out is one that is over.
            earliest_ns = time_ns + max(request.timeout_ms, 0) * 1_000_000
        elif isinstance(request, RegisterTask):
            earliest_ns = time_ns + min(config.heartbeat_timeout_ns, config.register_timeout_ns)
        elif isinstance(request, ShutdownTask):
            earliest_ns = time_ns + config.shutdown_timeout_ns
        else:
            return
        state.due_ns = min(state.due_ns, earliest_ns)

    def _take(self, state: _State, effects: Sequence[Effect], time_ns: int) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                state.given[effect.call] = (effect.answer, time_ns)

    # --- time ----------------------------------------------------------------------------------

    def _look_at_time(
        self, state: _State, time_ns: int, request: Request | None, *, needed: bool
    ) -> None:
        """Lets the service tick before `time_ns`, if something is overdue and it shows.

        Args:
          state: Is changed.
          time_ns: Of the event that is next.
          request: That event's, if it is a request.
          needed: Whether an answer must come of it.
        """
        while True:
            dues = state.model.due_times()
            due_ns = dues[0] if dues else NEVER_NS
            if due_ns >= time_ns:
                state.due_ns = due_ns
                state.waited_ns = 0
                return
            previous_ns = self._events[state.index - 1].time_ns if state.index else self._origin_ns
            silent = state.phases.silent(due_ns, previous_ns)
            self._had_choices = True  # At least of the phase.
            shows = needed or silent.is_empty or self._shows(state, request, time_ns)
            if not shows:
                return  # It may come now or later: nothing tells the difference.
            ways: list[_Way] = [] if needed or silent.is_empty else [_Wait(silent)]
            ways += self._ticks(state, dues, time_ns)
            if not ways:
                self._contradict_tick(state, due_ns, time_ns)
            way = self._choose(state, ways)
            if isinstance(way, _Wait):
                state.phases = way.phases
                state.waited_ns = time_ns
                return
            assert isinstance(way, _Tick)
            self._tick(state, way)
            if needed:
                return

    def _ticks(self, state: _State, dues: Sequence[int], until_ns: int) -> Iterator[_Tick]:
        """The ticks that can have come before a time: by whom they find, and in which order."""
        after_ns = max(dues[0], state.waited_ns)
        cuts = [after_ns, *(due_ns for due_ns in dues if after_ns < due_ns < until_ns), until_ns]
        for first_ns, last_ns in pairwise(cuts):
            phases = state.phases.ticked_between(first_ns, last_ns)
            if phases.is_empty:
                continue
            for order in self._orders(state.model, state.model.stale_at(last_ns)):
                yield _Tick(last_ns, order, phases)

    def _orders(self, model: Model, stale: Sequence[TaskId]) -> Iterator[tuple[TaskId, ...]]:
        survey_matters = model.has_open_rounds() or bool(model.survey(0).barriers)
        if len(stale) < 2 or not survey_matters:
            yield tuple(stale)
        elif len(stale) <= _ORDERS_MAX:
            yield from permutations(stale)
        else:
            self._untried = True
            yield tuple(stale)
            for last in stale:
                yield (*(task for task in stale if task != last), last)

    def _tick(self, state: _State, tick: _Tick) -> None:
        state.phases = tick.phases
        self._take(state, state.model.tick(tick.time_ns, tick.order), tick.time_ns)
        state.due_ns = 0
        state.waited_ns = tick.time_ns
        self._steps += 1

    def _shows(self, state: _State, request: Request | None, time_ns: int) -> bool:
        """Whether a request is treated otherwise after the tick that is overdue."""
        if request is None:
            return False
        if isinstance(request, _SEE_DEATHS):
            return True
        timeout_ns = state.model.config.heartbeat_timeout_ns
        task = getattr(request, "task", None)
        if task is not None:
            known = state.model.membership.find(task)
            return known is not None and known.last_heartbeat_ns + timeout_ns < time_ns
        return not _serves_all(state.model.config.semantics)

    # --- choices -------------------------------------------------------------------------------

    def _choose(self, state: _State, ways: list[_Way]) -> _Way:
        """The first way; the others are remembered."""
        if len(ways) > 1:
            if len(self._choices) == CHOICES_MAX:
                del self._choices[0]
                self._forgot = True
            self._choices.append((state.frozen(), ways[1:]))
        return ways[0]

    def _back(self) -> _State | None:
        """The state of the latest choice, with the next of its ways taken; None if there is none."""
        if not self._choices:
            return None
        make, ways = self._choices[-1]
        state, way = make(), ways.pop(0)
        if not ways:
            self._choices.pop()
        if isinstance(way, _Tick):
            self._tick(state, way)
        elif isinstance(way, _Arrange):
            self._arrive(state, way)
        return state

    # --- the order of requests that passed a relay -----------------------------------------------

    def _arrange(self, state: _State, index: int, request: Request) -> None:
        """Chooses the order of requests that came nearly at once, if it makes a difference."""
        state.arranged = index
        members = [index]
        until_ns = self._events[index].time_ns + self._settings.reorder_ns
        processes = {self._events[index].process}
        ends: set[int] = set()
        requests = {index: request}
        for other in range(index + 1, len(self._events)):
            event = self._events[other]
            if event.time_ns > until_ns:
                break
            if type(event) is Invoke:
                if event.process in processes or event.operation not in OPERATIONS:
                    continue
                asked = self._request(event)
                if any(interfere(state.model, asked, requests[i]) for i in members):
                    members.append(other)
                    processes.add(event.process)
                    requests[other] = asked
            elif isinstance(event, Ok | Fail | Info):
                ends.add(event.id)
                if any(self._call(i).id in ends for i in members):
                    break  # It was answered: what comes later came later.
        if len(members) == 1:
            return
        self._had_choices = True
        orders = list(permutations(members)) if len(members) <= _ORDERS_MAX else []
        if not orders:
            self._untried = True
            orders = [tuple(members), tuple(reversed(members))]
            orders += [(last, *(i for i in members if i != last)) for last in members[1:]]
        way = self._choose(state, [_Arrange(order) for order in orders])
        assert isinstance(way, _Arrange)
        # The recorded order is the first one: nothing is to be done but to go on.

    def _arrive(self, state: _State, way: _Arrange) -> None:
        """Gives the model requests before their turn, in an order of their own."""
        time_ns = self._events[state.index].time_ns
        for index in way.order:
            event = self._events[index]
            assert isinstance(event, Invoke)
            request = self._request(event)
            state.open[event.id] = index
            self._take(state, state.model.handle(CallId(event.id), request, time_ns), time_ns)
            self._note_deadlines(state, request, time_ns)
        state.early = state.early | frozenset(way.order)
        state.arranged = max(way.order)

    # --- answers -------------------------------------------------------------------------------

    def _awaited(self, state: _State, event: Response, called: int) -> tuple[Answer, int] | None:
        """The model's answer to a call that it has not answered yet; None if none is needed.

        Raises:
          _Contradiction: it gives none.
        """
        if isinstance(event, Info) and _is_hang_up(event):
            if event.code == Code.UNAVAILABLE.name and self._gone_ns is None:
                self._gone_ns = event.time_ns
            state.model.hang_up(CallId(event.id))
            return None
        while event.time_ns > state.due_ns and event.id not in state.given:
            before = state.model.due_times()[:1]
            if not before or before[0] >= event.time_ns:
                break
            state.open[event.id] = called  # As it was, should the search come back here.
            self._look_at_time(state, event.time_ns, None, needed=True)
            del state.open[event.id]
        answer = state.given.pop(event.id, None)
        if answer is None:
            why = self._why_not_yet(state, called, event.time_ns)
            self._contradict(state, event, called, f"nothing yet: {why}")
        return answer

    def _why_not_yet(self, state: _State, called: int, time_ns: int) -> str:
        dues = state.model.due_times()
        if self._call(called).operation == POLL_FOR_ERROR:
            return "there is no error to tell"
        if not dues:
            return "the call waits"
        ahead_s = (dues[0] - time_ns) / 1e9
        return (
            "the call waits; the next thing that its ticks can find is due "
            f"{ahead_s:.3f} s after this answer"
        )

    def _differs(
        self, state: _State, event: Response, called: int, answer: tuple[Answer, int]
    ) -> None:
        if isinstance(event, Info) and _is_hang_up(event):
            return  # The answer and the hang-up have crossed.
        if isinstance(answer[0], Status) and answer[0].wrong_service is not None:
            self._replaced = True
        words = answer_in_words(self._call(called).operation, answer[0])
        self._contradict(state, event, called, words)

    def _contradict(self, state: _State, event: Response, called: int, allowed: str) -> NoReturn:
        call = self._call(called)
        request = self._request(call)
        raise _Contradiction(
            Finding(
                event=state.index,
                request=called,
                asked=asked_in_words(call),
                state=state_in_words(state.model, request, event.time_ns, heartbeats=True),
                allowed=allowed,
                answered=response_in_words(call.operation, event),
            )
        )

    def _contradict_tick(self, state: _State, due_ns: int, time_ns: int) -> NoReturn:
        """Something was overdue, and no tick that fits the others can have noticed it."""
        event = self._events[state.index]
        overdue = ", ".join(map(str, state.model.stale_at(time_ns))) or "a barrier's time-out"
        called = state.open.get(event.id) if isinstance(event, Ok | Fail | Info) else state.index
        asked = "the tick of the service" if called is None else asked_in_words(self._call(called))
        if isinstance(event, Ok | Fail | Info):
            operation = "" if called is None else self._call(called).operation
            answered = response_in_words(operation, event)
        else:
            answered = f"none of these shows by {time_in_words(time_ns, self._origin_ns)}"
        raise _Contradiction(
            Finding(
                event=state.index,
                request=called,
                asked=asked,
                state=(
                    f"overdue since {time_in_words(due_ns, self._origin_ns)}: {overdue}",
                    f"the ticks before fit phases from {state.phases.words()}",
                ),
                allowed=(
                    "a tick that notices it, once a second and at most "
                    f"{state.phases.late_ns / 1e9:g} s late"
                ),
                answered=answered,
            )
        )

    def _look_for_missing(self, state: _State) -> None:
        """Answers that the model gave, and that the recording lacks although it goes on long after.

        Raises:
          _Contradiction: there is one.
        """
        for id_, (answer, time_ns) in state.given.items():
            called = state.open.get(id_)
            if called is None or self._end_ns - time_ns <= self._settings.late_ns:
                continue
            call = self._call(called)
            raise _Contradiction(
                Finding(
                    event=len(self._events) - 1,
                    request=called,
                    asked=asked_in_words(call),
                    state=(
                        (
                            f"the model answers at {time_in_words(time_ns, self._origin_ns)}; the "
                            f"recording ends at {time_in_words(self._end_ns, self._origin_ns)}"
                        ),
                    ),
                    allowed=answer_in_words(call.operation, answer),
                    answered="nothing",
                )
            )

    def _call(self, index: int) -> Invoke:
        call = self._events[index]
        assert isinstance(call, Invoke), "as the index says"
        return call


def _serves_all(semantics: Semantics) -> bool:
    return semantics.serves_stale_callers and semantics.serves_dead_callers


def _is_hang_up(event: Info) -> bool:
    """Whether a call's end is not the service's answer: its client, or the service, went away."""
    if event.code == Code.CANCELLED.name:
        return event.message == GIVEN_UP.message
    return event.code == Code.UNAVAILABLE.name and event.message.startswith(_STOPPING)
