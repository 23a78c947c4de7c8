"""Statuses inside messages."""

from __future__ import annotations

from coord_sim.core.identifiers import Incarnation, TaskId
from coord_sim.core.quoting import quoted
from coord_sim.core.status import BarrierError, Code, ServiceError, Status, WrongService

KEY = "type.googleapis.com/tensorflow."


def test_payloads_are_shown_as_bytes_with_hex_digits_after_escapes_escaped_too() -> None:
    status = Status(code=Code.DEADLINE_EXCEEDED, message="late", barrier_error=BarrierError("b", 2))
    # As jaxlib's service writes it into its log.
    assert quoted(status) == (
        rf"DEADLINE_EXCEEDED: late [{KEY}BarrierError='\n\x01\x62\x10\x02'] "
        f"[{KEY}CoordinationServiceError='']"
    )


def test_every_payload_can_be_shown() -> None:
    status = Status(
        code=Code.INTERNAL,
        message="'",
        service_error=ServiceError(reported=True, source_task=TaskId(300)),
        barrier_error=BarrierError("", -1),
        wrong_service=WrongService(Incarnation(0x2041)),
    )
    assert quoted(status) == (
        rf"INTERNAL: ' [{KEY}BarrierError='\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01'] "
        rf"[{KEY}CoordinationServiceError='\x18\x01 \xac\x02'] "
        rf"[{KEY}ServiceMismatchError='\tA \x00\x00\x00\x00\x00\x00']"
    )
    bare = Status(code=Code.CANCELLED, message="text", service_error=None)
    assert quoted(bare) == "CANCELLED: text"


def test_what_is_shown_is_what_is_on_the_wire() -> None:
    from coord_sim.wire._generated import coordination_service_pb2 as pb
    from coord_sim.wire.server_methods import status_payloads

    status = Status(
        code=Code.INTERNAL,
        message="",
        service_error=ServiceError(reported=True, source_task=TaskId(70_000)),
        barrier_error=BarrierError("id of a barrier", 129),
        wrong_service=WrongService(Incarnation(2**64 - 2)),
    )
    shown = quoted(status)
    for key, value in pb.StatusPayloads.FromString(status_payloads(status)).payloads.items():
        (text,) = (part for part in shown.split(" [") if part.startswith(key))
        escaped = text.removeprefix(f"{key}='").removesuffix("]").removesuffix("'")
        assert escaped.encode().decode("unicode_escape").encode("latin-1") == value
