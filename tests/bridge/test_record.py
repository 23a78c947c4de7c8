"""`coordlab record`: programs that know nothing of it, recorded from inside."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checker import Invalid, Valid, check, check_service, read
from checker.history import (
    Crash,
    Enter,
    Event,
    Exit,
    Fail,
    Fault,
    Header,
    History,
    Info,
    Invoke,
    Leave,
    Ok,
    Start,
    dumps,
)
from checker.history.gaps import NOT_RECORDED
from checker.history.jsonl_writer import INLINE_LIVE_SET_MAX
from checker.history.parts import END_REMARK, RECORDER_LANE, SERVICE_MADE, STOPPED, read_part
from coord_sim.cli.main import main
from coord_sim.replay.settings import NO_HEARTBEATS
from jax_bridge import client_recorder
from jax_bridge.conditions import BLOCK
from jax_bridge.parts import merged
from jax_bridge.recorder import lines, process_recorder, program
from jax_bridge.recorder.process_recorder import ProcessRecorder
from tests.bridge.test_wrap import PORT, RESTARTED, environment, run

RECORD = (sys.executable, "-m", "coord_sim.cli.main", "record")
MERGE = (sys.executable, "-m", "coord_sim.cli.main", "merge")
WRAP = (sys.executable, "-m", "coord_sim.cli.main", "wrap")

BARE = (
    PORT
    + """
import os, subprocess, sys, time
from jaxlib import _jax

def service_for(processes):
    return _jax.get_distributed_runtime_service(f"127.0.0.1:{port}", processes, recoverable=True)

def client_of(process):
    client = _jax.get_distributed_runtime_client(
        f"127.0.0.1:{port}", process, init_timeout=60, shutdown_on_destruction=False
    )
    client.connect()
    return client
"""
)
"""The beginning of programs without JAX, which start quickly."""


def recorded(
    folder: Path, text: str, *, code: int = 0, words: tuple[str, ...] = RECORD, **more: str
) -> tuple[History, str, str]:
    """The history and the outputs of a program."""
    script = folder / "program.py"
    script.write_text(text)
    out = folder / "run.jsonl"
    command = (*words, "--out", str(out), "--", sys.executable, str(script))
    found, output, errors = run(*command, **more)
    assert found == code, errors
    assert not (folder / "run.parts").exists(), errors
    return read(out), output, errors


def operations(history: History) -> set[tuple[int, str]]:
    return {(e.process, e.operation) for e in history.events if isinstance(e, Invoke)}


# --- whole programs ----------------------------------------------------------------------------------

BLOCKS = (
    PORT
    + """
import subprocess, sys

def train(process, port):
    import jax
    from jax._src.distributed import global_state
    jax.config.update("jax_enable_recoverability", True)
    jax.distributed.initialize(f"localhost:{port}", 2, process)
    jax.devices()
    from jax.experimental import multihost_utils
    with multihost_utils.live_devices(jax.devices()) as alive:
        global_state.client.key_value_set(f"from/{process}", str(len(alive)))
    try:
        with multihost_utils.live_devices(jax.devices()):
            raise ValueError("in the block")
    except ValueError:
        pass
    if process == 0:
        sys.stdin.read()  # A recoverable job's processes leave alone, and the service ends with 0.
    jax.distributed.shutdown()

if len(sys.argv) > 1:
    train(int(sys.argv[1]), int(sys.argv[2]))
else:
    command = [sys.executable, sys.argv[0]]
    first = subprocess.Popen([*command, "0", str(port)], stdin=subprocess.PIPE)
    second = subprocess.run([*command, "1", str(port)])
    first.stdin.close()
    print("the program's own output")
    sys.exit(8 if first.wait() or second.returncode else 7)
