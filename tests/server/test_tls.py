"""Mutual TLS over real sockets: our client, jaxlib's and gRPC's own, against our server and jaxlib's."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import json
import logging
import re
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from coord_sim.client.aio import DistributedRuntimeClient
from coord_sim.core.service import ServiceConfig
from coord_sim.core.status import Code
from coord_sim.errors import ServiceError
from coord_sim.server.grpc_server import CoordinationServer
from coord_sim.server.http2 import ACK, PING, PREFACE, frame
from coord_sim.tls import PeerFiles, TlsError, speaks_tls
from coord_sim.wire import server_methods as wire
from coord_sim.wire._generated import coordination_service_pb2 as pb
from tests.ports import reserved_port
from tests.server.certificates import Authority, Leaf, key_pem

WAIT_S = 60.0
"""Less than `INIT_TIMEOUT_S`: what is over within it was not ended by that time-out."""
INIT_TIMEOUT_S = 300.0

CA = Authority("ours")
OTHER_CA = Authority("another")
HOST = CA.sign("localhost", "127.0.0.1", "::1", "spiffe://lab/server/0")
URI = CA.sign("spiffe://lab/server/1")
CLIENT = CA.sign("127.0.0.1", "spiffe://lab/client/0")
STRANGER = OTHER_CA.sign("localhost", "127.0.0.1", "spiffe://lab/client/0")
EXPIRED = CA.sign("localhost", "127.0.0.1", "spiffe://lab/client/0", is_expired=True)

has_mtls = pytest.mark.skipif(
    tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 12),
    reason="jaxlib has mtls_* parameters from 0.12 on",
)


async def until(holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S):
            while not holds():  # noqa: ASYNC110 - what is waited for has no events
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"it never came to be that {what}")


def run(body: Coroutine[Any, Any, None]) -> None:
    """Runs to the end, and nothing is left: no task, no error that nobody saw."""
    unseen: list[dict[str, Any]] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        # gRPC's poller serves all loops of a process, and complains of those that are over.
        loop.set_exception_handler(
            lambda _, context: (
                unseen.append(context)
                if "PollerCompletionQueue" not in context["message"]
                else None
            )
        )
        await asyncio.wait_for(body, 2 * WAIT_S)
        await until(
            lambda: len(asyncio.all_tasks()) == 1, f"no task is left: {asyncio.all_tasks()}"
        )

    asyncio.run(watched())
    assert not unseen


@contextlib.asynccontextmanager
async def serving(
    files: PeerFiles | None, host: str = "127.0.0.1"
) -> AsyncIterator[tuple[CoordinationServer, str]]:
    """A server and its address; at the end nobody may be connected any more."""
    server = CoordinationServer(ServiceConfig(tasks=1, recoverable=True), tls=files)
    port = server.bind(host, 0)
    await server.start()
    try:
        yield server, f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        await until(
            lambda: server.connections == 0 and not server._acceptors, "all connections are closed"
        )
    finally:
        await server.stop()


def client_of(
    address: str, files: PeerFiles | None, outage_timeout: float = 0.0
) -> DistributedRuntimeClient:
    files = files or PeerFiles("", "", "")
    return DistributedRuntimeClient(
        address,
        0,
        init_timeout=INIT_TIMEOUT_S,
        outage_timeout=outage_timeout,
        mtls_cert_file=files.cert,
        mtls_key_file=files.key,
        mtls_ca_file=files.ca,
        mtls_peer_uri_prefix=files.uri_prefix,
    )


async def works(address: str, files: PeerFiles) -> None:
    async with client_of(address, files) as client:
        await client.connect()
        await client.key_value_set("k", "v", allow_overwrite=True)
        assert await client.blocking_key_value_get("k", 60_000) == "v"
        await client.shutdown()


async def refusal(address: str, files: PeerFiles | None) -> str:
    """What our client says when it is refused, which takes less than its time-out."""
    client = client_of(address, files)
    try:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(ServiceError) as refused:
                await client.connect()
            with pytest.raises(ServiceError, match=re.escape(refused.value.status.message)):
                await client.key_value_set("k", "v")
    finally:
        await client.close()
    assert refused.value.status.code is Code.UNAUTHENTICATED
    return refused.value.status.message


def refusals_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [
        text.partition(" was refused: ")[2]
        for text in texts
        if re.match(r"a connection from (127\.0\.0\.1|\[::1\]):\d+ was refused: ", text)
    ]


# --- who is served ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "named"),
    [
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
    ],
)
def test_the_host_name_of_the_server_is_checked(tmp_path: Path, bound: str, named: str) -> None:
    async def body() -> None:
        async with serving(HOST.write(tmp_path / "server", CA.pem), bound) as (_, address):
            port = address.rpartition(":")[2]
            await works(f"{named}:{port}", CLIENT.write(tmp_path / "client", CA.pem))

    run(body())


def test_a_uri_prefix_stands_in_for_the_host_name_on_both_sides(tmp_path: Path) -> None:
    server_files = URI.write(tmp_path / "server", CA.pem, "spiffe://lab/client/")
    client_files = CLIENT.write(tmp_path / "client", CA.pem, "spiffe://lab/server/")

    async def body() -> None:
        async with serving(server_files) as (_, address):
            await works(address, client_files)

    run(body())


def test_large_values_pass_both_ways_while_others_are_served(tmp_path: Path) -> None:
    value = bytes(range(256)) * 40_000

    async def body() -> None:
        async with serving(HOST.write(tmp_path / "server", CA.pem)) as (_, address):
            files = CLIENT.write(tmp_path / "client", CA.pem)
            async with client_of(address, files) as client:
                await client.connect()
                await client.key_value_set_bytes("big", value)
                got, *_ = await asyncio.gather(
                    client.key_value_try_get_bytes("big"),
                    *(client.key_value_set(f"k{i}", "v") for i in range(50)),
                )
                assert got == value
                await client.shutdown()

    run(body())


def test_grpcs_own_client_with_a_certificate_is_served_and_without_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    request = pb.RegisterTaskRequest(incarnation=7, source_task_id=0)

    async def register(address: str, credentials: grpc.ChannelCredentials) -> int:
        async with grpc.aio.secure_channel(address, credentials) as channel:
            call: Any = channel.unary_unary(
                f"/{wire.SERVICE}/RegisterTask",
                request_serializer=pb.RegisterTaskRequest.SerializeToString,
                response_deserializer=pb.RegisterTaskResponse.FromString,
            )
            return int((await call(request, timeout=WAIT_S)).service_incarnation)

    async def body() -> None:
        async with serving(HOST.write(tmp_path / "server", CA.pem)) as (server, address):
            bare = grpc.ssl_channel_credentials(CA.pem)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await register(address, bare)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "it showed no certificate" in refusals_in(caplog)
            whole = grpc.ssl_channel_credentials(CA.pem, CLIENT.key, CLIENT.cert)
            assert await register(address, whole) == server.incarnation

    run(body())


# --- who is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "client", "said", "logged"),
    [
        pytest.param(
            (HOST, CA, ""),
            (STRANGER, CA, ""),
            r"the server at 127.* refuses this client's certificate: unknown ca",
            [r"its certificate is not trusted: unable to get local issuer certificate"],
            id="client of another CA",
        ),
        pytest.param(
            (STRANGER, CA, ""),
            (CLIENT, CA, ""),
            r"the certificate of the server at 127.* is not trusted: unable to get local issuer",
            [
                r"it (ended the handshake; perhaps it does not trust this server|broke the connection)"
            ],
            id="server of another CA",
        ),
        pytest.param(
            (HOST, CA, ""),
            (EXPIRED, CA, ""),
            r"the server at 127.* refuses this client's certificate: certificate expired",
            [r"its certificate is not trusted: certificate has expired"],
            id="client expired",
        ),
        pytest.param(
            (EXPIRED, CA, ""),
            (CLIENT, CA, ""),
            r"the certificate of the server at 127.* is not trusted: certificate has expired",
            [
                r"it (ended the handshake; perhaps it does not trust this server|broke the connection)"
            ],
            id="server expired",
        ),
        pytest.param(
            (URI, CA, ""),
            (CLIENT, CA, ""),
            r"is not trusted: .*not valid for '127\.0\.0\.1'",
            [
                r"it (ended the handshake; perhaps it does not trust this server|broke the connection)"
            ],
            id="another host name",
        ),
        pytest.param(
            (HOST, CA, "spiffe://elsewhere/"),
            (CLIENT, CA, ""),
            r"the server at 127.* ends every connection after the handshake",
            [
                r"no URI of its certificate begins with spiffe://elsewhere/: spiffe://lab/client/0",
            ]
            * 3,
            id="client's URI",
        ),
        pytest.param(
            (HOST, CA, ""),
            (CLIENT, CA, "spiffe://lab/serve/"),
            r"has no URI that begins with spiffe://lab/serve/: found spiffe://lab/server/0",
            [],
            id="server's URI",
        ),
    ],
)
def test_a_peer_that_is_not_trusted_is_refused_at_once(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    *,
    server: tuple[Leaf, Authority, str],
    client: tuple[Leaf, Authority, str],
    said: str,
    logged: list[str],
) -> None:
    shown, trusted, prefix = server
    server_files = shown.write(tmp_path / "server", trusted.pem, prefix)
    shown, trusted, prefix = client
    client_files = shown.write(tmp_path / "client", trusted.pem, prefix)

    async def body() -> None:
        async with serving(server_files) as (_, address):
            found = await refusal(address, client_files)
            assert re.search(said, found), found

    run(body())
    lines = refusals_in(caplog)
    if not logged:  # The client left, perhaps before the server saw the end of the handshake.
        lines = [line for line in lines if not line.startswith("it broke the connection")]
    # More where an attempt took longer than gRPC gives it, so that there was another.
    assert len(logged) <= len(lines) <= len(logged) + 2 * bool(logged), lines
    for line in lines:
        assert re.search(logged[0], line), line


def test_who_was_refused_does_not_disturb_others(tmp_path: Path) -> None:
    good = CLIENT.write(tmp_path / "client", CA.pem)

    async def body() -> None:
        async with serving(HOST.write(tmp_path / "server", CA.pem)) as (_, address):
            async with client_of(address, good) as client:
                await client.connect()
                await asyncio.gather(
                    refusal(address, STRANGER.write(tmp_path / "stranger", CA.pem)),
                    refusal(address, EXPIRED.write(tmp_path / "expired", CA.pem)),
                    refusal(address, None),
                )
                await client.key_value_set("k", "v")
                await client.shutdown()
            await works(address, good)

    run(body())


def test_plain_text_does_not_meet_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        async with serving(HOST.write(tmp_path / "server", CA.pem)) as (_, address):
            wanted = f"the server at {address} wants TLS: give certificate, key and CA files"
            assert await refusal(address, None) == wanted
        assert "it does not speak TLS" in refusals_in(caplog)
        async with serving(None) as (_, address):
            said = await refusal(address, CLIENT.write(tmp_path / "client", CA.pem))
            assert said.startswith(f"the server at {address} does not speak TLS: ")

    run(body())


def test_an_address_that_is_no_host_and_port_does_not_speak_tls() -> None:
    assert not asyncio.run(speaks_tls("unix:/nowhere"))


# --- the handshake, byte by byte -------------------------------------------------------------------


async def shake_hands(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, files: PeerFiles
) -> tuple[ssl.SSLObject, ssl.MemoryBIO, ssl.MemoryBIO]:
    """A client's handshake, sent in single bytes, all but its last part, which is left to be sent."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = files.context(ssl.PROTOCOL_TLS_CLIENT)
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    while True:
        try:
            tls.do_handshake()
        except ssl.SSLWantReadError:
            for byte in outgoing.read():
                writer.write(bytes([byte]))
                await writer.drain()
            incoming.write(await reader.read(65536))
        else:
            return tls, incoming, outgoing


