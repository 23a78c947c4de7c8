"""Breadth-first search through all interleavings.

A whole state is one of the protocol, what a judge makes of the past, and what is left of the bounds,
each a small number; the inner loop is a few look-ups per transition.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from checker.history import History
from coord_sim.core.identifiers import seconds
from coord_sim.core.semantics import Semantics
from coord_sim.core.service import CoordinationService, ServiceConfig
from coord_sim.errors import ScheduleError
from coord_sim.explore.bounds import Bounds
from coord_sim.explore.budgets import Budgets
from coord_sim.explore.graph import Graph, Node, Permutation, composed, inverse
from coord_sim.explore.happenings import Happening, history_of
from coord_sim.explore.judge import Judge, Unjudged
from coord_sim.explore.product import BITS, IMPOSSIBLE, MASK, Tables, Way
from coord_sim.explore.protocol import DEADLOCK, NO_PROGRESS, Protocol
from coord_sim.explore.services import HEARTBEAT_TIMEOUT_NS, Factory, Services

STATES_MAX = 20_000_000
"""Where a search ends without an answer, if not said otherwise: some 3 GB."""

VALIDITY = "validity"

_REPORTED_EVERY = 4096


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was found, with a shortest way to it.

    Attributes:
      kind: `validity`, `agreement`, `atomicity`, `deadlock`, `no progress`, or the name of a hole.
      steps: What happens, in words.
      history: What processes see of it.
    """

    kind: str
    steps: tuple[str, ...]
    history: History


@dataclass(slots=True)
class Exploration:
    """What a search found.

    Attributes:
      states: Different states, each with what the judge knows of the past.
      transitions: Steps taken from them.
      depth: Steps of the longest of all shortest ways.
      protocol_states: Different states, whatever was before.
      service_states: Different states of the service.
      is_exhausted: Whether there is nothing within the bounds that was not looked at.
      violation: The first that was found, or None. The search ends with it.
      stuck_states: States in which somebody waits for a process that lives and will never call.
      no_progress: A shortest way to one of them.
      holes: A shortest way to each identity hole that was found.
    """

    bounds: Bounds
    states: int = 0
    transitions: int = 0
    depth: int = 0
    protocol_states: int = 0
    service_states: int = 0
    is_exhausted: bool = False
    violation: Finding | None = None
    stuck_states: int = 0
    no_progress: Finding | None = None
    holes: dict[str, Finding] = field(default_factory=dict)


def explore(
    bounds: Bounds,
    semantics: Semantics,
    judge: Judge | None = None,
    *,
    factory: Factory = CoordinationService,
    states_max: int = STATES_MAX,
    sought: Collection[str] | None = None,
    avoided: Collection[str] = (),
    report: Callable[[int], None] | None = None,
) -> Exploration:
    """Explores all interleavings within bounds.

    Args:
      bounds: The limits.
      semantics: The face of the service.
      judge: Says which histories are invalid; nobody does if left out.
      factory: Makes the service.
      states_max: Ends the search when so many states were found.
      sought: Ends the search when these identity holes were found, too.
      avoided: Leaves out the moves that show one of these identity holes.
      report: Called now and then with the number of states found.
    """
    config = ServiceConfig(
        tasks=bounds.processes,
        recoverable=True,
        heartbeat_timeout_ns=HEARTBEAT_TIMEOUT_NS,
        shutdown_timeout_ns=seconds(0.0),
        semantics=semantics,
    )
    services = Services(factory, config)
    protocol = Protocol(bounds, services)
    symmetric = bounds.symmetric and services.is_symmetric
    graph = Graph(protocol, symmetric=symmetric, avoided=avoided)
    search = _Search(graph, judge or Unjudged(), bounds, semantics.name)
    search.run(states_max, None if sought is None else frozenset(sought), report)
    found = search.found
    found.protocol_states = len(graph)
    found.service_states = len(services)
    return found