"""
)


@pytest.mark.jax
def test_a_jax_program_is_recorded_with_its_blocks_on_our_service(tmp_path: Path) -> None:
    """Under `wrap`, whose recording is of the same calls: it bounds the same clock."""
    server = tmp_path / "server.jsonl"
    words = (*WRAP, "--record", str(server), "--", *RECORD, "--keep-parts")
    script = tmp_path / "program.py"
    script.write_text(BLOCKS)
    out = tmp_path / "run.jsonl"
    code, output, errors = run(*words, "--out", str(out), "--", sys.executable, str(script))
    assert (code, output) == (7, "the program's own output\n"), errors
    history = read(out)
    assert history.header.participants == (0, 1)
    for process in (0, 1):
        mine = [event for event in history.events if event.process == process]
        outcomes = [event.outcome for event in mine if isinstance(event, Exit)]
        assert outcomes == ["completed", "raised"]
        assert [event.live.keys() for event in mine if isinstance(event, Enter)] == [{0, 1}] * 2
        assert isinstance(mine[-1], Leave)
    assert operations(history) >= {(p, "live_processes") for p in (0, 1)}
    assert all("participants" not in e.arguments for e in history.events if isinstance(e, Invoke))
    assert isinstance(check(history), Valid)
    assert not any(isinstance(found.verdict, Invalid) for found in check_service(history))
    merged = tmp_path / "merged.jsonl"
    code, output, errors = run(
        *MERGE, str(tmp_path / "run.parts"), str(server), "--out", str(merged)
    )
    assert code == 0, errors
    assert merged.read_text() == out.read_text()
    words_of_report = f"the service in {server} is between"
    assert words_of_report in output, "both ends recorded the same calls"


ENDS = (
    BARE
    + """
if len(sys.argv) > 1:
    number, port = int(sys.argv[1]), sys.argv[2]
    client = client_of(number)
    client.wait_at_barrier("all", 60_000)
    if number == 0:
        os.kill(os.getpid(), 9)
    if number == 1:
        raise ValueError("by an exception")
    if number == 2:
        os._exit(0)
else:
    service = service_for(4)
    command = [sys.executable, sys.argv[0]]
    children = [subprocess.Popen([*command, str(i), port and str(port)]) for i in range(3)]
    mine = client_of(3)
    mine.wait_at_barrier("all", 60_000)
    for child in children:
        child.wait()
    print(mine.get_live_nodes([3]).keys() == {3})
    os.kill(os.getpid(), 15)
"""
)


@pytest.mark.jax
def test_ends_of_processes_are_seen_from_outside(tmp_path: Path) -> None:
    """And `record` under which `wrap` runs does what `wrap` under which `record` runs does."""
    script = tmp_path / "program.py"
    script.write_text(ENDS)
    out = tmp_path / "run.jsonl"
    code, output, errors = run(
        *RECORD, "--out", str(out), "--", *WRAP, "--", sys.executable, str(script)
    )
    assert (code, output) == (128 + signal.SIGTERM, "True\n"), errors
    history = read(out)
    ends = {event.process: event for event in history.events if isinstance(event, Crash | Leave)}
    assert ends.keys() == {0, 1, 2, 3}
    causes = {p: end.cause for p, end in ends.items() if isinstance(end, Crash)}
    # How a process ended is known if it was still there to be asked; else only that it did not end well.
    unasked = "ended before its program came to its end: by a signal, an abort or os._exit"
    assert causes[0] in {"signal SIGKILL", unasked}
    assert causes[1] in {"exit code 1", "by ValueError"}
    assert isinstance(ends[2], Leave) or causes[2] == unasked
    assert causes[3] in {"signal SIGTERM", unasked}
    for process, end in ends.items():
        mine = [event for event in history.events if event.process == process]
        assert mine[-1] is end
        assert not isinstance(end, Crash) or (end.since_ns or 0) >= mine[-2].time_ns
    assert isinstance(check(history), Valid)
    assert "no recording tells how many processes the job has; they name 4" in errors


FORKS = (
    BARE
    + """
early = os.fork()  # Of gRPC's threads, which it would not survive, there are none yet.
if early == 0:
    client = client_of(0)
    client.key_value_set("of", "the fork")
    client.blocking_key_value_get("done", 60_000)
    os._exit(0)
