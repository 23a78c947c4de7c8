"""What jaxlib's own service does is what the specifications say."""

from __future__ import annotations

from pathlib import Path

import pytest

from checker.history import Invoke, Ok
from checker.service import check_service
from jax_bridge.job import Job
from jax_bridge.launcher import run_job
from jax_bridge.services import real_service_command

pytestmark = pytest.mark.jax

PROGRAM = Path(__file__).with_name("store_and_barriers.py")


def test_store_and_barriers_of_the_real_service_are_valid(tmp_path: Path) -> None:
    job = Job(
        script=PROGRAM,
        arguments=("{process}", "{processes}", "{address}"),
        processes=3,
        service_command=real_service_command(3, heartbeat_timeout_s=5, recoverable=True),
        service="real",
        out=tmp_path / "run.jsonl",
        timeout_s=60.0,
    )
    result = run_job(job)
    rows = check_service(result.history)
    assert {row.object: row.word for row in rows} == {
        "keys 'a', 'a/', 'a/b', 'a/c'": "valid",
        "key 'd'": "valid",
        "key 'n'": "valid",
        "barrier 'all'": "valid",
        "barrier 'end'": "valid",
        "barrier 'pair'": "valid",
        "shutdown": "not checked",
    }
    invoked = {event.id: event for event in result.history.events if isinstance(event, Invoke)}
    answered = {
        invoked[event.id].operation for event in result.history.events if isinstance(event, Ok)
    }
    assert answered >= {"key_value_increment", "key_value_dir_get", "key_value_get", "barrier"}
