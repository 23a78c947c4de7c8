"""Replays what callers saw: is there an order of arrivals that gives every caller its answer?

A request arrives at some moment between its call and its answer; one that was never answered arrives at
some time or never. Heartbeats are not recorded, so deaths are inputs, too: of a process that ended, as
early as its silence allows; of one that lives, as `Settings.suspicions` says. A client registers again
when it does not hear, so a registration may come twice.

The search goes through the answers in the order of time. For an answer that the model has not given, it
lets something happen: the request itself arrives, then those that could help, then deaths. A choice that
leads nowhere is taken back, and a state that led nowhere is not visited again. Nothing is let happen
before an answer needs it: what happened earlier, and showed nothing, may as well happen then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, Literal, TypeAlias

from checker.history import (
    Crash,
    Event,
    Fail,
    History,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
)
from coord_sim.core.effects import Effect, Reply
from coord_sim.core.identifiers import CallId, Incarnation, TaskId
from coord_sim.core.membership import NEVER
from coord_sim.core.messages import (
    Answer,
    Barrier,
    BarrierPassed,
    Caller,
    PollForError,
    Registered,
    RegisterTask,
    Request,
    TaskState,
)
from coord_sim.core.status import Code, Status
from coord_sim.recording.service_recorder import GIVEN_UP, RECORDER_LANE, REGISTER
from coord_sim.replay.answers import (
    Comparison,
    answer_in_words,
    response_in_words,
)
from coord_sim.replay.interference import Keys, keys_of, overlap
from coord_sim.replay.model import UNKNOWN_SERVICE, Model, essence
from coord_sim.replay.outcome import COULD, COULD_NOT, UNKNOWN, Finding, Replayed
from coord_sim.replay.requests import OPERATIONS, Requests
from coord_sim.replay.settings import (
    Settings,
    may_be_of_several_services,
    misses_calls,
    misses_stalls,
)
from coord_sim.replay.wording import asked_in_words, state_in_words

STEPS_MAX: Final = 300_000
SECONDS_MAX: Final = 60.0
DEAD_ENDS_MAX: Final = 200_000
"""So many states are remembered as leading nowhere."""

_TOGETHER_MAX: Final = 4
"""Of so many who may have died in one tick, all combinations are tried; of more, some."""

_CHECKPOINT: Final = 32
_SECOND_TIME: Final = 1 << 40
_POLLS: Final = 1 << 41
_PLACEHOLDER: Final = (1 << 64) - 2
_SERVICE_DIED: Final = re.compile(r"(crash|kill|restart)\w* of the service")
_REFUSED_BY_THE_CLIENT: Final = "is already ongoing"
_ENDED_BY_THE_CLIENT: Final = (
    "the call timed out on the client",
    "Connection reset by peer",
    "failed to connect to all addresses",
    "The client is shutting down.",
    GIVEN_UP.message,
)
"""How calls end, in recordings with the service's own words, that the service did not answer."""


@dataclass(frozen=True, slots=True)
class _Operation:
    """A request that may arrive from `open_ns` on.

    Attributes:
      id: Call id for the model.
      call: The call, or the start of which it is the registration.
      request: What arrives; the counter of a barrier may be filled in then.
      key: For requests of the store: the key, and whether what is under it counts.
      counts: Whether the counter of a barrier is to be filled in.
    """

    id: int
    open_ns: int
    call: Invoke | Start
    index: int
    request: Request
    key: Keys | None = None
    counts: bool = False


@dataclass(frozen=True, slots=True)
class _End:
    """An answer, at its latest moment."""

    time_ns: int
    index: int
    operation: _Operation
    event: Ok | Fail | Info | Start


_Point: TypeAlias = _Operation | _End
_Move: TypeAlias = tuple[Literal["arrive", "again", "die", "expire"], int]


@dataclass(slots=True)
class _Life:
    """One lifetime, as its heartbeats matter.

    Attributes:
      ended_ns: When it was last alive, at the earliest; None if it lives at the end of the history.
    """

    process: int
    incarnation: Incarnation
    ended_ns: int | None = None


