"""What each launched process executes: installs the recorder, then runs the script as `__main__`."""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import sys
from pathlib import Path

from jax_bridge import compat
from jax_bridge.client_recorder import install
from jax_bridge.conditions import Inside
from jax_bridge.recorder.origin import origin_details
from jax_bridge.recorder.process_recorder import ProcessRecorder


def main() -> None:
    """Parses the launcher's arguments and hands over to the script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", type=Path, required=True)
    parser.add_argument("--said", type=Path, required=True)
    parser.add_argument("--held", type=Path, required=True)
    parser.add_argument("--process", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--hold-operation")
    parser.add_argument("--hold-count", type=int)
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    hold = None
    if options.hold_operation is not None:
        hold = Inside(options.hold_operation, options.hold_count)
    recorder = ProcessRecorder(
        options.part,
        process=options.process,
        processes=options.processes,
        hold=hold,
        held_path=options.held,
        details=origin_details(options.process),
    )
    install(recorder)

    def say_heartbeats(timeout_s: int) -> None:
        # A disk that is full, or a run that is over, is nothing to the script.
        with contextlib.suppress(OSError), options.said.open("a") as said:
            said.write(json.dumps({"heartbeat_timeout_s": str(timeout_s)}) + "\n")

    compat.tell_of_heartbeats(sys.modules[compat.RUNTIME_MODULE], say_heartbeats)
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = str(Path(options.script).resolve().parent)
    runpy.run_path(options.script, run_name="__main__")


if __name__ == "__main__":
    main()
