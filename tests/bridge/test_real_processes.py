"""Real JAX processes on our service and on the C++ one, really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from checker import Invalid, Valid, check, read
from checker.history import (
    Crash,
    Enter,
    Exit,
    History,
    Invoke,
    Leave,
    Ok,
    Start,
    WellFormed,
)
from coord_sim.faults import Crash as CrashFault
from coord_sim.faults import Fault, Restart
from coord_sim.moments import When
from jax_bridge import workloads
from jax_bridge.conditions import in_turn, parse_kill, parse_restart
from jax_bridge.errors import LaunchFailed
from jax_bridge.job import Job, JobResult
from jax_bridge.launcher import run_job
from jax_bridge.services import model_service_command, real_service_command

pytestmark = pytest.mark.jax

WORKLOADS = Path(workloads.__file__).parent


def run(
    out: Path,
    script: Path,
    *,
    arguments: tuple[str, ...] = ("{process}", "{processes}", "{address}"),
    service: str = "model",
    semantics: str = "shipped",
    processes: int = 3,
    heartbeat_timeout_s: int = 30,
    kills: tuple[str, ...] = (),
    faults: tuple[Fault, ...] = (),
    restarts: tuple[str, ...] = (),
) -> JobResult:
    if service == "model":
        command = model_service_command(
            processes,
            heartbeat_timeout_s=heartbeat_timeout_s,
            recoverable=True,
            semantics=semantics,
        )
    else:
        command = real_service_command(
            processes, heartbeat_timeout_s=heartbeat_timeout_s, recoverable=True
        )
    job = Job(
        script=script,
        arguments=arguments,
        processes=processes,
        service_command=command,
        service=service,
        out=out,
        faults=(*map(parse_kill, kills), *faults, *in_turn(map(parse_restart, restarts))),
        timeout_s=300.0,
    )
    result = run_job(job, print)
    rules = WellFormed(result.history.header)
    for event in result.history.events:
        rules.accept(event)
    assert read(out).events == list(result.history.events), "what was saved is what was returned"
    return result


def live_sets_of(history: History, process: int) -> list[tuple[int, ...]]:
    """The live sets of a process's blocks, repetitions left out."""
    sets: list[tuple[int, ...]] = []
    for event in history.events:
        if isinstance(event, Enter) and event.process == process:
            live = tuple(sorted(event.live))
            if not sets or sets[-1] != live:
                sets.append(live)
    return sets


@pytest.mark.parametrize("victim", [1, 0])
def test_unmodified_jax_processes_survive_a_kill_on_our_service_and_the_victim_comes_back(
    tmp_path: Path, victim: int
) -> None:
    """Process 0 is no exception: its own service idles, so that its death is one of many."""
    survivors = [process for process in range(3) if process != victim]
    once_declared_dead = Restart(victim, When("after", survivors[0], "block", 3))
    result = run(
        tmp_path / "run.jsonl",
        WORKLOADS / "live_sum.py",
        arguments=("{process}", "{processes}", "{address}", "1000", "10"),
        heartbeat_timeout_s=10,
        kills=(f"{victim}@in:block#3",),
        faults=(once_declared_dead,),
    )
    history = result.history
    assert result.unplanned == ()
    assert isinstance(check(history), Valid)
    starts = [e for e in history.events if isinstance(e, Start) and e.process == victim]
    assert [start.lifetime for start in starts] == [0, 1]
    assert None not in {start.incarnation for start in starts}
    assert starts[0].incarnation != starts[1].incarnation
    everybody = (0, 1, 2)
    for survivor in survivors:
        assert live_sets_of(history, survivor)[:3] == [everybody, tuple(survivors), everybody]
    failed = {
        (e.process, e.failed)
        for e in history.events
        if isinstance(e, Exit) and e.outcome == "failed"
    }
    assert {(survivor, (victim,)) for survivor in survivors} <= failed
    reasons = [e.message for e in history.events if isinstance(e, Exit) and e.outcome == "failed"]
    assert all(reason.startswith("ProcessFailureError") for reason in reasons)
    # The sums after the come-back are right too: no block with all three failed any more.
    outcomes = [
        e.outcome for e in history.events if isinstance(e, Exit) and e.process == survivors[0]
    ]
    assert outcomes[-1] == "completed"
    assert outcomes.count("failed") + outcomes.count("raised") == 1
    (crash,) = [e for e in history.events if isinstance(e, Crash)]
    assert crash.since_ns is not None
    assert crash.since_ns <= crash.time_ns
    assert crash.cause == "killed: SIGKILL inside block #3"


