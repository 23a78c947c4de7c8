"""Specifications that break the rules, and operations that they do not know: one clear line each."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pytest

from checker.errors import CheckerError, MalformedHistory, SpecificationError
from checker.operations import Operation, Operations, Recorder
from checker.search import check_operations
from checker.specification import Illegal, OneOf, SetSpecification, Specification
from checker.specs import Kv, spec_named

WAYS: tuple[dict[str, Any], ...] = ({}, {"compiled": True}, {"paranoid": True})
every_way = pytest.mark.parametrize("way", WAYS, ids=("plain", "compiled", "paranoid"))


class _Bad(Specification):
    """Breaks one rule."""

    name = "bad"

    def __init__(self, breaks: str) -> None:
        self._breaks = breaks

    def init(self) -> Hashable:
        if self._breaks == "init raises":
            raise KeyError("no such file")
        return [] if self._breaks == "init unhashable" else 0  # type: ignore[return-value]

    def step(self, state: Any, operation: Operation) -> Hashable | Illegal | OneOf:
        del operation
        if self._breaks == "step raises":
            raise ZeroDivisionError("division by zero")
        if self._breaks == "step unhashable":
            return [state]  # type: ignore[return-value]
        if self._breaks == "one of unhashable":
            return OneOf(([state],))  # type: ignore[arg-type]
        if self._breaks == "one of nothing iterable":
            return OneOf(3)  # type: ignore[arg-type]
        return 0


class _BadSet(SetSpecification):
    """The same, for groups."""

    name = "bad set"

    def __init__(self, breaks: str) -> None:
        self._bad = _Bad(breaks)

    def init(self) -> Hashable:
        return self._bad.init()

    def step(self, state: Any, group: Any) -> Hashable | Illegal | OneOf:
        return self._bad.step(state, group[0][1])


BREAKS = {
    "init raises": ("init()", "no such file"),
    "init unhashable": ("init()", "unhashable"),
    "step raises": ("step()", "ZeroDivisionError: division by zero"),
    "step unhashable": ("step()", "unhashable"),
    "one of unhashable": ("step()", "unhashable"),
    "one of nothing iterable": ("step()", "not iterable"),
}


def _history() -> Operations:
    recorder = Recorder(source="run.edn")
    for line in (1, 3):
        index = recorder.invoke(0, "poke", 7, line=line)
        recorder.ok(index, 8)
    return recorder.operations()


@every_way
@pytest.mark.parametrize("breaks", BREAKS)
def test_a_specification_that_breaks_the_rules_is_named(breaks: str, way: dict[str, Any]) -> None:
    with pytest.raises(SpecificationError) as caught:
        check_operations(_history(), _Bad(breaks), **way)
    _is_clear(caught.value, "'bad'", *BREAKS[breaks])
    if "step" in BREAKS[breaks][0]:
        assert "poke(7) -> 8" in str(caught.value)


@pytest.mark.parametrize("breaks", BREAKS)
def test_so_is_a_set_specification(breaks: str) -> None:
    with pytest.raises(SpecificationError) as caught:
        check_operations(_history(), _BadSet(breaks))
    _is_clear(caught.value, "'bad set'", *BREAKS[breaks])


@every_way
@pytest.mark.parametrize(
    ("name", "call", "result", "said"),
    [
        ("register", ("raed", None, None), 3, ("'raed'", "read, write", "run.edn:12")),
        ("cas-register", ("cas", None, 3), None, ("pair", "run.edn:12")),
        ("kv", ("put", "k", 3), None, ("string", "run.edn:12")),
        ("queue", ("enqueue", None, None), None, ("value", "run.edn:12")),
        ("counter", ("add", None, "x"), None, ("number", "run.edn:12")),
    ],
)
def test_an_operation_that_cannot_be_is_told_with_its_place(
    name: str,
    call: tuple[str, str | None, object],
    result: object,
    said: tuple[str, ...],
    way: dict[str, Any],
) -> None:
    recorder = Recorder(source="run.edn")
    function, key, argument = call
    index = recorder.invoke(0, function, argument, key=key, line=12)
    recorder.ok(index, result)
    with pytest.raises(MalformedHistory) as caught:
        check_operations(recorder.operations(), spec_named(name), **way)
    _is_clear(caught.value, *said)


def test_some_operations_without_an_object_are_refused_where_others_have_one() -> None:
    recorder = Recorder(source="run.edn")
    recorder.ok(recorder.invoke(0, "write", 1, key="k", line=1))
    recorder.ok(recorder.invoke(0, "write", 1, line=3))
    with pytest.raises(MalformedHistory) as caught:
        check_operations(recorder.operations(), spec_named("register"))
    _is_clear(caught.value, "run.edn:3", "object")


def test_a_huge_value_does_not_fill_the_message() -> None:
    recorder = Recorder()
    recorder.ok(recorder.invoke(0, "put", ["x" * 100_000], key="k"), None)
    with pytest.raises(MalformedHistory) as caught:
        check_operations(recorder.operations(), Kv())
    assert len(str(caught.value)) < 600
    history = Recorder()
    history.ok(history.invoke(0, "y" * 100_000, ["x" * 100_000]), None)
    with pytest.raises(SpecificationError) as broken:
        check_operations(history.operations(), _Bad("step raises"))
    assert len(str(broken.value)) < 1_000


def _is_clear(error: CheckerError, *said: str) -> None:
    text = str(error)
    assert "\n" not in text
    assert "Traceback" not in text
    assert all(each in text for each in said), text