service = service_for(1)
watcher = client_of(0)
watcher.blocking_key_value_get("of", 60_000)
late = os.fork()
if late == 0:
    os._exit(0)  # It has its parent's client, and writes nothing.
os.waitpid(late, 0)
watcher.key_value_set("done", "yes")
os.waitpid(early, 0)
watcher.shutdown()  # Else the service might end before it, by which jaxlib aborts.
"""
)


@pytest.mark.jax
def test_forks_that_connect_have_a_recording_of_their_own(tmp_path: Path) -> None:
    history, _, errors = recorded(tmp_path, FORKS)
    starts = [event for event in history.events if isinstance(event, Start)]
    assert [start.lifetime for start in starts] == [0, 1]
    assert "process 0 registered from two pids: a child of it (pid" in errors
    assert "a fork of" in errors
    assert len(history.header.details["merged"]) == 2  # type: ignore[arg-type]


STOPS = (
    BARE
    + """
import resource

def work(client, process):
    for number in range(20):
        client.get_live_nodes([0, 1])
        if (number, process) == (5, 1):
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, 1))
        client.key_value_set(f"{number}/{process}", "x")
        client.key_value_set("last", f"{number} of {process}", True)
        client.wait_at_barrier("again", 60_000, [0, 1])
        client.blocking_key_value_get(f"{number}/{1 - process}", 60_000)
        client.key_value_dir_get(f"{number}")
        client.key_value_try_get("last")
    client.wait_at_barrier("done", 60_000)
    client.shutdown()

if len(sys.argv) > 1:
    port = int(sys.argv[1])
    work(client_of(1), 1)
else:
    service = service_for(2)
    child = subprocess.Popen([sys.executable, sys.argv[0], str(port)])
    work(client_of(0), 0)
    assert child.wait() == 0
"""
)


@pytest.mark.jax
def test_a_recording_that_stops_early_makes_no_job_invalid(tmp_path: Path) -> None:
    """What the others were told of its process from then on is explained by calls it may have made."""
    history, _, errors = recorded(tmp_path, STOPS)
    assert "coordlab: recording stopped: " in errors
    assert "the recording of process 1 stopped" in errors
    assert "the recording of process 0 stopped" not in errors
    rows = {row.object: row.word for row in check_service(history) if row.verdict is not None}
    assert set(rows.values()) == {"valid"}, rows
    assert {"live set", "key 'last'", "barrier 'again'"} <= rows.keys()
    assert any(gap.startswith(f"{NOT_RECORDED}: process 1 ") for gap in history.header.cannot_know)
    assert not any(isinstance(event, Crash) for event in history.events), "both exited with 0"


REFUSED = (
    BARE
    + """
def refused(call, *arguments):
    try:
        call(*arguments)
    except TypeError:
        return
    raise AssertionError(arguments)

service = service_for(1)
client = client_of(0)
refused(client.key_value_set, "step", 100_000_000)
refused(client.key_value_set, "step", b"bytes")
refused(client.key_value_set, "step", "x", 1)
refused(client.key_value_set_bytes, "step", 100_000_000)
refused(client.key_value_set_bytes, "step", "text")
refused(client.key_value_set, 1, "x")
refused(client.key_value_set, "\\ud800", "x")
refused(client.key_value_try_get, b"key")
refused(client.key_value_delete, 1)
refused(client.key_value_dir_get, None)
refused(client.blocking_key_value_get, 1, 100)
refused(client.blocking_key_value_get, "key", 100.0)
refused(client.key_value_increment, 1, 1)
refused(client.key_value_increment, "n", 1.0)
refused(client.wait_at_barrier, 1, 100)
refused(client.wait_at_barrier, "b", 100, {0})
refused(client.wait_at_barrier, "b", 100, [2**31])
refused(client.wait_at_barrier, "b", 2**63)
refused(client.blocking_key_value_get, "key", 2**63)
refused(client.key_value_increment, "n", 2**63)
refused(client.get_live_nodes, {0})
client.wait_at_barrier("everybody", 60_000, [])
client.wait_at_barrier("everybody", 60_000)
client.key_value_increment("n", 1)
try:
    client.key_value_increment("n", "2")  # jaxlib 0.10 takes a number as text, 0.12 does not.
