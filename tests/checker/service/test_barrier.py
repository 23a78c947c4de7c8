"""Named barriers: the fast way against the definition, and what it says."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from checker.linearization import Linearization
from checker.operations import Operations, Recorder
from checker.service.barrier import ALGORITHM, check_barrier
from checker.specs.named_barrier import NamedBarrier
from checker.verdict import Invalid, Valid
from tests.oracles.linearizability import linearizable


def random_barrier(rng: random.Random) -> tuple[Operations, NamedBarrier]:
    """A small history of one barrier, valid or not, with crashed, refused and repeated calls."""
    processes = rng.randint(1, 3)
    length = rng.randint(2, 9)
    tells_counters = rng.random() < 0.4
    may_overlap = rng.random() < 0.2
    recorder = Recorder()
    waiting: list[tuple[int, int, str]] = []
    while len(recorder) < length or waiting:
        busy = {process for _, process, _ in waiting}
        if len(recorder) < length and rng.random() < 0.55:
            process = rng.randrange(processes)
            if process in busy and not may_overlap:
                continue
            if tells_counters and rng.random() < 0.1:
                function = "cancel_barrier"
                argument: dict[str, object] = {"counter": rng.randrange(3)}
            else:
                members = rng.sample(range(processes), rng.randint(1, processes))
                is_usual = rng.random() < 0.95
                function = "barrier"
                argument = {"processes": None if is_usual else members, "timeout_ms": 5}
            index = recorder.invoke(process, function, argument, key="b")
            waiting.append((index, process, function))
        elif waiting and (len(waiting) >= processes or rng.random() < 0.5):
            index, _, function = waiting.pop(rng.randrange(len(waiting)))
            draw = rng.random()
            if draw < 0.25:
                recorder.info(index)
            elif draw < 0.28:
                recorder.fail(index, "INVALID_ARGUMENT")
            elif function == "cancel_barrier" or not tells_counters:
                recorder.ok(index)
            else:
                likely = len(recorder) // (2 * processes)
                recorder.ok(index, rng.choice((likely, likely, rng.randrange(3))))
    return recorder.operations(), NamedBarrier(range(processes))


def assert_as_defined(seeds: range) -> Counter[bool]:
    """Compares the fast way with the definition."""
    verdicts: Counter[bool] = Counter()
    for seed in seeds:
        operations, spec = random_barrier(random.Random(seed))
        assert all(spec.malformed(kind) is None for kind in operations.kinds)
        verdict = check_barrier(operations, spec)
        assert isinstance(verdict, Valid | Invalid)
        expected = linearizable(operations, spec)
        assert isinstance(verdict, Valid) == expected, f"seed {seed}: {verdict.explain()}"
        if isinstance(verdict, Valid):
            assert isinstance(verdict.witness, Linearization)
            verdict.witness.verify()
        verdicts[expected] += 1
    return verdicts


def test_is_as_defined_on_random_histories() -> None:
    verdicts = assert_as_defined(range(2500))
    assert min(verdicts.values()) > 600


def calls(*steps: tuple[str, int]) -> Operations:
    """A history from steps: `("call" | "ok" | "lost" | "refused", process)`."""
    recorder = Recorder()
    open_: dict[int, int] = {}
    for what, process in steps:
        if what == "call":
            open_[process] = recorder.invoke(process, "barrier", {"processes": None}, key="b")
        elif what == "ok":
            recorder.ok(open_.pop(process))
        elif what == "lost":
            recorder.info(open_.pop(process))
        else:
            recorder.fail(open_.pop(process), "INVALID_ARGUMENT")
    return recorder.operations()


@pytest.mark.parametrize(
    ("steps", "is_valid"),
    [
        ([("call", 0), ("call", 1), ("ok", 0), ("ok", 1)], True),
        ([("call", 0), ("ok", 0), ("call", 1), ("ok", 1)], False),
        ([("call", 0), ("call", 1), ("ok", 0)], True),
        ([("call", 0), ("call", 1), ("ok", 0), ("refused", 1)], False),
        ([("call", 0), ("call", 1), ("ok", 0), ("lost", 1)], True),
        ([("call", 0), ("call", 1), ("lost", 0), ("lost", 1)], True),
        # The answer was lost; who asks again is told.
        ([("call", 0), ("call", 1), ("ok", 0), ("lost", 1), ("call", 1), ("ok", 1)], True),
        # But not twice: it is told, and the next instance waits for the other one.
        (
            [
                *[("call", 0), ("call", 1), ("ok", 0), ("lost", 1), ("call", 1), ("ok", 1)],
                *[("call", 1), ("ok", 1)],
            ],
            False,
        ),
    ],
)
def test_all_pass_or_none(steps: list[tuple[str, int]], is_valid: bool) -> None:
    operations, spec = calls(*steps), NamedBarrier((0, 1))
    assert linearizable(operations, spec) == is_valid
    verdict = check_barrier(operations, spec)
    assert verdict.word == ("valid" if is_valid else "invalid")
    assert verdict.algorithm == ALGORITHM


def test_says_who_had_not_arrived() -> None:
    operations = calls(("call", 0), ("ok", 0), ("call", 1), ("ok", 1))
    verdict = check_barrier(operations, NamedBarrier((0, 1)))
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "barrier-passed-without-member"
    assert verdict.anomaly.processes == (0, 1)
    assert verdict.anomaly.operations == (0, 1)
    assert verdict.explain() == (
        "Process 0 (operation 0) passed the barrier, and no call of process 1 can have been its arrival "
        "there.\nProcess 1 (operation 1) called only afterwards."
    )


def test_counters_grow_and_members_stay() -> None:
    spec = NamedBarrier((0, 1))
    falling = Recorder()
    for counter in (1, 0):
        both = [falling.invoke(process, "barrier", None, key="b") for process in (0, 1)]
        for index in both:
            falling.ok(index, counter)
    assert check_barrier(falling.operations(), spec).word == "invalid"
    changing = Recorder()
    changing.ok(changing.invoke(0, "barrier", {"processes": [0]}, key="b"))
    changing.ok(changing.invoke(0, "barrier", {"processes": [0]}, key="b"))
    changing.ok(changing.invoke(1, "barrier", {"processes": [1]}, key="b"))
    verdict = check_barrier(changing.operations(), spec)
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "barrier-with-different-members"
    stranger = Recorder()
    stranger.ok(stranger.invoke(1, "barrier", {"processes": [0]}, key="b"))
    verdict = check_barrier(stranger.operations(), spec)
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "barrier-passed-by-stranger"


def test_a_cancelled_instance_does_not_pass() -> None:
    recorder = Recorder()
    recorder.ok(recorder.invoke(0, "cancel_barrier", {"counter": 0}, key="b"))
    recorder.ok(recorder.invoke(0, "barrier", None, key="b"), 0)
    verdict = check_barrier(recorder.operations(), NamedBarrier((0,)))
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "barrier-ended-twice"


@pytest.mark.parametrize("tells_counters", [False, True])
def test_takes_long_histories_with_lost_answers(tells_counters: bool) -> None:
    rng = random.Random(5)
    recorder = Recorder()
    for instance in range(1500):
        arrived = [recorder.invoke(process, "barrier", None, key="b") for process in range(4)]
        for process, index in enumerate(arrived):
            if process and rng.random() < 0.1:
                recorder.info(index)
                index = recorder.invoke(process, "barrier", None, key="b")
            recorder.ok(index, instance if tells_counters else None)
    verdict = check_barrier(recorder.operations(), NamedBarrier(range(4)))
    assert isinstance(verdict, Valid)
    assert isinstance(verdict.witness, Linearization)
    verdict.witness.verify()


def test_says_what_cannot_be_a_call() -> None:
    recorder = Recorder()
    recorder.invoke(0, "barrier", {"processes": "all"}, key="b")
    recorder.invoke(0, "cancel_barrier", None, key="b")
    recorder.ok(recorder.invoke(0, "barrier", None, key="b"), "passed")
    operations = recorder.operations()
    for index in range(3):
        assert NamedBarrier((0, 1)).malformed(operations.at(index)) is not None
    open_call = recorder.invoke(0, "barrier", None, key="b")
    assert NamedBarrier((0, 1)).malformed(recorder.operations().at(open_call)) is None
    assert NamedBarrier().malformed(recorder.operations().at(open_call)) is not None


def test_an_empty_list_of_members_is_everybody() -> None:
    """As it is to the service; older recordings have it."""
    recorder = Recorder()
    everybody: tuple[list[int] | None, ...] = ([], None)
    for members in everybody:
        calls = [
            recorder.invoke(process, "barrier", {"processes": members}, key="b")
            for process in range(2)
        ]
        for call in calls:
            recorder.ok(call)
    waiting = recorder.invoke(0, "barrier", {"processes": []}, key="b")
    recorder.ok(recorder.invoke(1, "barrier", {"processes": None}, key="b"))
    assert check_barrier(recorder.operations(), NamedBarrier((0, 1))).word == "valid"
    recorder.ok(waiting)
    recorder.ok(recorder.invoke(0, "barrier", {"processes": []}, key="b"))
    assert check_barrier(recorder.operations(), NamedBarrier((0, 1))).word == "invalid"
