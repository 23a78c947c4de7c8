"""No field of the core is forgotten when services are compared."""

from __future__ import annotations

import pickle

from coord_sim.core.identifiers import CallId, TaskId, seconds
from coord_sim.core.messages import (
    Barrier,
    Caller,
    GetAliveTasks,
    GetKeyValue,
    InsertKeyValue,
    Request,
)
from coord_sim.core.semantics import SHIPPED
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.explore import names
from coord_sim.explore.freezing import IGNORED, KEPT, View, field_names, freeze, is_symmetric
from coord_sim.explore.requests import Message, Operation
from coord_sim.mutants import service_mutants

NOW_NS = seconds(5.0)


def test_every_field_of_the_core_is_classified() -> None:
    seen: dict[type, set[str]] = {}
    _collect(_busy(CoordinationService), seen)
    assert seen.keys() == KEPT.keys()
    for kind, fields in seen.items():
        kept, ignored = set(KEPT[kind]), set(IGNORED[kind])
        assert kept | ignored == fields, kind
        assert not kept & ignored, kind


def test_renaming_processes_renames_all_of_a_service() -> None:
    """What 0 and 1 did, seen with 0 and 1 exchanged, is what 1 and 0 did."""
    one = freeze(_with_call_of(0), View((1, 0), NOW_NS))
    other = freeze(_with_call_of(1), View((0, 1), NOW_NS))
    assert one == other
    assert one != freeze(_with_call_of(0), View((0, 1), NOW_NS))


def test_later_is_the_same_state() -> None:
    service = _with_call_of(0)
    frozen = freeze(service, View((0, 1), NOW_NS))
    assert freeze(pickle.loads(pickle.dumps(service)), View((0, 1), NOW_NS)) == frozen


def test_known_wrong_services_can_be_frozen() -> None:
    for name, factory in service_mutants.items():
        service = _busy(factory)
        assert freeze(service, View((0, 1), NOW_NS)), name
        assert is_symmetric(service) in (True, False)


def _with_call_of(process: int) -> CoordinationService:
    service = _formed(CoordinationService)
    message = Message(Operation.LIVE, process, 0)
    service.handle(message.id, message.request(2), NOW_NS)
    return service


def _formed(factory: type[CoordinationService]) -> CoordinationService:
    config = ServiceConfig(tasks=2, recoverable=True, semantics=SHIPPED)
    service = factory(config, names.SERVICE, NOW_NS)
    for process in range(2):
        message = Message(Operation.REGISTER, process, 0)
        service.handle(message.id, message.request(2), NOW_NS)
    return service


def _busy(factory: type[CoordinationService]) -> CoordinationService:
    """A service with an open round, an open barrier, a key and a waiting get."""
    service = _formed(factory)
    caller = Caller(names.incarnation(0, 0), names.SERVICE)
    task = TaskId(0)
    requests: list[Request] = [
        GetAliveTasks(caller=caller, task=task, tasks=(TaskId(0), TaskId(1))),
        Barrier(caller=caller, barrier_id="b", timeout_ms=1000, tasks=(), task=task, counter=0),
        InsertKeyValue(caller=caller, key="step/0", value=b"0"),
        GetKeyValue(caller=caller, key="step/1"),
    ]
    for number, request in enumerate(requests):
        service.handle(CallId(names.call_id(0, 0, 4 + number)), request, NOW_NS)
    return service


def _collect(value: object, seen: dict[type, set[str]]) -> None:
    """The classes of the core that are reached, with their fields."""
    if type(value) in KEPT:
        if type(value) not in seen:
            seen[type(value)] = field_names(value)
        for name in field_names(value):
            if name not in ("_membership", "_semantics", "config"):
                _collect(getattr(value, name), seen)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, seen)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, seen)
