"""Each kind of expectation can hold and can fail, and says what was found."""

from __future__ import annotations

import contextlib

import pytest

from coord_sim.cli.scenarios import verdict_word
from coord_sim.errors import ProcessFailureError, ServiceError
from coord_sim.faults import Crash, Restart
from coord_sim.scenarios import (
    Answers,
    Blocks,
    Ends,
    Expectations,
    Finding,
    Logs,
    findings,
)
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, Run, simulate


async def program(process: Process) -> None:
    process.log(f"start {process.lifetime}")
    if process.number == 3:
        await process.client.blocking_key_value_get("never")
    for _ in range(3):
        with contextlib.suppress(ProcessFailureError):
            async with process.live_devices([0, 1, 2]):
                await process.sleep(1.0)
    process.sometimes("done")
    try:
        await process.client.key_value_try_get("missing")
    except ServiceError as error:
        process.log(str(error))
    await process.client.shutdown()


@pytest.fixture(scope="module")
def run() -> Run:
    schedule = Schedule(
        processes=5,
        tasks=4,
        starts_s=(0.0, 0.0, 0.0, 0.0, None),
        faults=(Crash(2, 1.5), Restart(2, 9.0)),
        limit_s=40.0,
    )
    return simulate(program, schedule)


def found(expect: Expectations, run: Run) -> list[Finding]:
    return list(findings(expect, run, verdict_word))


HOLD = {
    "finished": Expectations(finished=False),
    "verdict": Expectations(verdicts={"round-suspicion": "valid", "published-crash-stop": "valid"}),
    "reached": Expectations(reached={"done": 2, "nothing of the kind": 0}),
    "left": Expectations(ends=(Ends(processes=(0, 1), state="left", after_s=4, before_s=12),)),
    "killed": Expectations(
        ends=(Ends(processes=(2,), state="crashed", cause="kill", lifetime=0, before_s=1.6),)
    ),
    "waits": Expectations(ends=(Ends(processes=(3,), state="running", waits_for="never"),)),
    "second start": Expectations(ends=(Ends(processes=(2,), state="left", lifetime=1),)),
    "no third start": Expectations(ends=(Ends(processes=(2,), state="never started", lifetime=2),)),
    "first start waits": Expectations(
        ends=(Ends(processes=(3,), state="running", waits_for="never", lifetime=0),)
    ),
    "never": Expectations(ends=(Ends(processes=(4,), state="never started"),)),
    "failed": Expectations(
        blocks=(Blocks(processes=(0, 1), outcome="failed", failed=(2,), live=(0, 1, 2)),)
    ),
    "open": Expectations(
        blocks=(Blocks(processes=(2,), outcome="open", at_least=1, at_most=1, before_s=2),)
    ),
    "answer": Expectations(
        answers=(Answers(processes=(0,), operation="key_value_try_get", code="NOT_FOUND"),)
    ),
    "pending": Expectations(
        answers=(Answers(processes=(3,), operation="key_value_get", code="pending"),)
    ),
    "log": Expectations(logs=(Logs(processes=(2,), words="start 1", after_s=9, before_s=9.5),)),
    "no log": Expectations(logs=(Logs(words="start 2", at_most=0),)),
}

FAIL = {
    "finished": (Expectations(finished=True), "somebody was left at the limit"),
    "verdict": (Expectations(verdicts={"round-suspicion": "invalid"}), "valid"),
    "reached": (Expectations(reached={"done": 99}), " times"),
    "never reached": (Expectations(reached={"done": 0}), " times"),
    "left": (
        Expectations(ends=(Ends(processes=(0, 3), state="left"),)),
        "process 3: running, waits for key_value_get never",
    ),
    "when": (
        Expectations(ends=(Ends(processes=(0,), state="left", before_s=2),)),
        "process 0: left at ",
    ),
    "cause": (
        Expectations(ends=(Ends(processes=(2,), state="crashed", cause="boredom", lifetime=0),)),
        "process 2: crashed at 1.500 s: killed",
    ),
    "waits": (
        Expectations(ends=(Ends(processes=(3,), state="running", waits_for="barrier"),)),
        "waits for key_value_get never",
    ),
    "whom": (
        Expectations(blocks=(Blocks(processes=(0,), outcome="failed", failed=(1,)),)),
        "0 fit; there were ",
    ),
    "live": (
        Expectations(blocks=(Blocks(processes=(0,), outcome="failed", live=(0, 1)),)),
        "failed without [2]",
    ),
    "too many": (
        Expectations(blocks=(Blocks(processes=(0,), outcome="completed", at_most=0),)),
        "fit",
    ),
    "code": (
        Expectations(answers=(Answers(processes=(0,), operation="key_value_try_get", code="OK"),)),
        "NOT_FOUND",
    ),
    "no such call": (
        Expectations(answers=(Answers(processes=(0,), operation="barrier", code="OK"),)),
        "0 fit; there were none",
    ),
    "words": (Expectations(logs=(Logs(words="start 1"),)), "process 0: 0 fit"),
}


@pytest.mark.parametrize("case", HOLD)
def test_what_is_so_holds(run: Run, case: str) -> None:
    assert [finding for finding in found(HOLD[case], run) if not finding.holds] == []
    assert found(HOLD[case], run)


@pytest.mark.parametrize("case", FAIL)
def test_what_is_not_so_fails_and_says_what_is(run: Run, case: str) -> None:
    expect, said = FAIL[case]
    (finding,) = found(expect, run)
    assert not finding.holds
    assert said in finding.found


def test_a_finding_about_many_processes_shows_a_few() -> None:
    run = simulate(program, Schedule(processes=20, starts_s=(None,) * 20, limit_s=1.0))
    (finding,) = found(Expectations(ends=(Ends(state="left"),)), run)
    assert finding.found.count("\n") == 5
    assert finding.found.endswith("and 15 processes more")