@dataclass(slots=True)
class _State:
    """What moves change.

    Attributes:
      position: The point that is next.
      given: Answers of the model that no point has asked for yet.
      coming: Requests that were made and have not arrived.
      repeated: Requests that have arrived twice.
      counters: Of the latest use of a barrier id by a lifetime, as its client knows it.
      sent: The counters with which barrier calls were made whose recorder does not tell them.
    """

    position: int
    model: Model
    given: dict[int, Answer] = field(default_factory=dict)
    coming: dict[int, None] = field(default_factory=dict)
    repeated: set[int] = field(default_factory=set)
    counters: dict[tuple[int, int, str], int] = field(default_factory=dict)
    sent: dict[int, int] = field(default_factory=dict)

    def copy(self) -> _State:
        """The same, to be changed apart."""
        return _State(
            self.position,
            Model.thawed(self.model.frozen()),
            dict(self.given),
            dict(self.coming),
            set(self.repeated),
            dict(self.counters),
            dict(self.sent),
        )

    def essence(self) -> Hashable:
        """What decides about all that follows."""
        return hash(
            (
                self.position,
                essence(self.model),
                tuple(sorted(self.coming)),
                tuple(sorted(self.repeated)),
                tuple(sorted((id_, essence(answer)) for id_, answer in self.given.items())),
                tuple(sorted(self.counters.items())),
            )
        )


@dataclass(slots=True)
class _Frame:
    """A state on the way, and what may happen in it that was not tried yet.

    Attributes:
      state: Kept once the search has come back to it.
    """

    moves: Iterator[_Move]
    state: _State | None = None


