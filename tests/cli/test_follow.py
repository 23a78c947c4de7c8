"""`coordlab check --follow`: files that grow, written by another process."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from checker import Invalid, LiveProcesses, check
from checker.history import Event, Header, History, Invoke, LiveSet, Ok, Start
from coord_sim.cli.follow import service_verdict
from coord_sim.cli.main import main

DEADLINE_S = 60

WRITER = """
import sys, time
path, mode, pause_s = sys.argv[1], sys.argv[2], float(sys.argv[3])
with open(path, mode) as file:
    for line in sys.stdin:
        file.write(line)
        file.flush()
        time.sleep(pause_s)
"""


COMMAND = "import sys; from coord_sim.cli.main import main; sys.exit(main())"


class Following:
    """A `coordlab check --follow` as a process of its own."""

    def __init__(self, path: Path, *options: str) -> None:
        self.path = path
        self._process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, "check", "--follow", *options, path.name],
            cwd=path.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_for_waiting(self) -> None:
        """Returns when it says that it waits for the file."""
        assert self._process.stderr is not None
        assert "waiting for it" in self._process.stderr.readline()

    def wait_for_reading(self) -> None:
        """Returns when it has read the file to its end."""
        deadline_s = time.monotonic() + DEADLINE_S
        while self._position() < self.path.stat().st_size:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)

    def _position(self) -> int:
        of_process = Path(f"/proc/{self._process.pid}")
        try:
            for number in (of_process / "fd").iterdir():
                if number.readlink() == self.path:
                    text = (of_process / "fdinfo" / number.name).read_text()
                    return int(text.split()[1])
        except FileNotFoundError:  # One of them was closed meanwhile.
            pass
        return -1

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def end(self) -> tuple[int, str, str]:
        out, err = self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode, out, err

    def kill(self) -> None:
        with self._process:  # Closes its pipes.
            self._process.kill()


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Callable[..., Following]]:
    started: list[Following] = []

    def start(name: str, *options: str) -> Following:
        started.append(Following(tmp_path / name, *options))
        return started[-1]

    yield start
    for following in started:
        following.kill()


def write(path: Path, text: str, *, pause_s: float = 0.0, mode: str = "a") -> None:
    """Lets a process append to a file, line by line."""
    subprocess.run(
        [sys.executable, "-c", WRITER, str(path), mode, str(pause_s)],
        input=text,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )


def register(*steps: tuple[int, str, str, object]) -> str:
    """Events of a register as lines of ours: process, operation, type, value."""
    lines = ['{"coordlab_history":0,"source":"manual","clock":"monotonic","participants":[0,1,2]}']
    ids: dict[int, int] = {}
    for time_ns, (process, operation, type_, value) in enumerate(steps):
        event: dict[str, object] = {"type": type_, "time_ns": time_ns, "process": process}
        event["lifetime"] = 0
        if type_ == "invoke":
            ids[process] = time_ns
            event["operation"] = operation
            event["arguments"] = {} if value is None else {"value": value}
        elif type_ == "ok":
            event["result"] = value
        event["id"] = ids[process]
        lines.append(json.dumps(event))
    return "".join(f"{line}\n" for line in lines)


GOOD = (
    (0, "write", "invoke", 3),
    (1, "read", "invoke", None),
    (1, "read", "ok", 3),
    (0, "write", "ok", None),
)
STALE = ((2, "read", "invoke", None), (2, "read", "ok", None))


def live_sets(*, is_valid: bool) -> str:
    """Two rounds of two processes; in the invalid history, the first one leaves out a caller."""
    everybody: LiveSet = {0: 10, 1: 11}
    answer: LiveSet = everybody if is_valid else {0: 10}
    events: list[Event] = [
        Start(time_ns=0, process=0, lifetime=0, incarnation=10),
        Start(time_ns=1, process=1, lifetime=0, incarnation=11),
        Invoke(time_ns=2, process=1, lifetime=0, id=0, operation="live_processes", arguments={}),
        Invoke(time_ns=3, process=0, lifetime=0, id=1, operation="live_processes", arguments={}),
        Ok(time_ns=4, process=0, lifetime=0, id=1, result=answer),
        Ok(time_ns=5, process=1, lifetime=0, id=0, result=everybody),
        Invoke(time_ns=6, process=1, lifetime=0, id=2, operation="live_processes", arguments={}),
    ]
    return History(Header(source="manual", participants=(0, 1)), events).to_text()


def test_a_violation_ends_it_within_a_second_of_its_line(
    follow: Callable[..., Following],
) -> None:
    """At once: our lines and Jepsen's, with a specification and without."""
    texts = {
        "spec.jsonl": register(*GOOD, *STALE),
        "spec.edn": EDN,
        "live.jsonl": live_sets(is_valid=False),
    }
    ended: dict[str, tuple[float, tuple[int, str, str]]] = {}

    def watch(name: str, following: Following) -> None:
        following.wait_for_waiting()
        write(following.path, texts[name])
        written_s = time.monotonic()
        result = following.end()
        ended[name] = (time.monotonic() - written_s, result)

    threads = []
    for name in texts:
        options = () if name.startswith("live") else ("--spec", "register")
        threads.append(threading.Thread(target=watch, args=(name, follow(name, *options))))
        threads[-1].start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert set(ended) == set(texts)
    for name, (seconds, (code, out, err)) in ended.items():
        assert (code, err) == (1, ""), name
        assert out.startswith(f"{name}: invalid\n")
        # A loose limit: the machine may be busy, and a process takes a while to end.
        assert seconds < 5, name
    assert "read() of process 2 cannot have happened (spec.jsonl:6)" in ended["spec.jsonl"][1][1]
    assert "read() of process 2 cannot have happened (spec.edn:5)" in ended["spec.edn"][1][1]
    assert "Process 1 was told" in ended["live.jsonl"][1][1]


