"""Stepping, clocks, disks, coroutines, tapes, and programs that break the rules."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket
import subprocess
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from checker import LiveProcesses, check
from checker.history import Crash as CrashEvent
from checker.history import Start, WellFormed
from coord_sim.errors import ProgramError, ScheduleError
from coord_sim.faults import Crash, Restart
from coord_sim.moments import When
from coord_sim.scenarios import names, scenario_named
from coord_sim.scenarios.reading import parse_scenario
from coord_sim.scenarios.writing import to_toml
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, Simulation, Tape, draw_faults, guard, simulate, training_loop
from coord_sim.sim.case import Case
from coord_sim.sim.clock import Clock
from coord_sim.sim.nemesis import KINDS, draw_schedule
from coord_sim.sim.tapes import TapeError, load_tape, save_tape

ALONE = Schedule(processes=1)


# --- stepping ------------------------------------------------------------------------------------


def test_a_simulation_can_be_stepped_and_gives_the_same_as_a_run() -> None:
    schedule = Schedule(
        processes=3, seed=4, faults=draw_faults(4, 3, until_s=5.0, heartbeat_timeout_s=3.0)
    )
    simulation = Simulation(training_loop(), schedule)
    steps = 0
    while simulation.step():
        steps += 1
    assert simulation.is_over
    stepped, whole = simulation.result(), simulate(training_loop(), schedule)
    assert stepped.history.to_text() == whole.history.to_text()
    assert (stepped.events, stepped.end_s) == (whole.events, whole.end_s)
    assert steps == whole.events


def test_time_can_be_stopped_and_faults_be_injected() -> None:
    simulation = Simulation(training_loop(), Schedule(processes=3, semantics="published"))
    simulation.run_until(2.0)
    assert simulation.now_s == 2.0
    assert set(simulation.live) == {0, 1, 2}
    service = simulation.service()
    assert service is not None
    assert service.survey(simulation.queue.now_ns).rounds_ended >= 2
    simulation.inject(Crash(1, 0.0))  # Its time is over: now.
    simulation.run_until(2.001)
    assert set(simulation.live) == {0, 2}
    simulation.inject(Restart(1, 6.0))
    run = simulation.run()
    assert [e.lifetime for e in run.history.events if isinstance(e, Start) and e.process == 1] == [
        0,
        1,
    ]
    with pytest.raises(ScheduleError, match="processes are 0 to 2"):
        simulation.inject(Crash(7, 0.0))


# --- state ---------------------------------------------------------------------------------------


def test_a_crash_keeps_what_was_synced_and_nothing_else() -> None:
    async def program(process: Process) -> None:
        if process.lifetime == 0:
            process.volatile["v"] = 1
            process.disk["synced"] = 1
            await process.disk.sync()
            process.disk["not synced"] = 2
            await process.sleep(60.0)
        process.log(f"{sorted(process.disk)} {sorted(process.volatile)}")

    run = simulate(program, replace(ALONE, faults=(Crash(0, 1.0), Restart(0, 1.5))))
    assert [line.text for line in run.log] == ["['synced'] []"]
    assert run.disks == ({"synced": 1},)


def test_coroutines_run_beside_the_program_and_are_dropped_with_it() -> None:
    async def program(process: Process) -> None:
        async def count(name: str, pause_s: float) -> str:
            for number in range(3):
                process.log(f"{name}{number}")
                await process.sleep(pause_s)
            return name

        async def for_ever() -> None:
            while True:
                await process.sleep(0.1)

        process.start(for_ever())
        both = process.start(count("a", 0.2)), process.start(count("b", 0.3))
        process.log("".join([await coroutine for coroutine in both]))
        process.sometimes("done")

    run = simulate(program, ALONE)
    assert [line.text for line in run.log] == ["a0", "b0", "a1", "b1", "a2", "b2", "ab"]
    assert run.finished
    assert run.reached["done"] == 1


def test_an_exception_in_a_coroutine_is_raised_where_it_is_awaited_or_ends_the_process() -> None:
    async def fail() -> None:
        raise ValueError("beside")

    async def awaits(process: Process) -> None:
        with pytest.raises(ValueError, match="beside"):
            await process.start(fail())

    async def does_not(process: Process) -> None:
        process.start(fail())
        await process.sleep(1.0)

    assert simulate(awaits, ALONE).ends[0].state == "left"
    end = simulate(does_not, ALONE).ends[0]
    assert end.cause.startswith("the program raised ValueError: beside")


def test_clocks_never_go_back_by_their_timers_and_wake_when_they_are_due() -> None:
    clock = Clock()
    for now_ns, drift in ((1_000, 0.1), (50_000, -0.5), (90_000, 0.0), (200_000, 1.0)):
        before = clock.monotonic_ns(now_ns)
        clock.skew(now_ns, 7, drift)
        assert clock.monotonic_ns(now_ns) == before
        for local_ns in range(before, before + 500, 7):
            true_ns = clock.true_ns(local_ns)
            assert clock.monotonic_ns(true_ns) >= local_ns
            assert clock.monotonic_ns(true_ns - 1) <= local_ns
    assert clock.wall_ns(300_000) - clock.monotonic_ns(300_000) == 28


# --- programs that break the rules -----------------------------------------------------------------


async def sleeps(process: Process) -> None:
    time.sleep(0.1)  # noqa: ASYNC251 - that is the point


async def uses_asyncio(process: Process) -> None:
    await asyncio.sleep(1)


async def yields_nothing(process: Process) -> None:
    await asyncio.sleep(0)


async def uses_a_thread(process: Process) -> None:
    await asyncio.to_thread(print)


async def starts_a_thread(process: Process) -> None:
    threading.Thread(target=print).start()


async def connects(process: Process) -> None:
    socket.create_connection(("127.0.0.1", 1))


async def starts_a_process(process: Process) -> None:
    subprocess.run(["true"], check=True)  # noqa: ASYNC221 - that is the point


async def never_lets_time_pass(process: Process) -> None:
    while True:
        await process.sleep(0.0)


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (sleeps, r"time\.sleep: use `await process\.sleep"),
        (uses_asyncio, "there is no event loop"),
        (yields_nothing, "awaits None"),
        (uses_a_thread, "there is no event loop"),
        (starts_a_thread, r"a thread: use `process\.start"),
        (connects, r"a real socket: use `process\.client"),
        (starts_a_process, "a real process"),
        (never_lets_time_pass, "without letting virtual time pass"),
        (lambda _process: 3, "a program is an async function"),
    ],
)
def test_a_program_that_does_something_real_is_told_what_to_use(program: Any, problem: str) -> None:
    with pytest.raises(ProgramError, match=problem):
        simulate(program, ALONE)
    # Outside of a program all is as before.
    time.sleep(0.0)
    threading.Thread(target=lambda: None).start()


def test_a_program_that_never_yields_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def computes(process: Process) -> None:
        while True:
            pass

    monkeypatch.setattr(guard, "NEVER_YIELDS_S", 0.5)
    with pytest.raises(ProgramError, match="without an await"):
        simulate(computes, ALONE)


@pytest.mark.parametrize("swallowed", [Exception, BaseException])
def test_a_program_cannot_swallow_that_it_did_something_real(
    swallowed: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def sleeps_and_goes_on(process: Process) -> None:
        with contextlib.suppress(swallowed):
            time.sleep(0.1)  # noqa: ASYNC251 - that is the point
        await process.sleep(1.0)

    async def computes(process: Process) -> None:
        for _ in range(2):
            with contextlib.suppress(swallowed):
                while True:
                    pass

    monkeypatch.setattr(guard, "NEVER_YIELDS_S", 0.5)
    with pytest.raises(ProgramError, match=r"time\.sleep"):
        simulate(sleeps_and_goes_on, ALONE)
    with pytest.raises(ProgramError, match="without an await"):
        simulate(computes, ALONE)


def test_asyncio_is_refused_in_a_running_loop_and_by_contended_locks() -> None:
    async def lock(process: Process) -> None:
        lock = asyncio.Lock()
        await lock.acquire()
        await lock.acquire()

    async def task(process: Process) -> None:
        asyncio.create_task(process.client.key_value_set("k", "v"))  # noqa: RUF006

    async def around() -> None:
        for program in (lock, task):
            with pytest.raises(ProgramError, match="asyncio"):
                simulate(program, ALONE)
        await asyncio.sleep(0.001)  # The loop outside is what it was.

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # The coroutine that nobody ran.
        asyncio.run(around())
        gc.collect()


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda client: client.key_value_set(5, "a"), "key must be str"),
        (lambda client: client.key_value_set("a", 5), "value must be str"),
        (lambda client: client.key_value_increment("c", "x"), "by must be int"),
        (lambda client: client.wait_at_barrier("b", "10"), "timeout_in_ms must be int"),
        (lambda client: client.blocking_key_value_get(None), "key must be str"),
    ],
)
def test_a_wrong_argument_ends_the_process_that_gave_it(call: Any, problem: str) -> None:
    async def program(process: Process) -> None:
        if process.number == 0:
            await call(process.client)

    run = simulate(program, Schedule(processes=2))
    assert run.ends[0].cause.startswith(f"the program raised TypeError: {problem}")
    assert run.ends[1].state == "left"


def test_what_processes_keep_and_exchange_is_copied() -> None:
    async def program(process: Process) -> None:
        if process.lifetime == 0:
            process.disk["list"] = [1]
            await process.disk.sync()
            process.disk["list"].append(2)
            mine = [process.number]
            live = await process.client.get_live_nodes(process.participants)
            gathered = process.devices.all_gather(mine, live)
            mine.append(9)
            values = await gathered.block_until_ready()
            values[0].append(7)
            await process.sleep(1.0)
            process.log(f"{values}")
            await process.sleep(60.0)
        else:
            process.log(f"{process.disk['list']}")

    faults = tuple(fault for p in (0, 1) for fault in (Crash(p, 3.0), Restart(p, 3.5)))
    run = simulate(program, Schedule(processes=2, faults=faults))
    assert [line.text for line in run.log] == ["([0, 7], [1])", "([0, 7], [1])", "[1]", "[1]"]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"processes": 2.5}, "processes must be int"),
        ({"processes": True}, "processes must be int"),
        ({"seed": "x"}, "seed must be int"),
        ({"faults": ("crash",)}, "faults holds 'crash'"),
        ({"faults": Crash(1, 1.0)}, "faults must be tuple"),
        ({"faults": (Crash(1, "2"),)}, "at no time and on no condition"),  # type: ignore[arg-type]
        ({"faults": (Crash(1, 500.0),), "limit_s": 60.0}, "after the end of the run"),
        ({"faults": (Crash(1, When("inside", 1, "blok")),)}, "did you mean 'block'"),
        ({"hosts": ((0, 1), (1,))}, "a process is on one host"),
        ({"limit_s": 1e300}, "positive and finite"),
        ({"heartbeat_timeout_s": 1e-12}, "positive and finite"),
        ({"death_order": (0, 2)}, "death_order names task 2; tasks are 0 to 1"),
        ({"death_order": ("1",)}, "death_order names task '1'"),
        ({"death_order": (1, 1)}, "names a task twice"),
        ({"mutant": "answer-differ"}, "did you mean 'answers-differ'"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused_in_words(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ScheduleError, match=problem):
        Schedule(**{"processes": 2, **settings})


def test_faults_that_did_not_happen_are_told() -> None:
    faults = (Crash(0, When("inside", 0, "block", 99)), Crash(1, 100.0), Crash(1, 1.0))
    run = simulate(training_loop(2), Schedule(processes=2, faults=faults))
    assert set(run.missed) == set(faults[:2])


def test_other_threads_may_do_what_a_program_may_not() -> None:
    done = []
    ready, go = threading.Event(), threading.Event()

    def other() -> None:
        ready.set()
        go.wait(60)
        time.sleep(0.001)
        done.append(1)

    thread = threading.Thread(target=other)
    thread.start()

    async def program(process: Process) -> None:
        go.set()
        while not done:
            pass

    assert ready.wait(60)
    assert simulate(program, ALONE).finished
    thread.join(60)


def test_what_a_program_raises_is_told_with_the_lines_of_its_files() -> None:
    def inner() -> None:
        raise KeyError("k")

    async def program(process: Process) -> None:
        inner()

    run = simulate(program, ALONE)
    (crash,) = [event for event in run.history.events if isinstance(event, CrashEvent)]
    assert crash.cause is not None
    told = crash.cause.splitlines()
    assert told[0] == "the program raised KeyError: 'k'"
    assert [line.split(":")[0] for line in told[1:]] == ["  test_kernel.py", "  test_kernel.py"]
    assert 'raise KeyError("k")' in told[-1]


# --- nemesis -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stalls", "failures"), [(True, "suspicion"), (False, "crash-stop")])
def test_the_published_service_is_valid_and_gets_on_whatever_goes_wrong(
    stalls: bool, failures: str
) -> None:
    base = Schedule(processes=3, semantics="published", hosts=((0, 1), (2,)))
    kinds: set[str] = set()
    for seed in range(120):
        run = simulate(training_loop(4), draw_schedule(seed, base, stalls=stalls))
        kinds |= {type(fault).__name__ for fault in run.schedule.faults}
        rules = WellFormed(run.history.header)
        for event in run.history.events:
            rules.accept(event)
        assert check(run.history, LiveProcesses(failures=failures)).word == "valid", f"seed {seed}"  # type: ignore[arg-type]
        assert run.finished, f"seed {seed}: {run.ends}"
    assert kinds == {"Crash", "Restart", "Pause", "Slow", "Skew", "Degrade", "Partition", "Reset"}


def test_each_kind_of_fault_can_be_asked_for_alone() -> None:
    for kind in KINDS:
        schedules = [draw_schedule(seed, Schedule(processes=3), kinds=[kind]) for seed in range(8)]
        assert any(schedule.faults or schedule.loss for schedule in schedules), kind
    with pytest.raises(ScheduleError, match="no kind of fault is called 'flood'"):
        draw_schedule(0, Schedule(processes=3), kinds=["flood"])


# --- tapes ---------------------------------------------------------------------------------------


def kept(seed: int, path: Path) -> tuple[str, Case]:
    schedule = draw_schedule(seed, Schedule(processes=3))
    tape = Tape()
    history = simulate(training_loop(3), schedule, tape=tape).history
    case = Case("training_loop", schedule, {"steps": 3})
    save_tape(path, case, tape)
    return history.to_text(), case


def test_a_tape_gives_the_same_run_whatever_the_seed_would_draw(tmp_path: Path) -> None:
    for seed in range(5):
        text, case = kept(seed, tmp_path / "run.tape")
        assert simulate(training_loop(3), case.schedule).history.to_text() == text
        loaded, tape = load_tape(tmp_path / "run.tape")
        assert loaded == case
        # As if the code had come to turn seeds into other draws.
        other = replace(loaded.schedule, seed=seed + 1000)
        played = simulate(loaded.make_program(), other, tape=tape).history
        assert played.to_text().splitlines()[1:] == text.splitlines()[1:]
        assert tape.departure() is None


def test_a_replay_says_where_it_left_the_tape(tmp_path: Path) -> None:
    _, case = kept(1, tmp_path / "run.tape")
    for steps, words in ((2, "were not asked for"), (5, "asked for more than")):
        _, tape = load_tape(tmp_path / "run.tape")
        simulate(training_loop(steps), case.schedule, tape=tape)
        assert words in str(tape.departure())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "not a tape"),
        ("[1]", "the field 'coordlab_tape' is missing"),
        ('{"coordlab_tape": 2}', "version 1 are read, found 2"),
        ('{"coordlab_tape": 1, "case": 3}', "its case is no case"),
        ("[" * 200_000, "not a tape"),
    ],
)
def test_what_is_no_tape_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.tape"
    path.write_text(content)
    with pytest.raises(TapeError, match=problem):
        load_tape(path)


@pytest.mark.parametrize(
    ("stream", "draw"),
    [
        ("network/0", "-5.0"),
        ("network/0", "1e308"),
        ("network/0", '"x"'),
        ("service/incarnation", "Infinity"),
        ("service/incarnation", "-3"),
    ],
)
def test_draws_that_nobody_draws_are_refused(stream: str, draw: str, tmp_path: Path) -> None:
    kept(0, tmp_path / "run.tape")
    content = json.loads((tmp_path / "run.tape").read_text())
    content["draws"][stream] = [json.loads(draw)]
    (tmp_path / "run.tape").write_text(json.dumps(content))
    with pytest.raises(TapeError, match=f"the draws of stream '{stream}'"):
        load_tape(tmp_path / "run.tape")


def test_a_tape_holds_one_run() -> None:
    tape = Tape()
    simulate(training_loop(1), ALONE, tape=tape)
    with pytest.raises(ValueError, match="take a fresh one"):
        simulate(training_loop(1), ALONE, tape=tape)


def test_every_scenario_is_the_same_after_it_was_written_and_read() -> None:
    for name in names():
        scenario = scenario_named(name)
        assert parse_scenario(to_toml(scenario), name) == scenario
