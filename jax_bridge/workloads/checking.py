"""Runs a workload as a job of real processes, disturbed or not, and judges how each process ended.

The job is a `coordlab run` in a process of its own. What happened is read from its history (who was
killed, left, died by itself) and from what the processes printed.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from checker.errors import MalformedHistory
from checker.history import Crash, Event, Leave, read
from jax_bridge.fatal import fatal_words
from jax_bridge.parent_death import end_with_parent
from jax_bridge.workloads.catalogue import Fault, Workload

End = Literal["right", "left", "killed", "raised", "aborted", "wrong", "stuck"]
"""How a start of a process ended:

- right: by itself, with exit code 0, and it found at least one number right;
- left: likewise, but without having computed anything;
- killed: as planned;
- raised: by a Python exception; aborted: by jaxlib, which ends a process whose job is broken;
- wrong: it found a number wrong; stuck: it still ran when the time was over.
"""

HEARTBEAT_TIMEOUT_S: Final = 10
"""Of the service; no process that lives must miss it on a busy machine."""
TIMEOUT_S: Final = 120.0
_PLANNED_KILL: Final = re.compile(r"(?:killed: )?SIGKILL ")
"""The launcher's words. Whom the system killed has died by itself, of "signal SIGKILL"."""
_GRACE_S: Final = 60.0
"""For the launcher to end what runs and to write the history."""
_EXCEPTION: Final = re.compile(r"^[\w.]*(?:Error|Exception|Failure)\w*: .*$", re.MULTILINE)
_PLACE: Final = re.compile(r"\[external\S*\] ")
_REPEATED: Final = re.compile(r"(Error dispatching computation: )+")
_ADDRESS: Final = re.compile(r"\S*[\d.:\]]+:\d+")


