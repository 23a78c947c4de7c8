"""One object while it is used: what is decided, and what waits for results.

*Base.* A frontier over the events up to the first invocation whose outcome is open: a frontier needs to
know what an operation returns when it begins. All deadlines are known there, so that all rules hold.

*Looking ahead.* On a copy, the later events are tried, with open operations as of unknown outcome. What
fails there fails in every continuation: if a history is linearizable, so is each of its beginnings, with
what is open by then as of unknown outcome. So a verdict never turns from invalid to valid.

*Committing.* An operation that stays open for too many events counts as of unknown outcome for good.
That admits more, so it never makes a false alarm; but from its response on, nothing is known to be
valid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from checker.monitor.kinds import LiveKinds
from checker.monitor.situations import Long, LongCounting, LongFrontier, PatientBudget
from checker.monitor.window import Call, Happened, Window
from checker.operations import Failed
from checker.search.budget import BudgetSpentError
from checker.search.counting import CountingFrontier
from checker.search.frontier import Frontier
from checker.search.problem import NEVER
from checker.specification import Hint, Specification

_EVENTS_PER_FORGETTING: Final = 256
_EVENTS_PER_SETTLING: Final = 64


@dataclass(frozen=True, slots=True)
class Means:
    """What all objects of a monitor share.

    Attributes:
      spec: The specification.
      kinds: Its kinds.
      budget: For one response after the other.
      buffer_max: Events that may wait for the outcome of an operation.
    """

    spec: Specification
    kinds: LiveKinds
    budget: PatientBudget
    buffer_max: int


@dataclass(frozen=True, slots=True)
class Failure:
    """A response that cannot be explained.

    Attributes:
      call: Whose.
      possible: What was possible just before, as from `Frontier.possible`.
      state: The state that `events` begin with.
      events: What happened on the object up to that response.
      is_whole: Whether the events begin where the state was `state`; if not, they are only the latest.
    """

    call: Call
    possible: Sequence[tuple[Hashable, tuple[int, ...]]]
    state: Hashable
    events: Sequence[Happened]
    is_whole: bool


class ObjectMonitor:
    """Follows one object.

    Args:
      key: Its name.
      means: Shared.
      state: The state that it is in.

    Attributes:
      doubt: Why a verdict that is not invalid would not be valid; empty if it would.
      gave_up: Whether nothing is checked any more.
      operations: How many were called.
      open: How many are open.
    """

    def __init__(self, key: Hashable, means: Means, state: Hashable) -> None:
        self.key = key
        self.doubt = ""
        self.gave_up = False
        self.operations = 0
        self.open = 0
        self._means = means
        self._frontier: Long = LongCounting(means.kinds, means.budget)
        self._frontier.start_from((state,))
        self._waiting: deque[Happened] = deque()
        self._position = 0
        self._fed = 0
        self._inside: dict[int, Call] = {}
        """Operations that the frontier holds: open, or of unknown outcome."""
        self._responding = 0
        """How many of them respond."""
        self._window = Window(state)
        self._is_cut_short = ""

    # --- events -----------------------------------------------------------------------------------

    def invoke(self, call: Call) -> None:
        """An operation begins."""
        self.operations += 1
        self.open += 1
        self._add(call, is_response=False)

    def respond(self, call: Call) -> bool:
        """It returns, or failed; `call.operation` tells. False if that comes too late to count."""
        self.open -= 1
        if call.committed:
            self.doubt = (
                f"{call.operation} of process {call.process} returned after more than "
                f"{self._means.buffer_max:,} events, and its result was not checked"
            )
            return False
        self._unkind(call)
        call.responds = self._position
        self._add(call, is_response=True)
        return True

    def lose(self, call: Call) -> None:
        """Its outcome will not be known."""
        self.open -= 1
        call.responds = NEVER

    def _add(self, call: Call, *, is_response: bool) -> None:
        self._position += 1
        if not self.gave_up:
            self._waiting.append(Happened(call, is_response))

    @property
    def is_due(self) -> bool:
        """Whether it is time to settle, so that no look has much to do and no more waits than may."""
        waiting = len(self._waiting)
        return waiting > self._means.buffer_max or (
            waiting > 0 and waiting % _EVENTS_PER_SETTLING == 0
        )

    # --- deciding ---------------------------------------------------------------------------------

    def settle(self) -> tuple[Failure | None, list[Call]]:
        """Decides what can be decided for good.

        Returns:
          A failure, if there is one; and the calls that count as of unknown outcome from now on.
        """
        committed = []
        waiting = self._waiting
        while waiting:
            event = waiting[0]
            call = event.call
            if not call.is_known:
                if len(waiting) <= self._means.buffer_max:
                    break
                self._unkind(call)
                call.responds, call.committed = NEVER, True
                committed.append(call)
            if self._matters(call):
                if event.is_response:
                    failure = self._feed_response(event)
                    if failure is not None or self.gave_up:
                        return failure, committed
                else:
                    self._feed_invocation(call)
                self._window.add(event)
                self._begin_part()
            elif not event.is_response:
                self._unkind(call)
            waiting.popleft()
            self._fed += 1
            if self._fed % _EVENTS_PER_FORGETTING == 0:
                self._frontier.forget()
        return None, committed

    def look_ahead(self) -> Failure | None:
        """Tries the events that wait, with open operations as of unknown outcome."""
        self._is_cut_short = ""
        if not self._waiting:
            return None
        ahead = self._frontier.ahead()
        budget = self._means.budget
        for position, event in enumerate(self._waiting):
            call = event.call
            if not self._matters(call):
                continue
            try:
                if not event.is_response:
                    ahead = self._made_for(call, ahead, position)
                    responds = NEVER if call.responds is None else call.responds
                    ahead.invoke(call.number, self._kind(call), responds)
                    continue
                budget.renew()
                if not ahead.respond(call.number):
                    return self._failure(call, ahead, position)
            except BudgetSpentError as error:
                self._is_cut_short = str(error)
                return None
        return None

    @property
    def uncertainty(self) -> str:
        """Why its events so far are not known to be valid; empty if they are."""
        if self.doubt:
            return self.doubt
        if self._frontier.dropped:
            return (
                "there were too many possible situations, and some were joined; only what contradicts "
                "all of them is found from there on"
            )
        return self._is_cut_short and f"the latest events were not looked at: {self._is_cut_short}"

    def rested(self) -> tuple[Hashable] | None:
        """The state, if that is all that need be known of the object; else None."""
        if self._waiting or self._inside or self.uncertainty:
            return None
        states = {state for state, _ in self._frontier.possible()}
        return (states.pop(),) if len(states) == 1 else None

    def _feed_invocation(self, call: Call) -> None:
        kind = self._kind(call)
        frontier = self._frontier
        if isinstance(frontier, LongCounting) and not self._means.kinds.is_guarded(kind):
            frontier = self._frontier = self._as_table(frontier)
        assert call.responds is not None
        frontier.invoke(call.number, kind, call.responds)
        self._inside[call.number] = call
        self._responding += call.responds != NEVER

    def _feed_response(self, event: Happened) -> Failure | None:
        call, frontier = event.call, self._frontier
        while True:
            self._means.budget.renew()
            try:
                if not frontier.respond(call.number):
                    return self._failure(call, frontier, 0)
                break
            except BudgetSpentError as error:
                if not frontier.weaken():
                    self._give_up(str(error))
                    return None
        del self._inside[call.number]
        self._responding -= 1
        self._unkind(call)
        return None

    def _as_table(self, frontier: LongCounting) -> LongFrontier:
        """The same situations, for operations that are no guarded assignments."""
        table = LongFrontier(self._means.kinds, self._means.budget)
        opened = {
            number: (self._kind(call), NEVER if call.responds is None else call.responds)
            for number, call in self._inside.items()
        }
        table.resume(opened, frontier.situations())
        table.dropped = frontier.dropped
        return table

    def _made_for(
        self, call: Call, ahead: Frontier | CountingFrontier, position: int
    ) -> Frontier | CountingFrontier:
        """A frontier to look ahead with that can take a call."""
        if isinstance(ahead, Frontier) or self._means.kinds.is_guarded(self._kind(call)):
            return ahead
        assert isinstance(self._frontier, LongCounting)
        table = self._as_table(self._frontier).ahead()
        for event in list(self._waiting)[:position]:
            if not self._matters(event.call):
                continue
            if event.is_response:
                self._means.budget.renew()
                table.respond(event.call.number)
            else:
                responds = NEVER if event.call.responds is None else event.call.responds
                table.invoke(event.call.number, self._kind(event.call), responds)
        return table

    def _begin_part(self) -> None:
        if self._responding or not self._window.wants_part:
            return
        situations = list(self._frontier.possible())
        if len(situations) == 1:
            [(state, used)] = situations
            carried = [call for number, call in self._inside.items() if number not in used]
            self._window.begin(state, tuple(carried))

    def _failure(self, call: Call, frontier: Frontier | CountingFrontier, position: int) -> Failure:
        tail = list(self._waiting)[: position + 1]
        known = self._window.recent()
        state, events = (None, iter(self._window.latest())) if known is None else known
        possible = list(frontier.possible())
        return Failure(call, possible, state, [*events, *tail], is_whole=known is not None)

    def _give_up(self, why: str) -> None:
        self.gave_up = True
        self.doubt = f"{why}; its operations are not checked any more"
        for call in [*self._inside.values(), *(event.call for event in self._waiting)]:
            self._unkind(call)
        self._waiting.clear()
        self._inside.clear()
        self._frontier = LongCounting(self._means.kinds, self._means.budget)

    # --- kinds ------------------------------------------------------------------------------------

    def _matters(self, call: Call) -> bool:
        """Whether an operation, as it is seen now, says anything."""
        operation = call.so_far
        if isinstance(operation.result, Failed):
            return self._means.spec.observes_failure(operation)
        if operation.is_open:
            return not self._means.kinds.hints[self._kind(call)] & Hint.PURE
        return True

    def _kind(self, call: Call) -> int:
        if call.kind < 0:
            call.kind = self._means.kinds.take(call.so_far)
        return call.kind

    def _unkind(self, call: Call) -> None:
        if call.kind >= 0:
            self._means.kinds.release(call.kind)
            call.kind = -1