def test_what_arrives_together_with_the_end_of_the_handshake_is_not_lost(tmp_path: Path) -> None:
    files = CLIENT.write(tmp_path / "client", CA.pem)
    expected = frame(PING, ACK, 0, b"12345678")

    async def body() -> None:
        async with serving(HOST.write(tmp_path / "server", CA.pem)) as (_, address):
            host, port = address.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            tls, incoming, outgoing = await shake_hands(reader, writer, files)
            tls.write(PREFACE + frame(4, 0, 0) + frame(PING, 0, 0, b"12345678"))
            writer.write(outgoing.read())
            got = b""
            async with asyncio.timeout(WAIT_S):
                while expected not in got:
                    try:
                        got += tls.read()
                    except ssl.SSLWantReadError:
                        data = await reader.read(65536)
                        assert data, "the server closed the connection"
                        incoming.write(data)
            writer.close()
            await writer.wait_closed()

    run(body())


def test_a_server_that_stops_does_not_wait_for_handshakes(tmp_path: Path) -> None:
    async def body() -> None:
        server = CoordinationServer(
            ServiceConfig(tasks=1), tls=HOST.write(tmp_path / "server", CA.pem)
        )
        port = server.bind("127.0.0.1", 0)
        await server.start()
        silent_reader, silent = await asyncio.open_connection("127.0.0.1", port)
        refused_reader, refused = await asyncio.open_connection("127.0.0.1", port)
        refused.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await refused_reader.read() == b""
        await until(lambda: len(server._acceptors) == 2, "both are there")
        await server.stop()
        with contextlib.suppress(ConnectionResetError):
            assert await silent_reader.read() == b""
        for writer in (silent, refused):
            writer.close()
        await until(lambda: not server._acceptors, "both are gone")

    run(body())


