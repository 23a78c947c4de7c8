"""Every search against the definition of linearizability, on tens of thousands of small histories."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from checker.search import check_operations
from checker.search.budget import Budget
from checker.specification import Specification
from checker.specs import SPECS, spec_named
from checker.verdict import Invalid, Valid
from tests.checker.search.algorithms import ALGORITHMS, EFFORTS, climbed, with_effort
from tests.checker.search.judging import judge
from tests.oracles.linearizability import linearizable
from tests.random_operations import TOYS, random_operations

SEQUENTIAL = [name for name in TOYS if issubclass(SPECS[name], Specification)]

HISTORIES = 1_000
"""Of each specification. The separate command of `tests/checker/fuzz.py` draws many more."""

ALWAYS = ("plain", "compiled")
IN_TURN = ("compiled table", "masks", "without hints", "without deadlines", "depth-first")

WAYS: tuple[dict[str, Any], ...] = ({"compiled": False}, {"compiled": True}, {"paranoid": True})


def _drawn(name: str, seed: int, operations_max: int = 10) -> random.Random:
    return random.Random(f"{name} {operations_max} {seed}")


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_every_search_says_what_the_definition_says(name: str) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    answers: Counter[bool] = Counter()
    for seed in range(HISTORIES):
        history = random_operations(_drawn(name, seed), name)
        expected = linearizable(history, spec)
        answers[expected] += 1
        for algorithm in (*ALWAYS, IN_TURN[seed % len(IN_TURN)]):
            answer = ALGORITHMS[algorithm](history, spec, Budget())
            assert answer in (expected, None), (algorithm, seed)
            assert answer is not None or algorithm == "compiled", (algorithm, seed)
    assert min(answers.values()) > HISTORIES / 10


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_verdicts_carry_proofs(name: str) -> None:
    spec = spec_named(name)
    for seed in range(120):
        history = random_operations(_drawn(name, seed), name)
        expected = linearizable(history, spec)
        verdict = check_operations(history, spec, **WAYS[seed % len(WAYS)])
        if expected:
            assert isinstance(verdict, Valid), seed
            verdict.witness.verify()  # type: ignore[union-attr]
        else:
            assert isinstance(verdict, Invalid), seed
            judge(verdict.anomaly)


@pytest.mark.parametrize("name", ["register", "cas-register", "mutex"])
def test_one_sided_searches_are_right_where_they_are_sure(name: str) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    sure: Counter[tuple[int, bool]] = Counter()
    for seed in range(150):
        history = random_operations(
            _drawn(name, seed, 16), name, operations_max=16, processes_max=8
        )
        expected = linearizable(history, spec)
        for number, effort in enumerate(EFFORTS):
            answer = with_effort(history, spec, effort)
            assert answer in (expected, None), (seed, effort)
            sure[number, expected] += answer is expected
        assert climbed(history, spec) is expected, seed
    assert all(any(sure[number, way] for way in (True, False)) for number in range(len(EFFORTS)))
