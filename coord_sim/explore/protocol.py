"""The moves of processes, messages, time and faults around the core.

**What a process is.** It registers, calls what its program allows in any order and as often as the
bounds allow, waits for each answer, and may end at any moment. A call that is refused ends its process.
Of the client only this is left: heartbeats and the error poll are abstracted to "a time-out may fire
whenever the clock could allow it" and "a process that is not in good standing may learn it": its next
heartbeat is put to the real service, and if that refuses it the process ends, sooner or later or never.
The job starts formed: all have registered, for nothing that happens before can be told from a crash
just after it.

**Time.** `services.py` lets time pass by more than a time-out while all but some tasks beat. Those are
processes that have ended, and within `suspicions` others that stall. All orders in which the service may
find the dead of one tick are explored.

**The reduction.** Explored step by step, a request is sent (the invocation), arrives, its reply is
sent, and is received (the response). With `reduced`, sending and arriving are one step, and so are
replying and receiving, but for the crashes that come between. That loses no violation, for

* The service sees only the order of arrivals. Take a run, and move each invocation forward in time to
  the arrival of its request, and each response back to the sending of its reply. Both are steps of one
  process that no other process and not the service can see, so the result is a run, with the same
  answers; between the two moments the process does nothing else, so its own order stays.
* Calls only become shorter, invocations later, starts earlier. Each instant and each failure that
  explains the new history also explains the old one, so if the old one is invalid, the new one is. One
  case is different: under `crash-stop` a response or a start is a sign of life, and moved back it is an
  earlier one. That matters where the service leaves out a process that still runs and then receives its
  reply. Without suspicions neither face of the service does; of a known-wrong service such a violation
  shows when the process has one more call to make.
* A process that crashes before its request has arrived: invocation and crash are one step here, and
  the request stays on its way, to arrive at any time later, also after the next start has registered,
  or never. The same for a registration.
* A process that crashes before it receives a reply: let it crash just before the reply is sent instead.
  The service cannot tell, since it learns of crashes by silence only, and a hang-up takes no place away
  (a test holds the core to that). A crash itself shows in no check; failures may be shifted.
  A registration of which the reply is not seen is a start and a crash, which explains less.

So every violation has one that is a run here, and quiet states (nothing on its way but messages of the
dead) are the same; tests compare both ways to explore.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from checker.history import Crash, Enter, Exit, Fail, Info, Invoke, Leave, Ok, Start
from coord_sim.explore import holes
from coord_sim.explore.bounds import PROGRAMS, Bounds
from coord_sim.explore.budgets import Price
from coord_sim.explore.happenings import Happening
from coord_sim.explore.requests import Members, Message, Operation, Told
from coord_sim.explore.services import Delivery, Reaction, Services, Standing
from coord_sim.explore.stays import Stays

KILLED = "killed"
"""Cause of the crashes that an exploration chooses."""
REFUSED = "its heartbeat was refused"

AGREEMENT = "agreement"
ATOMICITY = "atomicity"

DEADLOCK = "deadlock"
NO_PROGRESS = "no progress"


class Phase(enum.IntEnum):
    """Where a process is."""

    DOWN = 0
    JOINING = 1
    """Its registration has no answer yet."""
    UP = 2
    WAITING = 3
    """Its call has no answer yet."""
    LEFT = 4


class Process(NamedTuple):
    """A process."""

    phase: Phase = Phase.UP
    lifetime: int = 0
    operation: Operation = Operation.REGISTER
    """What it waits for; `REGISTER` if it does not wait."""

    @property
    def is_running(self) -> bool:
        """Whether it has begun and not ended."""
        return self.phase in (Phase.JOINING, Phase.UP, Phase.WAITING)

    def waits_for(self, operation: Operation, lifetime: int) -> bool:
        """Whether it waits for the answer to such a call of such a start."""
        return (
            self.phase in (Phase.JOINING, Phase.WAITING)
            and self.operation is operation
            and self.lifetime == lifetime
        )


class State(NamedTuple):
    """Everything but what was seen before, and what is left of the bounds.

    Attributes:
      requests: On their way, each once, ascending: of one that crashed, or without `reduced` of any.
      replies: On their way to a process that waits; always empty with `reduced`.
    """

    service: int
    processes: tuple[Process, ...]
    requests: tuple[Message, ...]
    replies: tuple[Delivery, ...]
    stays: Stays


class Move(NamedTuple):
    """A step.

    Attributes:
      price: What it takes from the bounds; without that it cannot be made.
      text: What it is, in words, with `{0}` for process 0 and so on.
      happenings: What processes see of it.
      holes: Identity holes of the service that it shows.
      broken: What it breaks for certain, whatever a judge says: agreement or atomicity; or nothing.
      is_fault: Whether it may also never come, so that nobody can hope for it.
    """

    price: Price
    text: str
    state: State
    happenings: tuple[Happening, ...]
    holes: tuple[str, ...]
    broken: str
    is_fault: bool

    def text_for(self, processes: Sequence[int]) -> str:
        """The words under other numbers of processes."""
        return self.text.format(*processes)


class Protocol:
    """The moves from each state.

    Args:
      bounds: The limits.
      services: The memoised core.
    """

    def __init__(self, bounds: Bounds, services: Services) -> None:
        self.bounds = bounds
        self._services = services
        self._operations = PROGRAMS[bounds.program]
        self.in_blocks = bounds.program == "blocks"

    def start(self) -> tuple[State, tuple[Happening, ...]]:
        """The job has formed: its state, and the starts."""
        count = self.bounds.processes
        state = State(
            service=self._services.initial,
            processes=(Process(),) * count,
            requests=(),
            replies=(),
            stays=Stays.nobody(count),
        )
        return state, tuple(Happening(Start, p, 0) for p in range(count))

    def moves(self, state: State) -> list[Move]:
        """All steps from a state, in a fixed order."""
        moves: list[Move] = []
        for number, process in enumerate(state.processes):
            if process.phase is Phase.UP:
                moves += self._calls(state, number)
            if process.is_running:
                moves += self._ends(state, number)
            elif process.phase is Phase.DOWN and self.bounds.restarts:
                moves += self._restarts(state, number)
        moves += self._arrivals(state)
        for delivery in state.replies:
            draft = self._draft(state)
            draft.receive(delivery)
            moves.append(draft.move(Price(), f"process {{{delivery.process}}} receives a reply"))
        moves += self._time_outs(state)
        return moves

    def stuck(self, state: State) -> str:
        """What it is called if nobody can move from here but by a fault: nothing, or of which kind.

        Nothing if nobody waits. `NO_PROGRESS` if a round waits for a process that lives and will never
        call; that is what the service promises. `DEADLOCK` otherwise.
        """
        processes = state.processes
        if all(each.phase not in (Phase.WAITING, Phase.JOINING) for each in processes):
            return ""
        is_idle = any(
            processes[number].phase is Phase.UP
            and processes[number].lifetime == self._standing(state, number).lifetime
            for number in self._services.missing(state.service)
        )
        return NO_PROGRESS if is_idle else DEADLOCK

    def renamed_processes(self, state: State, processes: Sequence[int]) -> tuple[Process, ...]:
        """The processes in the order of their new numbers."""
        renamed = list(state.processes)
        for old, new in enumerate(processes):
            renamed[new] = state.processes[old]
        return tuple(renamed)

    def renamed_rest(self, state: State, processes: tuple[int, ...]) -> tuple[object, ...]:
        """All else of a state under other numbers of processes, as a value to compare."""
        return (
            self._services.renamed(state.service, processes),
            tuple(sorted(message.renamed(processes) for message in state.requests)),
            tuple(
                sorted(
                    (
                        *each._replace(process=processes[each.process], told=Told()),
                        _comparable_answer(each.told.renamed(processes)),
                    )
                    for each in state.replies
                )
            ),
            _comparable(state.stays.renamed(processes)) if self.in_blocks else (),
        )

    # --- moves ---------------------------------------------------------------------------------

    def _calls(self, state: State, number: int) -> Iterator[Move]:
        for operation in self._operations:
            caller = None if operation is Operation.SHUTDOWN else number
            if caller is not None and not self.bounds.calls:
                continue
            what = f"process {{{number}}} calls {operation.word}"
            draft = self._draft(state)
            message = draft.invoke(number, operation)
            if self.bounds.reduced:
                draft.arrive(message)
                draft.settle()
            yield draft.move(Price(caller=caller), what)
            if not self.bounds.reduced:
                continue
            late = "before its request arrives"
            if self.bounds.crashes:
                draft = self._draft(state)
                draft.invoke(number, operation)
                draft.end(number, KILLED)
                price = Price(caller=caller, crashed=number)
                yield draft.move(price, f"{what} and crashes {late}", is_fault=True)
            if caller is not None and self._is_out(state, number):
                draft = self._draft(state)
                draft.invoke(number, operation)
                draft.end(number, REFUSED)
                text = f"{what} and learns that it is out of the job {late}"
                yield draft.move(Price(caller=caller), text)

    def _ends(self, state: State, number: int) -> Iterator[Move]:
        process = state.processes[number]
        if self.bounds.crashes:
            draft = self._draft(state)
            draft.end(number, KILLED)
            yield draft.move(Price(crashed=number), f"process {{{number}}} crashes", is_fault=True)
        # Who joins does not beat yet, and who leaves does not any more.
        beats = process.phase is Phase.UP or process.operation in (Operation.LIVE, Operation.SET)
        if beats and self._is_out(state, number):
            draft = self._draft(state)
            draft.end(number, REFUSED)
            yield draft.move(Price(), f"process {{{number}}} learns that it is out of the job")

    def _is_out(self, state: State, number: int) -> bool:
        """Whether the service would refuse the process's next heartbeat."""
        standing, lifetime = self._standing(state, number), state.processes[number].lifetime
        is_known = standing.is_connected and standing.lifetime == lifetime
        return not is_known and self._services.refuses_heartbeat(state.service, number, lifetime)

    def _restarts(self, state: State, number: int) -> Iterator[Move]:
        for retries in range(1 + (self.bounds.retries > 0)):
            what = f"process {{{number}}} starts again"
            if retries:
                what += ", with its registration sent twice"
            draft = self._draft(state)
            message = draft.restart(number, copies=1 + retries)
            if self.bounds.reduced:
                draft.arrive(message)
                draft.settle()
            yield draft.move(Price(restarts=1, retries=retries), what, is_fault=True)
            if self.bounds.reduced and self.bounds.crashes:
                draft = self._draft(state)
                draft.restart(number, copies=1 + retries)
                draft.end(number, KILLED)
                what += " and crashes before its registration arrives"
                price = Price(crashed=number, restarts=1, retries=retries)
                yield draft.move(price, what, is_fault=True)

    def _arrivals(self, state: State) -> Iterator[Move]:
        for message in state.requests:
            draft = self._draft(state)
            draft.arrive(message)
            if self.bounds.reduced:
                draft.settle()
            process = state.processes[message.process]
            is_awaited = process.waits_for(message.operation, message.lifetime)
            yield draft.move(
                Price(),
                f"a request of process {{{message.process}}} (start {message.lifetime}) arrives",
                is_fault=not is_awaited,
            )

    def _time_outs(self, state: State) -> Iterator[Move]:
        silent: list[int] = []
        stalling: list[int] = []
        for number, standing in enumerate(self._services.standings(state.service)):
            if standing.is_connected:
                process = state.processes[number]
                beats = process.is_running and process.lifetime == standing.lifetime
                (stalling if beats else silent).append(number)
        for count in range(min(self.bounds.suspicions, len(stalling)) + 1):
            for suspected in itertools.combinations(stalling, count):
                for length in range(len(silent) + 1):
                    for dead in itertools.combinations(silent, length):
                        yield from self._deaths(state, dead, suspected)

    def _deaths(
        self, state: State, dead: tuple[int, ...], suspected: tuple[int, ...]
    ) -> Iterator[Move]:
        found: list[Reaction] = []
        for order in itertools.permutations((*dead, *suspected)):
            reaction = self._services.times_out(state.service, order)
            if not order or reaction in found:
                continue
            found.append(reaction)
            draft = self._draft(state)
            draft.react(reaction)
            draft.holes += holes.of_deaths(order, reaction)
            if self.bounds.reduced:
                draft.settle()
            who = f"process{'es' if len(order) > 1 else ''} {', '.join(f'{{{p}}}' for p in order)}"
            price = Price(suspicions=len(suspected))
            yield draft.move(price, f"the service declares {who} dead", is_fault=bool(suspected))

    # --- small things --------------------------------------------------------------------------

    def _draft(self, state: State) -> _Draft:
        return _Draft(state, self)

    def _standing(self, state: State, number: int) -> Standing:
        return self._services.standings(state.service)[number]

    @property
    def services(self) -> Services:
        """The memoised core."""
        return self._services