EDN = """\
{:process 0, :type :invoke, :f :write, :value 3}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 3}
{:process 0, :type :ok, :f :write, :value 3}
{:process 2, :type :invoke, :f :read, :value nil}
{:process 2, :type :ok, :f :read, :value nil}
"""


def test_valid_so_far_ends_with_0_when_idle_or_interrupted(
    follow: Callable[..., Following],
) -> None:
    idle = follow("idle.jsonl", "--spec", "register", "--until-idle", "2")
    late = follow("late.edn", "--spec", "register", "--json")
    live = follow("live.jsonl")
    # The last line is cut.
    write(idle.path, register(*GOOD) + '{"type":"invoke","time_', pause_s=0.02)
    write(live.path, live_sets(is_valid=True))
    live.wait_for_reading()
    live.interrupt()
    assert live.end() == (0, "live.jsonl: valid so far\n  1 round placed.\n", "")
    late.wait_for_waiting()
    write(late.path, EDN.rpartition("{")[0])
    late.wait_for_reading()
    late.interrupt()
    code, out, err = late.end()
    assert (code, err) == (0, "")
    assert json.loads(out)["verdict"] == "valid so far"
    code, out, err = idle.end()
    assert code == 0
    assert out.splitlines() == [
        "idle.jsonl: valid so far",
        "  2 operations on 1 object can be explained so far, 0 of them open.",
    ]
    assert err.endswith("line 6 is cut off (the recorder was killed?) and was skipped\n")


def test_unknown_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two calls of one process open at once are outside the definition."""
    text = live_sets(is_valid=True)
    another = text.splitlines()[-1].replace('"id":2', '"id":3')
    path = tmp_path / "run.jsonl"
    path.write_text(f"{text}{another}\n")
    assert main(["check", "--follow", "--until-idle", "0.2", str(path)]) == 3
    assert "open at once" in capsys.readouterr().out


def test_lines_that_come_one_by_one_and_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = register(*GOOD, *((step[0], *step[1:]) for step in GOOD), *STALE).encode()

    def append() -> None:
        with open(path, "wb", buffering=0) as file:
            for begin in range(0, len(whole), 37):
                file.write(whole[begin : begin + 37])
                time.sleep(0.01)

    thread = threading.Thread(target=append)
    thread.start()
    try:
        assert (
            main(["check", "--follow", "--until-idle", "5", "--spec", "register", str(path)]) == 1
        )
    finally:
        thread.join(DEADLINE_S)


def test_later_lines_of_the_same_time_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The read responds at the time at which the write that it saw begins: they are concurrent."""
    lines = register(
        (1, "read", "invoke", None), (1, "read", "ok", 3), (0, "write", "invoke", 3)
    ).splitlines(keepends=True)
    lines[3] = lines[3].replace('"time_ns": 2', '"time_ns": 1')
    path = tmp_path / "run.jsonl"
    path.write_text("".join(lines))
    options = ["check", "--follow", "--until-idle", "0.5", "--spec", "register", str(path)]
    assert main(options) == 0
    assert "valid so far" in capsys.readouterr().out
    # With errors of clocks, the whole beginning is checked; a write just after may have been before.
    lines[3] = lines[3].replace('"time_ns": 1', '"time_ns": 9, "uncertainty_ns": 8')
    path.write_text("".join(lines))
    assert main(options) == 0
    lines[3] = lines[3].replace('"uncertainty_ns": 8', '"uncertainty_ns": 7')
    path.write_text("".join(lines))
    assert main(options) == 1


