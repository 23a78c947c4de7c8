"""Limits of steps, time and memory hold for every search; what gives up says why, and how far it
came."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from checker.operations import Operation, Operations, Recorder
from checker.search import check_operations
from checker.search.budget import Budget
from checker.search.choice import CODE
from checker.specification import SetSpecification, Specification
from checker.specs import CasRegister, Counter, Register
from checker.verdict import Unknown, Verdict
from tests.checker.search import hard
from tests.checker.search.algorithms import ALGORITHMS, PLAIN
from tests.checker.search.toys import WriteSnapshot

HARD: dict[str, tuple[Operations, Specification]] = {
    "writes": (hard.concurrent_writes(30), Register()),
    "adds": (hard.concurrent_adds(30), Counter()),
    "swaps": (hard.crashed_swaps(300), CasRegister()),
}
WAYS: tuple[dict[str, Any], ...] = ({"compiled": False}, {"compiled": True}, {"paranoid": True})
LOOSE_S = 30.0
"""Nothing may take longer than its limit by more than this, however busy the machine."""


@pytest.fixture(scope="module", autouse=True)
def _compiled_code_is_there() -> None:
    """Compiling it takes its time, once on a machine: no limit here is about that."""
    CODE.load()


every_way = pytest.mark.parametrize("way", WAYS, ids=("plain", "compiled", "paranoid"))
every_search = pytest.mark.parametrize("search", ALGORITHMS)


def _gave_up(verdict: Verdict, reason: str) -> Unknown:
    assert isinstance(verdict, Unknown), verdict.explain()
    assert reason in verdict.reason
    assert 0 <= verdict.events_done < verdict.events
    assert f"of {verdict.events:,} events" in verdict.explain()
    assert verdict.algorithm
    return verdict


@pytest.mark.parametrize("name", ["writes", "adds"])
@pytest.mark.parametrize("search", PLAIN)
def test_no_more_steps_are_made_than_allowed(search: str, name: str) -> None:
    budget = Budget(steps_max=150)
    assert PLAIN[search](*HARD[name], budget) is None
    assert 150 <= budget.steps <= 150 + 64  # Limits are looked at now and then.


@pytest.mark.parametrize("way", [{}, {"paranoid": True}], ids=("plain", "paranoid"))
def test_the_steps_are_told(way: dict[str, Any]) -> None:
    history, spec = HARD["writes"]
    verdict = _gave_up(check_operations(history, spec, steps_max=150, **way), "150 steps")
    again = check_operations(history, spec, steps_max=150, **way)
    assert verdict == again, "a limit of steps does not depend on the machine"


@pytest.mark.parametrize("name", HARD)
@every_search
def test_the_time_ends_every_search(search: str, name: str) -> None:
    history, spec = HARD[name]
    begun = time.monotonic()
    ALGORITHMS[search](history, spec, Budget(timeout_s=0.2))
    assert time.monotonic() - begun < LOOSE_S


@every_way
@pytest.mark.parametrize("name", ["writes", "adds"])
def test_the_time_limit_is_told(name: str, way: dict[str, Any]) -> None:
    history, spec = HARD[name]
    begun = time.monotonic()
    _gave_up(check_operations(history, spec, timeout_s=0.3, **way), "time limit of 0.3 s")
    assert time.monotonic() - begun < LOOSE_S


@every_way
@pytest.mark.parametrize("name", ["writes", "adds"])
def test_the_memory_limit_is_told(name: str, way: dict[str, Any]) -> None:
    history, spec = HARD[name]
    begun = time.monotonic()
    verdict = check_operations(history, spec, memory_bytes_max=1 << 20, timeout_s=60, **way)
    _gave_up(verdict, "memory limit of 1 MiB")
    assert time.monotonic() - begun < 60


def test_how_far_it_came_is_told() -> None:
    """The easy beginning is explained; a hard object after an easy one is named."""
    recorder = Recorder()
    for value in range(50):
        recorder.ok(recorder.invoke(0, "write", value, key="hard"))
        recorder.ok(recorder.invoke(0, "write", value, key="easy"))
    _append(recorder, hard.concurrent_writes(30), "hard")
    ways: tuple[dict[str, Any], ...] = (
        {"compiled": False, "steps_max": 150},
        {"compiled": True, "timeout_s": 3.0},
    )
    for way in ways:
        verdict = _gave_up(check_operations(recorder.operations(), Register(), **way), "hard")
        assert verdict.events == 100 + 2 * (2 * 30 + 2)
        assert verdict.events_done >= 100 + 2 * 30


def _append(recorder: Recorder, operations: Operations, key: str) -> None:
    first = len(recorder)
    for event in operations.events:
        operation = operations.at(event if event >= 0 else ~event)
        if event >= 0:
            recorder.invoke(event, operation.function, operation.argument, key=key)
        else:
            recorder.ok(first + ~event, operation.result)


def test_a_violation_is_found_though_another_object_is_too_hard() -> None:
    recorder = Recorder()
    _append(recorder, hard.concurrent_writes(30), "hard")
    recorder.ok(recorder.invoke(0, "read", key="wrong"), 5)
    verdict = check_operations(recorder.operations(), Register(), compiled=True, timeout_s=0.5)
    assert verdict.word == "invalid"


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"steps_max": 150}, "150 steps"),
        ({"timeout_s": 0.3}, "time limit"),
        ({"memory_bytes_max": 1 << 18, "timeout_s": 60}, "memory limit"),
    ],
)
def test_limits_hold_where_operations_act_as_one(limit: dict[str, Any], reason: str) -> None:
    recorder = Recorder()
    calls = [recorder.invoke(process, "write_snapshot", process) for process in range(14)]
    recorder.ok(recorder.invoke(14, "write_snapshot", 14), frozenset({99}))
    for call in calls:
        recorder.ok(call, frozenset({99}))
    spec: SetSpecification = _EverySnapshot()
    _gave_up(check_operations(recorder.operations(), spec, **limit), reason)


class _EverySnapshot(WriteSnapshot):
    """Only the last call cares for what is there."""

    def step(self, state: Any, group: Any) -> Any:
        calls = [(process, call._replace(result=_true(state, group))) for process, call in group]
        return (
            super().step(state, group)
            if any(process == 14 for process, _ in group)
            else super().step(state, calls)
        )


def _true(state: Any, group: Any) -> frozenset[int]:
    return frozenset(state | {call.argument for _, call in group})


@pytest.mark.parametrize("bad", [0, -1.0, float("nan")])
def test_no_time_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be above 0"):
        check_operations(_read(), Register(), timeout_s=bad)


def _read() -> Operations:
    recorder = Recorder()
    operation = Operation("read", None, None, None)
    recorder.ok(recorder.invoke(0, operation.function), operation.result)
    return recorder.operations()


_CHILD = """
import os, signal, sys, threading, time
from checker.search import check_operations
from checker.search.choice import CODE
from checker.specs import Counter, Register
from tests.checker.search import hard

CODE.load()
history, spec = hard.concurrent_writes(31), Register()
main = threading.main_thread().ident

def interrupt():
    \"\"\"When one compiled call has run for a tenth of a second.\"\"\"
    since, seen = time.monotonic(), None
    while time.monotonic() - since < 0.1:
        frame = sys._current_frames()[main]
        while frame is not None and frame.f_code.co_name != "run_interruptibly":
            frame = frame.f_back
        if frame is None or frame is not seen:
            since, seen = time.monotonic(), frame
        time.sleep(0.01)
    print("interrupted", flush=True)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
check_operations(history, spec, compiled=True, timeout_s=600)
"""


def test_ctrl_c_gets_through_to_compiled_code() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "interrupted\n"
            _, said = child.communicate(timeout=LOOSE_S)
        finally:
            child.kill()
    assert said.strip().endswith("KeyboardInterrupt")
    assert child.returncode != 0
