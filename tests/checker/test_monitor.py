"""`checker.monitor`: verdicts while it happens, against whole-history checks and the definition."""

from __future__ import annotations

import itertools
import random
import threading
import tracemalloc
from collections.abc import Iterator

import pytest

from checker.errors import MalformedHistory
from checker.monitor import Monitor, ValidSoFar
from checker.operations import OPEN_NS, Failed, Operation, Operations, Recorder
from checker.search import check_operations
from checker.specification import Illegal, Specification
from checker.specs import CasRegister, Kv, Mutex, NamedBarrier, Register, spec_named
from checker.verdict import Invalid, Unknown
from tests.oracles.linearizability import linearizable
from tests.random_operations import random_operations

NAMES = (
    "register", "cas-register", "multi-register", "mutex", "counter", "set", "queue", "stack",
    "append-log", "kv", "service-key", "service-store",
)  # fmt: skip


def played(history: Operations, rng: random.Random, *monitors: Monitor | Recorder) -> Iterator[int]:
    """Plays a history to monitors, event by event; calls without a response end some time, or never."""
    lost = [
        index
        for index in range(len(history))
        if history.at(index).is_open and history.ended_ns[index] != OPEN_NS
    ]
    begun: set[int] = set()
    for position, event in enumerate(history.events):
        for index in [index for index in lost if index in begun and rng.random() < 0.3]:
            lost.remove(index)
            for monitor in monitors:
                monitor.info(index)
        operation = history.at(event if event >= 0 else ~event)
        for monitor in monitors:
            if event >= 0:
                process = history.process[event]
                begun.add(event)
                number = monitor.invoke(
                    process, operation.function, operation.argument, key=operation.key
                )
                assert number == event
            elif isinstance(operation.result, Failed):
                monitor.fail(~event, operation.result.error)
            else:
                monitor.ok(~event, operation.result)
        yield position + 1


def beginning(history: Operations, events: int) -> Operations:
    """The first events of a history, with what is open by then as of unknown outcome."""
    recorder = Recorder()
    for event in history.events[:events]:
        operation = history.at(event if event >= 0 else ~event)
        if event >= 0:
            process = history.process[event]
            recorder.invoke(process, operation.function, operation.argument, key=operation.key)
        elif isinstance(operation.result, Failed):
            recorder.fail(~event, operation.result.error)
        else:
            recorder.ok(~event, operation.result)
    return recorder.operations()


@pytest.mark.parametrize("name", NAMES)
def test_after_every_event_the_verdict_is_that_of_the_history_so_far(name: str) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    rng = random.Random(f"monitor {name}")
    violations = 0
    for _ in range(40):
        history = random_operations(rng, name)
        monitor = Monitor(spec, interval_s=None)
        seldom = Monitor(spec, interval_s=None)
        for events in played(history, rng, monitor, seldom):
            valid = linearizable(beginning(history, events), spec)
            assert isinstance(monitor.check(), ValidSoFar if valid else Invalid)
            if rng.random() < 0.1:
                assert seldom.check().word == monitor.verdict.word
            if not valid:
                break
        assert seldom.check().word == monitor.check().word
        violations += isinstance(monitor.verdict, Invalid)
    assert 3 < violations < 37


@pytest.mark.parametrize("name", NAMES)
def test_with_little_room_it_raises_no_false_alarm_and_claims_no_more_than_it_knows(
    name: str,
) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    rng = random.Random(f"little room {name}")
    for _ in range(40):
        history = random_operations(rng, name, operations_max=16)
        monitor = Monitor(
            spec,
            interval_s=None,
            buffer_max=rng.choice((1, 2, 4)),
            steps_max=rng.choice((1, 3, 20_000)),
        )
        for events in played(history, rng, monitor):
            verdict = monitor.check() if rng.random() < 0.5 else monitor.verdict
            if isinstance(verdict, Invalid):
                assert check_operations(beginning(history, events), spec).word == "invalid"
                break
        if isinstance(monitor.check(), ValidSoFar):
            assert check_operations(history, spec).word == "valid"


@pytest.mark.parametrize("name", ["cas-register", "register", "mutex"])
def test_long_histories(name: str) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    rng = random.Random(name)
    for round_ in range(6):
        history = random_operations(
            rng, name, style="nearly" if round_ % 2 else "valid", operations_max=300
        )
        monitor = Monitor(spec, interval_s=None)
        for events in played(history, rng, monitor):
            if events % 97 == 0 and isinstance(monitor.check(), Invalid):
                break
        assert monitor.check().word.split()[0] == check_operations(history, spec).word


