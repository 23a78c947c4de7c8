"""Runs a program of the simulator in this process, over jaxlib's client."""

from __future__ import annotations

import asyncio
import os
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from coord_sim.sim.entropy import Entropy
from coord_sim.sim.live_devices import LiveDevices
from coord_sim.sim.process import Process
from coord_sim.sim.programs import PROGRAMS
from jax_bridge import compat
from jax_bridge.client_recorder import install
from jax_bridge.conditions import Inside
from jax_bridge.programs.client import Client
from jax_bridge.programs.process import FileDisk, Host, Said
from jax_bridge.recorder.origin import origin_details
from jax_bridge.recorder.process_recorder import ProcessRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStart:
    """One start of one process; all values are JSON's.

    Attributes:
      program, arguments: By name, of `coord_sim.sim.programs.PROGRAMS`.
      seed: Of what the program draws.
      process, lifetime: Who this is, and the how manieth start of it, from 0.
      processes: How many numbers of processes the history knows.
      task, tasks: Which task it says it is, of how many.
      address: Of its service.
      heartbeat_timeout_s, init_timeout_s, shutdown_timeout_s: Of its client.
      began_ns: When the run began, by the monotonic clock.
      part, said, log, disk, held: Files: recording, words of the program, output, what survives a crash,
        and the sign that it stands where it is to be killed.
      hold_operation, hold_count: Where that is, counted in this start; nowhere if empty.
    """

    program: str
    arguments: dict[str, Any]
    seed: int
    process: int
    lifetime: int
    processes: int
    task: int
    tasks: int
    address: str
    heartbeat_timeout_s: int
    init_timeout_s: int
    shutdown_timeout_s: int
    began_ns: int
    part: str
    said: str
    log: str
    disk: str
    held: str
    hold_operation: str = ""
    hold_count: int = 0


def run_program(start: ProgramStart) -> NoReturn:
    """Connects, runs, and ends the process. jaxlib may do so at any time.

    It ends without returning: a client of jaxlib's that is destroyed leaves the job, which may take
    long, whatever the program said.
    """
    hold = Inside(start.hold_operation, start.hold_count) if start.hold_operation else None
    recorder = ProcessRecorder(
        Path(start.part),
        process=start.process,
        processes=start.processes,
        hold=hold,
        held_path=Path(start.held),
        task=start.task,
        details=origin_details(start.process),
    )
    install(recorder)
    said = Said(Path(start.said))

    def end(error: BaseException) -> NoReturn:
        traceback.print_exception(error)
        said.say(raised=f"{type(error).__name__}: {error}")
        sys.stderr.flush()
        os._exit(1)

    client = compat.new_client(
        start.address,
        start.task,
        heartbeat_timeout_s=start.heartbeat_timeout_s,
        init_timeout_s=start.init_timeout_s,
        shutdown_timeout_s=start.shutdown_timeout_s,
    )
    client.connect()
    random = Entropy(start.seed).stream(f"process/{start.process}/{start.lifetime}")
    random.incarnation()  # The simulator's comes from here, before the program draws anything.
    disk = FileDisk(Path(start.disk))
    host = Host(recorder, said, began_ns=start.began_ns, end=end)
    process = Process(
        start.process,
        tuple(range(start.tasks)),
        start.lifetime,
        client=cast("Any", Client(client)),
        disk=disk,
        random=random,
        host=cast("Any", host),
        blocks=LiveDevices,
    )
    program = PROGRAMS[start.program](**start.arguments)

    async def run() -> None:
        await program(process)
        await disk.save()

    try:
        asyncio.run(run())
    except SystemExit as request:
        os._exit(request.code if isinstance(request.code, int) else int(request.code is not None))
    except Exception as error:  # noqa: BLE001 - whatever a program raises ends its process
        end(error)
    os._exit(0)