class CallerReplay:
    """One replay.

    Args:
      history: What callers saw, or a service that did not record heartbeats.
      settings: What it is held against.
      steps_max: Moves to try in all.
      seconds_max: Time to take.

    Raises:
      MalformedHistory: an operation's arguments are not what they must be.
    """

    def __init__(
        self,
        history: History,
        settings: Settings,
        *,
        steps_max: int = STEPS_MAX,
        seconds_max: float = SECONDS_MAX,
    ) -> None:
        self._history = history
        self._events: Sequence[Event] = history.events
        self._settings = settings
        self._steps_max = steps_max
        self._until_s = time.monotonic() + seconds_max
        self._steps = 0
        self._gave_up = ""
        self._untried = False
        events = {event.process for event in history.events}
        # Of a service, and of callers that we started ourselves, all calls are recorded.
        self._unrecorded = (
            sorted(set(history.header.participants) - events) if misses_stalls(history) else []
        )
        self._misses_calls = misses_calls(history)
        self._service_is_one = not may_be_of_several_services(history)
        self._service_died = any(_SERVICE_DIED.search(fault.name) for fault in history.faults)
        service = settings.service_incarnation
        self._service = UNKNOWN_SERVICE if service is None else service
        self._is_server = history.header.source == "server"
        self._has_words = history.header.source != "processes"
        self._comparison = Comparison(
            words=self._has_words,
            counters=self._has_words,
            service_is_known=service is not None,
        )
        self._requests = Requests(settings.tasks)
        self._lives: dict[tuple[int, int], _Life] = {}
        self._life_of: dict[tuple[int, Incarnation], _Life] = {}
        self._operations: dict[int, _Operation] = {}
        self._first_fault_ns = min(
            (fault.time_ns for fault in history.faults if fault.lane != RECORDER_LANE), default=None
        )
        self._find_lives()
        self._points = self._find_points()
        self._everything_commutes = (
            settings.semantics.serves_stale_callers and settings.semantics.serves_dead_callers
        )
        self._deepest: Finding | None = None
        self._deepest_position = -1
        self._deepest_is_whole = False
        self._dead_ends: set[Hashable] = set()

    # --- reading the history -------------------------------------------------------------------

    def _find_lives(self) -> None:
        """Incarnations: told by any event of a lifetime, or by the live sets that name nobody else."""
        told: dict[tuple[int, int], int] = {}
        seen: dict[int, dict[int, None]] = {}
        for event in self._events:
            key = (event.process, event.lifetime)
            if key not in self._lives:
                self._lives[key] = _Life(event.process, NEVER)
            if event.incarnation is not None:
                told.setdefault(key, event.incarnation)
            if isinstance(event, Crash):
                since_ns = event.time_ns if event.since_ns is None else event.since_ns
                self._lives[key].ended_ns = since_ns - event.uncertainty_ns
            elif isinstance(event, Leave):
                self._lives[key].ended_ns = event.time_ns - event.uncertainty_ns
            elif isinstance(event, Ok) and isinstance(event.result, Mapping):
                for process, incarnation in event.result.items():
                    if isinstance(process, int) and isinstance(incarnation, int):
                        seen.setdefault(process, {})[incarnation] = None
        known = {(process, incarnation) for (process, _), incarnation in told.items()}
        for number, (key, life) in enumerate(sorted(self._lives.items())):
            incarnation = told.get(key)
            if incarnation is None:
                nameless = [i for i in seen.get(key[0], ()) if (key[0], i) not in known]
                incarnation = nameless[0] if nameless else _PLACEHOLDER - number
                known.add((key[0], incarnation))
            life.incarnation = Incarnation(incarnation)
            self._life_of[life.process, life.incarnation] = life

    def _find_points(self) -> list[_Point]:
        """Calls at their earliest moments and answers at their latest, in order of time."""
        points: list[tuple[int, int, int, _Point]] = []
        calls: dict[int, _Operation] = {}
        registrations = 0
        registered = {(e.process, e.lifetime) for e in self._events if isinstance(e, Start)}
        latest_ns: dict[int, int] = {}
        for index, event in enumerate(self._events):
            key = (event.process, event.lifetime)
            if isinstance(event, Start) or key not in registered:
                registered.add(key)
                registrations += 1
                before_ns = latest_ns.get(event.process, self._events[0].time_ns)
                operation = self._registration(event, index, registrations, before_ns)
                points.append((operation.open_ns, 0, index, operation))
                self._operations[operation.id] = operation
                if isinstance(event, Start):
                    end = _End(event.time_ns + event.uncertainty_ns, index, operation, event)
                    points.append((end.time_ns, 1, index, end))
            latest_ns[event.process] = event.time_ns
            if isinstance(event, Invoke) and event.operation in OPERATIONS - {REGISTER}:
                operation = self._call(event, index)
                calls[event.id] = self._operations[operation.id] = operation
                points.append((operation.open_ns, 0, index, operation))
            elif isinstance(event, Ok | Fail | Info):
                called = calls.get(event.id)
                if called is not None and self._is_of_the_service(event):
                    end = _End(event.time_ns + event.uncertainty_ns, index, called, event)
                    points.append((end.time_ns, 1, index, end))
        points.sort(key=lambda point: point[:3])
        return [point for *_, point in points]

    def _registration(self, event: Event, index: int, number: int, before_ns: int) -> _Operation:
        """The registration of a lifetime, which came after `before_ns` if nothing tells more."""
        since_ns = before_ns
        if isinstance(event, Start) and event.since_ns is not None:
            since_ns = event.since_ns
        life = self._lives[event.process, event.lifetime]
        request = RegisterTask(task=TaskId(event.process), incarnation=life.incarnation)
        call = event if isinstance(event, Start) else _as_start(event)
        return _Operation(
            _POLLS * 2 + number, since_ns - event.uncertainty_ns, call, index, request
        )

    def _call(self, event: Invoke, index: int) -> _Operation:
        life = self._lives[event.process, event.lifetime]
        request = self._requests.request_of(event, life.incarnation, self._service)
        assert request is not None
        return _Operation(
            event.id,
            event.time_ns - event.uncertainty_ns,
            event,
            index,
            request,
            keys_of(request),
            isinstance(request, Barrier) and "counter" not in event.arguments,
        )

    def _is_of_the_service(self, event: Ok | Fail | Info) -> bool:
        """Whether the service gave this answer; what is indefinite may be its client's."""
        if isinstance(event, Fail):
            return _REFUSED_BY_THE_CLIENT not in event.message
        if isinstance(event, Info):
            return self._has_words and not event.message.startswith(_ENDED_BY_THE_CLIENT)
        return True

    # --- searching -----------------------------------------------------------------------------

    def run(self) -> Replayed:
        """Searches."""
        origin_ns = self._events[0].time_ns if self._events else 0
        state = _State(0, Model(self._settings.config(), self._service, origin_ns))
        taken: list[_Move] = []
        frames: list[_Frame] = []
        checkpoints = {0: state.copy()}
        while True:
            if self._advance(state):
                return self._replayed(COULD)
            is_known = bool(self._dead_ends) and state.essence() in self._dead_ends
            frames.append(_Frame(iter(() if is_known else self._moves(state))))
            while True:
                if self._is_spent():
                    return self._replayed(UNKNOWN)
                frame = frames[-1]
                move = next(frame.moves, None)
                if move is not None:
                    break
                if len(self._dead_ends) < DEAD_ENDS_MAX:
                    self._dead_ends.add((frame.state or state).essence())
                frames.pop()
                if not frames:
                    is_open = (
                        self._untried
                        or self._service_died
                        or self._unrecorded
                        or self._misses_calls
                        or not self._service_is_one
                    )
                    return self._replayed(UNKNOWN if is_open else COULD_NOT)
                taken.pop()
                for depth in [depth for depth in checkpoints if depth > len(taken)]:
                    del checkpoints[depth]
                parent = frames[-1]
                if parent.state is None:
                    parent.state = self._restored(checkpoints, taken)
                state = parent.state.copy()
            self._make(state, move)
            taken.append(move)
            if len(taken) % _CHECKPOINT == 0:
                checkpoints[len(taken)] = state.copy()

    def _restored(self, checkpoints: Mapping[int, _State], taken: Sequence[_Move]) -> _State:
        """The state after these moves, made again from the latest checkpoint."""
        depth = max(checkpoints)
        state = checkpoints[depth].copy()
        self._advance(state)
        for move in taken[depth:]:
            self._make(state, move)
            self._advance(state)
        return state

    def _is_spent(self) -> bool:
        self._steps += 1
        if self._steps > self._steps_max:
            self._gave_up = f"the search was given up after {self._steps_max:,} moves"
        elif self._steps % 64 == 0 and time.monotonic() > self._until_s:
            self._gave_up = f"the search was given up for want of time, after {self._steps:,} moves"
        return bool(self._gave_up)

    def _advance(self, state: _State) -> bool:
        """Goes on to the next answer that the model has not given; True if there is none."""
        points = self._points
        while state.position < len(points):
            point = points[state.position]
            if isinstance(point, _Operation):
                state.coming[point.id] = None
            else:
                answer = state.given.get(point.operation.id)
                if answer is None or not self._agrees(point, answer):
                    self._note(state, point, answer)
                    return False
                del state.given[point.operation.id]
                self._note_counter(state, point, answer)
            state.position += 1
        return True

    def _agrees(self, end: _End, answer: Answer) -> bool:
        if isinstance(end.event, Start):
            return isinstance(answer, Registered)
        call = end.operation.call
        assert isinstance(call, Invoke)
        return self._comparison.agrees(call.operation, end.event, answer)

    def _note_counter(self, state: _State, end: _End, answer: Answer) -> None:
        """A client takes the counter of its next barrier from the answer."""
        request = end.operation.request
        if not end.operation.counts or not isinstance(request, Barrier):
            return
        key = (end.operation.call.process, end.operation.call.lifetime, request.barrier_id)
        if isinstance(answer, BarrierPassed):
            state.counters[key] = answer.counter
        elif isinstance(answer, Status) and answer.barrier_error is not None:
            state.counters[key] = answer.barrier_error.counter

    # --- moves ---------------------------------------------------------------------------------

    def _moves(self, state: _State) -> list[_Move]:
        """What may happen before the next answer, the most promising first."""
        end = self._points[state.position]
        assert isinstance(end, _End)
        own = end.operation
        if own.id in state.given:
            return []  # It has another answer already.
        moves: list[_Move] = []
        if own.id in state.coming:
            moves.append(("arrive", own.id))
        relevant = [id_ for id_ in state.coming if id_ != own.id and self._helps(state, own, id_)]
        relevant.sort(key=lambda id_: self._rank(own, self._operations[id_]))
        moves += [("arrive", id_) for id_ in relevant]
        if own.key is None or not self._everything_commutes:
            moves += self._deaths(state, end)
            overdue = {
                end.time_ns + barrier.remaining_ns
                for barrier in state.model.survey(end.time_ns).barriers
                if barrier.remaining_ns < 0
            }
            expiries: list[_Move] = [("expire", deadline_ns + 1) for deadline_ns in sorted(overdue)]
            if isinstance(end.event, Fail | Info) and end.event.code == Code.DEADLINE_EXCEEDED.name:
                moves = (
                    moves[:1] + expiries + moves[1:] if own.id in state.coming else expiries + moves
                )
            else:
                moves += expiries
            moves += self._repetitions(state)
        return moves

    def _helps(self, state: _State, own: _Operation, other_id: int) -> bool:
        """Whether the arrival of another request could make a difference to an answer now."""
        if not self._everything_commutes:
            return True
        other = self._operations[other_id]
        if own.key is None or other.key is None:
            return own.key is None and other.key is None
        return any(
            overlap(other.key, key)
            for key in (own.key, *(self._operations[id_].key for id_ in state.coming))
            if key is not None and overlap(key, own.key)
        )

    def _rank(self, own: _Operation, other: _Operation) -> tuple[int, int]:
        same = type(other.request) is type(own.request) and other.key == own.key
        if isinstance(own.request, RegisterTask):
            same = isinstance(other.request, RegisterTask)
        return (0 if same else 1, other.open_ns)

    def _deaths(self, state: _State, end: _End) -> list[_Move]:
        """Who may be declared dead by now; those that have ended first."""
        found: list[tuple[int, int]] = []
        for task in state.model.membership.tasks:
            if task.state is not TaskState.CONNECTED:
                continue
            life = self._life_of.get((task.id, task.incarnation))
            ended_ns = None if life is None else life.ended_ns
            if ended_ns is not None and self._silent_enough(ended_ns, end.time_ns):
                found.append((0, task.id))
            elif self._may_be_suspected(end.time_ns):
                found.append((1, task.id))
        tasks = [task for _, task in sorted(found)]
        moves: list[_Move] = [("die", 1 << task) for task in tasks]
        if len(tasks) > 1 and not self._settings.semantics.declares_deaths_one_by_one:
            # The deaths of one tick are one event: they may not be let happen one after the other.
            if len(tasks) > _TOGETHER_MAX:
                self._untried = True
                subsets = [tuple(tasks)]
            else:
                sizes = range(2, len(tasks) + 1)
                subsets = [subset for size in sizes for subset in combinations(tasks, size)]
            moves += [("die", sum(1 << task for task in subset)) for subset in subsets]
        return moves

    def _silent_enough(self, ended_ns: int, now_ns: int) -> bool:
        """Whether a process that ended may have been silent for a time-out.

        Clients beat every half of the time-out, so that the last beat is at most that much older.
        """
        timeout_ns = self._settings.heartbeat_timeout_ns
        if timeout_ns is None or self._history.header.clock == "abstract":
            return ended_ns <= now_ns
        return ended_ns + timeout_ns // 2 - self._settings.late_ns < now_ns

    def _may_be_suspected(self, now_ns: int) -> bool:
        kind = self._settings.suspicions
        if kind == "faults":
            return self._first_fault_ns is not None and self._first_fault_ns <= now_ns
        return kind == "any"

    def _repetitions(self, state: _State) -> list[_Move]:
        """Requests that may arrive a second time."""
        found: list[_Move] = []
        for id_, operation in self._operations.items():
            if id_ in state.coming or id_ in state.repeated:
                continue
            if operation.open_ns > self._points[state.position].time_ns:  # type: ignore[union-attr]
                continue
            request = operation.request
            if isinstance(request, RegisterTask):
                task = state.model.membership.find(request.task)
                if (
                    task is not None
                    and task.incarnation == request.incarnation
                    and task.state is TaskState.ERROR
                ):
                    found.append(("again", id_))
            elif self._settings.repeats:
                found.append(("again", id_))
        return found

    def _make(self, state: _State, move: _Move) -> None:
        kind, number = move
        end = self._points[state.position]
        assert isinstance(end, _End)
        if kind == "die":
            tasks = [TaskId(task) for task in range(number.bit_length()) if number >> task & 1]
            self._take(state, state.model.declare_dead(tasks, end.time_ns))
            return
        if kind == "expire":
            self._take(state, state.model.expire(number))
            return
        operation = self._operations[number]
        request = operation.request
        if operation.counts and isinstance(request, Barrier):
            key = (operation.call.process, operation.call.lifetime, request.barrier_id)
            counter = state.sent.setdefault(number, state.counters.get(key, -1) + 1)
            request = Barrier(
                caller=request.caller,
                barrier_id=request.barrier_id,
                timeout_ms=request.timeout_ms,
                tasks=request.tasks,
                task=request.task,
                counter=counter,
            )
        call = number
        if kind == "again":
            state.repeated.add(number)
            call += _SECOND_TIME
        else:
            del state.coming[number]
        self._take(state, state.model.handle(CallId(call), request, operation.open_ns))
        if isinstance(request, RegisterTask) and not self._settings.recoverable:
            # Every client keeps one poll waiting: that is how errors are propagated.
            caller = Caller(request.incarnation, self._service)
            poll = PollForError(caller=caller, task=request.task)
            state.model.handle(CallId(_POLLS + number), poll, operation.open_ns)

    def _take(self, state: _State, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply) and effect.call in self._operations:
                state.given[effect.call] = effect.answer

    # --- telling -------------------------------------------------------------------------------

    def _note(self, state: _State, end: _End, answer: Answer | None) -> None:
        """Keeps the answer at which the search came farthest."""
        if state.position < self._deepest_position:
            return
        if state.position == self._deepest_position and (answer is None or self._deepest_is_whole):
            return
        self._deepest_position = state.position
        self._deepest_is_whole = answer is not None
        call = end.operation.call
        if isinstance(call, Invoke):
            name, asked = call.operation, asked_in_words(call)
        else:
            name, asked = (
                REGISTER,
                f"the registration of process {call.process}, start {call.lifetime}",
            )
        event = end.event
        self._deepest = Finding(
            event=end.index,
            request=end.operation.index,
            asked=asked,
            state=state_in_words(state.model, end.operation.request, end.time_ns, heartbeats=False),
            allowed=(
                "no order of arrivals and deaths that fits the answers before gives this answer"
                if answer is None
                else f"in the order that fits the answers before: {answer_in_words(name, answer)}"
            ),
            answered="OK" if isinstance(event, Start) else response_in_words(name, event),
        )

    def _replayed(self, verdict: Literal["could", "could not", "unknown"]) -> Replayed:
        notes = []
        timeout_ns = self._settings.heartbeat_timeout_ns
        if timeout_ns is None and self._history.header.clock != "abstract":
            notes.append(
                "the service's heartbeat time-out is not known, so that a process that ended may be "
                "declared dead at once: give it with --service-timeout"
            )
        notes.append(
            "heartbeats are not in this history: whether a death was declared too late was not judged, "
            "nor whether a call that has no answer should have one"
        )
        notes.append(
            {
                "none": "processes that live were taken to be never declared dead",
                "faults": "processes that live may have been declared dead from the first recorded "
                "fault on"
                if self._first_fault_ns is not None
                else "no fault is recorded, so processes that live were taken to be never declared "
                "dead" + ("" if verdict == COULD else ": --suspicions any allows it"),
                "any": "processes that live may have been declared dead at any time",
            }[self._settings.suspicions]
        )
        if self._gave_up:
            notes.append(self._gave_up)
        elif verdict == UNKNOWN and self._service_died:
            notes.append(
                "a recorded fault says that the service died or was started again, which the model "
                "does not follow"
            )
        elif verdict == UNKNOWN and not self._service_is_one:
            notes.append(
                "it is not known whether this history is of one service, from its start on"
            )
        elif verdict == UNKNOWN and self._unrecorded:
            notes.append(
                f"no call of process {', '.join(map(str, self._unrecorded))} is in this history, and "
                "others may have been answered as they were because of such calls: merge the recordings "
                "of all processes (coordlab merge)"
            )
        elif verdict == UNKNOWN and self._misses_calls:
            notes.append(
                "the recording of a process stopped before the process did, and others may have been "
                "answered as they were because of what it called then"
            )
        elif verdict == UNKNOWN:
            notes.append(f"of more than {_TOGETHER_MAX} deaths in one tick not all were tried")
        return Replayed(
            verdict=verdict,
            finding=None if verdict == COULD else self._deepest,
            side="service" if self._is_server else "callers",
            events=len(self._events),
            operations=len(self._operations),
            steps=self._steps,
            notes=tuple(notes),
        )


def _as_start(event: Event) -> Start:
    """Stands for the start of a lifetime that has none in the history: its connect never returned."""
    return Start(time_ns=event.time_ns, process=event.process, lifetime=event.lifetime)
