"""The states of the protocol and the moves between them, each computed once, up to names of processes.

All processes run the same program, and the service treats all numbers alike (all orders in which it may
find several dead at once are moves). So states that differ by a permutation of processes have futures
that do, and one of them, the first that was met, stands for all. An edge then has to say how the state
that a move leads to must be renamed to become its representative, for the sake of what is not part of
the state: what a judge knows of the past, and what is left of the bounds. Where the representative is
symmetric itself there are several ways to rename, and whoever follows the edge takes one that gives the
least.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from coord_sim.explore.budgets import Price
from coord_sim.explore.happenings import Happening
from coord_sim.explore.protocol import Move, Protocol, State

Permutation: TypeAlias = tuple[int, ...]
"""The new number of each process."""


class Edge(NamedTuple):
    """A move to a representative; `place` is its number among the moves."""

    place: int
    target: int
    price: Price
    happenings: tuple[Happening, ...]
    renamings: tuple[Permutation, ...]
    is_fault: bool


@dataclass(slots=True)
class Node:
    """What there is to say of a representative.

    Attributes:
      edges: Its moves.
      holes: The identity holes that a move shows, by its place in `edges`.
      broken: What a move breaks for certain, likewise.
      stuck: What it is called if no move is left but faults.
    """

    edges: list[Edge]
    holes: dict[int, tuple[str, ...]] = field(default_factory=dict)
    broken: dict[int, str] = field(default_factory=dict)
    stuck: str = ""


class Graph:
    """Representatives by number, found as the search goes.

    Args:
      protocol: What moves there are.
      symmetric: Whether one state stands for all that differ by names.
      avoided: Identity holes; moves that show one of them are left out.
    """

    def __init__(
        self, protocol: Protocol, *, symmetric: bool, avoided: Collection[str] = ()
    ) -> None:
        self._avoided = frozenset(avoided)
        self._protocol = protocol
        identity = tuple(range(protocol.bounds.processes))
        self._permutations = list(itertools.permutations(identity)) if symmetric else [identity]
        self._states: list[State] = []
        self._number_of: dict[object, int] = {}
        self._from_least: list[Permutation] = []
        self._found: dict[State, tuple[int, tuple[Permutation, ...]]] = {}
        state, self.first_happenings = protocol.start()
        self.initial, _ = self._find(state)

    def __len__(self) -> int:
        return len(self._states)

    def node(self, number: int) -> Node:
        """A representative's moves; computed at each call."""
        state = self._states[number]
        node = Node([], stuck=self._protocol.stuck(state))
        for place, move in enumerate(self._protocol.moves(state)):
            if not self._avoided.isdisjoint(move.holes):
                node.stuck = ""  # It could move.
                continue
            target, renamings = self._find(move.state)
            if move.holes:
                node.holes[len(node.edges)] = tuple(dict.fromkeys(move.holes))
            if move.broken:
                node.broken[len(node.edges)] = move.broken
            node.edges.append(
                Edge(place, target, move.price, move.happenings, renamings, is_fault=move.is_fault)
            )
        return node

    def move(self, number: int, edge: Edge) -> Move:
        """The move of an edge."""
        return self._protocol.moves(self._states[number])[edge.place]

    def _find(self, state: State) -> tuple[int, tuple[Permutation, ...]]:
        """The number of the state's representative, and the renamings that lead to it."""
        found = self._found.get(state)
        if found is None:
            key, ways = self._least(state)
            number = self._number_of.setdefault(key, len(self._states))
            if number == len(self._states):
                self._states.append(state)
                self._from_least.append(inverse(ways[0]))
            back = self._from_least[number]
            found = number, tuple(sorted(composed(back, way) for way in ways))
            self._found[state] = found
        return found

    def _least(self, state: State) -> tuple[object, list[Permutation]]:
        """The least of the renamed states, and the renamings that lead to it."""
        protocol = self._protocol
        ways, processes = _least(
            self._permutations, lambda way: protocol.renamed_processes(state, way)
        )
        ways, rest = _least(ways, lambda way: protocol.renamed_rest(state, way))
        return (processes, rest), ways


def composed(second: Permutation, first: Permutation) -> Permutation:
    """One renaming after another."""
    return tuple(second[new] for new in first)


def inverse(permutation: Permutation) -> Permutation:
    """The renaming that undoes one."""
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _least(
    ways: list[Permutation], value_of: Callable[[Permutation], object]
) -> tuple[list[Permutation], object]:
    if len(ways) == 1:
        return ways, value_of(ways[0])
    values = [(value_of(way), way) for way in ways]
    least = min(value for value, _ in values)  # type: ignore[type-var]
    return [way for value, way in values if value == least], least
