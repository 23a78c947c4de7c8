"""Which keys of the store are one object: those that an operation on a directory joins.

A directory get joins all keys under the directory, and a delete its key and all keys under it. Every
other operation is on one key. What is joined is checked as one object (`ServiceStore`), the rest key
by key.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from checker.history.keys import normalised
from checker.operations import Failed, Operation
from checker.specs.service_store import DELETE, DIR_GET


class StoreObjects:
    """The objects of a store.

    Nodes are normalised keys, and directories that are read, with a `/` at their end.

    Args:
      kinds: The operations on the store.

    Complexity: O(k log k) for k keys, and each key once more for each directory that it is joined by.
    """

    def __init__(self, kinds: Iterable[Operation]) -> None:
        self._parent: dict[str, str] = {}
        joining: set[tuple[str, str]] = set()
        keys: set[str] = set()
        for kind in kinds:
            node = node_of(kind)
            self._parent.setdefault(node, node)
            if kind.function == DIR_GET:
                keys.update(_keys_in(kind.result))
            else:
                keys.add(node)
            if _joins(kind):
                joining.add((node, node.removesuffix("/")))
        ordered = sorted(keys)
        for node, directory in joining:
            first = bisect_left(ordered, f"{directory}/")
            # "0" is the character after "/".
            for key in ordered[first : bisect_left(ordered, f"{directory}0", first)]:
                self._parent.setdefault(key, key)
                self._parent[self.object_of(key)] = self.object_of(node)

    def object_of(self, node: str) -> str:
        """The node that stands for all that are joined with `node`."""
        root = node
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[node] != root:
            self._parent[node], node = root, self._parent[node]
        return root

    def members(self) -> dict[str, list[str]]:
        """The nodes of each object, in order."""
        members: dict[str, list[str]] = {}
        for node in sorted(self._parent):
            members.setdefault(self.object_of(node), []).append(node)
        return members


def node_of(kind: Operation) -> str:
    """What an operation on the store is about."""
    assert isinstance(kind.key, str)
    key = normalised(kind.key)
    return f"{key}/" if kind.function == DIR_GET else key


def _joins(kind: Operation) -> bool:
    """Whether keys must be looked at together because of an operation."""
    if isinstance(kind.result, Failed):
        return False
    return kind.function == DELETE or (kind.function == DIR_GET and not kind.is_open)


def _keys_in(result: object) -> Iterable[str]:
    entries = result if isinstance(result, tuple) else ()
    return (each[0] for each in entries if isinstance(each, tuple) and isinstance(each[0], str))
