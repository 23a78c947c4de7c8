"""The script ladder of JAX's fault-tolerance guide, on both services, with the outcomes side by side.

Every job is a `coordlab run` in a process of its own; all are started at once, a few at a time, as they
mostly wait. `pytest -rP` on this file prints the outcomes of both services as tables.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import pytest

from checker import read
from checker.history import Crash, Enter, History, Leave
from jax_bridge.workloads import ladder
from tests.ports import reserved_port

pytestmark = pytest.mark.jax

T = TypeVar("T")

SCRIPTS = Path(ladder.__file__).parent
JOBS_AT_ONCE = 6
HEARTBEAT_TIMEOUT_S = 10
"""Also in the scripts: the clients' own setting. A live process must not miss it on a busy machine."""
LONG_HEARTBEAT_TIMEOUT_S = 30
"""Where nobody needs to be declared dead."""
DECLARED_DEAD_S = HEARTBEAT_TIMEOUT_S + 1
"""At most so long after a process has died: the service looks once a second."""
LATE_S = 9
"""For a busy machine."""
NS_PER_S = 1_000_000_000

AT_ONCE = "at once"
BY_TIMEOUT = "by the heartbeat time-out"
EVERYBODY, SURVIVORS = (0, 1, 2), (0, 1)


@dataclass(frozen=True, slots=True)
class Fatal:
    """Why jaxlib's client ended its process: what its last message says, without the advice in it.

    `said` is the first line, `tasks` are the dead that it names, and `rpc` is the call that failed, with
    the payload of the status.
    """

    code: str
    said: str
    tasks: tuple[int, ...]
    rpc: str

    def __str__(self) -> str:
        return f"fatal {self.code}: {self.said} {self.tasks or ''} {self.rpc}"


@dataclass(frozen=True, slots=True)
class Life:
    """What came of one start of one process.

    `after` is the class of time from the kill to the decision to die, of who was not killed. `saw` is
    what the script says that it saw, `live_sets` what it was told in its blocks, repetitions left out.
    """

    process: int
    end: str
    after: str = ""
    saw: tuple[str, ...] = ()
    live_sets: tuple[tuple[int, ...], ...] = ()
    fatal: Fatal | None = None

    def __str__(self) -> str:
        told = [*self.saw, *([] if self.fatal is None else [str(self.fatal)])]
        sets = " ".join(str(set(live)) for live in self.live_sets)
        return f"process {self.process}: {self.end} {self.after} | {'; '.join(told)} | {sets}"


KILLED = "killed"
LEFT = "left"
ABORTED = "signal SIGABRT"


