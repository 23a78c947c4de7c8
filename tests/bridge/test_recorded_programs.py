"""`coordlab record` around programs without jaxlib, which have the recorder write what a client would.

They start quickly, and may do what real clients cannot be made to do: the rest is as in a real run.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from checker import read
from checker.history import SHUTDOWN, Crash, Event, Invoke, Leave, Ok, Start
from jax_bridge.recorder import ends
from jax_bridge.recorder.descriptors import high_descriptor
from jax_bridge.recorder.process_recorder import ProcessRecorder
from tests.bridge.test_record import MERGE, RECORD
from tests.bridge.test_wrap import WRAP, environment, run

DEADLINE_S = 60.0

CLIENTS = """
import os, sys, time
from jax_bridge.recorder.program import ProgramRecorder

startup = os.environ["PYTHONPATH"].split(os.pathsep)[0]
recorder = ProgramRecorder(os.path.join(os.path.dirname(startup), "parts"))

class Client:
    def __init__(self, process=0, port=1):
        recorder._made(self, f"localhost:{port}", process)
        self.mine = recorder._of_client[id(self)]
    def connect(self, incarnation):
        self.mine.start(id(self), time.monotonic_ns(), incarnation)
    def call(self, name, arguments):
        self.mine.ok(id(self), self.mine.invoke(id(self), name, arguments), None)
    def set(self, key):
        self.call("key_value_set", {"key": key, "value": {"text": "x"}, "allow_overwrite": False})
"""
"""The beginning of these programs."""


def recorded(folder: Path, text: str, *, code: int = 0) -> tuple[list[Event], str]:
    """The events and what was said of a program."""
    script = folder / "program.py"
    script.write_text(CLIENTS + text)
    out = folder / "run.jsonl"
    found, _, errors = run(*RECORD, "--out", str(out), "--", sys.executable, str(script))
    assert found == code, errors
    assert not (folder / "run.parts").exists(), errors
    return list(read(out).events), errors


def keys(path: Path) -> list[object]:
    return [event.arguments.get("key") for event in read(path).events if isinstance(event, Invoke)]


def until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


# --- several services --------------------------------------------------------------------------------


def test_a_client_that_never_connects_does_not_take_the_place_of_the_job(tmp_path: Path) -> None:
    """Neither one that does nothing, nor one that only asks."""
    text = """
dead, asking, job = Client(port=1), Client(port=2), Client(port=3)
asking.set("in vain")
job.connect(5)
job.set("of the job")
"""
    recorded(tmp_path, text)
    assert keys(tmp_path / "run.jsonl") == ["of the job"]
    others = [keys(tmp_path / f"run-{number}.jsonl") for number in (2, 3)]
    assert sorted(others) == [[], ["in vain"]]


def test_a_start_belongs_to_the_latest_service_that_was_made_before_it(tmp_path: Path) -> None:
    """Whoever made it, and whoever comes back while it goes on."""
    text = """
def serve(processes):
    recorder._service_made("[::]:1", processes, time.monotonic_ns())

serve(2)
zero, one = Client(process=0), Client(process=1)
zero.connect(5)
one.connect(6)
zero.set("first")
back = Client(process=1)
back.connect(7)
back.set("back")
serve(1)
again = Client(process=0)
again.connect(8)
again.set("first")
recorder._service_made("[::]:2", 1, time.monotonic_ns())
"""
    events, errors = recorded(tmp_path, text)
    assert [(e.process, e.lifetime) for e in events if isinstance(e, Start)] == [
        (0, 0), (1, 0), (1, 1),
    ]  # fmt: skip
    assert keys(tmp_path / "run.jsonl") == ["first", "back"]
    second = read(tmp_path / "run-2.jsonl").events
    assert [(e.process, e.lifetime) for e in second if isinstance(e, Start)] == [(0, 0)]
    assert keys(tmp_path / "run-2.jsonl") == ["first"]
    assert not (tmp_path / "run-3.jsonl").exists()
    assert "never connected" not in errors


def test_who_could_not_connect_was_not_in_the_job_that_came_later(tmp_path: Path) -> None:
    text = """
