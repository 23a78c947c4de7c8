"""What the tap makes of bytes: every way in which gRPC may say a thing."""

from __future__ import annotations

import gzip
import zlib

import pytest

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.messages import (
    AliveTasks,
    Caller,
    Done,
    GetAliveTasks,
    InsertKeyValue,
    KeyValue,
    TryGetKeyValue,
)
from coord_sim.core.status import BarrierError, Code, ServiceError, Status
from coord_sim.tap import calls as calls_module
from coord_sim.tap.calls import SERVICE_GONE
from coord_sim.wire._generated import coordination_service_pb2 as pb
from coord_sim.wire.server_methods import status_payloads
from tests.server.http2_peer import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    WITH_PRIORITY,
    frame,
    prefixed,
)
from tests.tap.conversation import Conversation, details

WHO = pb.Incarnations(task_incarnation=5, service_incarnation=7)
CALLER = Caller(Incarnation(5), Incarnation(7))
TRY = pb.TryGetKeyValueRequest(incarnations=WHO, key="k")
TRIED = TryGetKeyValue(caller=CALLER, key="k")
FOUND = pb.TryGetKeyValueResponse(kv=pb.KeyValueEntry(key="k", value=b"v"))


@pytest.mark.parametrize("step", [0, 1, 7, 9])
def test_calls_are_read_however_their_bytes_are_cut(step: int) -> None:
    talk = Conversation(step)
    alive = pb.GetAliveTasksRequest(incarnations=WHO, requesting_task_id=1, task_ids=[0, 1])
    for stream in (1, 3):
        talk.call(stream, "GetAliveTasks", alive)
    for stream in (3, 1):
        talk.reply(stream, pb.GetAliveTasksResponse(alive_task_ids=[1, 0], incarnations=[9, 8]))
    asked = GetAliveTasks(caller=CALLER, task=TaskId(1), tasks=(TaskId(0), TaskId(1)))
    answer = AliveTasks(alive=((TaskId(0), Incarnation(8)), (TaskId(1), Incarnation(9))))
    assert talk.noted.told == [
        ("request", 0, asked),
        ("request", 1, asked),
        ("reply", 1, answer),
        ("reply", 0, answer),
    ]
    assert talk.noted.told[2][2] is talk.noted.told[3][2], "one object for the round"
    assert not talk.noted.gaps


@pytest.mark.parametrize("step", [0, 1])
def test_header_blocks_in_pieces_with_padding_and_priority_are_read(step: int) -> None:
    talk = Conversation(step)
    talk.asks(talk.in_pieces(1, talk.head("TryGetKeyValue", ("x", "y" * 300)), 50))
    body = prefixed(TRY.SerializeToString())
    talk.asks(frame(DATA, PADDED, 1, b"\x03" + body[:4] + b"\0\0\0"))
    talk.asks(frame(DATA, END_STREAM | PADDED, 1, b"\x00" + body[4:]))
    block = talk.head("TryGetKeyValue")
    flags = PADDED | WITH_PRIORITY | END_HEADERS
    talk.asks(frame(HEADERS, flags, 3, b"\x02" + b"\0\0\0\0\x10" + block + b"\0\0"))
    talk.asks(frame(DATA, 0, 3, body), frame(DATA, END_STREAM, 3))
    assert talk.noted.told == [("request", 0, TRIED), ("request", 1, TRIED)]
    talk.answers(talk.begin(1), frame(DATA, 0, 1, prefixed(FOUND.SerializeToString())))
    talk.answers(talk.in_pieces(1, b"\x00\x0bgrpc-status\x010", 5, END_STREAM))
    assert talk.noted.told[2:] == [("reply", 0, KeyValue(key="k", value=b"v"))]


