"""Messages that are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from jax_bridge.explain import explain
from jax_bridge.explain.messages import find_known
from jax_bridge.platforms import CANCELLED


def names(text: str) -> set[str]:
    return {found.message.name for found in find_known(text)}


@pytest.mark.parametrize("words", CANCELLED)
def test_every_way_in_which_a_collective_is_cancelled_is_known(words: str) -> None:
    text = f"UNKNOWN: Task with incarnation id 3446767950926952685 {words}: [pair.cc:547] closed by peer"
    (name,) = names(text.replace("Task with incarnation id 3446767950926952685 Gloo", "Gloo"))
    assert name == (
        "collective-cancelled"
        if words == "is not connected"
        else "collective-timeout"
        if words.endswith("timed out")
        else "peer-closed-collective"
    )


def test_a_collective_that_waited_too_long_lost_nobody() -> None:
    text = "UNKNOWN: Gloo all-reduce failed: [unbound_buffer.cc:78] Timed out waiting 30000ms\nnext"
    assert names(text) == {"collective-timeout"}
    assert names("UNKNOWN: Gloo all-reduce failed: closed\nthe next line timed out") == {
        "peer-closed-collective"
    }


def test_an_exception_of_a_cancelled_collective_is_no_error_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "rank-0.err").write_text(
        "Traceback (most recent call last):\n"
        '  File "/home/me/train.py", line 3, in step\n'
        "ValueError: UNKNOWN: Gloo all-reduce failed: [external/gloo/gloo/transport/tcp/pair.cc:547] "
        "Connection closed by peer [127.0.0.1]:1\n"
    )
    (cause,) = explain([tmp_path]).causes
    assert cause.name == "peer-closed-collective"
    assert cause.failure_class.value == "infrastructure"