# --- renewal ---------------------------------------------------------------------------------------


def overwrite(path: str, content: bytes | None) -> None:
    Path(path).unlink()
    if content is not None:
        Path(path).write_bytes(content)


async def serial_shown(address: str, files: PeerFiles) -> int:
    host, port = address.split(":")
    context = files.context(ssl.PROTOCOL_TLS_CLIENT)
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return x509.load_der_x509_certificate(certificate).serial_number


def test_a_renewed_server_certificate_is_shown_to_new_connections_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client_files = CLIENT.write(tmp_path / "client", CA.pem)
    folder = tmp_path / "server"
    renewed = CA.sign("127.0.0.1")
    again = CA.sign("127.0.0.1")

    async def body() -> None:
        files = HOST.write(folder, CA.pem)
        async with serving(files) as (_, address), client_of(address, client_files) as old:
            await old.connect()
            assert await serial_shown(address, client_files) == HOST.serial
            renewed.write(folder, CA.pem)
            assert await serial_shown(address, client_files) == renewed.serial
            assert f"certificates were renewed from {files.cert}" in caplog.text
            for path in (files.cert, files.key, files.ca):
                for content in (b"", b"-----BEGIN CERTIFICATE-----", again.key, None):
                    caplog.clear()
                    overwrite(path, content)
                    assert await serial_shown(address, client_files) == renewed.serial
                    assert "certificates were not renewed: " in caplog.text
                    assert path in caplog.text
                renewed.write(folder, CA.pem)
            again.write(folder, CA.pem)
            assert await serial_shown(address, client_files) == again.serial
            await old.key_value_set("k", "v")  # What is open stays open.
            await old.shutdown()

    run(body())