early = Client(process=1)
early.mine.remark("could not connect: nobody is there")
recorder._service_made("[::]:1", 1, time.monotonic_ns())
job = Client(process=0)
job.connect(5)
"""
    recorded(tmp_path, text)
    assert read(tmp_path / "run.jsonl").header.participants == (0,)
    (fault,) = read(tmp_path / "run-2.jsonl").faults[:1]
    assert "could not connect" in fault.name


def test_a_service_without_a_client_is_nothing_to_record(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(CLIENTS + 'recorder._service_made("[::]:1", 2, time.monotonic_ns())')
    code, _, errors = run(
        *RECORD, "--out", str(tmp_path / "run.jsonl"), "--", sys.executable, str(script)
    )
    assert code == 0
    assert "no program made a client" in errors
    assert not list(tmp_path.glob("run*"))


@pytest.mark.parametrize("kept", [True, False])
def test_whether_a_service_outside_was_the_same_is_taken_from_its_promises(
    tmp_path: Path, kept: bool
) -> None:
    """Nobody was connected in between; one store would not take a key twice."""
    text = f"""
for number in (5, 6):
    client = Client()
    client.connect(number)
    client.set("key" if {not kept} else f"key/{{number}}")
    client.call("shutdown", {{}})
"""
    _, errors = recorded(tmp_path, text)
    assert "no recorded program made the service, and for some time nobody was" in errors
    files = [tmp_path / "run.jsonl", tmp_path / "run-2.jsonl"]
    found = [keys(file) for file in files if file.exists()]
    if kept:
        assert found == [["key/5", None, "key/6", None]]
    else:
        assert found == [["key", None], ["key", None]]
    for file in files[: len(found)]:
        assert any("whether its service was one" in gap for gap in read(file).header.cannot_know)


def test_files_of_earlier_runs_are_named(tmp_path: Path) -> None:
    two = "one, two = Client(port=1), Client(port=2)\none.connect(5)\ntwo.connect(6)\n"
    _, errors = recorded(tmp_path, two)
    assert "earlier run" not in errors
    assert (tmp_path / "run-2.jsonl").exists()
    _, errors = recorded(tmp_path, "one = Client()\none.connect(7)\n")
    assert f"warning: {tmp_path}/run-2.jsonl is of an earlier run" in errors
    assert errors.count("earlier run") == 1
    before = (tmp_path / "run.jsonl").read_text()
    code, _, errors = run(*RECORD, "--out", str(tmp_path / "run.jsonl"), "--", "true")
    assert code == 0
    assert "no program made a client" in errors
    for name in ("run.jsonl", "run-2.jsonl"):
        assert f"warning: {tmp_path}/{name} is of an earlier run; this one is not in it" in errors
    assert (tmp_path / "run.jsonl").read_text() == before


# --- programs that replace themselves, and close what is not theirs ----------------------------------

AGAIN = """
if len(sys.argv) == 1:
    client, other = Client(), Client(process=1)
    client.connect(5)
    other.connect(6)
    client.set("before")
    client.call("shutdown", {})
    os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