except TypeError:
    client.key_value_increment("n", 2)
client.key_value_increment("n", 0)
client.shutdown()
"""
)


@pytest.mark.jax
def test_calls_that_jaxlib_refuses_are_not_recorded(tmp_path: Path) -> None:
    """Whatever its types. An empty list of members is everybody."""
    history, _, errors = recorded(tmp_path, REFUSED)
    calls = [event for event in history.events if isinstance(event, Invoke)]
    kinds = ["barrier", "key_value_increment", "shutdown"]
    assert [kind for kind, _ in itertools.groupby(call.operation for call in calls)] == kinds
    results = [event.result for event in history.events if isinstance(event, Ok)]
    assert [result for result in results if result is not None] == [1, 3, 3]
    assert [call.arguments["processes"] for call in calls[:2]] == [None, None]
    assert "stopped" not in errors
    rows = {row.object: row.word for row in check_service(history)}
    assert rows["barrier 'everybody'"] == rows["key 'n'"] == "valid"


def test_a_line_that_cannot_be_used_does_not_cost_the_history_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "process-0-0.jsonl"
    header = Header(source="processes", participants=(0, 1))
    by = {"process": 0, "lifetime": 0}
    part = History(header, [Start(time_ns=5, incarnation=7, **by)])
    call = {"type": "invoke", "time_ns": 6, **by, "id": 0, "operation": "live_processes"}
    line = json.dumps({**call, "arguments": {"participants": [0, 99]}})
    path.write_text(f"{dumps(part)}{line}\n")
    history = merged(header, {0: [path]}, [], (), began_ns=0)
    assert [type(event) for event in history.events] == [Start]
    (note,) = history.notes
    assert note.startswith("process-0-0.jsonl: line 3 is not used: ")


FULL = (
    BARE
    + """
import resource
service = service_for(1)
client = client_of(0)
client.key_value_set("first", "kept")
os.close(2)
size = max(os.path.getsize(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if "parts" in os.path.realpath(f"/proc/self/fd/{fd}"))
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60, size + 60))
sys.stderr = None
for number in range(10):
    client.key_value_set(f"key/{number}", "as much as the service takes")
print(client.key_value_try_get("key/9"))
client.shutdown()
"""
)


@pytest.mark.jax
def test_a_full_disk_and_a_closed_stderr_do_not_disturb_the_program(tmp_path: Path) -> None:
    """A limit on the size of files is a disk that is full for this program alone."""
    history, output, errors = recorded(tmp_path, FULL)
    assert output == "as much as the service takes\n"
    keys = [e.arguments["key"] for e in history.events if isinstance(e, Invoke)]
    assert keys == ["first"]
    assert "Traceback" not in errors


@pytest.mark.jax
def test_a_prepared_folder_serves_programs_anywhere(tmp_path: Path) -> None:
    """Moved elsewhere, beside another start-up file and a module with a name of ours."""
    code, output, errors = run(*RECORD, "--prepare", str(tmp_path / "made"))
    assert code == 0, errors
    assert output == f"export PYTHONPATH={tmp_path}/made/startup${{PYTHONPATH:+:$PYTHONPATH}}\n"
    folder = tmp_path / "elsewhere"
    (tmp_path / "made").rename(folder)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("import sys\nsys.chained = __name__\n")
    (theirs / "checker.py").write_text("NAME = 'of the program'\n")
    script = tmp_path / "program.py"
    script.write_text(
        BARE
        + """
