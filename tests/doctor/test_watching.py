"""`coordlab doctor --watch` stands between a program and who started it, and is not in the way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from coord_sim.core.identifiers import Incarnation
from coord_sim.core.status import Code, Status, WrongService
from coord_sim.wire.server_methods import SERVICE, STATUS_PAYLOADS_KEY, status_payloads
from tests.server.certificates import Authority

DEADLINE_S = 60.0

NOTES_SIGNALS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])

def note(number, frame):
    with open(folder / "signals", "a") as file:
        file.write(f"{signal.Signals(number).name}\\n")
    if number == signal.SIGUSR1:
        sys.exit(7)

for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, note)
(folder / "pid.new").write_text(str(os.getpid()))
(folder / "pid.new").rename(folder / "pid")
while True:
    time.sleep(0.1)
"""


def await_(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def watcher(*words: str) -> list[str]:
    return [sys.executable, "-m", "coord_sim.cli.main", "doctor", "--watch", *words]


class Watched:
    """A program under `doctor --watch` that notes the signals that it gets."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self._folder = folder
        program = [sys.executable, "-c", NOTES_SIGNALS, str(folder)]
        self.doctor = subprocess.Popen(watcher(*options, "--", *program))
        await_((folder / "pid").exists, "the program did not start")
        self.pid = int((folder / "pid").read_text())

    def signals(self) -> list[str]:
        """Those that came so far."""
        file = self._folder / "signals"
        return file.read_text().split() if file.exists() else []

    def lives(self) -> bool:
        """Whether the program is there; one that has ended and was not asked for counts as gone."""
        try:
            stat = Path(f"/proc/{self.pid}/stat").read_text()
        except OSError:
            return False
        return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture(params=[(), ("--give-up",)], ids=["goes on", "gives up"])
def watched(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Watched]:
    running = Watched(tmp_path, request.param)
    try:
        yield running
    finally:
        running.doctor.kill()
        running.doctor.wait()
        if running.lives():
            os.kill(running.pid, signal.SIGKILL)


def test_signals_of_a_scheduler_reach_the_program_which_ends_as_it_likes(watched: Watched) -> None:
    expected = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        watched.doctor.send_signal(number)
        expected.append(number.name)
        await_(lambda: watched.signals() == expected, f"{number.name} did not arrive")
    assert watched.doctor.wait(DEADLINE_S) == 7


def test_no_program_is_left_whose_messages_nobody_would_read(watched: Watched) -> None:
    watched.doctor.kill()
    await_(lambda: not watched.lives(), "the program goes on")
    assert watched.signals() == []


def test_a_program_that_sigterm_ends_gives_its_exit_code(tmp_path: Path) -> None:
    there = tmp_path / "there"
    program = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    words = watcher("--", sys.executable, "-c", program, str(there))
    with subprocess.Popen(words) as doctor:
        await_(there.exists, "the program did not start")
        doctor.terminate()
        assert doctor.wait(DEADLINE_S) == 128 + signal.SIGTERM


def test_a_program_does_not_wait_for_a_reader_that_is_gone() -> None:
    program = "import sys; sys.stderr.write('x' * 300_000 + '\\n'); sys.exit(5)"
    reading, writing = os.pipe()
    os.close(reading)
    try:
        words = watcher("--", sys.executable, "-c", program)
        done = subprocess.run(words, stderr=writing, timeout=DEADLINE_S, check=False)
    finally:
        os.close(writing)
    assert done.returncode == 5


def test_what_a_program_wrote_last_is_passed_on_though_it_ends_no_line() -> None:
    program = "import os; os.write(2, b'first\\n' + b'x' * 200_000); os.write(2, b'last')"
    done = subprocess.run(
        watcher("--", sys.executable, "-c", program),
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == b"first\n" + b"x" * 200_000 + b"last"


def test_a_child_that_holds_standard_error_is_not_waited_for_while_it_is_silent(
    tmp_path: Path,
) -> None:
    """One of several times, as the machine may stand still for some seconds."""
    for attempt in range(5):
        late = tmp_path / f"late-{attempt}"
        program = f"echo last words >&2; {{ sleep 8; touch {late}; }} & exit 3"
        words = watcher("--", "sh", "-c", program)
        with subprocess.Popen(words, stderr=subprocess.PIPE) as doctor:
            assert doctor.wait(DEADLINE_S) == 3
            is_early = not late.exists()
            assert doctor.stderr is not None
            assert doctor.stderr.readline() == b"last words\n"
        if is_early:
            return
    pytest.fail("doctor waits for the child")


# --- services that do not tell how the job stands --------------------------------------------------

CONNECTED = """
import pathlib, sys, time
print("Connecting to JAX distributed service on", sys.argv[1], file=sys.stderr, flush=True)
print("Connected to distributed JAX controller", file=sys.stderr, flush=True)
while not pathlib.Path(sys.argv[2]).exists():
    time.sleep(0.1)
sys.exit(7)
"""
"""Says what a program of JAX says that has registered, and then runs until it is told to end."""

HIDES_GRPC = """
import sys
sys.modules["grpc"] = None
from coord_sim.cli.main import main
sys.exit(main())
"""

THIS_SERVICE = Incarnation(0x7B)


class RefusesStrangers(grpc.GenericRpcHandler):
    """A service that answers nobody who is not of its job, as published ones of ours once did."""

    def service(self, details: Any) -> Any:
        assert details.method.startswith(f"/{SERVICE}/")

        def refuse(request: bytes, context: Any) -> bytes:
            status = Status(
                code=Code.FAILED_PRECONDITION, message="Incarnation 0 is not in the job"
            )
            if bytes([THIS_SERVICE]) not in request:
                wrong = WrongService(THIS_SERVICE)
                status = Status(code=Code.ABORTED, message="another one", wrong_service=wrong)
            context.set_trailing_metadata([(STATUS_PAYLOADS_KEY, status_payloads(status))])
            codes = {code.value[0]: code for code in grpc.StatusCode}
            context.abort(codes[int(status.code)], status.message)
            return b""

        return grpc.unary_unary_rpc_method_handler(refuse)


@contextlib.contextmanager
def serving(*handlers: grpc.GenericRpcHandler) -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor(1), handlers=list(handlers))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def serving_behind_tls(folder: Path) -> Iterator[str]:
    authority = Authority("ours")
    files = authority.sign("127.0.0.1").write(folder / "files", authority.pem)
    command = [
        *(sys.executable, "-m", "coord_sim.cli.main", "serve", "--processes", "1"),
        *("--mtls-cert-file", files.cert, "--mtls-key-file", files.key, "--mtls-ca-file", files.ca),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            yield service.stdout.readline().split()[1].removeprefix("address=")
        finally:
            service.terminate()


@pytest.mark.parametrize(
    ("service", "words"),
    [
        ("refuses strangers", "does not tell its tasks: FAILED_PRECONDITION: Incarnation 0 is not"),
        ("is none", "no coordination service that we know: UNIMPLEMENTED"),
        ("wants TLS", "speaks TLS"),
        ("cannot be asked", "needs grpc, which is not installed"),
    ],
)
def test_a_program_whose_service_tells_nothing_is_not_given_up(
    service: str, words: str, tmp_path: Path
) -> None:
    if service == "wants TLS":
        served = serving_behind_tls(tmp_path)
    else:
        served = serving(*([] if service == "is none" else [RefusesStrangers()]))
    with served as address:
        code, out = watched_with_growing_patience(
            address, tmp_path / "told", hides_grpc=service == "cannot be asked"
        )
    assert words in out
    assert "cannot be seen from here" in out
    assert code == 7


def watched_with_growing_patience(address: str, told: Path, *, hides_grpc: bool) -> tuple[int, str]:
    """The program ends when doctor has said something; its start may be slow, and is no hang then."""
    patience_s = 1.0
    while True:
        options = ["--give-up", "--patience", str(patience_s), "--timeout", "10"]
        command = watcher(*options, "--", sys.executable, "-c", CONNECTED, address, str(told))
        if hides_grpc:
            command = [sys.executable, "-c", HIDES_GRPC, *command[3:]]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as doctor:
            late = threading.Timer(DEADLINE_S, doctor.kill)
            late.start()
            try:
                assert doctor.stderr is not None
                out = next((line for line in doctor.stderr if "coordlab doctor:" in line), "")
                told.touch()
                out += doctor.stderr.read()
            finally:
                late.cancel()
        if "has not begun to connect" not in out or patience_s > DEADLINE_S:
            return doctor.returncode, out
        told.unlink()
        patience_s *= 4
