"""Why operations are linearizable, or are not: as data, for verifiers, words and pictures.

Objects are independent (Herlihy and Wing, 1990: linearizability is local), so there is one order, or one
contradiction, per object.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

from checker.operations import Operations
from checker.specification import SetSpecification, Specification


@dataclass(frozen=True, slots=True)
class ObjectOrder:
    """A legal order of the operations on one object.

    Attributes:
      key: The object, as `Specification.partition` names it; None if there is only one.
      groups: Numbers of operations in the order in which they took effect. A group has one operation;
        several only where a `SetSpecification` lets them act as one. Operations of unknown outcome that
        are in no group had no effect.
    """

    key: Hashable
    groups: tuple[tuple[int, ...], ...]

    @property
    def operations(self) -> tuple[int, ...]:
        """The operations in order, whatever their groups."""
        return tuple(index for group in self.groups for index in group)


class Linearization:
    """The witness of a valid history: an order for each object, found when it is first asked for.

    Args:
      operations: The history.
      spec: What it satisfies.
      find: Computes the orders. The search that decided the verdict keeps no order, so that it may be
        fast; this runs it again, and remembers.
    """

    def __init__(
        self,
        operations: Operations,
        spec: Specification | SetSpecification,
        find: Callable[[], tuple[ObjectOrder, ...]],
    ) -> None:
        self.operations = operations
        self.spec = spec
        self._find = find

    @cached_property
    def orders(self) -> tuple[ObjectOrder, ...]:
        """An order for each object, in the order of the objects' first invocations."""
        return self._find()

    def verify(self) -> None:
        """Replays the orders by the plain specification and the times of the history.

        Raises:
          WitnessError: an order is wrong; that is a bug of the checker.

        Complexity: linear; one `step` per operation.
        """
        from checker.replay import verify

        verify(self.operations, self.spec, self.orders)

    def explain(self) -> str:
        """A sentence that counts."""
        operations = len(self.operations)
        text = f"{operations} operation{'' if operations == 1 else 's'} linearized"
        objects = len(self.orders)
        return f"{text}, {objects} objects." if objects != 1 else f"{text}."


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleState:
    """A state that the object may have been in just before the contradiction.

    Attributes:
      state: In words.
      given: Operations whose outcome was open by then and that must have had their effect for it.
      reason: Why the failing operation cannot return what it returned there.
    """

    state: str
    given: tuple[int, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Why the operations on one object have no legal order.

    Attributes:
      operations: The history.
      spec: What it violates.
      key: The object.
      failing: The operation at whose response no order was left.
      possible: Every state that was still possible just before that response, up to a number.
      possible_count: How many there were.
      prefix: A legal order of as much of the history before that response as can be: the operations of
        `groups` as in `ObjectOrder`.
      core: The smallest set of operations found whose results cannot hold together, whatever the others
        returned.
      context: Operations that the core needs as possible explanations: those that may have had an
        effect, and do not help.
    """

    operations: Operations
    spec: Specification | SetSpecification
    key: Hashable
    failing: int
    possible: tuple[PossibleState, ...]
    possible_count: int
    prefix: tuple[tuple[int, ...], ...] = ()
    core: tuple[int, ...] = ()
    context: tuple[int, ...] = ()