service = service_for(1)
client = client_of(0)
client.key_value_set("key", "value")
import checker, jax_bridge
print(checker.NAME, sys.chained, jax_bridge.__file__)
client.shutdown()
"""
    )
    path = os.pathsep.join([str(folder / "startup"), str(theirs)])
    code, output, errors = run(sys.executable, str(script), PYTHONPATH=path)
    assert code == 0, errors
    packages = folder / "packages" / "jax_bridge" / "__init__.py"
    assert output == f"of the program sitecustomize {packages}\n"
    file, service = sorted((folder / "parts").iterdir())
    assert service.name.endswith("-service.jsonl")
    assert read_part(service).service_made_ns is not None
    part = read_part(file)
    assert file.name.endswith(f"-{part.number('pid')}-process-0.jsonl")
    assert part.history.faults[-1].name == f"process 0: {END_REMARK}"
    out = tmp_path / "run.jsonl"
    code, output, errors = run(*MERGE, str(folder), "--out", str(out))
    assert code == 0, errors
    assert output.startswith(f"history: {out} (5 events; 1 of 1 processes, 1 starts, 1 recordings")
    assert "how and when some of the processes ended: their recordings stop" in (
        read(out).header.cannot_know
    )


@pytest.mark.jax
def test_two_clients_of_one_program_and_two_services_are_told_apart(tmp_path: Path) -> None:
    text = (
        BARE
        + """
import threading
service = service_for(2)
clients = [None, None]
def connect(number):
    clients[number] = client_of(number)
