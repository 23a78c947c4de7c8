"""`coordlab wrap`: programs that know nothing of us, with our service in place of the C++ one."""

from __future__ import annotations

import importlib.metadata
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent

import pytest

from checker import read
from checker.history import Invoke, Start
from tests.server.certificates import Authority

pytestmark = pytest.mark.jax

WRAP = (sys.executable, "-m", "coord_sim.cli.main", "wrap")
TIMEOUT_S = 240.0

PORT = """
import socket
reserved = socket.socket()  # As `tests.ports.reserved_port`, for as long as the program runs.
reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
reserved.bind(("localhost", 0))
reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
port = reserved.getsockname()[1]
"""

TWO_PROCESSES = (
    """
import os, socket, subprocess, sys
from pathlib import Path

def listens_on(port):
    inodes = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    mine = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            mine.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            pass
    return bool(inodes & mine)

def train(process, port):
    import jax
    from jax._src.distributed import global_state
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    client = global_state.client
    client.key_value_set(f"from/{process}", f"hello of {process}")
    got = client.blocking_key_value_get(f"from/{1 - process}", 60_000)
    client.wait_at_barrier("both", 60_000)
    if process == 0:
        with socket.create_server(("localhost", 0)) as other:
            mine = listens_on(other.getsockname()[1])
        print(f"{got}; listens: {mine}; serves: {listens_on(port)}", flush=True)
    jax.distributed.shutdown()

if len(sys.argv) > 1:
    train(int(sys.argv[1]), int(sys.argv[2]))
else:
"""
    + indent(PORT, "    ")
    + """
    command = [sys.executable, sys.argv[0]]
    processes = [subprocess.Popen([*command, str(number), str(port)]) for number in range(2)]
    sys.exit(7 if not any([process.wait() for process in processes]) else 8)
"""
)


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": "", **more}


