"""The services that gRPC tools expect of every server: health checking and reflection.

Source: grpc.health.v1 and grpc.reflection.v1alpha, from the packages `grpcio-health-checking` and
`grpcio-reflection`; their messages and their reflection servicer are used as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import google.protobuf.message
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from coord_sim.core.status import Code
from coord_sim.server.grpc_connection import Rpc, connection_of
from coord_sim.server.http2 import Stream
from coord_sim.wire import server_methods as wire

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_SERVED = ("", wire.SERVICE)


def rpcs() -> Mapping[bytes, Rpc]:
    """The methods by path. A server that answers is healthy: when it stops, its connections end."""
    servicer = reflection.ReflectionServicer((wire.SERVICE, HEALTH, reflection.SERVICE_NAME))

    def reflect(stream: Stream, message: bytes) -> None:
        connection = connection_of(stream)
        try:
            request = reflection_pb2.ServerReflectionRequest.FromString(message)
        except google.protobuf.message.DecodeError:
            connection.fail(stream, Code.INTERNAL, "the request is not the method's message")
            return
        for response in servicer.ServerReflectionInfo(iter((request,)), None):
            connection.send_message(
                stream, response.SerializeToString(), is_first=not stream.is_begun
            )

    def end_reflection(stream: Stream) -> None:
        connection_of(stream).finish(stream, is_first=not stream.is_begun)

    return {
        f"/{HEALTH}/Check".encode(): Rpc(_check),
        f"/{HEALTH}/Watch".encode(): Rpc(_watch),
        f"/{reflection.SERVICE_NAME}/ServerReflectionInfo".encode(): Rpc(
            reflect, is_unary=False, on_end=end_reflection
        ),
    }


def _check(stream: Stream, message: bytes) -> None:
    service = _service(stream, message)
    if service is None:
        return
    if service not in _SERVED:
        connection_of(stream).fail(stream, Code.NOT_FOUND, f"this server has no service {service}")
        return
    connection_of(stream).reply(stream, _status(health_pb2.HealthCheckResponse.SERVING))


def _watch(stream: Stream, message: bytes) -> None:
    """Says how it is, and would say what changes: nothing does, until the connection ends."""
    service = _service(stream, message)
    if service is None:
        return
    known = service in _SERVED
    status = (
        health_pb2.HealthCheckResponse.SERVING
        if known
        else health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
    )
    connection_of(stream).send_message(stream, _status(status), is_first=True)


def _service(stream: Stream, message: bytes) -> str | None:
    try:
        return str(health_pb2.HealthCheckRequest.FromString(message).service)
    except google.protobuf.message.DecodeError:
        connection_of(stream).fail(stream, Code.INTERNAL, "the request is not the method's message")
        return None


def _status(status: int) -> bytes:
    response: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
    return response
