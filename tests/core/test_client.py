"""The client's half: registration with retries, heartbeats, one error poll."""

from __future__ import annotations

import itertools

from coord_sim.core.client import CoordinationClient
from coord_sim.core.effects import Connected, Fatal, Send
from coord_sim.core.identifiers import CallId, Incarnation, TaskId, seconds
from coord_sim.core.messages import (
    BarrierPassed,
    Heartbeat,
    HeartbeatAccepted,
    PollForError,
    Registered,
    RegisterTask,
)
from coord_sim.core.status import BarrierError, Code, ServiceError, Status

SERVICE = Incarnation(999)


def connected(outage_s: float = 0) -> tuple[CoordinationClient, CallId]:
    """A client that is connected at instant 0, and the id of its poll."""
    numbers = itertools.count()
    client = CoordinationClient(
        TaskId(1),
        Incarnation(5),
        heartbeat_timeout_ns=seconds(2),
        init_timeout_ns=seconds(10),
        new_call=lambda: CallId(next(numbers)),
        outage_ns=seconds(outage_s),
    )
    (register,) = client.connect(0)
    assert isinstance(register, Send)
    assert register.request == RegisterTask(task=TaskId(1), incarnation=Incarnation(5))
    effects = client.receive(register.call, Registered(service_incarnation=SERVICE), 0)
    assert effects[0] == Connected(SERVICE)
    poll = effects[1]
    assert isinstance(poll, Send)
    assert isinstance(poll.request, PollForError)
    return client, poll.call


def beat(client: CoordinationClient, now_ns: int) -> CallId:
    (effect,) = client.advance(now_ns)
    assert isinstance(effect, Send)
    assert isinstance(effect.request, Heartbeat)
    return effect.call


def test_it_beats_every_half_of_the_timeout() -> None:
    client, _ = connected()
    assert client.next_deadline_ns() == seconds(1)
    assert client.advance(seconds(0.9)) == []
    call = beat(client, seconds(1))
    client.receive(call, HeartbeatAccepted(service_incarnation=SERVICE), seconds(1.1))
    assert client.next_deadline_ns() == seconds(2)


def test_a_heartbeat_that_is_not_answered_in_time_is_fatal() -> None:
    client, _ = connected()
    beat(client, seconds(1))
    assert client.advance(seconds(2)) == []
    assert client.next_deadline_ns() == seconds(3)
    (effect,) = client.advance(seconds(3))
    assert isinstance(effect, Fatal)
    assert effect.reason.code is Code.DEADLINE_EXCEEDED


def test_a_failed_heartbeat_is_forgiven_if_the_client_shuts_down_meanwhile() -> None:
    client, _ = connected()
    beat(client, seconds(1))
    client.advance(seconds(2))
    client.leave()
    assert client.next_deadline_ns() is None


BROKEN = Status(code=Code.UNAVAILABLE, message="Socket closed", service_error=None)


def test_a_heartbeat_over_a_broken_connection_is_sent_four_times() -> None:
    client, _ = connected()
    now_ns = seconds(1)
    for _ in range(3):
        client.receive(beat(client, now_ns), BROKEN, now_ns)
        now_ns += seconds(0.001)
        assert client.next_deadline_ns() == now_ns
    client.receive(beat(client, now_ns), BROKEN, now_ns)
    (effect,) = client.advance(now_ns + seconds(1))
    assert effect == Fatal(BROKEN)


