"""A cycle of reasons: operations of a core that must come before one another in a circle.

For objects whose operations are guarded assignments, three rules say what must come before what:

- *time*: A responded before B was invoked;
- *source*: B needs the value that A alone could give it;
- *overwriting*: B needs a value, and X assigns another. If X is after the only A that gives the
  value, it is after B; if it is before B, it is before A. If all that give it ended before X began,
  B is before X.

The rules are applied until nothing changes; a shortest cycle is the explanation. Where no cycle comes of
them, the possible states have to explain it.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Any, cast

from checker.anomaly import Reason
from checker.operations import Failed, Operations, show
from checker.specification import Guarded, SetSpecification, Specification

CORE_MAX = 40
"""Larger cores are not searched for cycles: nobody would read one."""

_BEGINNING = -1


def cycle_of(
    operations: Operations,
    spec: Specification | SetSpecification,
    core: Sequence[int],
    context: Sequence[int],
) -> tuple[Reason, ...]:
    """The shortest cycle of reasons among the operations of a core, or nothing."""
    if isinstance(spec, SetSpecification) or not 1 < len(core) <= CORE_MAX:
        return ()
    words: dict[int, Guarded] = {}
    for index in (*core, *context):
        word = spec.guarded(operations.at(index))
        if word is not None:
            words[index] = word
        elif index in core:
            return ()
    wanted = {words[index].value for index in core if words[index].guard == "is"}
    key = spec.partition(operations.at(core[0]))
    for index in _givers(operations, spec, key, wanted):
        words[index] = cast("Guarded", spec.guarded(operations.at(index)))
    return _Order(operations, spec, words, core).cycle()


def _givers(
    operations: Operations,
    spec: Specification,
    key: Hashable,
    values: Collection[Hashable],
) -> Iterator[int]:
    """All operations on an object that assign one of some values."""
    kinds = set()
    for number, kind in enumerate(operations.kinds):
        if isinstance(kind.result, Failed) or spec.partition(kind) != key:
            continue
        word = spec.guarded(kind)
        if word is not None and word.assigns and word.new in values:
            kinds.add(number)
    return (index for index, kind in enumerate(operations.kind) if kind in kinds)


class _Order:
    def __init__(
        self,
        operations: Operations,
        spec: Specification,
        words: dict[int, Guarded],
        core: Sequence[int],
    ) -> None:
        import networkx as nx

        self._nx = nx
        self._operations = operations
        self._spec = spec
        self._words = words
        self._core = core
        self._graph: Any = nx.DiGraph()
        self._initial = spec.init()
        self._invoked: dict[int, int] = {}
        self._responded: dict[int, int] = {}
        wanted = set(words)
        for moment, event in enumerate(operations.events):
            index = event if event >= 0 else ~event
            if index in wanted:
                (self._invoked if event >= 0 else self._responded)[index] = moment

    def cycle(self) -> tuple[Reason, ...]:
        self._by_time()
        sources = self._sources()
        self._overwritten_before()
        for reader, source in sources.items():
            self._add(source, reader, self._source_text(source, reader))
        while not self._found() and self._overwritings(sources):
            pass
        found = self._found()
        return () if found is None else tuple(self._reason(a, b) for a, b in found)

    def _by_time(self) -> None:
        for one in self._core:
            for other in self._core:
                if one != other and self._responded[one] < self._invoked[other]:
                    self._add(one, other, "it ended before the other began")
        for one in self._core:
            self._add(_BEGINNING, one, "nothing comes before the beginning")

    def _overwritten_before(self) -> None:
        """Orders a reader before what began after all that give it its value had ended."""
        for reader in self._core:
            word = self._words[reader]
            if word.guard != "is":
                continue
            givers = self._givers_of(reader)
            if any(giver not in self._responded for giver in givers):
                continue
            latest = max((self._responded[giver] for giver in givers), default=-1)
            for other in self._core:
                its = self._words[other]
                if other != reader and its.assigns and its.new != word.value:
                    if latest < self._invoked[other] and other not in givers:
                        value = show(word.value)
                        text = (
                            f"all that assign {value} ended before {self._name(other)} began, which "
                            "overwrites it"
                            if givers or word.value == self._initial
                            else f"nobody assigns {value}"
                        )
                        self._add(reader, other, text)

    def _givers_of(self, reader: int) -> list[int]:
        """The operations that can have given a reader the value it needs."""
        word = self._words[reader]
        return [
            giver
            for giver, given in self._words.items()
            if giver != reader
            and given.assigns
            and given.new == word.value
            and self._invoked[giver] < self._responded[reader]
        ]

    def _sources(self) -> dict[int, int]:
        """By reader, the only operation that can have given it the value it needs."""
        found: dict[int, int] = {}
        for reader in self._core:
            word = self._words[reader]
            if word.guard != "is":
                continue
            givers = self._givers_of(reader)
            if word.value == self._initial:
                givers.append(_BEGINNING)
            if len(givers) == 1 and (givers[0] in self._core or givers[0] == _BEGINNING):
                found[reader] = givers[0]
        return found

    def _overwritings(self, sources: dict[int, int]) -> bool:
        """Adds what follows from what is known; False if nothing does."""
        closure = self._nx.transitive_closure(self._graph)
        added = False
        for reader, source in sources.items():
            value = self._words[reader].value
            for other in self._core:
                word = self._words[other]
                if other in (reader, source) or not word.assigns or word.new == value:
                    continue
                text = f"{self._name(other)} overwrites what {self._name(reader)} needs"
                if closure.has_edge(source, other):
                    added |= self._add(reader, other, text)
                if closure.has_edge(other, reader):
                    added |= self._add(other, source, text)
        return added

    def _add(self, before: int, after: int, because: str) -> bool:
        if self._graph.has_edge(before, after):
            return False
        self._graph.add_edge(before, after, because=because)
        return True

    def _found(self) -> list[tuple[int, int]] | None:
        best: list[int] | None = None
        for component in self._nx.strongly_connected_components(self._graph):
            if len(component) < 2:
                continue
            part = self._graph.subgraph(component)
            for node in sorted(component):
                for before in part.predecessors(node):
                    path = self._nx.shortest_path(part, node, before)
                    if best is None or len(path) < len(best):
                        best = path
        if best is None:
            return None
        return list(zip(best, [*best[1:], best[0]], strict=True))

    def _source_text(self, source: int, reader: int) -> str:
        value = show(self._words[reader].value)
        if source == _BEGINNING:
            return f"{value} is the initial value, and nobody else gives it"
        return f"nobody else gives it the value {value}"

    def _reason(self, before: int, after: int) -> Reason:
        because = self._graph.edges[before, after]["because"]
        return Reason(self._name(before), self._name(after), because)

    def _name(self, index: int) -> str:
        if index == _BEGINNING:
            return "the beginning"
        operations = self._operations
        return f"{operations.at(index)} of process {operations.process[index]}"