@pytest.mark.parametrize(
    ("service", "semantics", "expected", "patience_s"),
    [
        ("real", "shipped", Invalid, 60),
        ("model", "shipped", Invalid, 60),
        ("model", "published", Valid, 3),
    ],
)
def test_the_ghost_entry_shows_on_the_real_service_and_ours_unless_it_is_as_published(
    tmp_path: Path, service: str, semantics: str, expected: type, patience_s: int
) -> None:
    """The victim is back before it was declared dead; patience is used up only as published."""
    result = run(
        tmp_path / "ghost.jsonl",
        WORKLOADS / "ghost_entry.py",
        arguments=("{process}", "{processes}", "{address}", str(patience_s), "30"),
        service=service,
        semantics=semantics,
        kills=("2@in:live_processes#1",),
        restarts=("2@+0",),
    )
    assert result.unplanned == ()
    verdict = check(result.history)
    assert isinstance(verdict, expected), verdict.explain()
    if isinstance(verdict, Invalid):
        assert "ghost entry" in verdict.explain()
        assert verdict.anomaly.processes == (0, 1, 2)


def test_a_history_recorded_by_the_server_has_the_same_verdict_and_says_what_it_cannot_know(
    tmp_path: Path,
) -> None:
    recorded = tmp_path / "server.jsonl"
    command = model_service_command(
        3, heartbeat_timeout_s=30, recoverable=True, semantics="shipped"
    )
    job = Job(
        script=WORKLOADS / "ghost_entry.py",
        arguments=("{process}", "{processes}", "{address}", "60", "30"),
        processes=3,
        service_command=(*command, "--record", str(recorded)),
        service="model",
        out=tmp_path / "ghost.jsonl",
        faults=(parse_kill("2@in:live_processes#1"), parse_restart("2@+0")),
    )
    run_job(job, print)
    history = read(recorded)
    assert history.header.source == "server"
    assert history.header.cannot_know
    assert isinstance(check(history), Invalid)


SCRIPTS = {
    "raises": "import sys; sys.exit('a bug of its own')",
    "leaves": "pass",
    "forks": (
        "import os, time\n"
        "said, say = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    print('child', os.getpid(), flush=True)\n"
        "    os.write(say, b'!')\n"
        "    time.sleep(600)\n"
        "os.read(said, 1)\n"
    ),
    "waits": "import time; time.sleep(60)",
    "connects-twice": (
        "import sys\n"
        "from jax_bridge import compat\n"
        "for again in range(2):\n"
        "    client = compat.new_client(sys.argv[3], 0, heartbeat_timeout_s=30, init_timeout_s=60)\n"
        "    client.connect()\n"
        "    client.get_live_nodes([0])\n"
        "    client.shutdown()\n"
    ),
    "strange-signal": "import os; os.kill(os.getpid(), 40)",
    "keeps": (
        "import sys\n"
        "from jax_bridge import compat\n"
        "client = compat.new_client(sys.argv[3], int(sys.argv[1]), heartbeat_timeout_s=30,"
        " init_timeout_s=60)\n"
        "client.connect()\n"
        "client.key_value_set(f'here/{sys.argv[1]}', 'yes')\n"
        "client.key_value_set_bytes('raw/' + sys.argv[1], b'\\xff\\x00')\n"
        "client.blocking_key_value_get('never', 60_000)\n"
    ),
}


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(SCRIPTS[name])
        return path

    return write