@pytest.mark.parametrize(
    ("encoding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)]
)
def test_compressed_messages_are_read(encoding: str, packed: object) -> None:
    assert callable(packed)
    talk = Conversation()
    insert = pb.InsertKeyValueRequest(
        incarnations=WHO, kv=pb.KeyValueEntry(key="k", value=b"v" * 50_000)
    )
    talk.asks(
        frame(HEADERS, END_HEADERS, 1, talk.head("InsertKeyValue", ("grpc-encoding", encoding))),
        frame(DATA, END_STREAM, 1, prefixed(packed(insert.SerializeToString()), 1)),
    )
    asked = InsertKeyValue(caller=CALLER, key="k", value=b"v" * 50_000)
    assert talk.noted.told == [("request", 0, asked)]
    talk.answers(talk.begin(1, ("grpc-encoding", encoding)))
    talk.answers(frame(DATA, 0, 1, prefixed(packed(b""), 1)), talk.end(1, ("grpc-status", "0")))
    assert talk.noted.told[1:] == [("reply", 0, Done())]


def test_errors_have_their_code_message_and_payloads() -> None:
    talk = Conversation()
    for stream in (1, 3, 5):
        talk.call(stream, "TryGetKeyValue", TRY)
    status = Status(
        code=Code.NOT_FOUND,
        message="no kéy, 100 %",
        service_error=ServiceError(source_task=TaskId(3)),
        barrier_error=BarrierError("b", 2),
    )
    fields = (
        ("grpc-status", "5"),
        ("grpc-message", "no k%C3%A9y, 100 %25"),
        details(status_payloads(status)),
    )
    talk.answers(talk.trailers_only(1, *fields))
    talk.answers(talk.begin(3), talk.end(3, ("grpc-status", "14"), ("grpc-message", "away")))
    talk.answers(talk.trailers_only(5, ("grpc-status", "odd")))
    told = [answer for _, _, answer in talk.noted.told[3:]]
    assert told[:2] == [
        status,
        Status(code=Code.UNAVAILABLE, message="away", service_error=None),
    ]
    assert isinstance(told[2], Status)
    assert told[2].code == Code.UNKNOWN


def test_who_resets_a_call_or_loses_the_connection_is_told_apart() -> None:
    talk = Conversation()
    for stream in (1, 3, 5, 7):
        talk.call(stream, "TryGetKeyValue", TRY)
    talk.asks(talk.reset(1))
    talk.answers(talk.reset(3, code=7))
    talk.reply(5, FOUND)
    talk.answers(talk.reset(5, code=0))  # Nothing more is wanted of a request that is answered.
    talk.calls.closed(3, by_client=False)
    assert [(what, call) for what, call, _ in talk.noted.told[4:]] == [
        ("hang up", 0),
        ("reply", 1),
        ("reply", 2),
        ("reply", 3),
    ]
    refused = talk.noted.told[5][2]
    assert isinstance(refused, Status)
    assert refused.code == Code.UNAVAILABLE
    assert talk.noted.told[7][2] == SERVICE_GONE
    other = Conversation()
    other.call(1, "TryGetKeyValue", TRY)
    other.calls.closed(3, by_client=True)
    assert other.noted.told[1:] == [("hang up", 0, None)]


def test_other_services_and_requests_that_are_not_finished_are_no_calls() -> None:
    talk = Conversation()
    health = [(":path", "/grpc.health.v1.Health/Check"), (":method", "POST")]
    talk.asks(frame(HEADERS, END_HEADERS, 1, talk._client.encode(health)))
    talk.asks(frame(DATA, END_STREAM, 1, prefixed(b"")))
    talk.asks(frame(HEADERS, END_HEADERS, 3, talk.head("TryGetKeyValue")), talk.reset(3))
    talk.reply(1, pb.HeartbeatResponse())
    talk.call(5, "TryGetKeyValue", TRY)
    talk.calls.closed(3, by_client=True)
    assert [what for what, _, _ in talk.noted.told] == ["request", "hang up"]
    assert not talk.noted.gaps


def test_nothing_of_a_call_that_has_ended_is_kept() -> None:
    talk = Conversation()
    for number in range(300):
        talk.call(2 * number + 1, "TryGetKeyValue", TRY)
        talk.reply(2 * number + 1, FOUND)
    assert not talk.calls._calls
    assert len(talk.noted.told) == 600


@pytest.mark.parametrize("is_packed", [False, True])
def test_large_messages_are_left_out_and_told(
    monkeypatch: pytest.MonkeyPatch, is_packed: bool
) -> None:
    monkeypatch.setattr(calls_module, "MESSAGE_BYTES_MAX", 10_000)
    talk = Conversation()
    kv = pb.KeyValueEntry(key="k", value=b"v" * 20_000)
    insert = pb.InsertKeyValueRequest(incarnations=WHO, kv=kv).SerializeToString()
    body = prefixed(gzip.compress(insert), 1) if is_packed else prefixed(insert)
    talk.asks(
        frame(HEADERS, END_HEADERS, 1, talk.head("InsertKeyValue", ("grpc-encoding", "gzip")))
    )
    talk.asks(*(frame(DATA, 0, 1, body[at : at + 9000]) for at in range(0, len(body), 9000)))
    talk.asks(frame(DATA, END_STREAM, 1))
    talk.reply(1, pb.InsertKeyValueResponse())
    talk.call(3, "TryGetKeyValue", TRY)
    talk.reply(3, pb.TryGetKeyValueResponse(kv=kv))
    talk.call(5, "TryGetKeyValue", TRY)
    talk.reply(5, FOUND)
    assert [(what, call) for what, call, _ in talk.noted.told] == [
        ("request", 0),
        ("request", 1),
        ("reply", 1),
    ]
    assert talk.noted.gaps == [
        ("calls with large messages", "a request of InsertKeyValue"),
        ("calls with large messages", "an answer of TryGetKeyValue"),
    ]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\0\0",
        prefixed(b"\xff\xff"),
        prefixed(b"") + b"more",
        prefixed(b"no gzip", 1),
        prefixed(gzip.compress(b"k" * 99, mtime=0)[:-9], 1),
    ],
    ids=["nothing", "half a head", "no protobuf", "too long", "no gzip", "half of a gzip"],
)
def test_what_is_no_message_is_told_and_the_connection_followed(body: bytes) -> None:
    talk = Conversation()
    head = talk.head("TryGetKeyValue", ("grpc-encoding", "gzip"))
    talk.asks(frame(HEADERS, END_HEADERS, 1, head), frame(DATA, END_STREAM, 1, body))
    talk.call(3, "TryGetKeyValue", TRY)
    talk.answers(talk.begin(3), frame(DATA, 0, 3, body), talk.end(3, ("grpc-status", "0")))
    talk.call(5, "TryGetKeyValue", TRY)
    talk.reply(5, FOUND)
    assert [(what, call) for what, call, _ in talk.noted.told] == [
        ("request", 0),
        ("request", 1),
        ("reply", 1),
    ]
    assert [kind for kind, _ in talk.noted.gaps] == [calls_module.UNREADABLE] * 2