class _Search:
    def __init__(self, graph: Graph, judge: Judge, bounds: Bounds, semantics: str) -> None:
        self._graph = graph
        self._initial_judge = judge.initial
        self._semantics = semantics
        self._budgets = Budgets(bounds)
        self._tables = Tables(judge, self._budgets)
        self._nodes: dict[int, tuple[Node, list[Way]]] = {}
        self._keys = array("q")
        self._parents = array("q")
        self._edges = array("i")
        self.found = Exploration(bounds)

    def run(  # noqa: PLR0915 - one loop, for speed
        self,
        states_max: int,
        sought: frozenset[str] | None,
        report: Callable[[int], None] | None,
    ) -> None:
        found, tables, nodes = self.found, self._tables, self._nodes
        keys, parents, edges_taken = self._keys, self._parents, self._edges
        first = self._first()
        seen = {first}
        keys.append(first)
        parents.append(-1)
        edges_taken.append(-1)
        transitions = at = 0
        level_ends = 1
        while at < len(keys):
            if at == level_ends:
                found.depth += 1
                level_ends = len(keys)
            if len(keys) >= states_max:
                break
            if report is not None and not at % _REPORTED_EVERY:
                report(len(keys))
            key = keys[at]
            number, judged, budget = key >> 2 * BITS, key >> BITS & MASK, key & MASK
            node, ways = nodes.get(number) or self._prepare(number)
            goes_on = False
            for place, way in enumerate(ways):
                left = way.spends.get(budget)
                if left is None:
                    left = tables.spend(way, budget)
                if left < 0:
                    continue
                transitions += 1
                after = way.judged.get(judged)
                if after is None:
                    after = tables.judge(way, judged)
                if after < 0:
                    found.violation = self._finding(VALIDITY, at, place)
                    break
                both = after << BITS | left
                if way.least is not None:
                    least = way.least.get(both)
                    both = tables.rename(way, both) if least is None else least
                following = way.target | both
                if not way.is_fault and following != key:
                    goes_on = True
                if following not in seen:
                    seen.add(following)
                    keys.append(following)
                    parents.append(at)
                    edges_taken.append(place)
            if node.holes or node.broken:
                self._note(node, ways, budget, at)
            if not goes_on and node.stuck:
                self._is_stuck(node.stuck, at)
            if found.violation is not None or (sought is not None and sought <= found.holes.keys()):
                break
            at += 1
        found.is_exhausted = at == len(keys)
        found.states = len(keys)
        found.transitions = transitions

    def _first(self) -> int:
        judged = self._tables.after(self._initial_judge, self._graph.first_happenings)
        assert judged >= 0, "a job that has just formed is valid"
        return self._graph.initial << 2 * BITS | judged << BITS | self._budgets.initial

    def _prepare(self, number: int) -> tuple[Node, list[Way]]:
        node = self._graph.node(number)
        prepared = node, [self._tables.way(edge) for edge in node.edges]
        self._nodes[number] = prepared
        if max(len(self._graph), len(self._budgets)) > MASK:
            raise ScheduleError("the bounds are too large: more states than can be numbered")
        return prepared

    def _is_stuck(self, kind: str, at: int) -> None:
        if kind == DEADLOCK:
            self.found.violation = self.found.violation or self._finding(DEADLOCK, at)
            return
        self.found.stuck_states += 1
        if self.found.no_progress is None:
            self.found.no_progress = self._finding(NO_PROGRESS, at)

    def _note(self, node: Node, ways: Sequence[Way], budget: int, at: int) -> None:
        """Takes down holes, and what is broken for certain."""
        for place, holes in node.holes.items():
            if ways[place].spends.get(budget, IMPOSSIBLE) >= 0:
                for hole in holes:
                    if hole not in self.found.holes:
                        self.found.holes[hole] = self._finding(hole, at, place)
        for place, kind in node.broken.items():
            if ways[place].spends.get(budget, IMPOSSIBLE) >= 0:
                self.found.violation = self._finding(kind, at, place)
                return

    def _finding(self, kind: str, at: int, last_edge: int = -1) -> Finding:
        """The way to a state, and over one more edge, in terms of the processes it began with."""
        places = [last_edge] if last_edge >= 0 else []
        while self._parents[at] >= 0:
            places.append(self._edges[at])
            at = self._parents[at]
        happenings: list[Happening] = list(self._graph.first_happenings)
        steps = []
        tables, key = self._tables, self._keys[0]
        count = self.found.bounds.processes
        names: Permutation = tuple(range(count))
        for place in reversed(places):
            number, judged, budget = key >> 2 * BITS, key >> BITS & MASK, key & MASK
            edge = self._nodes[number][0].edges[place]
            move = self._graph.move(number, edge)
            happenings += [happening.renamed(names) for happening in move.happenings]
            steps.append(move.text_for(names))
            after = tables.after(judged, edge.happenings)
            left = self._budgets.without(budget, edge.price)
            if after < 0 or left is None:
                break
            both, renaming = min(
                (tables.renamed(after << BITS | left, way), way) for way in edge.renamings
            )
            names = composed(names, inverse(renaming))
            key = edge.target << 2 * BITS | both
        details = {"semantics": self._semantics, "found": kind, "steps": steps}
        return Finding(kind, tuple(steps), history_of(happenings, count, details))