@dataclass(frozen=True, slots=True)
class Life:
    """What came of one start of one process.

    Attributes:
      process, start: Which, both from 0.
      end: How it ended.
      said: The last number it found right, or why it ended; may be empty.
    """

    process: int
    start: int
    end: End
    said: str

    def __str__(self) -> str:
        again = ", started again" if self.start else ""
        return f"process {self.process}{again}: {self.end}" + (
            f": {self.said}" if self.said else ""
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a workload.

    Attributes:
      lives: In order of process and start.
      problems: What was not as it must be, in sentences; none if all was.
      wall_s: How long it took.
    """

    lives: tuple[Life, ...]
    problems: tuple[str, ...]
    wall_s: float


def run_workload(
    workload: Workload,
    folder: Path,
    *,
    service: str = "model",
    fault: Fault = "none",
    recoverable: bool = False,
) -> Outcome:
    """Runs it once.

    Args:
      workload: Which.
      folder: For its history and what its processes print.
      service: "model" or "real".
      fault: One of the workload's.
      recoverable: Whether processes may come back and outlive each other; always so if the workload
        survives a kill, as it is written for that.

    Raises:
      OSError: the folder cannot be written.
    """
    recoverable = recoverable or workload.survives
    out = folder / f"{workload.name}-{service}-{fault}{'-recoverable' if recoverable else ''}.jsonl"
    began_s = time.monotonic()
    said = _launch(_command(workload, out, service, fault, recoverable))
    wall_s = time.monotonic() - began_s
    try:
        events = list(read(out).events)
    except (OSError, MalformedHistory):
        return Outcome((), (f"there is no history: {said.strip() or 'no word'}",), wall_s)
    lives = lives_of(workload, events, out.with_suffix(".run") / "logs")
    return Outcome(lives, problems_of(workload, fault, lives), wall_s)


def lives_of(workload: Workload, events: Sequence[Event], logs: Path) -> tuple[Life, ...]:
    """How each start of each process ended, from the history and the logs."""
    lives = []
    for event in events:
        if isinstance(event, Crash | Leave):
            log = logs / f"process-{event.process}-{event.lifetime}.log"
            text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
            end, said = _end_of(workload, event, text, log)
            lives.append(Life(event.process, event.lifetime, end, said))
    return tuple(sorted(lives, key=lambda life: (life.process, life.start)))


def problems_of(workload: Workload, fault: Fault, lives: Sequence[Life]) -> tuple[str, ...]:
    """What is not as it must be: wrong numbers, somebody stuck, an end that was not to be."""
    problems = []
    starts: dict[int, int] = dict.fromkeys(range(workload.processes), 0)
    for life in lives:
        starts[life.process] += 1
        if life.process == workload.victim and life.start == 0 and fault != "none":
            if life.end != "killed":
                problems.append(f"{life}; it was to be killed")
        elif life.end in {"wrong", "stuck", "killed"}:
            problems.append(f"{life}")
        elif workload.must_finish(life.process, life.start, fault):
            if life.end != "right":
                problems.append(f"{life}; it was to finish with the right numbers")
        elif life.end == "right" and not workload.survives:
            problems.append(f"{life}; nobody can finish without the dead process")
    for process, count in starts.items():
        wanted = 2 if fault == "restart" and process == workload.victim else 1
        if count != wanted:
            problems.append(f"process {process} was started {count} times, not {wanted}")
    return tuple(problems)


def _command(
    workload: Workload, out: Path, service: str, fault: Fault, recoverable: bool
) -> list[str]:
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--service", service]
    command += ["--processes", str(workload.processes), "--timeout", f"{TIMEOUT_S:g}"]
    command += ["--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S), "--out", str(out)]
    if not recoverable:
        command += ["--no-recoverable"]
    if fault != "none":
        command += ["--kill", workload.kill]
    if fault == "restart":
        command += ["--restart", f"{workload.victim}@+{workload.restart_s:g}"]
    command += ["--", str(workload.script), "{process}", "{processes}", "{address}"]
    if workload.survives:
        return command  # It is recoverable by itself, and not all of them take options.
    command += ["--heartbeat-timeout", str(HEARTBEAT_TIMEOUT_S)]
    return [*command, "--recoverable"] if recoverable else command


def _launch(command: list[str]) -> str:
    """Runs a command to its end; returns what it printed."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_end_with_us,  # noqa: PLW1509 - whoever checks workloads has one thread
    ) as running:
        try:
            return running.communicate(timeout=TIMEOUT_S + _GRACE_S)[0]
        except subprocess.TimeoutExpired:
            running.kill()
            return f"no end after {TIMEOUT_S + _GRACE_S:g} s"
        except KeyboardInterrupt:
            running.terminate()
            raise


def _end_with_us() -> None:
    """A launcher that gets SIGTERM ends its processes, and keeps its history."""
    end_with_parent(signal.SIGTERM)


def _end_of(workload: Workload, event: Crash | Leave, text: str, log: Path) -> tuple[End, str]:
    lines = text.splitlines()
    right = [line for line in lines if line.startswith(workload.says)]
    wrong = [line for line in lines if line.startswith("wrong: ")]
    if wrong:
        return "wrong", wrong[-1].removeprefix("wrong: ")
    if isinstance(event, Leave):
        return (
            ("right", right[-1].removeprefix("right: "))
            if right
            else ("left", _last_own_word(lines))
        )
    cause = event.cause or ""
    if _PLANNED_KILL.match(cause):
        return "killed", ""
    if "by the launcher" in cause:
        return "stuck", lines[-1] if lines else ""
    if "SIGABRT" in cause:
        return "aborted", _ADDRESS.sub("ADDRESS", fatal_words(log))
    exceptions = _EXCEPTION.findall(text)
    said = _REPEATED.sub(r"\1", exceptions[-1]) if exceptions else cause
    return "raised", _ADDRESS.sub("ADDRESS", _PLACE.sub("", said))


def _last_own_word(lines: Sequence[str]) -> str:
    """What the workload said last before "done"."""
    own = [line for line in lines if line.startswith("too late: ")]
    return own[-1] if own else ""