@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (b"\x16\x03\x01\x02\x00" + b"hello" * 10, "TLS connections"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "connections that are not HTTP/2"),
        (b"\0", "connections that are not HTTP/2"),
    ],
)
@pytest.mark.parametrize("step", [0, 1])
def test_other_protocols_are_told_once(first: bytes, kind: str, step: int) -> None:
    talk = Conversation(step, preface=first)
    talk.asks(b"more" * 100)
    talk.answers(b"whatever" * 100)
    talk.calls.closed(3, by_client=True)
    assert [told for told, _ in talk.noted.gaps] == [kind]
    assert not talk.noted.told


@pytest.mark.parametrize(
    "broken",
    [
        frame(HEADERS, END_HEADERS, 3, b"\xff\xff\xff\xff\xff\xff"),
        frame(HEADERS, END_HEADERS, 3, b"\xff\x80\x01"),
        frame(CONTINUATION, END_HEADERS, 3, b"\x88"),
        frame(HEADERS, 0, 3, b"\x88") + frame(DATA, 0, 1, b"x"),
        frame(HEADERS, 0, 3, b"\x88") + frame(6, 0, 0, b"12345678"),
        frame(HEADERS, 0, 3, b"\x88") + frame(CONTINUATION, END_HEADERS, 5, b"\x88"),
        frame(DATA, PADDED, 1, b""),
        frame(DATA, PADDED, 1, b"\x05abc"),
    ],
)
@pytest.mark.parametrize("side", ["asks", "answers"])
def test_frames_that_cannot_be_read_end_the_following_of_their_connection(
    broken: bytes, side: str
) -> None:
    talk = Conversation()
    talk.call(1, "TryGetKeyValue", TRY)
    getattr(talk, side)(broken)
    talk.reply(1, FOUND)
    talk.calls.closed(3, by_client=True)
    assert [kind for kind, _ in talk.noted.gaps] == [calls_module.BROKEN]
    assert [what for what, _, _ in talk.noted.told] == ["request"], "how it ended was not seen"
