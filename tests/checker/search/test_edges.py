"""Histories at the edge: empty, of one operation, wrong from the start, with nothing that is known."""

from __future__ import annotations

import random
from typing import Any

import pytest

from checker.operations import UNKNOWN, Failed, Operation, Operations, Recorder, from_intervals
from checker.search import check_operations
from checker.specification import SetSpecification
from checker.specs import SPECS, NamedBarrier, Register, spec_named
from checker.verdict import Invalid, Valid, Verdict
from tests.checker.search.judging import judge
from tests.checker.search.toys import Exchanger
from tests.oracles.linearizability import linearizable
from tests.random_operations import TOYS, random_operations

WAYS: tuple[dict[str, Any], ...] = ({}, {"compiled": True}, {"paranoid": True})

every_way = pytest.mark.parametrize("way", WAYS, ids=("plain", "compiled", "paranoid"))
every_spec = pytest.mark.parametrize("name", SPECS)


def _valid(verdict: Verdict) -> Valid:
    assert isinstance(verdict, Valid), verdict.explain()
    verdict.witness.verify()  # type: ignore[union-attr]
    return verdict


@every_way
@every_spec
def test_nothing_happened_is_valid(name: str, way: dict[str, Any]) -> None:
    verdict = _valid(check_operations(Recorder().operations(), spec_named(name), **way))
    assert verdict.witness.orders == ()  # type: ignore[union-attr]


@every_way
@every_spec
def test_only_faults_is_valid(name: str, way: dict[str, Any]) -> None:
    recorder = Recorder()
    recorder.fault("nemesis", "kill")
    recorder.fault("process 2", "restart")
    _valid(check_operations(recorder.operations(), spec_named(name), **way))


@every_way
@pytest.mark.parametrize("name", TOYS)
@pytest.mark.parametrize("outcome", [UNKNOWN, Failed("refused")], ids=("crashed", "failed"))
def test_no_known_outcome_is_valid(name: str, outcome: object, way: dict[str, Any]) -> None:
    drawn = random_operations(random.Random(name), name, style="wild", operations_max=10)
    recorder = Recorder()
    for index in range(len(drawn)):
        operation = drawn.at(index)
        call = recorder.invoke(index, operation.function, operation.argument, key=operation.key)
        if outcome is UNKNOWN:
            recorder.info(call)
        else:
            recorder.fail(call, "refused")
    _valid(check_operations(recorder.operations(), spec_named(name), **way))


@every_way
def test_the_first_operation_may_be_wrong(way: dict[str, Any]) -> None:
    wrong = {
        "register": Operation("read", None, None, 5),
        "multi-register": Operation("txn", None, (("r", "x", None),), (("r", "x", 5),)),
        "mutex": Operation("release", None, None, None),
        "counter": Operation("read", None, None, 5),
        "set": Operation("contains", None, 5, True),
        "queue": Operation("dequeue", None, None, 5),
        "stack": Operation("pop", None, None, 5),
        "append-log": Operation("read", None, None, (5,)),
        "kv": Operation("get", "k", None, "5"),
    }
    for name, operation in wrong.items():
        for followers in (0, 3):
            history = _one_by_one([operation, *[operation] * followers])
            verdict = check_operations(history, spec_named(name), **way)
            assert isinstance(verdict, Invalid), name
            judge(verdict.anomaly)
            evidence = verdict.anomaly.evidence
            assert evidence is not None
            assert (evidence.failing, evidence.prefix) == (0, ())
            assert evidence.core == (0,)


@every_way
def test_one_operation_is_judged_by_the_first_state(way: dict[str, Any]) -> None:
    _valid(check_operations(_one_by_one([Operation("write", None, 3, None)]), Register(), **way))
    _valid(check_operations(_one_by_one([Operation("read", None, None, None)]), Register(), **way))


def _one_by_one(kinds: list[Operation]) -> Operations:
    recorder = Recorder()
    for kind in kinds:
        index = recorder.invoke(0, kind.function, kind.argument, key=kind.key)
        recorder.ok(index, kind.result)
    return recorder.operations()


@every_way
def test_what_has_the_same_time_is_concurrent(way: dict[str, Any]) -> None:
    write, read = Operation("write", None, 1, None), Operation("read", None, None, None)
    touching = from_intervals([(0, write), (1, read)], [(0, 10), (10, 20)])
    _valid(check_operations(touching, Register(), **way))
    apart = from_intervals([(0, write), (1, read)], [(0, 10), (11, 20)])
    assert isinstance(check_operations(apart, Register(), **way), Invalid)


@every_way
def test_an_uncertain_clock_makes_no_false_alarm(way: dict[str, Any]) -> None:
    """Intervals that are widened by the error of the clock overlap wherever they may have."""
    write, read = Operation("write", None, 1, None), Operation("read", None, None, None)
    for error in (0, 1, 5):
        history = from_intervals(
            [(0, write), (1, read)],
            [(0 - error, 10 + error), (13 - error, 20 + error)],
            uncertainty_ns=error,
        )
        verdict = check_operations(history, Register(), **way)
        assert isinstance(verdict, Valid if error == 5 else Invalid), error


def test_intervals_in_any_order_are_the_same_history() -> None:
    rng = random.Random(7)
    for seed in range(60):
        drawn = random_operations(random.Random(seed), "register")
        rows = [(drawn.process[i], drawn.at(i)) for i in range(len(drawn))]
        intervals = [
            (drawn.invoked_ns[i], None if drawn.at(i).is_open else drawn.ended_ns[i])
            for i in range(len(drawn))
        ]
        order = rng.sample(range(len(rows)), len(rows))
        shuffled = from_intervals([rows[i] for i in order], [intervals[i] for i in order])
        assert list(shuffled.events) == list(drawn.events)
        assert linearizable(shuffled, Register()) == linearizable(drawn, Register())


@pytest.mark.parametrize("spec", [Exchanger(), NamedBarrier(participants=(0, 1))])
def test_edges_of_objects_with_common_steps(spec: SetSpecification) -> None:
    recorder = Recorder()
    _valid(check_operations(recorder.operations(), spec))
    function = "exchange" if isinstance(spec, Exchanger) else "barrier"
    for process in range(3):
        recorder.info(
            recorder.invoke(process, function, process if function != "barrier" else None)
        )
        recorder.fail(recorder.invoke(process, function), "refused")
    _valid(check_operations(recorder.operations(), spec))


@pytest.mark.parametrize("way", WAYS[:2], ids=("plain", "compiled"))
def test_more_operations_at_once_than_a_machine_word_has_bits(way: dict[str, Any]) -> None:
    for wrong in (False, True):
        recorder = Recorder()
        reads = [recorder.invoke(process, "read") for process in range(70)]
        write = recorder.invoke(70, "write", 1)
        for process, read in enumerate(reads):
            recorder.ok(read, 5 if wrong and process == 69 else None)
        recorder.ok(write)
        verdict = check_operations(recorder.operations(), Register(), **way)
        if wrong:
            assert isinstance(verdict, Invalid)
            assert verdict.anomaly.evidence is not None
            assert verdict.anomaly.evidence.failing == 69
        else:
            _valid(verdict)
