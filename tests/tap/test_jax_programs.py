"""Unmodified JAX programs with the tap between them and the service of process 0."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from checker import read
from checker.history import Invoke, Start
from checker.service.check import check_service
from tests.ports import reserved_port
from tests.tap.tapping import Tap

pytestmark = [pytest.mark.jax, pytest.mark.slow]

PROGRAM = """
import os, sys, time
import jax

process = int(sys.argv[1])
jax.config.update("jax_enable_recoverability", True)
jax.distributed.initialize(
    sys.argv[2], num_processes=2, process_id=process, heartbeat_timeout_seconds=10,
)
from jax.experimental import multihost_utils

client = jax._src.distributed.global_state.client
for step in range(3):
    with multihost_utils.live_devices(jax.devices()) as live:
        assert len(live) == 2, live
        client.key_value_set(f"step/{process}", str(step), allow_overwrite=True)
here = os.path.dirname(__file__)
while not os.path.exists(os.path.join(here, "enough")):
    time.sleep(0.05)
client.wait_at_barrier("end", 60_000)
print(client.key_value_try_get(f"step/{1 - process}"))
left = os.path.join(here, "left")
while process == 0 and not os.path.exists(left):
    time.sleep(0.05)  # Its service must outlive the other process.
jax.distributed.shutdown()
open(left, "w").close()
"""


def test_the_tap_records_two_processes_that_know_nothing_of_it(tmp_path: Path) -> None:
    script, record = tmp_path / "train.py", tmp_path / "run.jsonl"
    script.write_text(PROGRAM)
    with reserved_port() as port, Tap(record, f"127.0.0.1:{port}") as tap:
        environment = {
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            # Of process 0; the others do not look at it.
            "JAX_COORDINATOR_BIND_ADDRESS": tap.upstream,
        }
        processes = [
            subprocess.Popen(
                [sys.executable, str(script), str(process), tap.address],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for process in range(2)
        ]
        try:
            deadline_s = time.monotonic() + 120
            while record.read_bytes().count(b'"heartbeat"') < 2:  # Sent every five seconds.
                assert time.monotonic() < deadline_s
                assert all(process.poll() is None for process in processes)
                time.sleep(0.05)
            (tmp_path / "enough").touch()
            ends = [process.communicate(timeout=120) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    assert [process.returncode for process in processes] == [0, 0], ends
    assert [output for output, _ in ends] == ["2\n", "2\n"], ends
    history = read(record)
    assert history.header.participants == (0, 1)
    assert {event.process for event in history.events if isinstance(event, Start)} == {0, 1}
    calls = Counter(event.operation for event in history.events if isinstance(event, Invoke))
    assert calls["heartbeat"] >= 2
    assert calls["register"] == calls["poll_for_error"] == calls["shutdown"] == 2
    assert calls["live_processes"] >= 6
    rows = {row.object: row.word for row in check_service(history)}
    assert set(rows.values()) == {"valid", "not checked"}, rows
    assert rows["live set"] == rows["key 'step/0'"] == rows["barrier 'end'"] == "valid"
