"""What callers saw is searched for an order of arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from checker.history import Event, Fault, History, Invoke, Ok, read
from checker.history.gaps import NOT_RECORDED
from coord_sim.faults import Crash, Restart
from coord_sim.moments import When
from coord_sim.replay import replay, settings_of
from coord_sim.replay.settings import SERVICE_UNKNOWN
from coord_sim.schedule import Schedule
from coord_sim.sim import Process, simulate
from coord_sim.sim.nemesis import KINDS, draw_schedule
from coord_sim.sim.programs import PROGRAMS
from jax_bridge.recorder.program import CANNOT_KNOW

FINDINGS = Path(__file__).parents[1] / "data" / "findings"
QUICK = ("ghost-entry-jaxlib", "zombie-calls-jaxlib", "dead-served", "zombie-shuts-down-jaxlib")
NOT_THE_SERVICE = [kind for kind in KINDS if kind != "service kill"]


def files(*beginnings: str) -> list[str]:
    return sorted(
        path.name for path in FINDINGS.glob("*.jsonl") if path.name.startswith(beginnings)
    )


@pytest.mark.parametrize(
    "name", [name for name in files("") if not name.startswith(("repeated", "zombie-shuts-down.j"))]
)
def test_what_was_found_wrong_could_come_of_the_service_as_shipped(name: str) -> None:
    history = read(FINDINGS / name)
    assert replay(history, settings_of(history, semantics="shipped")).verdict == "could"


@pytest.mark.parametrize("name", files(*QUICK))
def test_and_could_not_come_of_the_published_one(name: str) -> None:
    history = read(FINDINGS / name)
    replayed = replay(history, settings_of(history, semantics="published"))
    assert replayed.verdict == "could not"
    assert replayed.finding is not None


@pytest.mark.parametrize("name", files("repeated-arrival-jaxlib"))
def test_a_call_that_arrives_twice_is_only_allowed_where_it_may(name: str) -> None:
    history = read(FINDINGS / name)
    assert replay(history).verdict == "could not"
    twice = settings_of(history, repeats=True)
    assert replay(history, twice).verdict == "could"
    published = settings_of(history, repeats=True, semantics="published")
    assert replay(history, published).verdict == "could not"


@pytest.mark.parametrize("semantics", ["shipped", "published"])
@pytest.mark.parametrize("program", ["training_loop", "store_traffic", "block_traffic"])
@pytest.mark.parametrize("seed", range(4))
def test_simulated_runs_could_come_of_the_model(program: str, semantics: str, seed: int) -> None:
    base = Schedule(processes=3, semantics=semantics)
    schedule = draw_schedule(seed, base, kinds=["crash", "pause", "slow", "partition"])
    history = simulate(PROGRAMS[program](), schedule).history
    replayed = replay(history)
    assert replayed.verdict == "could", replayed


async def rounds(process: Process) -> None:
    for step in range(3):
        await process.client.get_live_nodes(range(3))
        await process.client.key_value_set(f"{process.number}/{step}", "1", True)


async def one_round(process: Process) -> None:
    await process.client.get_live_nodes(range(2))


def changed(history: History, live: Sequence[int]) -> History:
    """With another incarnation, or a member less, in the last answer of a round."""
    ids = {
        e.id for e in history.events if isinstance(e, Invoke) and e.operation == "live_processes"
    }
    index = max(i for i, e in enumerate(history.events) if isinstance(e, Ok) and e.id in ids)
    event = history.events[index]
    assert isinstance(event, Ok)
    result = {p: i for p, i in dict(event.result).items() if p in live}  # type: ignore[call-overload]
    events: list[Event] = [*history.events]
    events[index] = replace(event, result=result)
    return History(history.header, events)


def test_a_member_that_is_missing_without_reason_could_not_be() -> None:
    history = simulate(one_round, Schedule(processes=2, seed=1)).history
    assert replay(history).verdict == "could"
    replayed = replay(changed(history, [0]))
    assert replayed.verdict == "could not"
    assert replayed.side == "callers"


def test_unless_the_living_may_be_suspected() -> None:
    """One answer names both, the other one: that is no round, whoever is suspected."""
    history = changed(simulate(one_round, Schedule(processes=2, seed=1)).history, [0])
    anybody = settings_of(history, suspicions="any")
    assert replay(history, anybody).verdict == "could not"
    ids = {
        e.id for e in history.events if isinstance(e, Invoke) and e.operation == "live_processes"
    }
    both = [
        replace(e, result={0: dict(e.result)[0]}) if isinstance(e, Ok) and e.id in ids else e  # type: ignore[call-overload]
        for e in history.events
    ]
    history = History(history.header, both)
    assert replay(history).verdict == "could not"
    assert replay(history, settings_of(history, suspicions="any")).verdict == "could"


def from_inside(history: History, *gaps: str) -> History:
    """As a recorder inside the programs would have it, which sees neither heartbeats nor stalls."""
    header = replace(history.header, source="processes", cannot_know=(*CANNOT_KNOW, *gaps))
    return History(header, history.events, faults=history.faults)


def without_0() -> History:
    """One process was left out of every answer, and nothing says why."""
    history = simulate(one_round, Schedule(processes=2, seed=1)).history
    events = [
        replace(e, result={1: dict(e.result)[1]}) if isinstance(e, Ok) and e.result else e  # type: ignore[call-overload]
        for e in history.events
    ]
    return History(history.header, events)


def test_who_stood_still_or_died_unseen_may_have_been_declared_dead() -> None:
    history = without_0()
    assert replay(history).verdict == "could not"
    assert replay(from_inside(history)).verdict == "could"
    strict = settings_of(from_inside(history), suspicions="faults")
    assert replay(from_inside(history), strict).verdict == "could not"


def test_remarks_of_a_recorder_are_no_faults() -> None:
    history = without_0()
    remark = Fault(time_ns=0, name="process 0: the program has come to its end", lane="recorder")
    assert replay(History(history.header, history.events, faults=(remark,))).verdict == "could not"


def test_without_the_calls_of_all_it_is_unknown() -> None:
    """A round cannot end before all have come, of whom one is not recorded."""
    history = simulate(one_round, Schedule(processes=2, seed=1)).history
    part = History(history.header, [event for event in history.events if event.process == 1])
    assert replay(part).verdict == "could not"
    replayed = replay(from_inside(part))
    assert replayed.verdict == "unknown"
    assert any("no call of process 0 is in this history" in note for note in replayed.notes)


def test_what_may_be_of_several_services_is_unknown() -> None:
    history = simulate(one_round, Schedule(processes=2, seed=1)).history
    broken = from_inside(changed(history, [0]))
    assert replay(broken).verdict == "could not"
    replayed = replay(from_inside(broken, f"{SERVICE_UNKNOWN}: it may have been replaced"))
    assert replayed.verdict == "unknown"
    assert any("whether this history is of one service" in note for note in replayed.notes)


def test_what_may_be_the_work_of_calls_that_were_not_recorded_is_unknown() -> None:
    history = simulate(one_round, Schedule(processes=2, seed=1)).history
    broken = changed(history, [0])
    assert replay(broken).verdict == "could not"
    header = replace(broken.header, cannot_know=(f"{NOT_RECORDED}: process 1 went on",))
    replayed = replay(replace(broken, header=header))
    assert replayed.verdict == "unknown"
    assert any("the recording of a process stopped" in note for note in replayed.notes)


GHOST = Schedule(
    processes=2,
    seed=1,
    faults=(
        Crash(1, When("inside", 1, "live_processes", 1)),
        Restart(1, When("crash", 1, plus_s=0.01)),
    ),
    starts_s=(0.0, 0.0),
)


async def late_round(process: Process) -> None:
    if process.number == 0 or process.lifetime > 0:
        await process.sleep(0.5 + process.lifetime)
    await process.client.get_live_nodes(range(2))


def test_a_simulated_ghost_entry_is_the_shipped_services_and_not_the_published_ones() -> None:
    history = simulate(late_round, GHOST).history
    assert replay(history).verdict == "could"
    published = replay(history, settings_of(history, semantics="published"))
    assert published.verdict == "could not"
    assert published.finding is not None
    assert "live_processes" in published.finding.asked


def test_the_search_ends_with_its_budget() -> None:
    history = simulate(rounds, Schedule(processes=3, seed=1)).history
    replayed = replay(changed(history, [0]), steps_max=5)
    assert replayed.verdict == "unknown"
    assert any("given up after 5 moves" in note for note in replayed.notes)


def test_a_service_that_died_is_not_followed() -> None:
    history = changed(simulate(one_round, Schedule(processes=2, seed=1)).history, [0])
    died = Fault(time_ns=history.events[0].time_ns, name="crash of the service")
    settings = settings_of(history, suspicions="none")
    replayed = replay(History(history.header, history.events, faults=(died,)), settings)
    assert replayed.verdict == "unknown"
    assert any("the service died" in note for note in replayed.notes)