@dataclass(frozen=True, slots=True)
class Job:
    """One rung on one service."""

    name: str
    service: str
    script: str
    kill: str
    arguments: tuple[str, ...] = ()
    restart: str | None = None
    recoverable: bool = True
    heartbeat_timeout_s: int = HEARTBEAT_TIMEOUT_S

    def command(self, folder: Path) -> list[str]:
        """The command after `coordlab`."""
        command = ["run", "--processes", "3", "--service", self.service, "--kill", self.kill]
        command += ["--heartbeat-timeout", str(self.heartbeat_timeout_s), "--timeout", "150"]
        if self.restart is not None:
            command += ["--restart", self.restart]
        if not self.recoverable:
            command += ["--no-recoverable"]
        command += ["--out", str(folder / f"{self.name}-{self.service}.jsonl")]
        command += [str(SCRIPTS / self.script), "{process}", "{processes}", "{address}"]
        return [*command, *self.arguments]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a job: exit code of `coordlab run`, and the lives in order of process and start."""

    job: Job
    code: int
    lives: list[Life]
    report: str
    """The command that replays it, what it printed, and what the processes printed."""

    def table(self) -> str:
        """For the eye."""
        lives = "\n".join(f"  {life}" for life in self.lives)
        return f"{self.job.name} on the {self.job.service} service: exit code {self.code}\n{lives}"


def run(job: Job, folder: Path) -> Outcome:
    command = job.command(folder)
    done = subprocess.run(
        [sys.executable, "-m", "coord_sim.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    out = folder / f"{job.name}-{job.service}.jsonl"
    logs = {path.stem: path.read_text(errors="replace") for path in sorted(logs_of(out))}
    report = [f"replay: coordlab {shlex.join(command)}", done.stdout]
    report += [f"--- {name}\n{text}" for name, text in logs.items()]
    lives = lives_of(read(out), logs) if out.exists() else []
    return Outcome(job, done.returncode, lives, "\n".join(report))


def logs_of(out: Path) -> Iterator[Path]:
    return (out.with_suffix(".run") / "logs").glob("*.log")


def lives_of(history: History, logs: dict[str, str]) -> list[Life]:
    """Reads how each start ended from the history, and the rest from what the processes printed."""
    events = history.events
    zero_ns = history.header.details["zero_monotonic_ns"]
    assert isinstance(zero_ns, int)
    kill_ns = min(
        (e.since_ns or 0 for e in events if isinstance(e, Crash) and was_killed(e)),
        default=0,
    )
    lives = []
    for event in events:
        log = logs.get(f"process-{event.process}-{event.lifetime}", "")
        if isinstance(event, Crash):
            killed = was_killed(event)
            end = KILLED if killed else (event.cause or "").partition(":")[0]
            decided_ns = fatal_ns(log)
            died_ns = event.time_ns if decided_ns is None else decided_ns - zero_ns
            after = "" if killed else time_class(died_ns - kill_ns)
        elif isinstance(event, Leave):
            end, after = LEFT, ""
        else:
            continue
        sets = [
            tuple(sorted(e.live))
            for e in events
            if isinstance(e, Enter) and (e.process, e.lifetime) == (event.process, event.lifetime)
        ]
        saw = re.findall(r"^saw: (.*)$", log, re.MULTILINE)
        life = Life(
            event.process,
            end,
            after,
            without_repetitions(saw),
            without_repetitions(sets),
            fatal(log),
        )
        lives.append((event.process, event.lifetime, life))
    return [life for _, _, life in sorted(lives, key=lambda item: item[:2])]


def was_killed(crash: Crash) -> bool:
    """Whether the launcher did it, as planned."""
    return crash.cause is not None and crash.cause.startswith(f"{KILLED}: SIGKILL")


def time_class(elapsed_ns: int) -> str:
    """Half a time-out is the least that a silent process takes to be declared dead."""
    elapsed_s = elapsed_ns / NS_PER_S
    if elapsed_s < HEARTBEAT_TIMEOUT_S / 2:
        return AT_ONCE
    return BY_TIMEOUT if elapsed_s < DECLARED_DEAD_S + LATE_S else f"after {elapsed_s:.1f} s"


def without_repetitions(items: list[T]) -> tuple[T, ...]:
    return tuple(item for i, item in enumerate(items) if i == 0 or item != items[i - 1])


def fatal(log: str) -> Fatal | None:
    found = re.search(
        r"detected fatal errors.*?absl::Status: (?P<code>[A-Z_]+): (?P<message>.*?)"
        r"\s*(=== Source Location Trace|\*\*\* Check failure|\Z)",
        log,
        re.DOTALL,
    )
    if found is None:
        return None
    said, *lines = found["message"].splitlines()
    tasks = sorted(int(line) for line in lines if line.isdecimal())
    rpc = next((line for line in lines if "PollForError" in line), "")
    return Fatal(found["code"], said.partition(". ")[0], tuple(tasks), rpc)


def fatal_ns(log: str) -> int | None:
    """When the last message was written, by the monotonic clock; to die takes longer if busy."""
    found = re.search(r"^F(\d{4} [\d:]+\.\d{6})", log, re.MULTILINE)
    if found is None:
        return None
    year = datetime.now().astimezone().year
    written = datetime.strptime(f"{year}{found[1]}", "%Y%m%d %H:%M:%S.%f").astimezone()
    return round(written.timestamp() * NS_PER_S) - (time.time_ns() - time.monotonic_ns())


@pytest.fixture(scope="module")
def port_of_process_0() -> Iterator[int]:
    """A port for the service in process 0."""
    with reserved_port() as port:
        yield port


def jobs(port_of_process_0: int) -> list[Job]:
    """All of them, those that take longest first."""
    third_tick, first_set = "in:key_value_set#3", "in:key_value_set#1"
    once_declared_dead = f"0@+{DECLARED_DEAD_S + 1}"
    # By then the others have taken a step without the dead: they do not wait longer in a collective.
    once_done_without = f"2@+{DECLARED_DEAD_S + 5}"
    found = []
    for service in ("real", "model"):
        found += [
            Job("live", service, "live.py", "2@in:block#3", restart=once_done_without),
            Job(
                "back",
                service,
                "alive.py",
                f"0@{third_tick}",
                ("back",),
                restart=once_declared_dead,
            ),
            Job("gone", service, "alive.py", f"2@{third_tick}", ("gone",)),
            Job(
                "collective",
                service,
                "collective.py",
                f"2@{first_set}",
                ("2",),
                heartbeat_timeout_s=LONG_HEARTBEAT_TIMEOUT_S,
            ),
            Job("fate", service, "alive.py", f"2@{third_tick}", ("gone",), recoverable=False),
        ]
    # Here the outside service idles, whichever it is.
    inside = ("gone", f"127.0.0.1:{port_of_process_0}")
    found.append(Job("inside", "real", "alive.py", f"0@{third_tick}", inside))
    order = ("live", "gone", "back", "fate", "collective", "inside")
    return sorted(found, key=lambda job: order.index(job.name))


class Ladder:
    """All jobs, running or done."""

    def __init__(self, pool: ThreadPoolExecutor, todo: list[Job], folder: Path) -> None:
        self._outcomes: dict[tuple[str, str], Future[Outcome]] = {
            (job.name, job.service): pool.submit(run, job, folder) for job in todo
        }

    def outcome(self, name: str, service: str) -> Outcome:
        """Waits for a job."""
        outcome = self._outcomes[name, service].result()
        print(outcome.table())
        return outcome

    def same_on_both(self, name: str) -> Outcome:
        """The outcome on the real service, if ours has the same."""
        real, model = self.outcome(name, "real"), self.outcome(name, "model")
        assert (model.code, model.lives) == (real.code, real.lives), (
            f"the services differ\n{real.report}\n{model.report}"
        )
        return real


@pytest.fixture(scope="module")
def ladder_of_jobs(
    tmp_path_factory: pytest.TempPathFactory, port_of_process_0: int
) -> Iterator[Ladder]:
    with ThreadPoolExecutor(JOBS_AT_ONCE) as pool:
        yield Ladder(pool, jobs(port_of_process_0), tmp_path_factory.mktemp("ladder"))
        pool.shutdown(cancel_futures=True)


def test_rung_1_one_process_is_killed_and_all_die_of_the_same_error(ladder_of_jobs: Ladder) -> None:
    outcome = ladder_of_jobs.same_on_both("fate")
    assert len(outcome.lives) == 3, outcome.report
    zero, one, two = outcome.lives
    assert two == Life(2, KILLED), outcome.report
    for life in (zero, one):
        assert (life.end, life.after) == (ABORTED, BY_TIMEOUT), outcome.report
        assert life.saw == (), outcome.report
    for life in (zero, one):
        assert life.fatal is not None, outcome.report
        assert life.fatal.code == "UNAVAILABLE", outcome.report
        assert "unhealthy (stopped sending heartbeats)" in life.fatal.said, outcome.report
        assert life.fatal.tasks == (2,), outcome.report
        assert "/PollForError [" in life.fatal.rpc, outcome.report
    assert outcome.code == 2, "deaths that nobody planned"


def test_rung_2_with_recoverability_the_others_live_on(ladder_of_jobs: Ladder) -> None:
    outcome = ladder_of_jobs.same_on_both("gone")
    lived_on = ("lived on without [2]",)
    expected = [Life(0, LEFT, saw=lived_on), Life(1, LEFT, saw=lived_on), Life(2, KILLED)]
    assert outcome.lives == expected, outcome.report
    assert outcome.code == 0, outcome.report


def test_rung_3_process_0_takes_all_with_it_if_it_runs_the_service(ladder_of_jobs: Ladder) -> None:
    """JAX's default, and the one rung where our server has no like: it is never inside process 0."""
    outcome = ladder_of_jobs.outcome("inside", "real")
    assert len(outcome.lives) == 3, outcome.report
    zero, one, two = outcome.lives
    assert zero == Life(0, KILLED), outcome.report
    for life in (one, two):
        assert (life.end, life.after, life.saw) == (ABORTED, AT_ONCE, ()), outcome.report
        assert life.fatal is not None, outcome.report
        assert life.fatal.code == "UNAVAILABLE", outcome.report
        assert life.fatal.said == "Failed to send RPC to coordination service", outcome.report
        assert "/PollForError" in life.fatal.rpc, outcome.report
    assert outcome.code == 2, "deaths that nobody planned"