client = Client()
client.connect(7)
client.set("after")
time.sleep(0.2)
os.kill(os.getpid(), 9)
"""


def test_a_program_that_its_process_replaces_has_ended_then(tmp_path: Path) -> None:
    events, errors = recorded(tmp_path, AGAIN, code=128 + signal.SIGKILL)
    first = [event for event in events if (event.process, event.lifetime) == (0, 0)]
    second = [event for event in events if (event.process, event.lifetime) == (0, 1)]
    beside = [event for event in events if event.process == 1]
    assert isinstance(first[-1], Leave), "it had left"
    assert isinstance(second[-1], Crash)
    assert second[-1].cause == "signal SIGKILL"
    assert isinstance(beside[-1], Crash), "it had not left"
    assert beside[-1].cause == "its process replaced the program by another one (exec)"
    assert isinstance(second[0], Start)
    for end in (first[-1], beside[-1]):
        assert first[0].time_ns < end.time_ns < second[0].time_ns
    assert (beside[-1].since_ns or 0) <= beside[-1].time_ns
    assert "two pids" not in errors


@pytest.mark.parametrize("left", [True, False])
def test_who_has_left_did_not_crash_if_nobody_saw_how_it_ended(tmp_path: Path, left: bool) -> None:
    """Children of `multiprocessing` end by os._exit, and their parent asks first how."""
    path = tmp_path / "part.jsonl"
    recorder = ProcessRecorder(path, process=0, processes=1)
    recorder.start(7, 0, 5)
    name = SHUTDOWN if left else "key_value_delete"
    recorder.ok(7, recorder.invoke(7, name, {}), None)
    watched = ends._Watched(path, 1, 0, None, None, 0, ended_ns=time.monotonic_ns())
    ends._write_end(watched)
    end = read(path).events[-1]
    assert isinstance(end, Leave if left else Crash)


def test_a_shutdown_is_called_as_in_histories() -> None:
    assert ends._SHUTDOWN == SHUTDOWN


CLOSES = """
client = Client()
client.connect(5)
os.closerange(3, 4096)
files = [open(f"{sys.argv[0]}.{number}", "w") for number in range(20)]
for file in files:
    print("precious", file=file, flush=True)
client.set("kept")
for file in files:
    print("end", file=file)
"""


def test_a_program_that_closes_all_descriptors_keeps_its_files(tmp_path: Path) -> None:
    """As daemons do; its recording goes on. Its own files get the numbers that are free then."""
    events, errors = recorded(tmp_path, CLOSES)
    assert keys(tmp_path / "run.jsonl") == ["kept"]
    assert [type(event) for event in events] == [Start, Invoke, Ok, Leave]
    assert "stopped" not in errors
    for number in range(20):
        assert (tmp_path / f"program.py.{number}").read_text() == "precious\nend\n"


def test_a_fork_of_a_program_that_closed_its_descriptors_writes_nothing(tmp_path: Path) -> None:
    """The recording is the parent's, whose file would be opened again."""
    text = """
client = Client()
client.connect(5)
mine = client.mine
os.closerange(3, 4096)
if not (child := os.fork()):
    mine.ok(id(client), mine.invoke(id(client), "key_value_delete", {"key": "of the child"}), None)
    os._exit(0)
os.waitpid(child, 0)
client.set("of the parent")
"""
    _, errors = recorded(tmp_path, text)
    assert keys(tmp_path / "run.jsonl") == ["of the parent"]
    assert "Traceback" not in errors


def test_the_recorders_descriptor_is_high_and_not_inherited(tmp_path: Path) -> None:
    recorder = ProcessRecorder(tmp_path / "part.jsonl", process=0, processes=1)
    assert recorder._file is not None
    assert recorder._file >= 900
    assert not os.get_inheritable(recorder._file)
    assert high_descriptor(recorder._file) == recorder._file
    recorder.abandon()


def test_a_low_limit_is_heeded(tmp_path: Path) -> None:
    """And if nothing is free up there, the descriptor stays where it is."""
    text = """
import os, resource
from jax_bridge.recorder.descriptors import high_descriptor
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
print(high_descriptor(os.open(os.devnull, os.O_WRONLY)))
open_ = []
while len(open_) == 0 or open_[-1] < 63:
    open_.append(os.open(os.devnull, os.O_WRONLY))
os.close(9)
print(high_descriptor(os.open(os.devnull, os.O_WRONLY)), os.write(9, b"x"))
"""
    script = tmp_path / "program.py"
    script.write_text(text)
    assert run(sys.executable, str(script)) == (0, "32\n9 1\n", "")