def test_a_server_changes_its_authority_without_a_restart(tmp_path: Path) -> None:
    both = CA.pem + OTHER_CA.pem
    old = CLIENT.write(tmp_path / "old", both)
    new = STRANGER.write(tmp_path / "new", both)
    folder = tmp_path / "server"

    async def body() -> None:
        async with serving(HOST.write(folder, CA.pem)) as (_, address):
            await works(address, old)
            assert "unknown ca" in await refusal(address, new)
            HOST.write(folder, both)
            await works(address, old)
            await works(address, new)
            STRANGER.write(folder, OTHER_CA.pem)
            await works(address, new)
            assert "unknown ca" in await refusal(address, old)

    run(body())


def test_a_client_renews_its_files_when_it_connects_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server_folder, client_folder = tmp_path / "server", tmp_path / "client"

    async def body() -> None:
        async with serving(HOST.write(server_folder, CA.pem)) as (server, address):

            async def written(value: str) -> None:
                while True:
                    try:
                        return await client.key_value_set("k", value, allow_overwrite=True)
                    except ServiceError as error:  # It went into the connection that is gone.
                        assert error.status.code is Code.UNAVAILABLE  # noqa: PT017
                        await asyncio.sleep(0.01)

            async def reconnected(value: str) -> None:
                former = set(server._acceptors)
                for acceptor in former:
                    acceptor.abort()
                # The client may be back before anybody looks.
                await until(lambda: not former & server._acceptors, "the connection is gone")
                await written(value)
                assert await client.key_value_try_get("k") == value

            files = CLIENT.write(client_folder, CA.pem)
            async with client_of(address, files, outage_timeout=WAIT_S) as client:
                await client.connect()
                overwrite(files.cert, b"half a certificate")
                await reconnected("with the former ones")
                assert f"certificates were not renewed: certificate {files.cert}" in caplog.text
                STRANGER.write(client_folder, OTHER_CA.pem)
                STRANGER.write(server_folder, OTHER_CA.pem)
                await reconnected("with the new ones")
                await client.shutdown()

    run(body())


