"""The coordination service's named barriers: all members pass at one instant.

Source: service-semantics.md, section 8, measured at jaxlib 0.10.2 and 0.12.0.1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from checker.operations import FrozenMap, Operation, show
from checker.specification import Illegal, SetSpecification
from checker.specs.outcome import has_result

BARRIER, CANCEL = "barrier", "cancel_barrier"


class BarrierState(NamedTuple):
    """What is known of one id.

    Attributes:
      members: Who takes part, once an instance has passed: the same in all instances.
      low: Least counter that the instance that passed last may have; -1 if none has.
      high: Greatest such counter; None if nothing bounds it, for nobody was told.
      over: The largest counter of an instance of which somebody was told that it is over; else -1.
      untold: The members whose call in the latest instance that passed had no known outcome. Each may
        call again, and is told that it has passed.
    """

    members: frozenset[int] | None = None
    low: int = -1
    high: int | None = -1
    over: int = -1
    untold: frozenset[int] = frozenset()

    @property
    def newest(self) -> int:
        """Counters of instances to come are greater than this."""
        return max(self.low, self.over)


class NamedBarrier(SetSpecification):
    """Barriers by id: one call of each member, and nobody else, passes an instance, all at one moment.

    * An id is used again and again: its instances follow each other, with the same members. Where
      results tell counters, they are the same in an instance and grow from one to the next.
    * A call of unknown outcome (timed out, cancelled, its process died) may have counted as the arrival
      of its process. The process may then call again, and is told at once that it has passed.
    * A call that failed with a definite error took part in nothing. So whoever waits at an instance that
      fails is told an error as well: an instance passes for all of its members or for none.
    * An instance that was cancelled does not pass.

    Args:
      participants: All processes of the job: the members of a barrier whose call lists none.
    """

    name = "named-barrier"
    functions = (BARRIER, CANCEL)

    def __init__(self, participants: Iterable[int] | None = None) -> None:
        self.participants = None if participants is None else frozenset(participants)
        self.group_max = None if self.participants is None else max(1, len(self.participants))

    def init(self) -> BarrierState:
        """Nobody has passed yet."""
        return BarrierState()

    def members_of(self, operation: Operation) -> frozenset[int] | None:
        """The members that a call names, or None if it does not, and cannot be understood."""
        listed = _argument(operation, "processes")
        if listed is None or listed == ():
            return self.participants  # To the service an empty list is everybody, as none is.
        if not isinstance(listed, tuple) or not all(isinstance(each, int) for each in listed):
            return None
        return frozenset(listed)

    def step(
        self, state: BarrierState, group: Sequence[tuple[int, Operation]]
    ) -> BarrierState | Illegal:
        """An instance passes, a caller is told again that it has passed, or an instance is cancelled."""
        if any(operation.function == CANCEL for _, operation in group):
            return _cancelled(state, group)
        named = {self.members_of(operation) for _, operation in group}
        if len(named) > 1:
            return Illegal("the calls name different members")
        [members] = named
        assert members is not None
        if state.members not in (None, members):
            return Illegal(f"the members are {_list(state.members)}")
        counters = {operation.result for _, operation in group if is_counter(operation.result)}
        if len(counters) > 1:
            return Illegal("the calls tell different counters")
        counter = next(iter(counters), None)
        assert counter is None or isinstance(counter, int)
        callers = [process for process, _ in group]
        is_newer = counter is None or counter > state.newest
        if sorted(callers) == sorted(members) and is_newer:
            untold = frozenset(process for process, operation in group if operation.is_open)
            if counter is None:
                return BarrierState(members, state.newest + 1, None, state.over, untold)
            return BarrierState(members, counter, counter, counter, untold)
        if len(group) == 1 and not group[0][1].is_open:
            again = _told_again(state, callers[0], counter)
            if again is not None:
                return again
        if not is_newer:
            return Illegal(f"instance {counter} is over")
        missing = members.difference(callers)
        return Illegal(f"it waits for {_list(missing)}" if missing else "somebody is no member")

    def malformed(self, operation: Operation) -> str | None:
        """Members are process numbers, and counters are numbers."""
        if operation.function == CANCEL:
            if isinstance(_argument(operation, "counter"), int):
                return None
            return f"{CANCEL} takes a counter, found {show(operation.argument)}"
        if self.members_of(operation) is None:
            if _argument(operation, "processes") is None:
                return "the call names no members, and who takes part in the job is not known"
            return f"the members of a barrier are processes, found {show(operation.argument)}"
        if has_result(operation) and not (operation.result is None or is_counter(operation.result)):
            return f"{BARRIER} returns nothing or a counter, found {show(operation.result)}"
        return None

    def describe_state(self, state: BarrierState) -> str:
        """Which instance has passed."""
        if state.members is None:
            return "no instance has passed"
        if state.high != state.low:
            return f"an instance of {_list(state.members)} has passed"
        return f"instance {state.low} of {_list(state.members)} has passed"


def is_counter(result: Hashable) -> bool:
    """Whether the result of a call tells its instance."""
    return isinstance(result, int) and not isinstance(result, bool)


def counter_of(operation: Operation) -> int:
    """The counter of the instance that a call cancels."""
    counter = _argument(operation, "counter")
    assert isinstance(counter, int)
    return counter


def _told_again(state: BarrierState, process: int, counter: int | None) -> BarrierState | None:
    """The state after a process was told that it had passed the latest instance, if it can be."""
    if counter is None:
        if process not in state.untold:
            return None
        return state._replace(untold=state.untold - {process})
    if state.members is None or process not in state.members or counter < state.low:
        return None
    if state.high is not None and counter > state.high:
        return None
    return state._replace(low=counter, high=counter, over=max(state.over, counter))


def _cancelled(
    state: BarrierState, group: Sequence[tuple[int, Operation]]
) -> BarrierState | Illegal:
    if len(group) > 1:
        return Illegal("a cancellation is no arrival")
    [(_, operation)] = group
    counter = counter_of(operation)
    if counter <= state.newest:
        return Illegal(f"instance {counter} is over")
    high = counter - 1 if state.high is None else state.high
    return state._replace(high=min(high, counter - 1), over=counter)


def _argument(operation: Operation, name: str) -> Hashable:
    argument = operation.argument
    return argument.get(name) if isinstance(argument, FrozenMap) else None


def _list(members: Iterable[int] | None) -> str:
    numbers = sorted(members or ())
    return f"process{'es' if len(numbers) != 1 else ''} " + ", ".join(map(str, numbers))
