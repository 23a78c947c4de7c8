"""What a tap recorded of a job that nobody was let into, as jaxlib is run."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from coord_sim.cli.main import main
from tests.explain.failures import DEADLINE_S, POLL_S, Job
from tests.ports import reserved_port
from tests.tap.tapping import Tap


@pytest.mark.jax
def test_a_process_that_waited_for_others_in_vain_was_never_let_in(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "run.jsonl"
    with reserved_port() as port, Tap(record, f"127.0.0.1:{port}") as tap:
        service = Job(tmp_path, 2, f"127.0.0.1:{port}")
        client = Job(tmp_path, 2, tap.address)
        try:
            service.start(0, "serve", "wait", name="service")
            client.start(0, "connect")
            deadline = time.monotonic() + DEADLINE_S
            while '"register"' not in record.read_text():
                assert time.monotonic() < deadline
                time.sleep(POLL_S)
            client.signal(0, signal.SIGKILL)
            client.await_end()
        finally:
            client.end()
            service.end()
    assert main(["explain", str(record)]) == 11
    assert capsys.readouterr().out.startswith(
        "infrastructure: process 0 asked to register and was never let in; how many there should be is "
        "not known\n"
    )
    log = str(tmp_path / "process-0-0.log")
    assert main(["explain", "--processes", "2", str(record), log]) == 11
    assert capsys.readouterr().out.startswith(
        "infrastructure: 1 of 2 registered; process 1 was never seen\n"
    )