# --- jaxlib ----------------------------------------------------------------------------------------

CPP_CLIENT = """
import json, sys
from jaxlib import _jax
address, options = sys.argv[1], json.loads(sys.argv[2])
client = _jax.get_distributed_runtime_client(
    address, 0, heartbeat_timeout=60, shutdown_on_destruction=False, **options
)
client.connect()
client.key_value_set("k", "v")
print(client.blocking_key_value_get("k", 60_000))
client.shutdown()
"""

CPP_SERVICE = """
import json, sys
from jaxlib import _jax
address, options = sys.argv[1], json.loads(sys.argv[2])
service = _jax.get_distributed_runtime_service(
    address, 1, heartbeat_timeout=60, shutdown_timeout=5, recoverable=True, **options
)
print("serving", flush=True)
sys.stdin.read()
"""


async def child(script: str, address: str, files: PeerFiles, **options: Any) -> Any:
    """A process of jaxlib's: it aborts itself where ours would raise."""
    options |= {
        "mtls_cert_file": files.cert,
        "mtls_key_file": files.key,
        "mtls_ca_file": files.ca,
        "mtls_peer_uri_prefix": files.uri_prefix,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        address,
        json.dumps(options),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: Any) -> tuple[int, str, str]:
    try:
        out, err = await asyncio.wait_for(process.communicate(), WAIT_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode, out.decode(), err.decode()


@contextlib.asynccontextmanager
async def cpp_service(files: PeerFiles) -> AsyncIterator[str]:
    with reserved_port() as port:  # The service does not tell which port it got.
        address = f"127.0.0.1:{port}"
        process = await child(CPP_SERVICE, address, files)
        try:
            assert await asyncio.wait_for(process.stdout.readline(), WAIT_S) == b"serving\n"
            yield address
        finally:
            await ended(process)


@pytest.mark.jax
@has_mtls
def test_jaxlibs_client_is_served_if_it_is_trusted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    by_host = CLIENT.write(tmp_path / "by-host", CA.pem)
    by_uri = CLIENT.write(tmp_path / "by-uri", CA.pem, "spiffe://lab/server/")
    stranger = STRANGER.write(tmp_path / "stranger", CA.pem)
    expired = EXPIRED.write(tmp_path / "expired", CA.pem)
    reasons = {
        "its certificate is not trusted: unable to get local issuer certificate",
        "its certificate is not trusted: certificate has expired",
    }

    async def body() -> None:
        uri_files = URI.write(tmp_path / "uri-server", CA.pem, "spiffe://lab/client/")
        async with (
            serving(HOST.write(tmp_path / "server", CA.pem)) as (_, address),
            serving(uri_files) as (_, uri_address),
        ):
            patient = {"init_timeout": int(WAIT_S)}
            refused = [
                await child(CPP_CLIENT, address, files, **patient) for files in (stranger, expired)
            ]
            try:
                *served, (code, out, err) = await asyncio.gather(
                    ended(await child(CPP_CLIENT, address, by_host, **patient)),
                    ended(await child(CPP_CLIENT, uri_address, by_uri, **patient)),
                    ended(await child(CPP_CLIENT, address, stranger, init_timeout=1)),
                )
                # It is told why, yet tries until its time is up, and then ends its process.
                assert (code, out) == (-signal.SIGABRT, ""), err
                assert "DEADLINE_EXCEEDED" in err
                for code, out, err in served:
                    assert (code, out) == (0, "v\n"), err
                await until(lambda: reasons <= set(refusals_in(caplog)), "both were refused")
                assert all(process.returncode is None for process in refused)
            finally:
                for process in refused:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.communicate()

    run(body())
    others = set(refusals_in(caplog)) - reasons
    assert all(reason.startswith("it broke the connection") for reason in others), others


@pytest.mark.jax
@has_mtls
def test_jaxlibs_service_serves_our_client_if_it_is_trusted(tmp_path: Path) -> None:
    by_host = CLIENT.write(tmp_path / "by-host", CA.pem)
    by_uri = CLIENT.write(tmp_path / "by-uri", CA.pem, "spiffe://lab/server/")
    no_uri = CA.sign("127.0.0.1").write(tmp_path / "no-uri", CA.pem, "spiffe://lab/server/")
    stranger = STRANGER.write(tmp_path / "stranger", CA.pem)
    expired = EXPIRED.write(tmp_path / "expired", CA.pem)
    uri_files = URI.write(tmp_path / "uri-server", CA.pem, "spiffe://lab/client/")

    async def body() -> None:
        async with (
            cpp_service(HOST.write(tmp_path / "server", CA.pem)) as address,
            cpp_service(uri_files) as uri_address,
        ):
            said = await asyncio.gather(
                refusal(address, stranger),
                refusal(address, expired),
                refusal(uri_address, no_uri),
                refusal(uri_address, by_host),
                refusal(address, None),
            )
            for text in said[:3]:  # Its service does not say why it refuses a client.
                assert "ends every connection after the handshake, without a word" in text
            assert "IP address mismatch" in said[3]
            assert said[4].startswith(f"the server at {address} wants TLS: ")
            await asyncio.gather(works(address, by_host), works(uri_address, by_uri))

    run(body())


# --- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("c", "", "", ""), "missing: key, CA"),
        (("", "k", "a", ""), "missing: certificate"),
        (("c", "k", "", "spiffe://lab/"), "missing: CA"),
        (("", "", "", "spiffe://lab/"), "needs certificate, key and CA files"),
        (("c", "k", "a", "spiffe://lab"), "must end in '/', found 'spiffe://lab'"),
    ],
)
def test_a_set_of_files_is_whole(given: tuple[str, str, str, str], said: str) -> None:
    with pytest.raises(TlsError, match=re.escape(said)):
        PeerFiles.given(*given)
    assert PeerFiles.given("", "", "", "") is None
    assert PeerFiles.given("c", "k", "a", "u/") == PeerFiles("c", "k", "a", "u/")


