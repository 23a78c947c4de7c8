"""`coordlab check --follow`: files that grow, written by another process."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from checker import Invalid, LiveProcesses, check
from checker.history import Event, Header, History, Invoke, LiveSet, Ok, Start
from coord_sim.cli.follow import service_verdict
from coord_sim.cli.main import main
from tests.checker.service.service_runs import ServiceRun
from tests.random_histories import random_history

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


def write(path: Path, text: str, *, pause_s: float = 0.0) -> None:
    """Lets a process append to a file, line by line."""
    subprocess.run(
        [sys.executable, "-S", "-c", WRITER, str(path), "a", str(pause_s)],
        input=text,
        text=True,
        check=True,
        timeout=DEADLINE_S,
    )


def wait_for_reading(path: Path, process: str = "self") -> None:
    """Returns when a process has read a file to its end."""
    deadline_s = time.monotonic() + DEADLINE_S
    while _position(path, Path(f"/proc/{process}")) < path.stat().st_size:
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def _position(path: Path, process: Path) -> int:
    for number in (process / "fd").iterdir():
        # Descriptors close meanwhile: always the one with which this very list was read, which may
        # stand before the one that is looked for.
        with contextlib.suppress(FileNotFoundError):
            if number.readlink() == path:
                text = (process / "fdinfo" / number.name).read_text()
                return int(text.split()[1])
    return -1


def follow(path: Path, *options: str, meanwhile: Callable[[], object]) -> int:
    """Follows a file in this process while something is done to it in another thread."""
    failure: list[BaseException] = []

    def run() -> None:
        try:
            meanwhile()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        return main(["check", "--follow", "--until-idle", str(DEADLINE_S), *options, str(path)])
    finally:
        thread.join(DEADLINE_S)
        if failure:
            raise failure[0]


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


EDN = """\
{:process 0, :type :invoke, :f :write, :value 3}
{:process 1, :type :invoke, :f :read, :value nil}
{:process 1, :type :ok, :f :read, :value 3}
{:process 0, :type :ok, :f :write, :value 3}
{:process 2, :type :invoke, :f :read, :value nil}
{:process 2, :type :ok, :f :read, :value nil}
"""


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


@pytest.mark.parametrize(
    ("name", "text", "options", "said"),
    [
        ("run.jsonl", register(*GOOD, *STALE), ("--spec", "register"), "run.jsonl:6)"),
        ("run.edn", EDN, ("--spec", "register"), "run.edn:5)"),
        ("live.jsonl", live_sets(is_valid=False), (), "Process 1 was told"),
    ],
)
def test_a_violation_ends_it_within_a_second_of_its_line(  # noqa: PLR0917 - fixtures, and a table
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    text: str,
    options: tuple[str, ...],
    said: str,
) -> None:
    path = tmp_path / name
    written_s = []

    def grow() -> None:
        write(path, text)
        written_s.append(time.monotonic())

    code = follow(path, *options, meanwhile=grow)
    # A loose limit: the machine may be busy.
    assert time.monotonic() - written_s[0] < 30
    assert code == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: invalid\n")
    assert said in out
    assert not err


def test_ctrl_c_ends_with_the_verdict_so_far(tmp_path: Path) -> None:
    """The file is not there at first, and its last line is cut."""
    path = tmp_path / "run.edn"
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, "check", "--follow", "--spec", "register", "--json", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().endswith("run.edn is not there yet; waiting for it\n")
            write(path, EDN.rpartition(" :value")[0])
            wait_for_reading(path, str(process.pid))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 0
    assert json.loads(out) == {
        "file": str(path),
        "verdict": "valid so far",
        "explanation": "3 operations on 1 object can be explained so far, 1 of them open.",
        "notes": ["the last line is cut off and was skipped"],
    }
    assert err.endswith("run.edn: the last line is cut off and was skipped\n")


def test_idle_ends_with_the_verdict_so_far(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(live_sets(is_valid=True) + '{"type":"invoke","time_')
    assert main(["check", "--follow", "--until-idle", "0.4", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{path}: valid so far\n  1 round placed.\n"
    assert err.endswith("line 9 is cut off (the recorder was killed?) and was skipped\n")


def test_unknown_ends_with_3(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two calls of one process open at once are outside the definition."""
    text = live_sets(is_valid=True)
    another = text.splitlines()[-1].replace('"id":2', '"id":3')
    path = tmp_path / "run.jsonl"
    path.write_text(f"{text}{another}\n")
    assert main(["check", "--follow", "--until-idle", "0.2", str(path)]) == 3
    assert "open at once" in capsys.readouterr().out


def test_lines_that_come_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    whole = register(*GOOD, *GOOD, *STALE).encode()

    def append() -> None:
        with open(path, "wb", buffering=0) as file:
            for begin in range(0, len(whole), 37):
                file.write(whole[begin : begin + 37])
                time.sleep(0.01)

    assert follow(path, "--spec", "register", meanwhile=append) == 1


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


def test_calls_of_the_dead_do_not_hold_up_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the death of its process, the outcome of a call is known to stay unknown."""
    lines = register((0, "write", "invoke", 3), *READS)
    crash = '{"type":"crash","time_ns":0,"process":0,"lifetime":0}\n'
    path = tmp_path / "run.jsonl"
    head, first, rest = lines.split("\n", 2)
    path.write_text(f"{head}\n{first}\n{crash}{rest}")
    options = ["check", "--follow", "--until-idle", "0.1", "--spec", "register", str(path)]
    assert main(options) == 0
    assert capsys.readouterr().err == ""  # No note that the call was open for long.


READS = ((1, "read", "invoke", None), (1, "read", "ok", 3)) * 2500


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = tmp_path / "run.jsonl", tmp_path / "other.jsonl"

    def cut() -> None:
        write(path, register(*GOOD))
        wait_for_reading(path)
        os.truncate(path, 10)

    def swap() -> None:
        wait_for_reading(path)
        other.write_text(register(*GOOD, *GOOD))
        other.replace(path)

    assert follow(path, meanwhile=cut) == 2
    assert "run.jsonl: the file was cut to 10 bytes after" in capsys.readouterr().err
    path.write_text(register(*GOOD))
    assert follow(path, "--spec", "register", meanwhile=swap) == 2
    assert "run.jsonl: the file was replaced" in capsys.readouterr().err


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