def test_a_process_that_dies_by_itself_is_reported_with_its_log(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    result = run(tmp_path / "run.jsonl", script("raises"), processes=1)
    (sentence,) = result.unplanned
    assert "process 0 died by itself (exit code 1)" in sentence
    log = tmp_path / "run.run" / "logs" / "process-0-0.log"
    assert str(log) in sentence
    assert "a bug of its own" in log.read_text()
    assert [type(e) for e in result.history.events] == [Crash]


def test_a_kill_that_is_never_reached_is_reported(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    result = run(
        tmp_path / "run.jsonl", script("leaves"), processes=1, kills=("0@in:live_processes#1",)
    )
    (sentence,) = result.unplanned
    assert "never reached" in sentence
    assert [type(e) for e in result.history.events] == [Leave]


def test_children_of_a_process_do_not_outlive_it(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    run(tmp_path / "run.jsonl", script("forks"), processes=1)
    log = (tmp_path / "run.run" / "logs" / "process-0-0.log").read_text()
    assert is_gone(int(log.split()[1]))


def test_a_process_that_connects_twice_has_two_lifetimes(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    result = run(tmp_path / "run.jsonl", script("connects-twice"), processes=1)
    assert result.unplanned == ()
    starts = [e for e in result.history.events if isinstance(e, Start)]
    assert [start.lifetime for start in starts] == [0, 1]
    assert len({start.incarnation for start in starts}) == 2
    assert [e.lifetime for e in result.history.events if isinstance(e, Leave)] == [1]
    assert isinstance(check(result.history), Valid)


def test_a_signal_without_a_name_is_told_by_its_number(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    result = run(tmp_path / "run.jsonl", script("strange-signal"), processes=1)
    assert "signal 40" in result.unplanned[0]


def test_a_service_that_dies_ends_the_run_and_is_named(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    out = tmp_path / "run.jsonl"
    dying = "import time; print('ready address=127.0.0.1:1', flush=True); time.sleep(1); exit(7)"
    job = Job(
        script=script("waits"),
        arguments=(),
        processes=1,
        service_command=(sys.executable, "-c", dying),
        service="dying",
        out=out,
    )
    result = run_job(job, print)
    assert any("the dying service died (exit code 7)" in line for line in result.unplanned)


def test_a_folder_that_is_in_the_way_is_not_touched(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    out = tmp_path / "run.jsonl"
    folder = tmp_path / "run.run"
    folder.mkdir()
    (folder / "important.txt").write_text("mine")
    with pytest.raises(LaunchFailed, match="not of a run; move it away"):
        run(out, script("leaves"), processes=1)
    assert (folder / "important.txt").read_text() == "mine"
    (folder / "important.txt").unlink()
    folder.rmdir()
    run(out, script("leaves"), processes=1)
    run(out, script("leaves"), processes=1)
    parts = folder / "parts"
    parts.mkdir()
    (parts / "process-0-0.jsonl").write_text("unmerged")
    with pytest.raises(LaunchFailed, match="a run that was not merged; move it away"):
        run(out, script("leaves"), processes=1)
    assert (parts / "process-0-0.jsonl").read_text() == "unmerged"


def is_gone(pid: int) -> bool:
    """Whether a process ends soon; a child of nobody may need a moment to be reaped."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_kill_from_outside_keeps_all_that_was_recorded(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    once_both_are_kept = CrashFault(0, When("after", 0, "key_value_set", 2, plus_s=0.5))
    result = run(tmp_path / "run.jsonl", script("keeps"), processes=1, faults=(once_both_are_kept,))
    assert result.unplanned == ()
    acknowledged = [e.id for e in result.history.events if isinstance(e, Ok)]
    assert acknowledged == [0, 1]
    assert isinstance(result.history.events[-1], Crash)


class Launched:
    """`coordlab run` of two processes that wait for ever, in a process of its own."""

    def __init__(self, folder: Path, script: Path) -> None:
        self.out = folder / "run.jsonl"
        self.parts = [folder / "run.run" / "parts" / f"process-{p}-0.jsonl" for p in (0, 1)]
        command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--processes", "2"]
        command += ["--heartbeat-timeout", "30"]
        command += ["--out", str(self.out), str(script), "{process}", "{processes}", "{address}"]
        self.popen = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            text=True,
            # Where the tests run it may be ignored.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509
        )
        assert self.popen.stdout is not None
        self.stdout = self.popen.stdout
        deadline = time.monotonic() + 200
        while not all(p.exists() and '"raw/' in p.read_text() for p in self.parts):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        lines = [self.stdout.readline() for _ in range(3)]
        told = [line.partition("(pid ")[2].partition(")")[0] for line in lines if "(pid " in line]
        self.pids = [int(pid) for pid in told]
        assert len(self.pids) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_sigterm_and_sighup_end_all_children_and_keep_the_history(
    tmp_path: Path, script: Callable[[str], Path], number: signal.Signals
) -> None:
    launched = Launched(tmp_path, script("keeps"))
    with launched.popen as launcher:
        launcher.send_signal(number)
        launcher.send_signal(number)  # People press it more than once.
        output = launched.stdout.read()
        assert launcher.wait(timeout=200) == 130, output
    assert all(is_gone(pid) for pid in launched.pids)
    history = read(launched.out)
    assert {e.process for e in history.events if isinstance(e, Crash)} == {0, 1}
    assert {e.process for e in history.events if isinstance(e, Start)} == {0, 1}


def test_sigkill_of_the_launcher_ends_all_children_and_keeps_their_parts(
    tmp_path: Path, script: Callable[[str], Path]
) -> None:
    launched = Launched(tmp_path, script("keeps"))
    with launched.popen as launcher:
        launcher.kill()
    assert all(is_gone(pid) for pid in launched.pids)
    for part in launched.parts:
        assert [type(event) for event in read(part).events][:3] == [Start, Invoke, Ok]
