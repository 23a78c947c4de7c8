"""Long histories, where small ones miss bugs: many operations, many crashes, many objects."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from checker.operations import Operation, Operations, from_intervals
from checker.search import check_operations
from checker.search.budget import Budget
from checker.specification import Specification
from checker.specs import CasRegister, Counter, Kv, Queue
from checker.verdict import Invalid, Valid
from tests.checker.search.algorithms import ALGORITHMS
from tests.random_operations import LongHistory, Style, random_operations


def _long(seed: int, operations: int, **options: object) -> Operations:
    return LongHistory(rng=random.Random(seed), operations=operations, **options).draw()  # type: ignore[arg-type]


def _verified(operations: Operations, spec: Specification, *, compiled: bool) -> None:
    verdict = check_operations(operations, spec, compiled=compiled, timeout_s=60)
    assert isinstance(verdict, Valid), verdict.explain()
    verdict.witness.verify()  # type: ignore[union-attr]


def test_a_hundred_thousand_operations_have_a_witness_until_one_read_is_changed() -> None:
    history = _long(1, 100_000, unique=True)
    _verified(history, CasRegister(), compiled=True)
    changed = _with_another_result(history, 95_000)
    verdict = check_operations(changed, CasRegister(), compiled=True, timeout_s=60)
    assert isinstance(verdict, Invalid)
    evidence = verdict.anomaly.evidence
    assert evidence is not None
    assert 90_000 < evidence.failing < 100_000
    assert 1 <= len(evidence.core) <= 3


def _with_another_result(operations: Operations, near: int) -> Operations:
    """The next read from an operation on returns what nobody ever wrote."""
    [index] = next(
        [each]
        for each in range(near, len(operations))
        if operations.at(each).function == "read" and not operations.at(each).is_open
    )
    kind = operations.kind[:]
    kind[index] = len(operations.kinds)
    kinds = (*operations.kinds, operations.at(index)._replace(result=-7))
    return replace(operations, kind=kind, kinds=kinds)


@pytest.mark.parametrize("options", [{}, {"values": 50}, {"crash": 0.05}, {"unique": True}])
def test_plain_and_compiled_agree_on_thousands_of_operations(options: dict[str, object]) -> None:
    valid = _long(2, 10_000 if not options else 3_000, **options)
    for compiled in (False, True):
        _verified(valid, CasRegister(), compiled=compiled)
    for seed in range(2):
        changed = _long(seed, 1_000, changed=True, **options)
        plain, compiled_ = (
            ALGORITHMS[name](changed, CasRegister(), Budget(timeout_s=60))
            for name in ("plain", "compiled")
        )
        assert plain is compiled_ is not None


def test_hundreds_of_crashed_operations_are_counted_not_tried() -> None:
    for seed in range(4):
        for changed in (False, True):
            history = _long(seed, 1_000, crash=0.4, changed=changed, unique=changed)
            answers = {
                name: ALGORITHMS[name](history, CasRegister(), Budget(timeout_s=60))
                for name in ("plain", "compiled")
            }
            assert answers == dict.fromkeys(answers, not changed), (seed, changed)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_thousand_keys_are_a_thousand_objects(compiled: bool) -> None:
    history = _keyed(1_000)
    verdict = check_operations(history, CasRegister(), compiled=compiled)
    assert isinstance(verdict, Valid)
    verdict.witness.verify()  # type: ignore[union-attr]
    assert len(verdict.witness.orders) == 1_000  # type: ignore[union-attr]
    wrong = check_operations(_keyed(1_000, wrong=613), CasRegister(), compiled=compiled)
    assert isinstance(wrong, Invalid)
    assert wrong.anomaly.evidence is not None
    assert wrong.anomaly.evidence.key == 613


def _keyed(keys: int, wrong: int = -1) -> Operations:
    """Histories of a dozen operations each, of that many keys, at the same time."""
    rows: list[tuple[int, Operation]] = []
    intervals: list[tuple[int, int | None]] = []
    for key in range(keys):
        one = _long(key, 12, crash=0.05, unique=True, changed=key == wrong)
        for index in range(len(one)):
            operation = one.at(index)
            rows.append((one.process[index], operation._replace(key=key)))
            ended = None if operation.is_open else one.ended_ns[index]
            intervals.append((one.invoked_ns[index], ended))
    return from_intervals(rows, intervals)


def test_every_pair_of_searches_agrees_on_medium_histories() -> None:
    undecided = decided = 0
    for seed in range(24):
        history = _long(
            seed,
            random.Random(seed).randint(20, 300),
            clients=3 + seed % 3,
            crash=(0, 0.03)[seed % 2],
            changed=seed % 4 > 1,
        )
        answers = {
            name: search(history, CasRegister(), Budget(steps_max=3_000))
            for name, search in ALGORITHMS.items()
        }
        sure = set(answers.values()) - {None}
        assert len(sure) == 1, (seed, answers)
        undecided += sum(answer is None for answer in answers.values())
        decided += sum(answer is not None for answer in answers.values())
    assert undecided < decided / 4


@pytest.mark.parametrize("spec", [Counter(), Queue(), Kv()], ids=lambda spec: spec.name)
def test_searches_agree_on_medium_histories_without_words(spec: Specification) -> None:
    sure_of = set()
    for seed in range(16):
        style: Style = ("valid", "nearly")[seed % 2]
        history = random_operations(
            random.Random(seed), spec.name, style=style, operations_max=60, processes_max=4
        )
        answers = {
            name: search(history, spec, Budget(steps_max=3_000))
            for name, search in ALGORITHMS.items()
        }
        sure = set(answers.values()) - {None}
        assert len(sure) == 1, (seed, answers)
        sure_of |= sure
    assert sure_of == {True, False}