threads = [threading.Thread(target=connect, args=(number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
for number, client in enumerate(clients):
    client.key_value_set(f"of/{number}", "x")
clients.clear()
client = None
service = None
"""
        + PORT
        + """
service = service_for(1)
again = client_of(0)
again.key_value_set("of the second", "x")
again.shutdown()
"""
    )
    history, _, errors = recorded(tmp_path, text)
    assert operations(history) == {(0, "key_value_set"), (1, "key_value_set")}
    second = read(tmp_path / "run-2.jsonl")
    assert operations(second) == {(0, "key_value_set"), (0, "shutdown")}, errors


IN_TURN = (
    BARE
    + """
for attempt in range(2):
    service = service_for(1)
    client = client_of(0)
    client.key_value_set("job", f"attempt {attempt}")
    client.shutdown()
    service.shutdown()
    client = service = None
"""
)
"""As a launcher does that tries again; the second service knows nothing of the key."""

ORDERS = {
    "alone": RECORD,
    "in wrap": (*WRAP, "--", *RECORD),
    "around wrap": (*RECORD, "--out", "{out}", "--", *WRAP, "--"),
}


def recorded_in(folder: Path, order: str, text: str) -> str:
    """Records a program to `run.jsonl`, and its parts beside it, alone or with `wrap`; what was said."""
    script = folder / "program.py"
    script.write_text(text)
    out = str(folder / "run.jsonl")
    words = [word.format(out=out) for word in ORDERS[order]]
    if order != "around wrap":
        words += ["--out", out, "--keep-parts", "--"]
    code, _, errors = run(*words, sys.executable, str(script))
    assert code == 0, errors
    return errors


@pytest.mark.jax
@pytest.mark.parametrize("order", ORDERS)
def test_services_that_follow_one_another_at_one_port_have_a_history_each(
    tmp_path: Path, order: str
) -> None:
    errors = recorded_in(tmp_path, order, IN_TURN)
    files = [tmp_path / "run.jsonl", tmp_path / "run-2.jsonl"]
    if order == "alone":
        code, _, _ = run(*MERGE, str(tmp_path / "run.parts"), "--out", str(tmp_path / "m.jsonl"))
        assert code == 0
        files += [tmp_path / "m.jsonl", tmp_path / "m-2.jsonl"]
    for file in files:
        history = read(file)
        assert operations(history) == {(0, "key_value_set"), (0, "shutdown")}, errors
        assert {event.lifetime for event in history.events} == {0}
        assert not any(isinstance(found.verdict, Invalid) for found in check_service(history))
    assert "no recorded program made the service" not in errors


@pytest.mark.jax
@pytest.mark.parametrize("order", ["in wrap", "around wrap"])
def test_who_comes_back_to_a_service_that_goes_on_is_in_the_same_history(
    tmp_path: Path, order: str
) -> None:
    """Under `wrap`, where a process 0 that comes back asks for its service once more."""
    errors = recorded_in(tmp_path, order, RESTARTED)
    events = read(tmp_path / "run.jsonl").events
    starts = [event for event in events if isinstance(event, Start)]
    assert sorted((s.process, s.lifetime) for s in starts) == [(0, 0), (0, 1), (1, 0)], errors
    assert not (tmp_path / "run-2.jsonl").exists()


# --- commands ------------------------------------------------------------------------------------------


def test_a_program_that_never_connects_is_left_alone_and_the_user_told(tmp_path: Path) -> None:
    """Neither jaxlib nor typing is imported for it."""
    program_text = (
        "import sys; print(*sorted({'jaxlib', 'jax', 'typing', 'json', 'pathlib', 'checker', "
        "'jax_bridge.recorder.hook', 'jax_bridge.recorder.program'} & set(sys.modules)))"
    )
    alone = run(sys.executable, "-c", program_text)[1].split()
    out = tmp_path / "run.jsonl"
    code, output, errors = run(
        *RECORD, "--out", str(out), "--", sys.executable, "-c", f"{program_text}; sys.exit(9)"
    )
    assert (code, output.split()) == (9, sorted([*alone, "jax_bridge.recorder.hook"]))
    assert errors.startswith("coordlab: warning: no program made a client")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "a command is needed"),
        (("--", "no-such-command"), "cannot run no-such-command: No such file or directory"),
        (("--out", "no/such/run.jsonl", "--", "true"), "there is no such folder"),
        (("--out", ".", "--", "true"), "is a folder"),
        (("--prepare", "there", "--", "true"), "--prepare runs nothing"),
        (("--prepare", "there"), "there is in the way"),
        (("--out", "there.jsonl", "--", "true"), "there.parts is in the way"),
    ],
)
def test_bad_input(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("there", "there.parts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "something").touch()
    try:
        code = main(["record", *arguments])
    except SystemExit as error:  # As argparse ends.
        code = error.code if isinstance(error.code, int) else -1
    output, errors = capsys.readouterr()
    assert (code, output) == (2, ""), errors
    assert words in errors
    assert not (tmp_path / "run.parts").exists()


def test_a_command_that_is_killed_ends_as_shells_say(tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    code, output, errors = run(*RECORD, "--out", str(out), "sh", "-c", "kill -9 $$")
    assert (code, output) == (137, "")
    assert "no program made a client" in errors


# --- lines ---------------------------------------------------------------------------------------------


def test_lines_are_those_of_the_writer_of_histories(tmp_path: Path) -> None:
    """Word for word, so that nobody can tell recordings apart by how they were written."""
    path = tmp_path / "part.jsonl"
    many = INLINE_LIVE_SET_MAX + 1
    recorder = ProcessRecorder(
        path, process=1, processes=many, cannot_know=("much",), details={"text": "ü", "no": None}
    )
    recorder.start(7, 5, 2**64 - 1)
    recorder.ok(7, recorder.invoke(7, "live_processes", {}), {1: 5, 0: 6})
    recorder.ok(7, recorder.invoke(7, "live_processes", {"participants": [0, 1]}), {})
    values: list[object] = [None, 3, "text", {"text": 'ü"\n\x00'}, [["k", {"base64": "/w=="}]]]
    for value in values:
        recorder.ok(7, recorder.invoke(7, "key_value_try_get", {"key": 'a"b\\\n'}), value)
    recorder.error(7, recorder.invoke(7, "barrier", {}), RuntimeError("ABORTED: so\nand so"))
    recorder.error(7, recorder.invoke(7, "barrier", {}), ValueError("ü" * 999))
    whole = dict.fromkeys(range(many), 9)
    for live in (whole, dict(whole), {**whole, 0: 8}, whole, {0: 1}, whole):
        block = recorder.enter(live)
        recorder.exit(block, "failed", (0, 2), "x\u2028y")
        recorder.ok(7, recorder.invoke(7, "live_processes", {}), live)
    recorder.exit(recorder.enter({1: 1}), "completed")
    recorder.made(7)
    recorder.start(7, 6, None)
    recorder.remark("something is odd\nand more")
    history = read(path)
    kinds = {type(event) for event in history.events}
    assert kinds == {Start, Invoke, Ok, Fail, Info, Enter, Exit}
    assert isinstance(history.faults[-1], Fault)
    assert path.read_text() == dumps(history)


def test_clients_that_call_before_any_has_connected_have_lifetimes_of_their_own(
    tmp_path: Path,
) -> None:
    path = tmp_path / "part.jsonl"
    recorder = ProcessRecorder(path, process=0, processes=1)
    for client in (7, 8):
        recorder.ok(client, recorder.invoke(client, "key_value_set", {"key": "a"}), None)
    for client in (8, 7):
        recorder.start(client, 1, client)
        recorder.ok(client, recorder.invoke(client, "live_processes", {}), {0: client})
    events = read(path).events
    assert [event.lifetime for event in events] == [0, 0, 1, 1, 1, 1, 1, 0, 0, 0]
    assert [event.incarnation for event in events if isinstance(event, Start)] == [8, 7]


def recorded_rounds(
    path: Path, answers: Sequence[object], *, processes: int
) -> tuple[ProcessRecorder, Callable[..., object]]:
    """A recorder, and a recorded method like `get_live_nodes` that answers, or raises, these in turn."""
    recorder = ProcessRecorder(path, process=0, processes=processes)
    coming = iter(answers)

    def answer(_client: object, _processes: object) -> object:
        found = next(coming)
        if isinstance(found, Exception):
            raise found
        return found

    arguments = client_recorder._live_arguments
    recorded = client_recorder._recorded(
        lambda _: recorder,
        answer,
        operation="live_processes",
        arguments=arguments,
        result_of=None,
        probe=answer,
    )
    rounds = client_recorder._recorded_round(lambda _: recorder, answer, recorded, arguments)
    return recorder, rounds


class Client:
    """Has an identity."""


def test_each_live_set_call_is_recorded_with_the_processes_that_it_named(tmp_path: Path) -> None:
    """Whatever the calls before it named, and if the program changes its list meanwhile."""
    path = tmp_path / "part.jsonl"
    mine = [0]
    named: list[object] = [[0, 1], [0, 1], [1, 0], mine, (0, 1), [0, 1, 2, 3], [0, 1], mine, mine]
    recorder, rounds = recorded_rounds(path, [{0: 5}] * len(named), processes=4)
    client = Client()
    recorder.start(id(client), 0, 5)
    for processes in named:
        if processes is mine:
            mine[0] += 1
        rounds(client, processes)
        recorder.ok(
            id(client), recorder.invoke(id(client), "key_value_try_get", {"key": "k"}), None
        )
    calls = [
        event.arguments.get("participants")
        for event in read(path).events
        if isinstance(event, Invoke) and event.operation == "live_processes"
    ]
    assert calls == [(0, 1), (0, 1), (0, 1), (1,), (0, 1), None, (0, 1), (2,), (3,)]


@pytest.mark.parametrize("processes", [3, INLINE_LIVE_SET_MAX + 2])
def test_a_round_that_is_known_is_recorded_as_one_that_is_not(
    processes: int, tmp_path: Path
) -> None:
    """Answers that change, calls that raise, and clients of the same number one after the other."""
    everybody = list(range(processes))
    alive = {process: 100 + process for process in everybody}
    without = {process: 100 + process for process in everybody[1:]}
    answers = [alive, alive, without, RuntimeError("ABORTED: x"), without, alive, {}, alive, alive]
    told = []
    for name, kind in (("short", list), ("long", tuple)):  # Of other kinds no round is known.
        recorder, rounds = recorded_rounds(tmp_path / name, answers, processes=processes)
        first, second = Client(), Client()
        recorder.start(id(first), 0, 5)
        for number in range(len(answers)):
            if number == 7:
                recorder.start(id(second), 1, 6)
            with contextlib.suppress(RuntimeError):
                rounds(first if number < 7 else second, kind(everybody))
        events = read(tmp_path / name).events
        told.append([replace(event, time_ns=0) for event in events if not isinstance(event, Start)])
        assert (recorder.known_round is None) == (kind is tuple)
    short, long = told
    assert short == long
    assert [type(event) for event in short].count(Fail) == 1


@pytest.mark.parametrize("named", [[0, 99], [0, -1], [0, 0.5], {0}])
def test_a_call_for_processes_that_the_job_has_not_is_not_recorded(
    tmp_path: Path, named: object, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "part.jsonl"
    recorder, rounds = recorded_rounds(path, [{0: 5}] * 4, processes=1)
    client = Client()
    recorder.start(id(client), 1, 5)
    assert rounds(client, named) == rounds(client, named) == {0: 5}
    assert [rounds(client, [0]) for _ in range(2)] == [{0: 5}] * 2
    assert [type(e) for e in read(path).events] == [Start, Invoke, Ok, Invoke, Ok]
    assert capfd.readouterr().err == ""


def test_a_disk_that_is_full_ends_the_recording_of_rounds_and_not_the_rounds(
    capfd: pytest.CaptureFixture[str],
) -> None:
    alive = {0: 5}
    _, rounds = recorded_rounds(Path("/dev/full"), [alive] * 3, processes=1)
    client = Client()
    assert [rounds(client, [0]) for _ in range(3)] == [alive] * 3
    assert capfd.readouterr().err.count("recording stopped") == 1


def test_constants_are_those_of_the_format_and_of_conditions() -> None:
    """What runs inside programs imports nothing of the checker."""
    assert lines.INLINE_LIVE_SET_MAX == INLINE_LIVE_SET_MAX
    assert process_recorder.REMARKS == RECORDER_LANE
    assert program.END == END_REMARK
    assert program.SERVICE_MADE == SERVICE_MADE
    assert process_recorder.STOPPED == STOPPED
    assert any(gap.startswith(NO_HEARTBEATS) for gap in program.CANNOT_KNOW)
    assert client_recorder._BLOCK == BLOCK
    events: list[Event] = []
    header = dumps(History(Header(source="processes", participants=(0,)), events))
    assert json.loads(header)["coordlab_history"] == lines.VERSION


def test_a_fork_writes_nothing_into_its_parents_recording(tmp_path: Path) -> None:
    path = tmp_path / "part.jsonl"
    recorder = ProcessRecorder(path, process=0, processes=1)
    before = path.read_bytes()
    child = os.fork()
    if child == 0:
        recorder.remark("of the fork")
        os._exit(0)
    os.waitpid(child, 0)
    assert path.read_bytes() == before
    recorder.remark("of the parent")
    assert path.read_bytes() != before


def test_killed_by_sigkill_a_recording_loses_at_most_its_last_line(tmp_path: Path) -> None:
    """Linux may end a write between two pages of the file."""
    path = tmp_path / "part.jsonl"
    text = f"""
from jax_bridge.recorder.process_recorder import ProcessRecorder
recorder = ProcessRecorder({str(path)!r}, process=0, processes=1)
recorder.start(1, 0, 5)
print("up", flush=True)
while True:
    recorder.ok(1, recorder.invoke(1, "live_processes", {{}}), {{0: 5}})
"""
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, env=environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        while path.stat().st_size < 100_000:
            assert process.poll() is None
        process.kill()
    history = read(path)
    cut_at = path.stat().st_size % os.sysconf("SC_PAGE_SIZE")
    assert history.notes == () or cut_at == 0
    lines_written = path.read_bytes().count(b"\n")
    assert len(history.events) + 1 == lines_written, "no whole line is lost"
    answered = sum(isinstance(event, Ok) for event in history.events)
    called = sum(isinstance(event, Invoke) for event in history.events)
    assert called - answered in {0, 1}