@pytest.mark.parametrize("protocol", [ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT])
@pytest.mark.parametrize("wrong", ["cert", "key", "ca"])
@pytest.mark.parametrize(
    "how", ["absent", "folder", "empty", "no PEM", "not the pair", "encrypted"]
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, protocol: int, wrong: str, how: str
) -> None:
    files = HOST.write(tmp_path / "files", CA.pem)
    path = Path(getattr(files, wrong))
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how == "empty":
        path.touch()
    elif how == "no PEM":
        path.write_bytes(b"\x30\x82 no PEM \xff")
    elif how == "not the pair":
        path.write_bytes(CLIENT.cert if wrong == "cert" else CLIENT.key)
    elif how == "encrypted":
        secret = serialization.BestAvailableEncryption(b"secret")
        path.write_bytes(key_pem(ec.generate_private_key(ec.SECP256R1()), secret))
    with pytest.raises(TlsError, match=re.escape(str(path))):
        files.context(protocol)


def test_neither_server_nor_client_starts_with_files_that_cannot_be_used(tmp_path: Path) -> None:
    files = HOST.write(tmp_path / "files", CA.pem)
    Path(files.key).unlink()
    server = CoordinationServer(ServiceConfig(tasks=1), tls=files)
    with pytest.raises(TlsError, match=re.escape(f"cannot read {files.key}: No such file")):
        server.bind("127.0.0.1", 0)

    async def body() -> None:
        client = client_of("127.0.0.1:1", files)
        with pytest.raises(TlsError, match=re.escape(f"cannot read {files.key}: No such file")):
            await client.connect()
        await client.close()

    run(body())
