"""Every shipped specification: against toys of its own, its hints, its words."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Hashable, Iterable

import pytest

from checker.operations import UNKNOWN, Failed, Operation, Operations, Recorder, frozen
from checker.specification import Guarded, Hint, Illegal, OneOf, Specification
from checker.specs import (
    SPECS,
    CasRegister,
    MultiRegister,
    Register,
    ServiceKey,
    spec_named,
)
from tests.oracles.linearizability import linearizable
from tests.random_operations import STYLES, TOYS, LongHistory, random_operations

SEQUENTIAL = [name for name in TOYS if issubclass(SPECS[name], Specification)]
STATES_MAX = 60


@pytest.mark.parametrize("name", TOYS)
def test_executions_of_a_toy_satisfy_its_specification(name: str) -> None:
    spec = spec_named(name)
    verdicts: Counter[tuple[str, bool]] = Counter()
    for seed in range(300):
        style = STYLES[seed % 3]
        history = random_operations(random.Random(f"{name} {seed}"), name, style=style)
        assert all(spec.malformed(kind) is None for kind in history.kinds)
        verdicts[style, linearizable(history, spec)] += 1
    assert verdicts["valid", False] == 0
    assert min(verdicts["nearly", False], verdicts["nearly", True]) > 5
    assert verdicts["wild", False] > 20


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_hints_and_guards_say_what_step_does(name: str) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    rng = random.Random(name)
    seen: Counter[Hint | str] = Counter()
    for _ in range(60):
        history = random_operations(rng, name)
        kinds = [
            kind
            for kind in history.kinds
            if not isinstance(kind.result, Failed) or spec.observes_failure(kind)
        ]
        states = _states(spec, kinds)
        counts = [1] * len(kinds)
        # The guards of a `kv` lead to states that only stand for those of `step`.
        guards = map(spec.guarded, kinds) if name == "kv" else spec.guarded_all(kinds, counts)
        together = dict(zip(kinds, guards, strict=True))
        for kind in kinds:
            hint, guarded = spec.hints(kind), together[kind]
            after = {state: spec.step(state, kind) for state in states}
            legal = {
                state: next_ for state, next_ in after.items() if not isinstance(next_, Illegal)
            }
            seen[hint] += 1
            if Hint.PURE in hint:
                assert all(state == next_ for state, next_ in legal.items()), kind
            if Hint.TOTAL in hint:
                assert len(legal) == len(after), kind
            if Hint.BLIND in hint:
                assert Hint.TOTAL in hint
                assert len(set(legal.values())) == 1, kind
            alone = spec.guarded(kind)
            assert alone is None or alone == guarded
            if guarded is not None:
                seen["guarded"] += 1
                for state in states:
                    assert legal.get(state, Illegal) == _assigned(guarded, state), (kind, state)
    assert sum(seen.values()) > seen[Hint.NOTHING]


def _states(spec: Specification, kinds: Iterable[Operation]) -> list[Hashable]:
    """The states that some sequence of operations leads to, up to a number."""
    states: dict[Hashable, None] = {spec.init(): None}
    queue = list(states)
    while queue and len(states) < STATES_MAX:
        state = queue.pop(0)
        for kind in kinds:
            after = spec.step(state, kind)
            if isinstance(after, Illegal):
                continue
            for each in after.states if isinstance(after, OneOf) else (after,):
                if each not in states:
                    states[each] = None
                    queue.append(each)
    return list(states)


def _assigned(guarded: Guarded, state: Hashable) -> Hashable:
    holds = {
        "any": True,
        "is": state == guarded.value,
        "is not": state != guarded.value,
    }[guarded.guard]
    if not holds:
        return Illegal
    return guarded.new if guarded.assigns else state


@pytest.mark.parametrize(
    ("name", "before", "operation", "reason"),
    [
        ("register", 3, Operation("read", result=4), "the register is 3"),
        ("cas-register", None, Operation("cas", None, (1, 2), None), "the register is nil"),
        ("cas-register", 1, Operation("cas", None, (1, 2), False), "the register is 1"),
        ("mutex", "held", Operation("acquire", result=None), "the lock is held"),
        ("counter", 2, Operation("read", result=0), "the counter is 2"),
        ("set", frozenset({1}), Operation("contains", None, 1, False), "1 is in the set"),
        ("set", frozenset({1}), Operation("contains", None, 2, True), "2 is not in the set"),
        ("set", frozenset({2, 1}), Operation("read", None, None, ()), "the set is {1, 2}"),
        ("queue", (1, 2), Operation("dequeue", result=2), "the first in the queue is 1"),
        ("queue", (), Operation("dequeue", result=2), "the queue is empty"),
        ("stack", (1, 2), Operation("pop", result=1), "the top of the stack is 2"),
        ("stack", (), Operation("pop", result=1), "the stack is empty"),
        ("append-log", (1,), Operation("read", result=()), "the log is [1]"),
        ("kv", "a", Operation("get", "k", None, ""), "the value is 'a'"),
        (
            "multi-register",
            frozenset({("x", 1)}),
            Operation("txn", None, (("r", "x", None),), (("r", "x", 0),)),
            "x is 1",
        ),
    ],
)
def test_says_why_an_operation_is_illegal(
    name: str, before: Hashable, operation: Operation, reason: str
) -> None:
    spec = spec_named(name)
    assert isinstance(spec, Specification)
    assert spec.malformed(operation) is None
    assert spec.step(before, operation) == Illegal(reason)


@pytest.mark.parametrize(
    ("name", "operation", "word"),
    [
        ("cas-register", Operation("cas", None, 3), "pair"),
        ("cas-register", Operation("cas", None, (1, 2, 3)), "pair"),
        ("multi-register", Operation("txn", None, "x"), "list"),
        ("multi-register", Operation("txn", None, (("erase", "x", 1),)), "reads and writes"),
        ("multi-register", Operation("txn", None, (("r", "x", None),), ()), "what was read"),
        (
            "multi-register",
            Operation("txn", None, (("w", "x", 1),), (("w", "x", 2),)),
            "what was read",
        ),
        ("counter", Operation("add", None, "1"), "number"),
        ("set", Operation("read", result=1), "elements"),
        ("set", Operation("read", result=(1, 1)), "once"),
        ("set", Operation("contains", None, 1, 5), "true or false"),
        ("queue", Operation("enqueue"), "takes a value"),
        ("stack", Operation("push"), "takes a value"),
        ("append-log", Operation("read", result=7), "in order"),
        ("kv", Operation("get", "k", result=7), "string"),
        ("kv", Operation("append", "k", 7), "string"),
    ],
)
def test_says_what_cannot_be_right_in_any_state(name: str, operation: Operation, word: str) -> None:
    problem = spec_named(name).malformed(operation)
    assert problem is not None
    assert word in problem


def test_a_name_that_is_none_is_answered_with_those_that_are() -> None:
    with pytest.raises(ValueError, match=r"'regsiter'.*cas-register.*kv"):
        spec_named("regsiter")
    assert all(spec_named(name).name == name for name in SPECS)


def test_the_initial_value_can_be_set() -> None:
    history = _one(Operation("read", result=0))
    assert not linearizable(history, Register())
    assert linearizable(history, Register(initial=0))
    txn = _one(Operation("txn", None, (("r", "x", None),), (("r", "x", None),)))
    assert not linearizable(txn, MultiRegister())
    assert linearizable(txn, MultiRegister(initial=None))


def test_an_increment_is_guarded_where_its_number_is_written_in_one_way_only() -> None:
    key = ServiceKey()
    by = frozen({"increment": 1})
    top = Operation("key_value_increment", "n", by, 2**31)
    beyond = Operation("key_value_increment", "n", by, 2**31 + 1)
    plain = frozen({"value": {"text": "2147483647"}, "allow_overwrite": True})
    other = frozen({"value": {"text": "+2147483647"}, "allow_overwrite": True})
    store = [Operation("key_value_set", "n", argument, None) for argument in (plain, other)]
    [_, guarded, never] = key.guarded_all([store[0], top, beyond], [1, 1, 1])
    assert guarded == Guarded("is", b"2147483647", assigns=True, new=b"2147483648")
    assert isinstance(key.step(b"2147483648", beyond), Illegal)
    assert never is not None
    assert _assigned(never, b"2147483648") is Illegal
    assert key.guarded_all([*store, top], [1, 1, 1])[2] is None
    assert key.guarded_all([store[0], top, beyond._replace(result=UNKNOWN)], [1, 1, 1])[1] is None


def test_a_failed_cas_tells_something_only_if_it_is_said_to() -> None:
    history = _one(Operation("cas", None, (None, 1), Failed("mismatch")))
    assert linearizable(history, CasRegister())
    assert not linearizable(history, CasRegister(failures_observed=True))


def test_states_in_words() -> None:
    assert (
        MultiRegister().describe_state(frozenset({("y", 2), ("x", 1)}))
        == "x = 1, y = 2, all others 0"
    )
    assert MultiRegister().describe_state(frozenset()) == "all 0"


def test_long_histories_are_linearizable_until_a_read_is_changed() -> None:
    verdicts: Counter[tuple[bool, bool, bool]] = Counter()
    for seed in range(12):
        for unique in (False, True):
            for changed in (False, True):
                drawn = LongHistory(
                    rng=random.Random(seed),
                    operations=30,
                    crash=0.1,
                    unique=unique,
                    changed=changed,
                ).draw()
                assert len(drawn) == 30
                verdicts[unique, changed, linearizable(drawn, CasRegister())] += 1
    assert verdicts[True, False, True] == verdicts[False, False, True] == 12
    assert verdicts[True, True, False] == 12
    assert verdicts[False, True, False] > 3  # By chance another value may have been possible too.


def test_the_oracle_knows_real_time_and_unknown_outcomes() -> None:
    recorder = Recorder()
    write = recorder.invoke(0, "write", 1)
    recorder.info(write)
    for value in (None, 1):
        recorder.ok(recorder.invoke(1, "read"), value)
    assert linearizable(recorder.operations(), Register())  # The write came late.
    recorder.ok(recorder.invoke(1, "read"), None)
    assert not linearizable(recorder.operations(), Register())  # And it came once.


def _one(operation: Operation) -> Operations:
    recorder = Recorder()
    index = recorder.invoke(0, operation.function, operation.argument, key=operation.key)
    if isinstance(operation.result, Failed):
        recorder.fail(index, operation.result.error)
    elif operation.result is UNKNOWN:
        recorder.info(index)
    else:
        recorder.ok(index, operation.result)
    return recorder.operations()
