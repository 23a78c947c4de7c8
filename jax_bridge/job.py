"""What to run as real processes, and what came of it: plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from checker.history import History
from coord_sim.faults import Fault
from coord_sim.schedule import Place
from coord_sim.sim.run import End, LogLine
from jax_bridge.errors import RunBroken


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorProgram:
    """A program of the simulator, to be run by real processes.

    Attributes:
      name, arguments: As in `coord_sim.sim.programs.PROGRAMS`.
      seed: Of what it draws.
      tasks: How many tasks the service expects.
      heartbeat_timeout_s, init_timeout_s, shutdown_timeout_s: Of the clients.
    """

    name: str
    arguments: Mapping[str, object]
    seed: int
    tasks: int
    heartbeat_timeout_s: int
    init_timeout_s: int
    shutdown_timeout_s: int


def _nothing_more(_process: int) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run.

    Attributes:
      script, arguments: A program as a file; `{process}`, `{processes}` and `{address}` are filled in.
      program: In place of a script.
      processes: How many.
      service_command: Starts the service; its first line must be `ready address=HOST:PORT ...`. In
        its words `{service}` is the number of the service, and `{folder}` the run's.
      service: Its name, for the header.
      services: How many there are; faults of the service hit the first.
      places: Processes that are not simply the task of their number on the first service.
      service_in: The process with which the service ends; None: it runs by itself.
      out: The history file. Beside it, `RUN` = OUT without `.jsonl` and with `.run` is the run's
        folder: output of the processes in `RUN/logs`, recordings in `RUN/parts` until merged.
      faults: What goes wrong. Those of the network put a relay before each process.
      starts_s: When each process starts first, in seconds; None: never. All at once if empty.
      environment: By process, what a script's environment has besides that of the caller. Without
        `JAX_PLATFORMS` in either, it is `cpu`.
      timeout_s: After this time whoever still runs is killed.
      settings: Of the service, for the header: `heartbeat_timeout_s`, `recoverable`.
    """

    script: Path | None = None
    arguments: tuple[str, ...] = ()
    program: SimulatorProgram | None = None
    processes: int
    service_command: tuple[str, ...]
    service: str
    services: int = 1
    places: tuple[Place, ...] = ()
    service_in: int | None = None
    out: Path
    faults: tuple[Fault, ...] = ()
    starts_s: tuple[float | None, ...] = ()
    environment: Callable[[int], Mapping[str, str]] = _nothing_more
    timeout_s: float = 120.0
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.script is None) == (self.program is None):
            raise ValueError("a job has a script or a program")

    def start_s(self, process: int) -> float | None:
        """When a process starts first; None: never."""
        return self.starts_s[process] if process < len(self.starts_s) else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What came of a job.

    Attributes:
      history: Merged; times count from the beginning of the run.
      is_saved: Whether it was written to the job's file, as it is once anything was started.
      unplanned: One sentence for each process that ended badly by itself, with its log file, and for
        what did not come to be.
      interrupted: Ctrl-C ended it.
      broken: What ended the run before its time, besides its processes.
      finished: Whether every process came to an end before the time-out.
      ends: How each process was in the end.
      log, reached: What programs of the simulator said.
      client_timeouts_s: By process, the longest heartbeat time-out of the clients that its script made.
      missed: Faults that did not happen.
      unmet: Those of them whose conditions never held; the run was over before the others.
      end_s: When the run ended.
    """

    history: History
    is_saved: bool
    unplanned: tuple[str, ...]
    interrupted: bool
    broken: RunBroken | None = None
    finished: bool
    ends: tuple[End, ...] = ()
    log: tuple[LogLine, ...] = ()
    reached: Mapping[str, int] = field(default_factory=dict)
    client_timeouts_s: Mapping[int, int] = field(default_factory=dict)
    missed: tuple[Fault, ...] = ()
    unmet: tuple[Fault, ...] = ()
    end_s: float = 0.0
