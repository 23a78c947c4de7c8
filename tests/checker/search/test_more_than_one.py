"""Steps with several next states, and steps of several operations, against the definition."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from checker.linearization import Contradiction
from checker.operations import Recorder
from checker.search import check_operations
from checker.search.budget import Budget
from checker.specification import SetSpecification, Specification
from checker.verdict import Invalid, Valid
from tests.checker.search import toys
from tests.checker.search.algorithms import ALGORITHMS
from tests.checker.search.judging import judge
from tests.oracles.linearizability import linearizable


@pytest.mark.parametrize("spec", [toys.Bag(), toys.LossyRegister()], ids=lambda spec: spec.name)
def test_any_of_several_next_states_may_be_the_true_one(spec: Specification) -> None:
    answers: Counter[bool] = Counter()
    for seed in range(300):
        history = toys.drawn(random.Random(seed), spec.name, 3 + seed % 6)
        expected = linearizable(history, spec)
        answers[expected] += 1
        for name, search in ALGORITHMS.items():
            assert search(history, spec, Budget()) in (expected, None), (seed, name)
        if seed % 3:
            continue
        for compiled, paranoid in ((None, False), (True, False), (None, True)):
            verdict = check_operations(history, spec, compiled=compiled, paranoid=paranoid)
            if isinstance(verdict, Valid):
                verdict.witness.verify()  # type: ignore[union-attr]
            else:
                assert isinstance(verdict, Invalid)
                judge(verdict.anomaly)
    assert min(answers[True], answers[False]) > 20


@pytest.mark.parametrize("spec", [toys.Exchanger(), toys.WriteSnapshot()], ids=lambda s: s.name)
def test_several_operations_may_act_as_one(spec: SetSpecification) -> None:
    answers: Counter[bool] = Counter()
    for seed in range(300):
        history = toys.drawn(random.Random(seed), spec.name, 2 + seed % 5)
        expected = linearizable(history, spec)
        answers[expected] += 1
        verdict = check_operations(history, spec)
        if expected:
            assert isinstance(verdict, Valid), seed
            verdict.witness.verify()  # type: ignore[union-attr]
        else:
            assert isinstance(verdict, Invalid), seed
            evidence = verdict.anomaly.evidence
            assert isinstance(evidence, Contradiction)
            assert str(history.at(evidence.failing)) in verdict.explain()
    assert min(answers[True], answers[False]) > 20


def test_what_acts_as_one_is_a_group_of_the_witness() -> None:
    recorder = Recorder()
    calls = [recorder.invoke(process, "exchange", process) for process in (0, 1)]
    for call in calls:
        recorder.ok(call, 1 - call)
    verdict = check_operations(recorder.operations(), toys.Exchanger())
    assert isinstance(verdict, Valid)
    [order] = verdict.witness.orders  # type: ignore[union-attr]
    assert [sorted(group) for group in order.groups] == [[0, 1]]
