"""What a service saw is held against the model."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Event, Fail, Fault, History, Info, Invoke, Ok, Start, read
from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import (
    Barrier,
    Caller,
    GetAliveTasks,
    GetKeyValue,
    Heartbeat,
    InsertKeyValue,
    RegisterTask,
    TryGetKeyValue,
)
from coord_sim.core.semantics import SEMANTICS
from coord_sim.core.service import CoordinationService
from coord_sim.mutants import service_mutants
from coord_sim.replay import Finding, replay, settings_of
from coord_sim.replay.answers import canonical
from coord_sim.replay.phases import Phases
from coord_sim.replay.replay import guessed_timeout_ns
from tests.replay.recorded_service import SERVICE, RandomJob, RecordedService

SEEDS = range(16)


def random_run(
    seed: int,
    *,
    kind: type[CoordinationService] = CoordinationService,
    semantics: str = "shipped",
    steps: int = 200,
) -> History:
    service = RecordedService(
        tasks=2 + seed % 3,
        kind=kind,
        semantics=SEMANTICS[semantics],
        recoverable=seed % 4 != 3,
        heartbeat_timeout_s=(1.0, 2.0, 3.0)[seed % 3],
        phase_s=seed * 0.173 % 1,
    )
    return RandomJob(service, seed).run(steps).history()


def with_events(history: History, events: Sequence[Event]) -> History:
    return History(history.header, events, faults=history.faults)


class Job:
    """Two tasks by hand."""

    def __init__(self, **options: float) -> None:
        self.service = RecordedService(tasks=2, **options)  # type: ignore[arg-type]
        self.incarnations = [10, 20]

    def caller(self, task: int) -> Caller:
        return Caller(Incarnation(self.incarnations[task]), SERVICE)

    def register(self, task: int) -> int:
        request = RegisterTask(task=TaskId(task), incarnation=Incarnation(self.incarnations[task]))
        return self.service.request(task, self.incarnations[task], request)

    def beat(self, task: int) -> int:
        incarnation = Incarnation(self.incarnations[task])
        beat = Heartbeat(caller=self.caller(task), task=TaskId(task), incarnation=incarnation)
        return self.service.request(task, incarnation, beat)

    def live(self, task: int) -> int:
        both = (TaskId(0), TaskId(1))
        request = GetAliveTasks(caller=self.caller(task), task=TaskId(task), tasks=both)
        return self.service.request(task, self.incarnations[task], request)

    def history(self, **details: object) -> History:
        return self.service.history(**details)


def a_death() -> Job:
    """Task 1 falls silent; task 0 beats, and waits for it."""
    job = Job(heartbeat_timeout_s=2.0)
    job.service.until(1.0)
    job.register(0)
    job.register(1)
    job.service.until(1.5)
    job.live(0)
    for tenth in range(20, 70, 5):
        job.service.until(tenth / 10)
        job.beat(0)
    return job


# --- the model can replay itself ------------------------------------------------------------------


@pytest.mark.parametrize("semantics", ["shipped", "published"])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_model_could_have_done_what_it_did(seed: int, semantics: str) -> None:
    history = random_run(seed, semantics=semantics)
    replayed = replay(history)
    assert replayed.verdict == "could", replayed
    assert replayed.side == "service"


@pytest.mark.parametrize("seed", SEEDS)
def test_it_could_not_if_one_answer_is_changed_and_that_answer_is_named(seed: int) -> None:
    history = random_run(seed)
    index, changed = one_changed(history, random.Random(seed))
    events = [*history.events[:index], changed, *history.events[index + 1 :]]
    replayed = replay(with_events(history, events))
    assert replayed.verdict == "could not"
    assert replayed.finding is not None
    assert replayed.finding.event == index


def one_changed(history: History, draw: random.Random) -> tuple[int, Event]:
    """A random answer with another member, incarnation, code, text or value."""
    names = {e.id: e.operation for e in history.events if isinstance(e, Invoke)}
    ends = [i for i, e in enumerate(history.events) if isinstance(e, Ok | Fail | Info)]
    index = draw.choice(ends)
    event = history.events[index]
    if isinstance(event, Fail | Info):
        if draw.random() < 0.5:
            return index, replace(event, code="DATA_LOSS")
        return index, replace(event, message=f"{event.message}!")
    assert isinstance(event, Ok)
    if names[event.id] == "live_processes" and event.result:
        live = dict(event.result)  # type: ignore[call-overload]
        process = draw.choice(list(live))
        if draw.random() < 0.5:
            del live[process]
        else:
            live[process] += 1
        return index, replace(event, result=live)
    if event.result is None:
        return index, Fail(
            time_ns=event.time_ns,
            process=event.process,
            lifetime=event.lifetime,
            id=event.id,
            code="ABORTED",
        )
    return index, replace(event, result="something else")


NOT_SEEN_BY_A_SERVICE = {
    # What they change is right as shipped, so that only the other face tells.
    "counts-old-heartbeats",
    "keeps-ghost-entries",
    "serves-stale-callers",
    "serves-dead-callers",
    "revives-the-dead",
    # Their jobs are too rare here: a heartbeat of the replaced, two deaths at once, a call repeated.
    "accepts-stale-heartbeats",
    "declares-deaths-one-by-one",
    "forgets-who-passed",
    "forgets-the-counter",
    "passes-for-some",
    "disconnects-another",
}


@pytest.mark.parametrize("name", sorted(service_mutants.keys() - NOT_SEEN_BY_A_SERVICE))
def test_a_wrong_service_is_told_from_the_model(name: str) -> None:
    for seed in range(40):
        history = random_run(seed, kind=service_mutants[name], steps=250)
        if replay(history).verdict == "could not":
            return
    pytest.fail("the model could have done all of that")


@pytest.mark.parametrize(
    "name", ["keeps-ghost-entries", "serves-stale-callers", "revives-the-dead"]
)
def test_what_is_shipped_is_told_from_the_published_service(name: str) -> None:
    verdicts = set()
    for seed in range(0, 40, 2):
        history = random_run(seed, kind=service_mutants[name], semantics="published")
        verdicts.add(replay(history).verdict)
        if "could not" in verdicts:
            return
    pytest.fail(f"only {verdicts}")


# --- time -----------------------------------------------------------------------------------------


def test_a_death_is_explained_by_a_tick_whose_phase_is_learned() -> None:
    replayed = replay(a_death().history())
    assert replayed.verdict == "could"
    assert any("phases from" in note for note in replayed.notes)


def answer_of_the_round(job: Job) -> int:
    events = job.history().events
    round_ = next(e for e in events if isinstance(e, Invoke) and e.operation == "live_processes")
    return next(i for i, e in enumerate(events) if isinstance(e, Ok) and e.id == round_.id)


def test_a_death_that_is_declared_before_the_time_out_could_not_be() -> None:
    job = a_death()
    index = answer_of_the_round(job)
    events = list(job.history().events)
    answer = events.pop(index)
    early = next(i for i, event in enumerate(events) if event.time_ns > 2_500_000_000)
    events.insert(early, replace(answer, time_ns=events[early].time_ns))
    replayed = replay(with_events(job.history(), events))
    assert replayed.verdict == "could not"
    finding = replayed.finding
    assert finding is not None
    assert finding.event == early
    assert finding.allowed.startswith("nothing yet: the call waits")
    assert any(
        "task 1 (incarnation 20): connected, last heard of" in line for line in finding.state
    )
    assert finding.answered == "alive: 0 (incarnation 10)"


def test_a_death_that_is_never_noticed_could_not_be() -> None:
    job = a_death()
    events = list(job.history().events)
    del events[answer_of_the_round(job)]
    replayed = replay(with_events(job.history(), events))
    assert replayed.verdict == "could not"
    finding = replayed.finding
    assert finding is not None
    assert finding.answered == "nothing"
    assert finding.allowed == "alive: 0 (incarnation 10)"


def test_an_answer_may_be_late() -> None:
    job = a_death()
    events = list(job.history().events)
    answer = events.pop(answer_of_the_round(job))
    events.append(replace(answer, time_ns=events[-1].time_ns))
    assert replay(with_events(job.history(), events)).verdict == "could"


@pytest.mark.parametrize("late_s", [0.2, 0.45])
def test_a_service_on_a_busy_machine_may_be_late(late_s: float) -> None:
    service = RecordedService(tasks=3, heartbeat_timeout_s=1.0, tick_late_s=late_s)
    history = RandomJob(service, 3).run(300).history()
    assert replay(history).verdict == "could"


def test_phases_narrow_until_nothing_fits() -> None:
    phases = Phases(late_ns=10_000_000).ticked_between(5_000_000_000, 5_100_000_000)
    assert phases.arcs == ((0, 100_000_000), (990_000_000, 1_000_000_000))
    assert phases.ticked_between(7_050_000_000, 7_060_000_000).arcs == ((40_000_000, 60_000_000),)
    assert phases.ticked_between(7_500_000_000, 7_600_000_000).is_empty
    assert phases.silent(8_020_000_000, 8_060_000_000).arcs == (
        (0, 20_000_000),
        (50_000_000, 100_000_000),
        (990_000_000, 1_000_000_000),
    )
    assert phases.silent(8_000_000_000, 9_500_000_000).is_empty


# --- what is left open ----------------------------------------------------------------------------

UNHEALTHY = (
    "The following tasks are unhealthy (stopped sending heartbeats):\n{}\nThe tasks have crashed."
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1\n2", "2\n1", True),
        ("1\n2", "1\n3", False),
        ("1\n2\n3", "4\n2\n3", True),
        ("1\n2\n3", "1\n2", False),
    ],
)
def test_ids_in_messages_may_come_in_any_order(one: str, other: str, same: bool) -> None:
    assert (canonical(UNHEALTHY.format(one)) == canonical(UNHEALTHY.format(other))) is same


def test_the_order_of_deaths_in_one_tick_is_open() -> None:
    """All die at once while one of them waits: the answer may or may not name who died last."""
    verdicts = []
    for last in (1, 2):
        job = RecordedService(tasks=3, heartbeat_timeout_s=2.0)
        job.until(1.0)
        everybody = tuple(map(TaskId, range(3)))
        callers = [Caller(Incarnation(10 + task), SERVICE) for task in everybody]
        for task in everybody:
            registration = RegisterTask(task=task, incarnation=Incarnation(10 + task))
            job.request(task, 10 + task, registration)
        for task in everybody[:2]:
            request = GetAliveTasks(caller=callers[task], task=task, tasks=everybody)
            job.request(task, 10 + task, request)
        for tenth in (20, 30, 40, 50):
            job.until(tenth / 10)
            beat = Heartbeat(caller=callers[0], task=TaskId(0), incarnation=Incarnation(10))
            job.request(0, 10, beat)
        # The model declares 1 before 2, so that the round names 0 alone.
        answer = {0: 10} if last == 2 else {0: 10, 1: 11}
        rounds = {
            e.id for e in job.events if isinstance(e, Invoke) and e.operation == "live_processes"
        }
        events = [
            replace(e, result=answer) if isinstance(e, Ok) and e.id in rounds else e
            for e in job.events
        ]
        verdicts.append(replay(with_events(job.history(), events)).verdict)
    assert verdicts == ["could", "could"]


def test_a_client_that_gives_up_is_no_answer_of_the_service() -> None:
    job = Job()
    job.service.until(1.0)
    job.register(0)
    job.register(1)
    waiting = job.service.request(0, 10, GetKeyValue(caller=job.caller(0), key="k"))
    history = job.history()
    given_up = Info(
        time_ns=history.events[-1].time_ns,
        process=0,
        lifetime=0,
        id=waiting,
        code="CANCELLED",
        message="the client gave up the call",
    )
    assert replay(with_events(history, [*history.events, given_up])).verdict == "could"


def swapped_before_a_relay() -> tuple[Job, History]:
    """Task 0 stores and task 1 reads, a millisecond apart; the relay saw the reader first."""
    job = Job()
    job.service.until(1.0)
    job.register(0)
    job.register(1)
    job.service.until(1.001)
    job.service.request(0, 10, InsertKeyValue(caller=job.caller(0), key="k", value=b"1"))
    job.service.request(1, 20, TryGetKeyValue(caller=job.caller(1), key="k"))
    events = list(job.history().events)
    set_, stored, asked, found = events[-4:]
    return job, with_events(job.history(observer="tap"), [*events[:-4], asked, set_, stored, found])


def test_requests_that_pass_a_relay_at_once_may_change_places() -> None:
    _, history = swapped_before_a_relay()
    assert replay(history).verdict == "could"


def test_a_service_records_its_requests_in_order() -> None:
    job, history = swapped_before_a_relay()
    assert replay(History(job.history().header, history.events)).verdict == "could not"


TAPPED = Path(__file__).parents[1] / "data" / "replay" / "killed-and-back-tap-jaxlib-0.10.2.jsonl"


def test_what_a_tap_saw_of_jaxlibs_service_could_come_of_the_model() -> None:
    """Three clients; one is killed, declared dead by the C++ service, and back later."""
    replayed = replay(read(TAPPED))
    assert replayed.verdict == "could", replayed
    assert any("2 s is twice what lies between heartbeats" in note for note in replayed.notes)


def test_and_could_not_with_a_longer_time_out() -> None:
    history = read(TAPPED)
    replayed = replay(history, settings_of(history, heartbeat_timeout_s=4.0))
    assert replayed.verdict == "could not"
    assert replayed.finding is not None
    assert "live_processes" in replayed.finding.asked


# --- what is not known ----------------------------------------------------------------------------


def test_settings_that_a_relay_does_not_know_are_found_out() -> None:
    service = RecordedService(tasks=3, heartbeat_timeout_s=4.0)
    told = {"observer": "tap", "heartbeat_timeout_s": None, "recoverable": None}
    history = RandomJob(service, 2, gentle=True).run(300).history(**told)
    assert guessed_timeout_ns(history) == 4_000_000_000
    replayed = replay(history)
    assert replayed.verdict == "could"
    assert any("twice what lies between heartbeats" in note for note in replayed.notes)
    assert any("taken to be recoverable" in note for note in replayed.notes)


def test_that_nothing_is_recoverable_shows() -> None:
    service = RecordedService(tasks=3, heartbeat_timeout_s=1.0, recoverable=False)
    history = RandomJob(service, 5).run(300).history(recoverable=None)
    replayed = replay(history)
    assert replayed.verdict == "could"
    assert any("not recoverable" in note for note in replayed.notes)


def changed_value(history: History, id_: int) -> list[Event]:
    return [
        replace(e, result={"text": "9"}) if isinstance(e, Ok) and e.id == id_ else e
        for e in history.events
    ]


def stored_and_read() -> tuple[History, int]:
    job = Job()
    job.service.until(1.0)
    job.register(0)
    job.register(1)
    job.service.request(0, 10, InsertKeyValue(caller=job.caller(0), key="k", value=b"1"))
    read = job.service.request(1, 20, TryGetKeyValue(caller=job.caller(1), key="k"))
    return job.history(), read


def test_a_wrong_value_is_told_with_what_the_model_has() -> None:
    history, read = stored_and_read()
    finding = replay(with_events(history, changed_value(history, read))).finding
    assert finding == Finding(
        event=len(history.events) - 1,
        request=len(history.events) - 2,
        asked='key_value_try_get of process 1, start 0: {"key": "k"}',
        state=("key k: '1'",),
        allowed='OK, {"text": "1"}',
        answered='OK, {"text": "9"}',
    )


def test_a_recording_that_lacks_calls_proves_nothing_against_the_service() -> None:
    history, read = stored_and_read()
    lost = Fault(time_ns=history.events[0].time_ns, name="calls of strangers: …", lane="recorder")
    events = changed_value(history, read)
    replayed = replay(History(history.header, events, faults=(lost,)))
    assert replayed.verdict == "unknown"
    assert "the recording lacks calls that came before this answer" in replayed.notes


def test_a_recording_that_begins_in_the_middle_is_not_judged() -> None:
    history, _ = stored_and_read()
    events = [
        e
        for e in history.events
        if not (isinstance(e, Invoke) and e.operation == "register")
        and not (isinstance(e, Ok) and e.id in (0, 1))
    ]
    assert any(isinstance(e, Start) for e in events)
    replayed = replay(with_events(history, events))
    assert replayed.verdict == "unknown"
    assert any("begins in the middle" in note for note in replayed.notes)


def test_the_search_has_a_budget() -> None:
    history = random_run(1)
    replayed = replay(history, settings_of(history), steps_max=0)
    assert replayed.verdict in ("could", "unknown")
    index, changed = one_changed(history, random.Random(1))
    events = [*history.events[:index], changed, *history.events[index + 1 :]]
    replayed = replay(with_events(history, events), settings_of(history), steps_max=1)
    assert replayed.verdict == "unknown"


def a_barrier(job: Job) -> Callable[[int], int]:
    def arrive(task: int) -> int:
        request = Barrier(
            caller=job.caller(task),
            barrier_id="b",
            timeout_ms=500,
            tasks=(),
            task=TaskId(task),
            counter=0,
        )
        return job.service.request(task, job.incarnations[task], request)

    return arrive


def test_a_barrier_that_times_out_is_noticed_at_a_tick() -> None:
    job = Job(heartbeat_timeout_s=100.0)
    job.service.until(1.0)
    job.register(0)
    job.register(1)
    a_barrier(job)(0)
    job.service.until(4.0)
    job.beat(0)
    assert replay(job.history()).verdict == "could"