def test_no_beginning_of_a_valid_history_is_a_violation() -> None:
    """What is checked again and again while it grows; a violation found there is final."""
    rng = random.Random(6)
    default = LiveProcesses()
    for seed in range(3):
        history = ServiceRun(seed).history()
        assert not isinstance(service_verdict(history, default), Invalid)
        for events in rng.sample(range(len(history.events)), 5):
            beginning = replace(history, events=history.events[:events])
            assert not isinstance(service_verdict(beginning, default), Invalid)
    valid = 0
    while valid < 100:
        history = random_history(rng)
        if isinstance(check(history), Invalid):
            continue
        valid += 1
        for events in range(len(history.events)):
            beginning = replace(history, events=history.events[:events])
            verdict = check(beginning)
            if isinstance(verdict, Invalid):
                # Of events of one time, some are missing.
                assert verdict.anomaly.to_ns >= beginning.events[-1].time_ns


def test_independent_keys_are_found_out(tmp_path: Path) -> None:
    path = tmp_path / "run.edn"
    path.write_text(
        "{:process 0, :type :invoke, :f :cas, :value [7 [nil 1]]}\n"
        "{:process 1, :type :invoke, :f :read, :value [8 nil]}\n"
        "{:process 0, :type :ok, :f :cas, :value [7 [nil 1]]}\n"
        "{:process 1, :type :ok, :f :read, :value [8 nil]}\n"
    )
    options = ["check", "--follow", "--until-idle", "0.1", "--spec", "cas-register", str(path)]
    assert main(options) == 0
    with open(path, "a", encoding="utf-8") as file:
        file.write(
            "{:process 2, :type :invoke, :f :read, :value [7 nil]}\n"
            "{:process 2, :type :ok, :f :read, :value [7 nil]}\n"
        )
    assert main(options) == 1


def test_a_file_that_is_cut_or_replaced_is_an_error(
    follow: Callable[..., Following], tmp_path: Path
) -> None:
    cut, replaced = follow("cut.jsonl"), follow("replaced.jsonl", "--spec", "register")
    for following in (cut, replaced):
        write(following.path, register(*GOOD))
        following.wait_for_reading()
    os.truncate(cut.path, 10)
    other = tmp_path / "other"
    other.write_text(register(*GOOD, *GOOD))
    other.replace(replaced.path)
    code, _, err = cut.end()
    assert code == 2
    assert "cut.jsonl: the file was cut to 10 bytes after" in err
    code, _, err = replaced.end()
    assert code == 2
    assert "replaced.jsonl: the file was replaced" in err


@pytest.mark.parametrize(
    ("name", "content", "options", "problem"),
    [
        ("noise", b"what is this\n" * 6000, (), "no history that can be read"),
        ("short", b"what is this\n", (), "no history that can be read"),
        ("packed", b"\x1f\x8b....\n", (), "a packed file cannot be followed"),
        (
            "p.json",
            b'[{"ClientId": 0, "Call": 1, "Return": 2}]\n',
            (),
            "Porcupine operations cannot",
        ),
        ("run.edn", EDN.encode(), (), "cannot be followed"),
        ("nothing", b"", (), "nothing came that is a history"),
        ("bad.jsonl", (register() + "{}\n").encode(), (), "bad.jsonl:2: field 'type'"),
        (
            "odd.edn",
            EDN.replace("write", "swap").encode(),
            ("--spec", "register"),
            "odd.edn:1: specification 'register' knows no operation 'swap'",
        ),
        (
            "twice.edn",
            (EDN.splitlines()[0] + "\n").encode() * 2,
            ("--spec", "register"),
            "twice.edn:2: field 'process': process 0 calls write although a call of it is open",
        ),
        ("end.edn", EDN.encode(), ("--spec", "named-barrier"), "cannot be followed"),
    ],
)
def test_bad_input(  # noqa: PLR0917 - fixtures, and a table of cases
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    content: bytes,
    options: tuple[str, ...],
    problem: str,
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert main(["check", "--follow", "--until-idle", "0.1", *options, str(path)]) == 2
    err = capsys.readouterr().err
    assert problem in err
    assert err.count("\n") == 1


def test_several_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--follow", "a", "b"]) == 2
    assert "--follow takes one file" in capsys.readouterr().err