def test_a_program_that_takes_another_one_without_a_client_has_not_left(tmp_path: Path) -> None:
    """What follows in its process is nothing of it. An exec that fails has replaced nothing."""
    text = """
client = Client()
client.connect(5)
try:
    os.execv("/nowhere", ["nowhere"])
except FileNotFoundError:
    client.set("after it")
os.execl(sys.executable, sys.executable, "-c", "")
"""
    events, _ = recorded(tmp_path, text)
    end = events[-1]
    assert isinstance(end, Crash)
    assert end.cause is not None
    assert "exec" in end.cause
    assert keys(tmp_path / "run.jsonl") == ["after it"]


def test_an_exec_that_fails_is_not_the_end(tmp_path: Path) -> None:
    text = """
client = Client()
client.connect(5)
try:
    os.execvp("no-such-program", ["no-such-program"])
except FileNotFoundError:
    os.kill(os.getpid(), 9)
"""
    events, _ = recorded(tmp_path, text, code=137)
    end = events[-1]
    assert isinstance(end, Crash)
    assert end.cause is not None
    assert "SIGKILL" in end.cause


# --- the recorder is killed --------------------------------------------------------------------------

WAITS = """
from pathlib import Path
client = Client()
client.connect(5)
here = Path(sys.argv[0]).parent
(here / "pid").write_text(str(os.getpid()))
(here / "pid").rename(here / "up")
while not (here / "go").exists():
    time.sleep(0.02)
client.set("on its own")
"""


@contextlib.contextmanager
def killed(folder: Path, *words: str) -> Iterator[int]:
    """A command of ours that is killed once the program under it is up; yields the program's pid."""
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    ) as process:
        until((folder / "up").exists)
        process.kill()
    pid = int((folder / "up").read_text())
    try:
        yield pid
    finally:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)


def test_a_program_goes_on_when_its_recorder_is_killed(tmp_path: Path) -> None:
    """And its recording, too, which can be merged by hand."""
    script = tmp_path / "program.py"
    script.write_text(CLIENTS + WAITS)
    out = tmp_path / "a run.jsonl"
    words = (*RECORD, "--out", str(out), "--", sys.executable, str(script))
    with killed(tmp_path, *words) as pid:
        assert is_running(pid)
        (tmp_path / "go").touch()
        until(lambda: not is_running(pid))
    assert not out.exists()
    code, _, errors = run(*words)
    assert code == 2
    folder = tmp_path / "a run.parts"
    assert f"coordlab merge {shlex.quote(str(folder))} --out ..." in errors
    code, _, errors = run(*MERGE, str(folder), "--out", str(out))
    assert code == 0, errors
    assert keys(out) == ["on its own"]


def test_a_program_does_not_outlive_the_service_that_wrap_gives_it(tmp_path: Path) -> None:
    """Not even if it takes SIGTERM for something else."""
    script = tmp_path / "program.py"
    startup = tmp_path / "startup"
    startup.mkdir()
    (tmp_path / "parts").mkdir()
    before = f"""
import os, signal
os.environ["PYTHONPATH"] = {str(startup)!r}
signal.signal(signal.SIGTERM, lambda *_: None)  # As JAX does, which takes it for a preemption.
"""
    script.write_text(before + CLIENTS + WAITS)
    with killed(tmp_path, *WRAP, "--", sys.executable, str(script)) as pid:
        until(lambda: not is_running(pid))


@pytest.mark.parametrize("name", ["plain", "pre p ü"])
def test_what_to_type_is_quoted(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    code, _, errors = run(*RECORD, "--prepare", str(folder))
    assert code == 0, errors
    line = errors.partition("Then: ")[2]
    assert shlex.split(line) == ["coordlab", "merge", str(folder), "--out", "run.jsonl"]