def test_rung_3_process_0_may_die_and_come_back_if_the_service_is_outside(
    ladder_of_jobs: Ladder,
) -> None:
    outcome = ladder_of_jobs.same_on_both("back")
    seen = ("saw [0] come back",)
    expected = [
        Life(0, KILLED),
        Life(0, LEFT, saw=("came back myself",)),
        Life(1, LEFT, saw=seen),
        Life(2, LEFT, saw=seen),
    ]
    assert outcome.lives == expected, outcome.report
    assert outcome.code == 0, outcome.report


def test_rung_4_a_collective_works_without_the_dead_only(ladder_of_jobs: Ladder) -> None:
    outcome = ladder_of_jobs.same_on_both("collective")
    first = "sum over [0, 1, 2] is 6"
    failed = "sum over [0, 1, 2] failed: UNKNOWN: Gloo all-reduce failed"
    saw = (first, failed, "sum over [0, 1] is 3")
    expected = [Life(0, LEFT, saw=saw), Life(1, LEFT, saw=saw), Life(2, KILLED, saw=(first,))]
    assert outcome.lives == expected, outcome.report
    assert outcome.code == 0, outcome.report


def test_rung_5_live_devices_leaves_out_the_dead_and_has_it_again_when_it_is_back(
    ladder_of_jobs: Ladder,
) -> None:
    outcome = ladder_of_jobs.same_on_both("live")
    first, without = "sum over [0, 1, 2] is 6", "sum over [0, 1] is 3"
    saw = (first, "block failed, [2] died", without, first)
    sets = (EVERYBODY, SURVIVORS, EVERYBODY)
    expected = [
        Life(0, LEFT, saw=saw, live_sets=sets),
        Life(1, LEFT, saw=saw, live_sets=sets),
        Life(2, KILLED, saw=(first,), live_sets=(EVERYBODY,)),
        Life(2, LEFT, saw=(first,), live_sets=(EVERYBODY,)),
    ]
    assert outcome.lives == expected, outcome.report
    assert outcome.code == 0, f"the history is valid\n{outcome.report}"