class _Draft:
    """A state that is being changed into the next one."""

    def __init__(self, state: State, protocol: Protocol) -> None:
        self._services = protocol.services
        self._in_blocks = protocol.in_blocks
        self._service = state.service
        self._processes = list(state.processes)
        self._requests = list(state.requests)
        self._replies = list(state.replies)
        self._stays = state.stays
        self._happenings: list[Happening] = []
        self._broken = ""
        self.holes: tuple[str, ...] = ()

    def move(self, price: Price, text: str, *, is_fault: bool = False) -> Move:
        stays = self._stays
        if stays.exits:
            stays = stays.without_decided(
                [each.told.members for each in self._replies if each.told.members is not None]
            )
        state = State(
            self._service,
            tuple(self._processes),
            tuple(sorted(self._requests)),
            tuple(sorted(self._replies)),
            stays,
        )
        return Move(
            price, text, state, tuple(self._happenings), self.holes, self._broken, is_fault=is_fault
        )

    def invoke(self, number: int, operation: Operation) -> Message:
        lifetime = self._processes[number].lifetime
        self._processes[number] = Process(Phase.WAITING, lifetime, operation)
        message = Message(operation, number, lifetime)
        self._requests.append(message)
        self._happenings.append(Happening(Invoke, number, lifetime, operation))
        return message

    def restart(self, number: int, *, copies: int) -> Message:
        lifetime = self._processes[number].lifetime + 1
        self._processes[number] = Process(Phase.JOINING, lifetime)
        message = Message(Operation.REGISTER, number, lifetime)
        self._requests += [message] * copies
        return message

    def end(self, number: int, cause: str) -> None:
        """A process ends, and its connections with it."""
        process = self._processes[number]
        if process.phase is Phase.WAITING:
            message = Message(process.operation, number, process.lifetime)
            self._service = self._services.hangs_up(self._service, message.id)
        self._replies = [each for each in self._replies if each.process != number]
        self._stop(number, Phase.DOWN)
        if process.phase is not Phase.JOINING:
            self._happenings.append(Happening(Crash, number, process.lifetime, cause=cause))

    def arrive(self, message: Message) -> None:
        self._requests.remove(message)
        before = self._services.standings(self._service)[message.process]
        reaction = self._services.receives(self._service, message)
        after = self._services.standings(reaction.service)[message.process]
        self.holes += holes.of_arrival(message, before, reaction, after)
        self.react(reaction)

    def react(self, reaction: Reaction) -> None:
        """Takes the service's new state, and sends its replies to those who still wait."""
        self._service = reaction.service
        self.holes += holes.of_answers(reaction)
        answers = {reply.told.members for reply in reaction.replies} - {None}
        if len(answers) > 1:
            self._broken = AGREEMENT
        answered = {reply.process for reply in self._replies}
        self._replies += [
            reply
            for reply in reaction.replies
            if self._processes[reply.process].waits_for(reply.operation, reply.lifetime)
            and reply.process not in answered
        ]

    def settle(self) -> None:
        """Every reply is received at once."""
        for reply in sorted(self._replies):
            self.receive(reply)

    def receive(self, reply: Delivery) -> None:
        self._replies.remove(reply)
        number, told = reply.process, reply.told
        process = self._processes[number]
        lifetime = process.lifetime
        if process.phase is Phase.JOINING:
            if told.code:
                self._stop(number, Phase.DOWN)
                return
            self._processes[number] = Process(Phase.UP, lifetime)
            self._happenings.append(Happening(Start, number, lifetime))
            return
        kind = Ok if not told.code else Fail if told.is_definite else Info
        self._happenings.append(Happening(kind, number, lifetime, process.operation, told))
        if told.code:
            self._stop(number, Phase.DOWN)
            self._happenings.append(
                Happening(Crash, number, lifetime, cause="its call was refused")
            )
        elif process.operation is Operation.SHUTDOWN:
            self._stop(number, Phase.LEFT)
            self._happenings.append(Happening(Leave, number, lifetime))
        else:
            self._processes[number] = Process(Phase.UP, lifetime)
            if self._in_blocks and told.members is not None:
                self._cross(number, told.members)

    def _cross(self, number: int, members: Members) -> None:
        """From one block into the next."""
        lifetime = self._processes[number].lifetime
        block = sum(count for _, count in self._stays.answers[number])
        self._stays, left, broken = self._stays.told(number, members)
        if broken:
            self._broken = ATOMICITY
        if left is not None:
            outcome = "failed" if left.failed else "completed"
            self._happenings.append(
                Happening(
                    Exit, number, lifetime, block=block - 1, outcome=outcome, failed=left.failed
                )
            )
        self._happenings.append(Happening(Enter, number, lifetime, block=block, members=members))

    def _stop(self, number: int, phase: Phase) -> None:
        self._processes[number] = Process(phase, self._processes[number].lifetime)
        if self._in_blocks:
            self._stays = self._stays.over(number)


def _comparable_answer(told: Told) -> tuple[object, ...]:
    """None compares with nothing, and is not the empty live set."""
    return (told.members is not None, told.members or (), *told[1:])


def _comparable(stays: Stays) -> tuple[object, ...]:
    """None compares with nothing."""
    inside = tuple(() if block is None else block for block in stays.inside)
    return inside, stays.answers, stays.exits
