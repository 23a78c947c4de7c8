"""Where a real JAX process hangs that is starting is found out."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.explain.failures import Job
from tests.ports import reserved_port

pytestmark = [pytest.mark.jax, pytest.mark.slow, pytest.mark.one_python]

DEADLINE_S = 240.0
PATIENT = ("--heartbeat", "60", "--init", "300")
"""Of jobs that must stay as they are until they have been asked, however slow that is."""
PROGRAM = """
import sys, jax
jax.distributed.initialize(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]),
                           cluster_detection_method="deactivate")
print("started", flush=True)
jax.devices()
"""


def doctor(*words: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "coord_sim.cli.main", "doctor", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout + done.stderr


def watch(address: str, patience_s: float) -> tuple[int, str]:
    program = [sys.executable, "-c", PROGRAM, address, "2", "1"]
    words = ["--watch", "--give-up", "--patience", str(patience_s), "--timeout", "3"]
    return doctor(*words, "--", *program)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    with reserved_port() as port:
        job = Job(tmp_path, 3, f"127.0.0.1:{port}", PATIENT)
        try:
            yield job
        finally:
            job.end()


def attached_until(job: Job, words: str) -> tuple[int, str]:
    """Asks until the answer has these words, as processes take their time to come."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        code, out = doctor("--attach", job.address)
        if words in out or time.monotonic() > deadline:
            return code, out
        time.sleep(0.5)


def test_attach_says_who_is_missing_and_when_all_are_there(job: Job) -> None:
    job.start(0, "serve", "say:serving", "connect", "wait")
    job.await_text("serving", "process-0-0")
    job.start(2, "connect", "wait")
    code, out = attached_until(job, "2 of 3 have asked to register")
    assert code == 1
    assert "process 1 was never seen" in out
    job.start(1, "connect", "wait")
    job.await_text("connected")
    code, out = attached_until(job, "3 of 3 are connected")
    assert code == 0, out


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Job]:
    """A job whose service is of its own, as in the recipe for an outside coordinator."""
    command = [sys.executable, "-m", "coord_sim.cli.main", "serve", "--processes", "3"]
    command += ["--semantics", "published", "--recoverable", "--heartbeat-timeout", "60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout is not None
        address = service.stdout.readline().split()[1].removeprefix("address=")
        job = Job(tmp_path, 3, address, PATIENT)
        try:
            yield job
        finally:
            job.end()
            service.terminate()


def test_attach_sees_how_the_job_of_a_published_service_stands(published: Job) -> None:
    code, out = doctor("--attach", published.address)
    assert code == 1
    assert "0 of 3 have asked to register; processes 0-2 were never seen" in out
    published.start(1, "connect", "wait")
    code, out = attached_until(published, "1 of 3 have asked to register")
    assert code == 1
    assert "processes 0 and 2 were never seen" in out
    published.start(0, "connect", "wait")
    published.start(2, "connect", "wait")
    published.await_text("connected")
    code, out = attached_until(published, "3 of 3 are connected")
    assert code == 0, out


def test_a_healthy_program_of_a_published_service_is_not_given_up(published: Job) -> None:
    """It runs for longer than the patience, which grows until its start is no hang."""
    for process in (0, 2):
        published.start(process, "connect", "wait")
    program = """
import os, sys, time, jax
jax.distributed.initialize(sys.argv[1], 3, 1, cluster_detection_method="deactivate")
time.sleep(float(sys.argv[2]) + 5)
os._exit(7)
"""
    patience_s = 5.0
    while True:
        words = ["--watch", "--give-up", "--patience", str(patience_s), "--"]
        code, out = doctor(
            *words, sys.executable, "-c", program, published.address, str(patience_s)
        )
        is_slow = "not begun to connect" in out or "asks to register" in out
        if not is_slow or patience_s > DEADLINE_S / 3:
            break
        patience_s *= 3
    assert code == 7, out


def test_attach_says_whose_devices_are_waited_for(tmp_path: Path) -> None:
    with reserved_port() as port:
        job = Job(tmp_path, 2, f"127.0.0.1:{port}", PATIENT)
        try:
            job.start(0, "jax", "compute")
            job.start(1, "jax", "wait")
            code, out = attached_until(job, "topologies waits")
        finally:
            job.end()
    assert code == 1
    assert "the exchange of topologies waits for process 1" in out


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("coordinator.invalid:8476", "the name coordinator.invalid does not resolve"),
        ("refused", "refused"),
        ("silent", "says nothing for 3 s"),
    ],
)
def test_watch_says_at_which_stage_a_program_hangs(address: str, words: str) -> None:
    with reserved_port() as nobody, socket.create_server(("127.0.0.1", 0)) as hole:
        ports = {"refused": nobody, "silent": hole.getsockname()[1]}
        if address in ports:
            address = f"127.0.0.1:{ports[address]}"
        code, out = watch_registering(address)
    assert code == 1
    assert words in out


def watch_registering(address: str) -> tuple[int, str]:
    """Watches with more patience until the program has come to its registration."""
    patience_s = 3.0
    while True:
        code, out = watch(address, patience_s)
        if "asks to register" in out or patience_s > DEADLINE_S:
            return code, out
        patience_s *= 3


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("time.sleep(3600)", "the program has not begun to connect"),
        ("initialize(); jax.devices()", "the exchange of topologies waits for process"),
        ("initialize(); jax.distributed.shutdown()", "waits in the exit barrier for the others"),
    ],
    ids=["detection", "running", "leaving"],
)
def test_watch_says_what_a_program_waits_for(tmp_path: Path, program: str, words: str) -> None:
    """At a stage that begins well: process 0 registers, publishes nothing and stays."""
    with reserved_port() as port:
        job = Job(tmp_path, 2, f"127.0.0.1:{port}")
        try:
            job.start(0, "jax", "wait")
            prelude = (
                "import jax, time; initialize = lambda: jax.distributed.initialize("
                f"'{job.address}', 2, 1, cluster_detection_method='deactivate'); "
            )
            assert is_told(words, [sys.executable, "-c", prelude + program])
        finally:
            job.end()


def is_told(words: str, program: list[str]) -> bool:
    """Whether doctor says this of a program that goes on, which then ends with doctor."""
    command = [sys.executable, "-m", "coord_sim.cli.main", "doctor", "--watch", "--patience", "1"]
    with subprocess.Popen([*command, "--", *program], stderr=subprocess.PIPE, text=True) as doctor:
        late = threading.Timer(DEADLINE_S, doctor.kill)
        late.start()
        try:
            assert doctor.stderr is not None
            return any(words in line for line in doctor.stderr)
        finally:
            late.cancel()
            doctor.kill()
