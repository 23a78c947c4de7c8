"""The simulator: deterministic, and as good or bad as the service it is given."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Generator
from dataclasses import replace

import pytest

from checker import Invalid, LiveProcesses, Valid, check
from checker.history import Crash as CrashEvent
from checker.history import Exit, Leave, Start, WellFormed
from coord_sim.core.status import Code
from coord_sim.errors import ProcessFailureError, ProgramError, ScheduleError, ServiceError
from coord_sim.faults import Crash, Pause, Restart
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, draw_faults, simulate, training_loop


def drawn(seed: int, **settings: object) -> Schedule:
    faults = draw_faults(seed, 3, until_s=5.0, heartbeat_timeout_s=3.0)
    return Schedule(processes=3, seed=seed, faults=faults, **settings)  # type: ignore[arg-type]


def verdicts(schedule: Schedule) -> dict[str, str]:
    history = simulate(training_loop(), schedule).history
    rules = WellFormed(history.header)
    for event in history.events:
        rules.accept(event)
    return {
        failures: check(history, LiveProcesses(failures=failures)).word
        for failures in ("suspicion", "crash-stop")
    }


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_the_published_service_is_valid_under_both_failure_models(loss: float) -> None:
    for seed in range(150):
        found = verdicts(drawn(seed, semantics="published", loss=loss))
        assert found == {"suspicion": "valid", "crash-stop": "valid"}, f"seed {seed}"


def test_the_published_service_is_valid_under_suspicion_whatever_the_stalls() -> None:
    """Stalls beyond the time-out make the service declare the living dead.

    A slow network alone does not invalidate crash-stop: clients whose heartbeats are not answered in
    time end themselves first. A process that stands still and goes on does.
    """
    suspected = 0
    for seed in range(60):
        slow = drawn(seed, semantics="published", limit_s=60.0, latency_max_s=4.0)
        assert verdicts(slow) == {"suspicion": "valid", "crash-stop": "valid"}, f"seed {seed}"
        pauses = tuple(Pause(process, 1.0 + 0.05 * seed, 5.0) for process in (1, 2))
        found = verdicts(replace(drawn(seed, semantics="published"), faults=pauses))
        assert found["suspicion"] == "valid", f"seed {seed}"
        suspected += found["crash-stop"] == "invalid"
    assert suspected > 0


def test_the_shipped_service_shows_the_ghost_entry_within_a_hundred_seeds() -> None:
    for seed in range(100):
        history = simulate(training_loop(), drawn(seed)).history
        verdict = check(history)
        if isinstance(verdict, Invalid):
            assert "ghost entry" in verdict.explain()
            return
    pytest.fail("no violation found")


def test_the_naive_service_is_caught_in_every_run() -> None:
    for seed in range(20):
        assert verdicts(drawn(seed, semantics="naive"))["suspicion"] == "invalid"


@pytest.mark.determinism
def test_a_seed_gives_the_same_bytes_on_every_python_and_hash_seed() -> None:
    # A change of the simulator changes this value, knowingly; a Python version must not.
    expected = "44827b8b191bf720f1f57fd4542e7bf68da68fc8c3d319c8557c53e457202669"
    script = (
        "import hashlib\n"
        "from coord_sim.schedule import Schedule\n"
        "from coord_sim.sim import draw_faults, simulate, training_loop\n"
        "from coord_sim.sim.nemesis import draw_schedule\n"
        "from coord_sim.sim.programs import PROGRAMS\n"
        "total = hashlib.sha256()\n"
        "for seed in range(20):\n"
        "    faults = draw_faults(seed, 4, until_s=5.0, heartbeat_timeout_s=3.0)\n"
        "    schedule = Schedule(processes=4, seed=seed, faults=faults, loss=0.02)\n"
        "    total.update(simulate(training_loop(), schedule).history.to_text().encode())\n"
        "base = Schedule(processes=3, hosts=((0, 1), (2,)))\n"
        "for name in ('training_loop', 'recover_the_restarted'):\n"
        "    for seed in range(20):\n"
        "        run = simulate(PROGRAMS[name](), draw_schedule(seed, base))\n"
        "        told = f'{run.history.to_text()}{run.ends}{run.log}{run.reached}{run.disks}'\n"
        "        total.update(told.encode())\n"
        "print(total.hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        digests.add(
            subprocess.run(
                [sys.executable, "-c", script], env=environment, check=True, capture_output=True
            ).stdout.strip()
        )
    (digest,) = digests
    assert digest.decode() == expected


def test_two_runs_of_a_schedule_are_equal_and_another_seed_is_not() -> None:
    texts = [simulate(training_loop(), drawn(seed)).history.to_text() for seed in (3, 3, 4)]
    hashes = [hashlib.sha256(text.encode()).digest() for text in texts]
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_restarted_process_has_a_new_incarnation_and_the_others_learn_who_failed() -> None:
    schedule = Schedule(
        processes=3, seed=1, faults=(Crash(1, 2.0), Restart(1, 7.5)), semantics="published"
    )
    run = simulate(training_loop(steps=20), schedule)
    starts = [e for e in run.history.events if isinstance(e, Start) and e.process == 1]
    assert [start.lifetime for start in starts] == [0, 1]
    assert starts[0].incarnation != starts[1].incarnation
    failed = [e for e in run.history.events if isinstance(e, Exit) and e.outcome == "failed"]
    # The newcomer has more steps to go than the others: it sees them leave in the end.
    assert {(e.process, e.failed) for e in failed if e.process != 1} == {(0, (1,)), (2, (1,))}
    assert run.finished
    assert isinstance(check(run.history), Valid)


def test_a_run_that_cannot_end_stops_at_its_limit_and_says_so() -> None:
    async def wait_for_ever(process: Process) -> None:
        await process.client.blocking_key_value_get("never")

    run = simulate(wait_for_ever, Schedule(processes=1, limit_s=20.0))
    assert not run.finished


def test_a_program_reads_what_another_wrote_and_sees_errors_as_jax_would() -> None:
    seen: list[object] = []

    async def program(process: Process) -> None:
        if process.number == 0:
            await process.client.key_value_set("k", "v")
            with pytest.raises(ServiceError) as error:
                await process.client.key_value_set("k", "w")
            seen.append(error.value.status.code)
        else:
            seen.append(await process.client.blocking_key_value_get("k"))
            with pytest.raises(ServiceError):
                await process.client.key_value_try_get("none")

    simulate(program, Schedule(processes=2))
    assert set(seen) == {Code.ALREADY_EXISTS, "v"}


def test_an_exception_in_a_block_is_raised_again_when_nobody_failed() -> None:
    seen: list[str] = []

    async def program(process: Process) -> None:
        try:
            async with process.live_devices():
                raise RuntimeError("from the body")  # noqa: TRY301 - the body of a block
        except RuntimeError as error:
            seen.append(str(error))

    run = simulate(program, Schedule(processes=2))
    assert seen == ["from the body"] * 2
    assert {e.outcome for e in run.history.events if isinstance(e, Exit)} == {"raised"}


def test_a_failure_hides_behind_no_exception_of_the_body() -> None:
    causes: list[object] = []

    async def program(process: Process) -> None:
        try:
            async with process.live_devices():
                await process.sleep(3.0)
                raise RuntimeError("from the body")
        except ProcessFailureError as failure:
            causes.append((failure.failed, str(failure.__cause__)))

    simulate(program, Schedule(processes=2, faults=(Crash(1, 1.0),), heartbeat_timeout_s=2.0))
    assert causes == [((1,), "from the body")]


def test_a_program_that_raises_ends_its_process_and_not_the_run() -> None:
    async def program(process: Process) -> None:
        if process.number == 1:
            raise ValueError("a bug")
        await process.sleep(1.0)

    run = simulate(program, Schedule(processes=2))
    (crash,) = [e for e in run.history.events if isinstance(e, CrashEvent)]
    assert crash.cause is not None
    told, where = crash.cause.splitlines()
    assert told == "the program raised ValueError: a bug"
    assert 'in program: raise ValueError("a bug")' in where
    assert [e.process for e in run.history.events if isinstance(e, Leave)] == [0]


def test_a_program_that_awaits_something_foreign_is_told_what_to_use() -> None:
    class Foreign:
        def __await__(self) -> Generator[str, None, None]:
            yield "something"

    async def program(process: Process) -> None:
        await Foreign()

    with pytest.raises(ProgramError, match=r"use process\.sleep"):
        simulate(program, Schedule(processes=1))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"processes": 0}, "at least 1"),
        ({"processes": 2, "faults": (Crash(2, 1.0),)}, "processes are 0 to 1"),
        ({"processes": 2, "faults": (Crash(1, -1.0),)}, "before the run begins"),
        ({"processes": 2, "faults": (Restart(1, 1.0),)}, "add the crash"),
        ({"processes": 2, "semantics": "kind"}, "must be one of shipped, published, naive"),
        ({"processes": 2, "loss": 1.0}, "probability below 1"),
        ({"processes": 2, "latency_min_s": 2.0}, "latency_min_s <= latency_max_s"),
        ({"processes": 2, "heartbeat_timeout_s": 0.0}, "must be positive"),
    ],
)
def test_an_impossible_schedule_is_refused_before_the_run(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule(**settings)  # type: ignore[arg-type]