def test_a_violation_is_explained_by_the_recent_part_of_the_history() -> None:
    monitor = Monitor(Register(0), source="run")
    numbers = {}
    for value in range(1, 2000):
        numbers[value] = monitor.invoke(0, "write", value, line=2 * value)
        monitor.ok(numbers[value])
    monitor.fault("nemesis", "partition")
    read = monitor.invoke(1, "read", line=4000)
    monitor.ok(read, 1998)
    verdict = monitor.check()
    assert isinstance(verdict, Invalid)
    text = verdict.explain()
    assert text.startswith("read() -> 1998 of process 1 cannot have happened")
    assert "write(1999) of process 0" in text
    assert "nemesis: partition" in text
    assert set(verdict.anomaly.operations) == {numbers[1998], numbers[1999], read}
    assert verdict.anomaly.evidence is not None
    assert len(verdict.anomaly.evidence.operations) < 300


def test_a_violation_after_a_long_unclear_time_is_told_with_the_latest_operations() -> None:
    monitor = Monitor(Register(0), interval_s=None)
    for value in range(100):  # None of them is ever known to have had no effect.
        monitor.info(monitor.invoke(9, "write", 10_000 + value))
    for value in range(1, 3000):
        monitor.ok(monitor.invoke(0, "write", value))
    monitor.ok(monitor.invoke(1, "read"), 17)
    verdict = monitor.check()
    assert isinstance(verdict, Invalid)
    assert "The latest operations on it:\n  process 0: write(2989)" in verdict.explain()
    assert "Just before its response the state was 2999." in verdict.explain()


def test_on_violation_is_called_once_and_may_stop_the_caller() -> None:
    class StopTest(Exception):
        pass

    seen: list[Invalid] = []

    def stop(verdict: Invalid) -> None:
        seen.append(verdict)
        raise StopTest

    now = 0.0
    monitor = Monitor(Mutex(), on_violation=stop, interval_s=0.5, now_s=lambda: now)
    monitor.ok(monitor.invoke(0, "acquire"))
    monitor.ok(monitor.invoke(1, "acquire"))
    assert isinstance(monitor.verdict, ValidSoFar)
    now = 0.6
    with pytest.raises(StopTest):
        monitor.invoke(2, "release")
    assert [verdict.word for verdict in seen] == ["invalid"]
    monitor.ok(monitor.invoke(2, "release"))
    assert monitor.check() is seen[0]


def test_what_stays_open_too_long_is_noted_and_its_result_is_not_claimed_to_be_checked() -> None:
    monitor = Monitor(Register(0), interval_s=None, buffer_max=10)
    late = monitor.invoke(7, "read")
    for value in range(20):
        monitor.ok(monitor.invoke(0, "write", value))
    assert isinstance(monitor.check(), ValidSoFar)
    assert monitor.notes == [
        "read() -> ? of process 7 was open for more than 10 events; it counts as of unknown outcome"
    ]
    monitor.ok(late, "nonsense")
    verdict = monitor.check()
    assert isinstance(verdict, Unknown)
    assert "its result was not checked" in verdict.reason
    monitor.ok(monitor.invoke(0, "read"), 3)
    assert isinstance(monitor.check(), Invalid)


def test_too_many_situations_are_joined_or_given_up() -> None:
    joined = Monitor(CasRegister(0), interval_s=None, steps_max=300)
    for old, new in itertools.permutations(range(6), 2):
        joined.info(joined.invoke(7 * old + new, "cas", (old, new)))
    for value in (1, 2, 3, 4):
        joined.ok(joined.invoke(0, "read"), value)
    verdict = joined.check()
    assert isinstance(verdict, Unknown)
    assert "some were joined" in verdict.reason or "not looked at" in verdict.reason
    joined.ok(joined.invoke(0, "read"), 99)
    assert isinstance(joined.check(), Invalid)

    given_up = Monitor(spec_of_sums(), interval_s=None, steps_max=50)
    for value in range(12):
        given_up.info(given_up.invoke(value, "add", 1 << value))
    given_up.ok(given_up.invoke(0, "read"), 0b101010101010)
    verdict = given_up.check()
    assert isinstance(verdict, Unknown)
    assert "its operations are not checked any more" in verdict.reason
    assert len(given_up.notes) == 1
    given_up.ok(given_up.invoke(0, "read"), -1)
    assert isinstance(given_up.check(), Unknown)


def spec_of_sums() -> Specification:
    class Sums(Specification):
        name = "sums"

        def init(self) -> int:
            return 0

        def step(self, state: int, operation: Operation) -> int | Illegal:
            if operation.function == "add":
                assert isinstance(operation.argument, int)
                return state + operation.argument
            return state if operation.result == state else Illegal()

    return Sums()