@contextmanager
def started(*command: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """A command with its output in pipes."""
    process = subprocess.Popen(
        command,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(*command: str, **more: str) -> tuple[int, str, str]:
    """The exit code and the outputs of a command."""
    with started(*command, **more) as process:
        output, errors = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, output, errors


def run_program(folder: Path, program: str, *options: str) -> tuple[str, str]:
    """The outputs of a wrapped program, which must succeed."""
    script = folder / "program.py"
    script.write_text(program)
    code, output, errors = run(*WRAP, *options, "--", sys.executable, str(script))
    assert code == 0, errors
    return output, errors


def test_an_unmodified_program_that_picks_its_own_port_is_served_by_ours(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    record = tmp_path / "run.jsonl"
    code, output, errors = run(*WRAP, "--record", str(record), "--", sys.executable, str(script))
    assert (code, output) == (7, "hello of 1; listens: True; serves: False\n"), errors
    events = read(record).events
    assert {event.process for event in events if isinstance(event, Start)} == {0, 1}
    invoked = {(e.process, e.operation) for e in events if isinstance(e, Invoke)}
    assert {(0, "key_value_set"), (1, "key_value_set")} <= invoked


RESTARTED = (
    """
import subprocess, sys, time
from jaxlib import _jax

def client_of(process, port):
    client = _jax.get_distributed_runtime_client(
        f"127.0.0.1:{port}", process, init_timeout=60, shutdown_on_destruction=False
    )
    client.connect()
    return client

def process_0(port, start):
    service = _jax.get_distributed_runtime_service(f"[::]:{port}", 2, recoverable=True)
    client = client_of(0, port)
    if start == "1":
        client.key_value_set("first", "kept")
        client.blocking_key_value_get("never", 120_000)
    print(client.key_value_try_get("first"), flush=True)
    client.key_value_set("second", "after the restart")
    sys.stdin.read()
    client.shutdown()
    service.shutdown()

def process_1(port):
    client = client_of(1, port)
    client.blocking_key_value_get("first", 60_000)
    print("first", flush=True)
    print(client.blocking_key_value_get("second", 60_000), flush=True)
    client.shutdown()

if sys.argv[1:]:
    role, *arguments = sys.argv[1:]
    {"0": process_0, "1": process_1}[role](*arguments)
else:
"""
    + indent(PORT, "    ")
    + """
    pipe = subprocess.PIPE
    def start(*arguments):
        command = [sys.executable, sys.argv[0], *arguments]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
    zero, one = start("0", str(port), "1"), start("1", str(port))
    assert one.stdout.readline() == "first\\n"
    zero.kill()
    zero.wait()
    zero = start("0", str(port), "2")
    print(zero.stdout.readline(), one.stdout.readline(), sep="", end="")
    assert one.wait() == 0
    with socket.create_connection(("127.0.0.1", port)):
        print("still served")
    zero.communicate("")
    assert zero.returncode == 0
    try:
        socket.create_connection(("127.0.0.1", port))
    except ConnectionError:
        print("no longer served")
"""
)


def test_process_0_may_be_killed_and_comes_back_to_the_same_service(tmp_path: Path) -> None:
    record = tmp_path / "run.jsonl"
    output, errors = run_program(tmp_path, RESTARTED, "--record", str(record))
    assert output.splitlines() == [
        "kept",
        "after the restart",
        "still served",
        "no longer served",
    ], errors
    starts = [event for event in read(record).events if isinstance(event, Start)]
    assert sorted((start.process, start.lifetime) for start in starts) == [(0, 0), (0, 1), (1, 0)]
    assert not (tmp_path / "run-2.jsonl").exists()


SEVERAL_SERVICES = (
    PORT
    + """
import os, subprocess, sys, time
from jaxlib import _jax
address = f"127.0.0.1:{port}"

def served():
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionError:
        return False
    return True

def ends():
    deadline = time.monotonic() + 60
    while served() and time.monotonic() < deadline:
        time.sleep(0.01)
    return not served()

# A fate-sharing service ends with its process ...
child = "from jaxlib import _jax; import os, signal; "
child += f"service = _jax.get_distributed_runtime_service('{address}', 2); "
child += f"print('up', flush=True); signal.pause()"
dying = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
dying.stdout.readline()
print(served())
dying.kill()
dying.wait()
print(ends())
# ... and with its object, but not with the copy of that in a fork.
service = _jax.get_distributed_runtime_service(address, num_nodes=2, heartbeat_timeout=5)
fork = os.fork()
if fork == 0:
    del service
    os._exit(0)
os.waitpid(fork, 0)
print(served())
del service
print(ends())
# Twice the same, as jaxlib: nothing happens.
service = _jax.get_distributed_runtime_service(address, 2)
service.shutdown()
service.shutdown()
print(ends())
"""
)


def test_a_service_lives_as_long_as_jaxlibs_would_and_each_has_its_recording(
    tmp_path: Path,
) -> None:
    record = tmp_path / "run.jsonl"
    earlier = tmp_path / "run-4.jsonl"
    earlier.touch()
    output, errors = run_program(tmp_path, SEVERAL_SERVICES, "--record", str(record))
    assert output.split() == ["True"] * 5, errors
    assert f"{earlier} is of an earlier run" in errors
    earlier.unlink()
    assert {path.name for path in tmp_path.glob("*.jsonl")} == {
        "run.jsonl",
        "run-2.jsonl",
        "run-3.jsonl",
    }
    assert read(tmp_path / "run-2.jsonl").header.details["heartbeat_timeout_s"] == 5.0


BAD_REQUESTS = """
import sys
from jaxlib import _jax

def ask(*arguments, **named):
    try:
        _jax.get_distributed_runtime_service(*arguments, **named)
    except TypeError:
        print("TypeError")
    except RuntimeError as error:
        print(type(error).__name__, str(error).partition(":")[0])

ask(f"127.0.0.1:{sys.argv[1]}", 2)
ask("nonsense", 2)
ask("127.0.0.1:0")
ask("127.0.0.1:0", 2, unheard_of=1)
ask("127.0.0.1:0", 2, heartbeat_timeout=1.5)
ask("127.0.0.1:0", 2, recoverable=1)
ask("127.0.0.1:0", 0)
print(_jax.get_distributed_runtime_service("127.0.0.1:0", 2).shutdown())
"""


def test_what_jaxlib_would_refuse_is_refused_in_its_words(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(BAD_REQUESTS)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output, errors = run(*WRAP, sys.executable, str(script), str(port))
    assert code == 0, errors
    assert output.splitlines() == [
        "JaxRuntimeError UNKNOWN",
        "JaxRuntimeError UNKNOWN",
        *["TypeError"] * 4,
        "JaxRuntimeError INVALID_ARGUMENT",
        "None",
    ]
    assert f"cannot bind 127.0.0.1:{port}" in errors


MUTUAL_TLS = (
    PORT
    + """
from jaxlib import _jax
address = f"localhost:{port}"
tls = {f"mtls_{name}_file": f"{name}.pem" for name in ("cert", "key", "ca")}
try:
    _jax.get_distributed_runtime_service(address, 1, mtls_cert_file="cert.pem")
except RuntimeError as error:
    print(str(error).partition(":")[0])
service = _jax.get_distributed_runtime_service(address, 1, verify_secure_credentials=True, **tls)
client = _jax.get_distributed_runtime_client(address, 0, init_timeout=20, **tls)
client.connect()
client.key_value_set("key", "in secret")
print(client.key_value_try_get("key"))
client.shutdown()
service.shutdown()
"""
)


@pytest.mark.skipif(
    tuple(map(int, importlib.metadata.version("jaxlib").split(".")[:2])) < (0, 12),
    reason="jaxlib has mtls_* parameters from 0.12 on",
)
def test_a_program_that_asks_for_mutual_tls_gets_it(tmp_path: Path) -> None:
    """Files are those of the program, whose working directory is not ours."""
    authority = Authority("of the job")
    folder = tmp_path / "program"
    authority.sign("localhost").write(folder, authority.pem)
    (folder / "program.py").write_text(MUTUAL_TLS)
    there = f'cd "{folder}" && exec "{sys.executable}" program.py'
    code, output, errors = run(*WRAP, "--", "sh", "-c", there)
    assert (code, output) == (0, "INVALID_ARGUMENT\nin secret\n"), errors


def test_a_program_without_a_service_is_left_alone_and_the_user_told(tmp_path: Path) -> None:
    """Its own start-up file is executed too, and neither jaxlib nor typing is imported for it."""
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.chained = __name__\n")
    program = (
        "import sys; print(sys.chained, *sorted({'jaxlib', 'jax', 'typing', 'json', "
        "'jax_bridge.substitute.hook'} & set(sys.modules)))"
    )
    command = (sys.executable, "-c", program)
    code, output, errors = run(*WRAP, "--", *command, PYTHONPATH=str(tmp_path))
    assert (code, output) == (0, "sitecustomize jax_bridge.substitute.hook\n"), errors
    assert errors.startswith("coordlab: warning: nobody asked for a coordination service")
    assert errors.count("\n") == 1
    assert run(*command, PYTHONPATH=str(tmp_path))[:2] == (0, "sitecustomize\n"), "as it is alone"


COUNTS_INTERRUPTS = """
import os, signal, sys
interrupts = []
def end(*_):
    os.write(1, b"interrupted %d times\\n" % len(interrupts))
    sys.exit(9)
def interrupted(*_):
    interrupts.append(1)
    os.write(1, b"interrupted\\n")  # print() would raise if the next signal came before it is done.
signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, interrupted)
print("up", flush=True)
while True:
    signal.pause()
"""


def wait_until_taken(pid: int, number: signal.Signals) -> None:
    """Waits until no signal of this kind waits for a process; `ShdPnd` is in proc(5)."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status").read_text()
        pending = int(status.partition("ShdPnd:")[2].split()[0], 16)
        if not pending >> (number - 1) & 1:
            return
        time.sleep(0.01)
    raise AssertionError(f"{number.name} is not taken by process {pid}")


def test_signals_are_passed_on_once(tmp_path: Path) -> None:
    """Ctrl-C reaches the program by itself; SIGINT and SIGTERM of others through us."""
    terminal, other_end = os.openpty()
    # Its own session, with this terminal: else Ctrl-C would not come.
    adopt = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    adopt += "os.execv(sys.executable, sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", adopt, *WRAP, "--", sys.executable, "-c", COUNTS_INTERRUPTS],
        env=environment(TMPDIR=str(tmp_path)),
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        start_new_session=True,
    )
    os.close(other_end)
    seen = b""

    def read_until(words: bytes) -> None:
        nonlocal seen
        while words not in seen:
            ready, _, _ = select.select([terminal], [], [], TIMEOUT_S)
            assert ready, f"{words!r} did not come; seen: {seen!r}"
            seen += os.read(terminal, 1000)

    try:
        read_until(b"up\r\n")
        os.write(terminal, b"\x03")
        read_until(b"interrupted\r\n")
        seen = b""
        # A signal that is sent while another of its kind waits is lost: signals do not queue.
        wait_until_taken(process.pid, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        read_until(b"interrupted\r\n")
        process.send_signal(signal.SIGTERM)
        read_until(b" times\r\n")
        assert process.wait(TIMEOUT_S) == 9
    finally:
        os.close(terminal)
        process.kill()
        process.wait()
    assert b"interrupted 2 times" in seen
    assert list(tmp_path.iterdir()) == [], "the socket is gone"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "a command is needed"),
        (("--",), 2, "a command is needed"),
        (("--", "no-such-command"), 2, "cannot run no-such-command: No such file or directory"),
        (("--record", "no/such/folder.jsonl", "--", "true"), 2, "there is no such folder"),
        (("--record", ".", "--", "true"), 2, "is a folder"),
        (("sh", "-c", "kill -9 $$"), 137, "nobody asked"),
    ],
)
def test_exit_codes_and_bad_input(arguments: tuple[str, ...], code: int, words: str) -> None:
    found, output, errors = run(*WRAP, *arguments)
    assert (found, output) == (code, "")
    assert words in errors
    assert "Traceback" not in errors