def test_a_client_that_bears_outages_beats_and_polls_again() -> None:
    client, poll = connected(outage_s=5)
    (at_once,) = client.receive(poll, BROKEN, seconds(0.5))  # Its answer: the outage is over.
    assert isinstance(at_once, Send)
    assert isinstance(at_once.request, Heartbeat)
    client.receive(at_once.call, HeartbeatAccepted(service_incarnation=SERVICE), seconds(0.6))
    (again,) = client.advance(seconds(0.7))
    assert isinstance(again, Send)
    assert isinstance(again.request, PollForError)
    now_ns = seconds(1.5)
    for _ in range(4):
        client.receive(beat(client, now_ns), BROKEN, now_ns)
        now_ns += seconds(0.001)
    client.receive(beat(client, seconds(2)), HeartbeatAccepted(service_incarnation=SERVICE), 2)
    (at_once,) = client.receive(again.call, BROKEN, seconds(4))
    assert isinstance(at_once, Send)
    client.receive(at_once.call, BROKEN, seconds(4))
    (third,) = client.advance(seconds(4.2))
    assert isinstance(third, Send)
    assert client.receive(third.call, BROKEN, seconds(9.5)) == [Fatal(BROKEN)]


def test_a_client_in_doubt_beats_at_once_and_after_the_heartbeat_that_is_under_way() -> None:
    client, _ = connected(outage_s=5)
    accepted = HeartbeatAccepted(service_incarnation=SERVICE)
    (first,) = client.doubt(seconds(0.1))
    assert isinstance(first, Send)
    assert client.doubt(seconds(0.2)) == []
    (second,) = client.receive(first.call, accepted, seconds(0.3))  # It may be from before.
    assert isinstance(second, Send)
    assert isinstance(second.request, Heartbeat)
    assert client.receive(second.call, accepted, seconds(0.4)) == []
    client.leave()
    assert client.doubt(seconds(0.5)) == []


def test_the_answer_decides_the_next_counter_of_a_barrier() -> None:
    client, _ = connected()
    assert client.enter_barrier("b") == 0
    refused = client.enter_barrier("b")
    assert isinstance(refused, Status)
    assert refused.code is Code.FAILED_PRECONDITION
    client.leave_barrier("b", BROKEN)
    assert client.enter_barrier("b") == 0
    client.leave_barrier("b", BarrierPassed(counter=40))
    assert client.enter_barrier("b") == 41
    late = Status(code=Code.INTERNAL, message="", barrier_error=BarrierError("b", 7))
    client.leave_barrier("b", late)
    assert client.enter_barrier("b") == 8


def test_a_heartbeat_answered_by_another_service_is_fatal() -> None:
    client, _ = connected()
    call = beat(client, seconds(1))
    other = HeartbeatAccepted(service_incarnation=Incarnation(1))
    (effect,) = client.receive(call, other, seconds(1))
    assert isinstance(effect, Fatal)


def test_a_failed_poll_is_fatal_unless_it_was_cancelled() -> None:
    client, poll = connected()
    assert client.receive(poll, Status(code=Code.CANCELLED, message=""), 0) == []
    client, poll = connected()
    (effect,) = client.receive(poll, Status(code=Code.UNAVAILABLE, message=""), 0)
    assert isinstance(effect, Fatal)


def test_registration_is_tried_again_unless_the_service_refused_for_good() -> None:
    numbers = itertools.count()
    for status, retried in (
        (Status(code=Code.UNAVAILABLE, message="", service_error=None), True),
        (Status(code=Code.ABORTED, message=""), True),
        (Status(code=Code.INTERNAL, message="", service_error=ServiceError()), True),
        (Status(code=Code.ALREADY_EXISTS, message=""), False),
        (Status(code=Code.FAILED_PRECONDITION, message=""), False),
    ):
        client = CoordinationClient(
            TaskId(0),
            Incarnation(5),
            heartbeat_timeout_ns=seconds(2),
            init_timeout_ns=seconds(10),
            new_call=lambda: CallId(next(numbers)),
        )
        (register,) = client.connect(0)
        assert isinstance(register, Send)
        effects = client.receive(register.call, status, 0)
        assert bool(effects) is not retried
        if retried:
            deadline_ns = client.next_deadline_ns()
            assert deadline_ns is not None
            (again,) = client.advance(deadline_ns)
            assert isinstance(again, Send)
            assert isinstance(again.request, RegisterTask)
