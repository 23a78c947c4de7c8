"""The explorer: what it finds, what it does not find, and that its reductions lose nothing."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from checker import Invalid, LiveProcesses, check
from checker.specs.blocks import check_blocks
from coord_sim.cli.explore import StepwiseJudge
from coord_sim.core.semantics import NAIVE, PUBLISHED, SHIPPED, Semantics
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.explore import HOLES, Bounds, Exploration, explore, names
from coord_sim.explore.budgets import Budgets
from coord_sim.explore.freezing import View, freeze
from coord_sim.explore.happenings import events_of
from coord_sim.explore.protocol import Protocol, State
from coord_sim.explore.requests import Message, Operation
from coord_sim.explore.services import HEARTBEAT_TIMEOUT_NS, NOW_NS, Services
from coord_sim.mutants import service_mutants

CRASH_STOP = LiveProcesses(failures="crash-stop")
SUSPICION = LiveProcesses()


def explored(
    bounds: Bounds, semantics: Semantics, spec: LiveProcesses = SUSPICION, **more: Any
) -> Exploration:
    return explore(bounds, semantics, StepwiseJudge(bounds.processes, spec), **more)


# --- what it finds -------------------------------------------------------------------------------


def test_the_ghost_entry_is_found_from_nothing_as_a_shortest_history() -> None:
    found = explored(Bounds(processes=2, calls=1), SHIPPED, CRASH_STOP)
    assert found.violation is not None
    assert found.violation.kind == "validity"
    assert len(found.violation.steps) == 4
    verdict = check(found.violation.history, CRASH_STOP)
    assert isinstance(verdict, Invalid)
    assert verdict.anomaly.kind == "counted-without-call"
    assert any("ghost entry" in sentence for sentence in verdict.anomaly.details)


@pytest.mark.parametrize("spec", [SUSPICION, CRASH_STOP], ids=["suspicion", "crash-stop"])
@pytest.mark.parametrize("program", ["live", "leave", "blocks"])
def test_the_published_service_is_never_wrong(spec: LiveProcesses, program: str) -> None:
    suspicions = int(spec.failures == "suspicion")
    bounds = Bounds(processes=2, calls=2, suspicions=suspicions, program=program)
    found = explored(bounds, PUBLISHED, spec)
    assert found.is_exhausted
    assert found.violation is None
    assert found.states > 200


def test_three_processes_with_two_crashes_and_a_restart_exhaust_the_published_service() -> None:
    bounds = Bounds(processes=3, calls=2, crashes=2, crashes_in_all=2, restarts=1)
    for spec in (SUSPICION, CRASH_STOP):
        found = explored(bounds, PUBLISHED, spec)
        assert found.is_exhausted
        assert found.violation is None


def test_naive_answers_are_caught() -> None:
    found = explored(Bounds(processes=2, calls=1), NAIVE)
    assert found.violation is not None
    assert isinstance(check(found.violation.history), Invalid)


def test_every_hole_of_the_shipped_service_is_found_from_nothing() -> None:
    bounds = Bounds(calls=1, crashes=2, crashes_in_all=2, retries=1, program="mixed")
    found = explore(bounds, SHIPPED, sought=HOLES)
    assert found.holes.keys() == HOLES.keys()
    lengths = {hole: len(finding.steps) for hole, finding in found.holes.items()}
    assert lengths == {
        "ghost-entry": 5,
        "zombie-calls": 3,
        "zombie-writes": 3,
        "zombie-shuts-down-successor": 3,
        "deaths-one-by-one": 5,
        "dead-come-back": 5,
    }
    ghost = found.holes["ghost-entry"].history
    assert isinstance(check(ghost), Invalid)


def test_the_published_service_has_no_hole() -> None:
    bounds = Bounds(processes=2, calls=1, crashes=1, retries=1, program="mixed")
    found = explore(bounds, PUBLISHED)
    assert found.is_exhausted
    assert found.holes == {}
    assert found.violation is None


def test_a_ghost_entry_is_harmful_without_any_other_hole_and_deaths_one_by_one_are_not() -> None:
    bounds = Bounds(processes=3, calls=1, crashes=1, crashes_in_all=2)
    for hole, is_harmful in (("ghost-entry", True), ("deaths-one-by-one", False)):
        found = explored(bounds, SHIPPED, CRASH_STOP, avoided=HOLES.keys() - {hole})
        assert hole in found.holes
        assert (found.violation is not None) is is_harmful


def test_callers_of_one_round_that_are_told_different_sets_are_caught() -> None:
    """A service that tells callers of one round different things breaks blocks apart."""
    bounds = Bounds(processes=2, calls=2, program="blocks")
    factory = service_mutants["answers-differ"]
    judged = explored(bounds, PUBLISHED, factory=factory).violation
    assert judged is not None
    assert judged.kind in {"validity", "agreement"}
    assert isinstance(check(judged.history), Invalid)


def test_a_shipped_service_lets_a_block_end_in_both_branches() -> None:
    """With nobody to judge the answers, atomicity is what a shipped service breaks."""
    bounds = Bounds(
        processes=3, calls=3, crashes=1, crashes_in_all=1, suspicions=1, program="blocks"
    )
    violation = explore(bounds, SHIPPED).violation
    assert violation is not None
    assert violation.kind == "atomicity"
    assert isinstance(check_blocks(violation.history), Invalid)


def test_waiting_for_a_process_that_never_calls_is_no_violation() -> None:
    found = explored(Bounds(processes=2, calls=1, crashes=1), PUBLISHED)
    assert found.violation is None
    assert found.stuck_states > 0
    assert found.no_progress is not None
    assert check(found.no_progress.history).word == "valid"


def test_waiting_for_the_dead_is_a_deadlock() -> None:
    bounds = Bounds(processes=2, calls=1, restarts=0)
    for name in ("waits-for-the-dead", "never-declares-deaths"):
        found = explored(bounds, PUBLISHED, factory=service_mutants[name])
        assert found.violation is not None, name
        assert found.violation.kind == "deadlock", name


@pytest.mark.parametrize(
    "name",
    [
        "answers-at-once",
        "counts-the-restarted-as-the-old",
        "answers-differ",
        "keeps-ghost-entries",
        "serves-stale-callers",
        "serves-dead-callers",
    ],
)
def test_known_wrong_services_are_caught(name: str) -> None:
    bounds = Bounds(processes=2, calls=2, crashes=2, crashes_in_all=2, suspicions=1)
    found = explored(bounds, PUBLISHED, factory=service_mutants[name])
    assert found.violation is not None
    if found.violation.kind != "deadlock":
        assert isinstance(check(found.violation.history), Invalid)


def test_a_budget_ends_the_search_without_an_answer() -> None:
    found = explored(Bounds(), PUBLISHED, states_max=100)
    assert not found.is_exhausted
    assert found.violation is None


# --- that its reductions lose nothing ----------------------------------------------------------

SMALL = [
    Bounds(processes=2, calls=1, crashes=1, restarts=1),
    Bounds(processes=2, calls=1, crashes=1, restarts=1, suspicions=1),
    Bounds(processes=2, calls=1, crashes=2, restarts=1, retries=1),
    Bounds(processes=2, calls=1, crashes=1, crashes_in_all=1, restarts=1, program="mixed"),
    Bounds(processes=2, calls=2, crashes=1, crashes_in_all=1, restarts=1, program="blocks"),
    Bounds(processes=3, calls=1, crashes=1, crashes_in_all=1, restarts=1),
]


@pytest.mark.parametrize("semantics", [SHIPPED, PUBLISHED], ids=lambda face: face.name)
@pytest.mark.parametrize("bounds", SMALL, ids=repr)
def test_the_reduction_reaches_the_same_quiet_states(bounds: Bounds, semantics: Semantics) -> None:
    """Those in which nothing is on its way but what the dead have sent."""
    reduced = set(_quiet_states(bounds, semantics))
    full = set(_quiet_states(_changed(bounds, reduced=False), semantics))
    assert reduced == full
    assert len(reduced) > 50


@pytest.mark.parametrize("semantics", [SHIPPED, PUBLISHED, NAIVE], ids=lambda face: face.name)
@pytest.mark.parametrize("spec", [SUSPICION, CRASH_STOP], ids=["suspicion", "crash-stop"])
def test_all_ways_to_explore_give_the_same_verdict(
    semantics: Semantics, spec: LiveProcesses
) -> None:
    for bounds in SMALL[:2]:
        if spec.failures == "crash-stop" and bounds.suspicions:
            continue
        verdicts = {
            explored(
                _changed(bounds, reduced=reduced, symmetric=symmetric), semantics, spec
            ).violation
            is None
            for reduced, symmetric in itertools.product((True, False), repeat=2)
        }
        assert verdicts == {semantics is PUBLISHED}


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_tables_count_what_a_plain_search_counts(symmetric: bool) -> None:
    """A search without tables, whose only idea is to compare whole states under all names."""
    bounds = Bounds(processes=3, calls=1, crashes=1, restarts=1, symmetric=symmetric)
    judge = StepwiseJudge(3, SUSPICION)
    protocol, budgets = _protocol(bounds, PUBLISHED), Budgets(bounds)
    orders = list(itertools.permutations(range(3))) if symmetric else [(0, 1, 2)]

    def least(state: State, judged: int, budget: int) -> object:
        return min(
            (
                protocol.renamed_processes(state, order),
                protocol.renamed_rest(state, order),
                judge.renamed(judged, order),
                budgets.renamed(budget, order),
            )
            for order in orders
        )

    state, happenings = protocol.start()
    judged = judge.after(judge.initial, events_of(happenings))
    assert judged is not None
    queue = [(state, judged, budgets.initial)]
    seen = {least(*queue[0])}
    transitions = 0
    for state, judged, budget in queue:
        for move in protocol.moves(state):
            left = budgets.without(budget, move.price)
            if left is None:
                continue
            transitions += 1
            after = judge.after(judged, events_of(move.happenings))
            assert after is not None
            following = (move.state, after, left)
            if (key := least(*following)) not in seen:
                seen.add(key)
                queue.append(following)
    found = explored(bounds, PUBLISHED)
    assert (found.states, found.transitions) == (len(seen), transitions)


def test_symmetry_divides_by_nearly_the_number_of_permutations() -> None:
    bounds = Bounds(processes=3, calls=1, crashes=1, restarts=1)
    folded = explored(bounds, PUBLISHED).states
    plain = explored(_changed(bounds, symmetric=False), PUBLISHED).states
    assert 4.5 < plain / folded <= 6


def test_a_hang_up_makes_no_difference() -> None:
    """The reduction lets processes crash, and so their connections break, before replies are sent."""
    services = _services(2, SHIPPED)
    for semantics in (SHIPPED, PUBLISHED):
        services = _services(2, semantics)
        waiting = services.receives(services.initial, Message(Operation.LIVE, 0, 0)).service
        assert waiting != services.initial
        assert services.hangs_up(waiting, names.call_id(0, 0, Operation.LIVE)) == waiting


def test_all_orders_of_deaths_are_explored() -> None:
    """Of two that die at once, whoever is found first makes a difference as shipped."""
    services = _services(3, SHIPPED)
    waiting = services.receives(services.initial, Message(Operation.LIVE, 0, 0)).service
    waiting = services.receives(waiting, Message(Operation.LIVE, 1, 0)).service
    first, second = (services.times_out(waiting, order) for order in ((1, 2), (2, 1)))
    assert first.service == second.service
    members = [{reply.told.members for reply in reaction.replies} for reaction in (first, second)]
    assert members == [{((0, 0),)}, {((0, 0), (1, 0))}]


def test_time_does_not_make_new_states() -> None:
    services = _services(2, PUBLISHED)
    dead = services.times_out(services.initial, (1,)).service
    back = services.receives(dead, Message(Operation.REGISTER, 1, 1)).service
    again = services.times_out(back, (1,)).service
    assert services.standings(again)[0] == services.standings(services.initial)[0]
    back = services.receives(dead, Message(Operation.REGISTER, 1, 1)).service
    assert services.receives(back, Message(Operation.REGISTER, 1, 1)).service == back


def test_histories_are_the_same_whatever_was_explored_before() -> None:
    one = explored(Bounds(processes=3), SHIPPED)
    other = explored(Bounds(processes=3), SHIPPED)
    assert one.violation is not None
    assert other.violation is not None
    assert one.violation.history.to_text() == other.violation.history.to_text()


def _changed(bounds: Bounds, *, reduced: bool = True, symmetric: bool = True) -> Bounds:
    return replace(bounds, reduced=reduced, symmetric=symmetric)


def _config(processes: int, semantics: Semantics) -> ServiceConfig:
    return ServiceConfig(
        tasks=processes,
        recoverable=True,
        heartbeat_timeout_ns=HEARTBEAT_TIMEOUT_NS,
        shutdown_timeout_ns=0,
        semantics=semantics,
    )


def _services(processes: int, semantics: Semantics) -> Services:
    return Services(CoordinationService, _config(processes, semantics))


def _protocol(bounds: Bounds, semantics: Semantics) -> Protocol:
    return Protocol(bounds, _services(bounds.processes, semantics))


def _quiet_states(bounds: Bounds, semantics: Semantics) -> Iterator[object]:
    services = _services(bounds.processes, semantics)
    protocol, budgets = Protocol(bounds, services), Budgets(bounds)
    view = View(tuple(range(bounds.processes)), NOW_NS)
    queue = [(protocol.start()[0], budgets.initial)]
    seen = set(queue)
    for state, budget in queue:
        is_quiet = not state.replies and not any(
            state.processes[message.process].waits_for(message.operation, message.lifetime)
            for message in state.requests
        )
        if is_quiet:
            frozen = freeze(services._load(state.service), view)
            yield frozen, state[1:], budgets._values[budget]
        for move in protocol.moves(state):
            left = budgets.without(budget, move.price)
            if left is not None and (move.state, left) not in seen:
                seen.add((move.state, left))
                queue.append((move.state, left))