def test_an_object_may_leave_the_guarded_assignments_while_calls_are_open() -> None:
    monitor = Monitor(Kv(), interval_s=None)
    put = monitor.invoke(0, "put", "a", key="k")
    monitor.info(monitor.invoke(1, "put", "b", key="k"))
    get = monitor.invoke(2, "get", key="k")
    monitor.ok(get, "a")
    append = monitor.invoke(3, "append", "c", key="k")
    monitor.ok(append)
    monitor.ok(put)
    assert isinstance(monitor.check(), ValidSoFar)
    monitor.ok(monitor.invoke(2, "get", key="k"), "ac")
    assert isinstance(monitor.check(), ValidSoFar)
    monitor.ok(monitor.invoke(2, "get", key="k"), "b")
    assert isinstance(monitor.check(), ValidSoFar)
    monitor.ok(monitor.invoke(2, "get", key="k"), "ac")
    assert isinstance(monitor.check(), Invalid)


def test_memory_is_bounded() -> None:
    """Values, keys and kinds that never come again leave nothing behind but a state per key."""
    monitor = Monitor(Kv(), interval_s=None)

    def feed(start: int, count: int) -> None:
        for number in range(start, start + count):
            value = f"value {number}"
            key = f"key {number % 10}"
            put = monitor.invoke(0, "put", value, key=key)
            get = monitor.invoke(1, "get", key=key)
            monitor.ok(put)
            monitor.ok(get, value)
            if number % 100 == 0:
                assert isinstance(monitor.check(), ValidSoFar)

    feed(0, 1_000)
    tracemalloc.start()
    try:
        feed(1_000, 1_000)
        before, _ = tracemalloc.get_traced_memory()
        feed(2_000, 1_500)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # All of what is held was allocated anew by the first feed.
    assert after < 1.3 * before


def test_objects_rest_when_there_are_many() -> None:
    monitor = Monitor(Register(0), interval_s=None)
    for key in range(5_000):
        monitor.ok(monitor.invoke(0, "write", key, key=key))
        if key % 1000 == 0:
            monitor.check()
    assert monitor.check() == ValidSoFar(5_000, 0, 5_000)
    assert len(monitor._objects) < 1_000
    monitor.ok(monitor.invoke(0, "read", key=17), 17)
    assert isinstance(monitor.check(), ValidSoFar)
    monitor.ok(monitor.invoke(0, "read", key=18), 17)
    verdict = monitor.check()
    assert isinstance(verdict, Invalid)
    assert "Object 18: read(18) -> 17 of process 0 cannot have happened" in verdict.explain()


def test_threads_may_record_at_the_same_time() -> None:
    recorder = Recorder()
    monitor = Monitor(Register(0), interval_s=0.001, recorder=recorder)
    lock = threading.Lock()
    value = 0

    def work(process: int) -> None:
        nonlocal value
        for number in range(200):
            if number % 2:
                read = monitor.invoke(process, "read")
                with lock:
                    seen = value
                monitor.ok(read, seen)
            else:
                write = monitor.invoke(process, "write", number * 10 + process)
                with lock:
                    value = number * 10 + process
                monitor.ok(write)

    threads = [threading.Thread(target=work, args=(process,)) for process in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert monitor.check() == ValidSoFar(800, 0, 1)
    assert check_operations(recorder.operations(), Register(0)).word == "valid"


def test_misuse_is_told() -> None:
    with pytest.raises(TypeError, match=r"named-barrier.*several operations act as one"):
        Monitor(NamedBarrier((0, 1)))  # type: ignore[arg-type]
    monitor = Monitor(CasRegister(), source="run.edn")
    with pytest.raises(MalformedHistory, match=r"run\.edn:3: .*knows no operation 'swap'"):
        monitor.invoke(0, "swap", line=3)
    with pytest.raises(MalformedHistory, match="cas takes a pair"):
        monitor.invoke(0, "cas", 3)
    read = monitor.invoke(0, "read")
    with pytest.raises(MalformedHistory, match="others do"):
        monitor.invoke(0, "read", key="k")
    monitor.ok(read)
    with pytest.raises(ValueError, match="has ended already"):
        monitor.info(read)
    with pytest.raises(ValueError, match="was never invoked"):
        monitor.ok(17)
    kv = Monitor(Kv())
    get = kv.invoke(0, "get", key="k")
    with pytest.raises(MalformedHistory, match="get returns a string"):
        kv.ok(get, 3)
    kv.ok(get, "")
    assert isinstance(kv.check(), ValidSoFar)
