"""Checks the address of a planned job: its form, its name, its port.

`jax.distributed.initialize` hands the address to gRPC as it is, and process 0 listens on
`[::]:PORT` unless `coordinator_bind_address` says else (`jax/_src/distributed.py`); gRPC resolves the
name with getaddrinfo in both families, and the port is what follows the last colon.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from jax_bridge.doctor.findings import Finding, Level

_PORT_MAX = 65535
_EPHEMERAL = "/proc/sys/net/ipv4/ip_local_port_range"


@dataclass(frozen=True, slots=True)
class Address:
    """`HOST:PORT`, taken apart.

    Attributes:
      text: As it was given.
      host: Without brackets.
      port: From 1 on; 0, where one listens: any that is free.
    """

    text: str
    host: str
    port: int


def parse_address(text: str, *, least_port: int = 1) -> Address | Finding:
    """Takes an address apart, or says what is wrong with it."""
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        return _malformed(text, "it is not HOST:PORT")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        try:
            ipaddress.IPv6Address(text.partition("%")[0])
        except ValueError:
            return _malformed(text, "it has too many colons")
        return _malformed(
            text,
            "an IPv6 address needs brackets: without them gRPC never connects, and JAX waits for "
            "initialization_timeout and says only 'Deadline Exceeded'",
            f"write [{host}]:{port}, or [{text}]:PORT",
        )
    if not (port.isascii() and port.isdigit()) or not least_port <= int(port) <= _PORT_MAX:
        return _malformed(
            text, f"its port must be a number from {least_port} to {_PORT_MAX}, found {port!r}"
        )
    if host.startswith("["):
        try:
            ipaddress.IPv6Address(host[1:-1].partition("%")[0])
        except ValueError:
            return _malformed(text, "there is no IPv6 address inside the brackets")
    return Address(text, host.removeprefix("[").removesuffix("]"), int(port))


def _malformed(text: str, why: str, remedy: str = "") -> Finding:
    return Finding(
        Level.ERROR,
        "address",
        f"the address {text!r} is wrong: {why}",
        remedy or "pass it as HOST:PORT, e.g. 10.0.0.1:8476 or [fd00::1]:8476",
    )


def check_host(address: Address, processes: int | None, hosts: int | None) -> Iterator[Finding]:
    """Checks the host: whether it resolves, in which families, and whether others can reach it."""
    families = {}
    for family, name in ((socket.AF_INET, "IPv4"), (socket.AF_INET6, "IPv6")):
        try:
            found = socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        families[name] = sorted({str(entry[4][0]) for entry in found})
    if not families:
        yield Finding(
            Level.ERROR,
            "name",
            f"{address.host} does not resolve, neither to IPv4 nor to IPv6; JAX would wait for "
            "initialization_timeout and say only 'Deadline Exceeded'",
            "see whether the name exists where the process runs, or use an IP address",
        )
        return
    told = "; ".join(f"{name} {', '.join(ips)}" for name, ips in families.items())
    yield Finding(
        Level.GOOD, "name", f"{address.host} resolves to {told} (gRPC asks for both families)"
    )
    loopback = [ip for ips in families.values() for ip in ips if _is_loopback(ip)]
    if loopback and hosts != 1 and (processes is None or processes > 1):
        sure = hosts is not None and hosts > 1
        yield Finding(
            Level.ERROR if sure else Level.WARNING,
            "loopback",
            f"{address.host} is this machine's loopback ({', '.join(loopback)}): processes on other "
            "machines would look for the service on themselves",
            "use a name or an address that all machines reach (or say --hosts 1)",
        )


def _is_loopback(ip: str) -> bool:
    return ipaddress.ip_address(ip.partition("%")[0]).is_loopback


def is_elsewhere(bind: str | None) -> bool:
    """Whether the job's service is another than that of process 0, which idles at any free port."""
    parsed = None if bind is None else parse_address(bind, least_port=0)
    return isinstance(parsed, Address) and parsed.port == 0


def check_port(address: Address, bind: str | None) -> Iterator[Finding]:
    """Checks, on the machine of process 0, whether the service can listen; it binds and lets go."""
    listen = f"[::]:{address.port}" if bind is None else bind
    parsed = parse_address(listen, least_port=0)
    if isinstance(parsed, Finding):
        yield Finding(Level.ERROR, "bind", f"the bind address is wrong: {listen!r}", parsed.remedy)
        return
    if parsed.port not in {0, address.port}:
        yield Finding(
            Level.WARNING,
            "bind",
            f"the service would listen on port {parsed.port}, and be looked for on {address.port}",
            "use the same port, unless something forwards it",
        )
    problem = _cannot_listen(parsed)
    if problem is None:
        if parsed.port == 0:
            sentence = (
                f"with {listen} the service of process 0 idles at a free port; the job's is "
                f"another one, at {address.text}"
            )
            yield Finding(Level.GOOD, "port", sentence)
            return
        yield Finding(Level.GOOD, "port", f"{listen} is free: the service can listen there")
        low, high = _ephemeral_ports()
        if low <= parsed.port <= high:
            yield Finding(
                Level.NOTE,
                "port",
                f"port {parsed.port} is one that the system gives to any connection "
                f"({low}-{high}), so that it may be taken when the job starts",
                "a port outside this range cannot be taken by chance",
            )
        return
    in_use = problem.errno == errno.EADDRINUSE
    yield Finding(
        Level.ERROR,
        "port",
        f"the service cannot listen on {listen}: {problem.strerror}",
        "end the program that holds it (an orphan of an earlier job?), or choose another port"
        if in_use
        else "bind to an address of this machine, or to [::]; --process 0 belongs where it serves",
    )


def _cannot_listen(parsed: Address) -> OSError | None:
    family = socket.AF_INET6 if ":" in parsed.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(parsed.host, parsed.port, 0, socket.SOCK_STREAM)
        family = found[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            # Connections of an earlier service that are still fading do not hinder gRPC either.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(found[0][4])
            listener.listen()
    except OSError as error:
        if error.errno == errno.EAFNOSUPPORT and parsed.host == "::":
            return _cannot_listen(Address(parsed.text, "0.0.0.0", parsed.port))  # noqa: S104
        return error
    return None


def _ephemeral_ports() -> tuple[int, int]:
    try:
        with open(_EPHEMERAL) as file:
            low, high = file.read().split()
        return int(low), int(high)
    except (OSError, ValueError):
        return 0, -1
