"""How far a connection to an address comes: the name, TCP, TLS (which is not gone into), HTTP/2.

Everything is asked by plain sockets, as one process of the job would: what answers is told apart from
what does not. What does not answer so is asked once more, whether it wants TLS.
"""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import dataclass
from enum import Enum

from coord_sim.tls import speaks_tls
from jax_bridge.doctor.addresses import Address

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_SETTINGS = b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
_FRAME_HEADER = 9
_SETTINGS_TYPE = 4


class Stage(Enum):
    """Where a connection stands; each is reached after the one before."""

    NAME = "name"
    TCP = "tcp"
    TLS = "tls"
    HTTP2 = "http2"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Probed:
    """How far it came.

    Attributes:
      stage: The stage that did not succeed, or `SERVICE` if something speaks HTTP/2 there.
      sentence: What was seen.
      remedy: What to do; empty if nothing.
    """

    stage: Stage
    sentence: str
    remedy: str = ""


def probe(address: Address, timeout_s: float) -> Probed:
    """Connects, and says how far it came.

    Args:
      address: Where.
      timeout_s: For each of the stages.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return Probed(
            Stage.NAME,
            f"the name {address.host} does not resolve ({error})",
            "see whether the name exists here; a name of a service that is just starting may come late",
        )
    problems = []
    for family, kind, protocol, _, place in found:
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(timeout_s)
            began = time.monotonic()
            try:
                connection.connect(place)
            except TimeoutError:
                problems.append(f"{place[0]} does not reply within {timeout_s:g} s")
                continue
            except OSError as error:
                problems.append(f"{place[0]}: {error.strerror}")
                continue
            took_s = time.monotonic() - began
            greeted = _greeted(connection, str(place[0]), address, took_s, timeout_s)
            if greeted.stage is Stage.HTTP2:
                return _wants_tls(str(place[0]), address, timeout_s) or greeted
            return greeted
    sentence = f"no connection to port {address.port}: {'; '.join(problems)}"
    if any("does not reply" in problem for problem in problems):
        remedy = "look for a firewall or a wrong address: nothing answers, not even with a refusal"
    else:
        remedy = (
            "nobody listens there (yet): process 0 is not started, has another address, or binds to an "
            "interface that this machine does not reach"
        )
    return Probed(Stage.TCP, sentence, remedy)


def _greeted(
    connection: socket.socket, ip: str, address: Address, took_s: float, timeout_s: float
) -> Probed:
    """Whether the other end greets as HTTP/2 does, which every gRPC server does at once."""
    try:
        connection.sendall(_PREFACE + _SETTINGS)
        frame = b""
        while len(frame) < _FRAME_HEADER:
            data = connection.recv(64)
            if not data:
                break
            frame += data
    except TimeoutError:
        return Probed(
            Stage.HTTP2,
            f"{ip} port {address.port} takes connections and says nothing for {timeout_s:g} s: it "
            "stands still (stopped, overloaded), or something in between takes connections for it",
            "look at the process that listens there; a load balancer or a port mapping without its "
            "target looks the same",
        )
    except OSError as error:
        return Probed(
            Stage.HTTP2,
            f"{ip} port {address.port} ends connections at once ({error.strerror})",
            "something else listens there: see `ss -ltnp` on that machine",
        )
    if len(frame) < _FRAME_HEADER or frame[3] != _SETTINGS_TYPE:
        return Probed(
            Stage.HTTP2,
            f"what listens at {ip} port {address.port} does not speak HTTP/2: another program has it",
            "see `ss -ltnp` on that machine",
        )
    return Probed(Stage.SERVICE, f"{ip} port {address.port} answers, after {took_s * 1000:.0f} ms")


def _wants_tls(ip: str, address: Address, timeout_s: float) -> Probed | None:
    if not asyncio.run(speaks_tls(f"{ip}:{address.port}", timeout_s)):
        return None
    return Probed(
        Stage.TLS,
        f"{ip} port {address.port} speaks TLS, so a process without certificates gets no answer there; "
        "what is behind it can't be seen from here",
        "see that every process has its certificate, key and CA (jax_mtls_cert_file and its like, from "
        "jaxlib 0.12 on), or that the service was started without",
    )
