"""Campaigns on a real Dask cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from coord_sim.campaign import dask_cluster, executors
from coord_sim.cli.main import main

pytestmark = pytest.mark.slow

WORDS = ["campaign", "--steps", "2", "--argument", "step_s=0.2", "--stop-after", "0", "--no-shrink"]


@contextmanager
def started(*words: str, until: str) -> Iterator[str]:
    """A process of the cluster, and what of its output matched `until`."""
    with subprocess.Popen(
        [sys.executable, "-m", "distributed.cli." + words[0], *words[1:]],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = []
        try:
            for line in process.stderr:
                said.append(line)
                match = re.search(until, line)
                if match is not None:
                    yield match[1]
                    break
            else:
                raise AssertionError("".join(said))
        finally:
            process.kill()


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A scheduler and two workers, each a process; its address."""
    with ExitStack() as stack:
        address = stack.enter_context(
            started(
                "dask_scheduler",
                "--host",
                "tcp://127.0.0.1",
                "--port",
                "0",
                "--no-dashboard",
                until=r"Scheduler at: +(tcp://127.0.0.1:\d+)",
            )
        )
        for _ in range(2):
            stack.enter_context(
                started(
                    "dask_worker",
                    address,
                    "--nthreads",
                    "1",
                    "--no-nanny",
                    "--no-dashboard",
                    until=r"Registered to: +(tcp://127.0.0.1:\d+)",
                )
            )
        yield address


def test_a_cluster_gives_the_same_result(cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--runs", "100", "--json"]) == 1
    alone = json.loads(capsys.readouterr().out)
    assert main([*WORDS, "--runs", "100", "--json", "--dask", cluster]) == 1
    assert json.loads(capsys.readouterr().out) == alone


def test_all_workers_take_part(cluster: str) -> None:
    with dask_cluster(cluster) as (executor, workers):
        assert workers == 2
        assert len(set(executor.map(process_id, range(40)))) == 2


def process_id(_: int) -> int:
    time.sleep(0.05)
    return os.getpid()


def test_a_cluster_that_is_not_there_is_bad_input(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "CONNECT_S", 1.0)
    assert main([*WORDS, "--runs", "10", "--dask", "tcp://127.0.0.1:9"]) == 2
    captured = capsys.readouterr()
    assert "tcp://127.0.0.1:9" in captured.err
    assert "Traceback" not in captured.err
