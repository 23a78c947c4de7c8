"""Events of histories are made quickly, and are as frozen as dataclasses are."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import get_args

import pytest

from checker.history import Event, Invoke
from checker.history.events import Fault

KINDS = [*get_args(Event), Fault]


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_a_frozen_value_of_its_class(kind: type[Event]) -> None:
    names = [field.name for field in dataclasses.fields(kind)]
    event = kind(**{name: f"the {name}" for name in names})  # type: ignore[arg-type]
    assert type(event) is kind
    assert [getattr(event, name) for name in names] == [f"the {name}" for name in names]
    for same in (copy.copy(event), pickle.loads(pickle.dumps(event)), dataclasses.replace(event)):
        assert type(same) is kind
        assert same == event
        assert hash(same) == hash(event)
    for name in names:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, name, 1)
    with pytest.raises((AttributeError, TypeError)):
        event.other = 1  # type: ignore[union-attr]


def test_defaults_hold_and_what_is_missing_is_named() -> None:
    invoke = Invoke(time_ns=1, process=2, lifetime=0, id=3, operation="read", arguments={})
    assert (invoke.incarnation, invoke.uncertainty_ns) == (None, 0)
    with pytest.raises(TypeError, match="'operation' and 'arguments'"):
        Invoke(time_ns=1, process=2, lifetime=0, id=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional"):
        Invoke(1, 2, 0, 3, "read", {})  # type: ignore[call-arg]
