"""Where all lose their service, its log and the history tell whether it was the service that died.

The logs are those of jaxlib 0.12.0.1 under `tests/data`; what is added are its lines in runs of
`coordlab run --service real` whose relay or process was killed, with other times.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jax_bridge.explain import Cause, explain
from tests.explain.failures import KEPT

LOGS = KEPT / "jaxlib-0.12.0.1"
SHUTS_DOWN = "I{} 14237 service.cc:114] Jax service shutting down\n"
BEGINS = (
    "I1130 07:02:15.029459   14237 coordination_service.cc:183] [4622868731889669868] Initializing "
    "CoordinationService\n"
)


def first(folder: Path) -> Cause:
    return explain([folder]).causes[0]


@pytest.mark.parametrize(
    ("added", "name", "words"),
    [
        ("", "leader-lost", "died without a word at 06:05:49.328"),
        (
            SHUTS_DOWN.format("1130 06:05:49.392217"),
            "connections-lost",
            "the service lived on until 06:05:49.392",
        ),
        (
            SHUTS_DOWN.format("1130 06:05:49.301217"),
            "service-ended",
            "the service was ended in good order before the processes had left",
        ),
        (BEGINS + BEGINS, "leader-lost", "there was another start of it"),
        (None, "leader-lost", "it died, or what stands between it and the processes broke"),
    ],
    ids=["dies", "outlives a relay", "is told to end", "starts again", "says nothing"],
)
def test_the_end_of_the_log_of_a_service_is_used(
    added: str | None, name: str, words: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(LOGS / "killed-service", logs)
    service = logs / "service.log"
    service.write_text("" if added is None else service.read_text() + added)
    (logs / "relay.log").write_text("")
    cause = first(logs)
    assert cause.name == name
    assert words in cause.sentence
    assert cause.processes == ()
    assert Path(cause.evidence[0].path) == service


STILL_ASKED = (LOGS / "refused-port" / "process-1-0.log").read_text()
REFUSED = (
    "I1130 07:04:18.568819   16887 coordination_service_agent.cc:169] Coordination service agent failed "
    "to register with the leader (attempt #1, will try again after 263.0755us, deadline is "
    "2026-11-30T07:05:23.561168612+00:00, now is 2026-11-30T07:04:18.568836406+00:00,total timeout is "
    "1m). Error status: ABORTED: 2 unexpectedly tried to connect while it is already in error. "
    "ResetTask() should be called before a subsequent connect attempt.\n"
)


@pytest.mark.parametrize("again", [STILL_ASKED, REFUSED], ids=["no answer", "refused"])
def test_a_restart_after_the_time_out_is_one_story_with_the_death(
    again: str, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(LOGS / "killed-peer", logs)
    (logs / "process-2-1.log").write_text(again)
    cause, *others = explain([logs]).causes
    assert cause.name == "silent-death"
    assert cause.processes == (2,)
    assert cause.sentence.endswith(
        "started again, it was not let in, as the job had failed by then"
    )
    assert any(evidence.path.endswith("process-2-1.log") for evidence in cause.evidence)
    assert not {other.name for other in others} & {"service-not-reached", "never-seen"}


def test_a_first_start_that_was_not_let_in_has_a_story_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "process-1-0.log").write_text(STILL_ASKED)
    assert first(tmp_path).name == "service-not-reached"
