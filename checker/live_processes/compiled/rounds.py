"""Rounds and least instants on columns, compiled: says `valid`, or that it cannot tell.

The rules are those of `lifetimes.py`, `rounds.py` and `instants.py`, for histories that leave nothing
open: answers tell incarnations, calls of one lifetime and group do not overlap, and no call is in a
round or not as one likes. Where anything else turns up, or a rule is broken, the status is `UNTOLD`:
plain Python then decides and explains, so explanations have one source. `read`, `form` and `settle` run
one after the other; the driver hands them their arrays.

*Order.* With clock errors answers may be recorded in another order than their rounds. A round forms when
all its members' next calls are part of it. Until then the call waits for the round that stands in its
way. Rounds share no choice, so every order of forming them gives the same rounds. With exact clocks a
call never waits in a valid history: what it would wait for ended after its own answer.

*Sweeps.* Instants are settled by sweeps over the rounds, in the order in which they formed. A
failure that rises to an instant at which a round, seen earlier in the sweep, leaves that lifetime
out calls for another sweep; the usual history needs one. The least fixed point does not depend on
the order. A round like the one before it needs no look at those whom both leave out, unless one of
them started in between: only members' failures rose.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import njit
from numpy.typing import NDArray

from checker.live_processes.columns import (
    CALL,
    CRASH,
    FAIL,
    INFO,
    INVOKE,
    INVOKE_SHUTDOWN,
    LEAVE,
    OK,
    START,
)

Bytes: TypeAlias = NDArray[np.int8]
Ints: TypeAlias = NDArray[np.int32]
Longs: TypeAlias = NDArray[np.int64]
Table: TypeAlias = NDArray[np.int64]
IntTable: TypeAlias = NDArray[np.int32]

VALID, UNTOLD = 1, 0
FOREVER = np.int64(1) << 62
NEVER = -FOREVER

# What became of an operation, where it is not an index of `answers`.
PENDING, SKIPPABLE, VOID, OTHER, NO_SIGN = -1, -2, -3, -4, -5

# Columns of the lifetimes: the latest moment of the start and its earliest, the last sign of life, the
# latest invocation acknowledged, the failure (time and rank), the earliest instant seen that leaves it
# out (time and rank), the process's next lifetime, the first queue of calls, whether it has left.
START_AT, BEGUN, SIGN, ACKNOWLEDGED, FAILED_AT, FAILED_RANK = range(6)
WATCHED, WATCHED_RANK, NEXT, FIRST_QUEUE, LEFT = range(6, 11)
LIFE_COLUMNS = 11

# Columns of the queues, each of which holds the calls of a lifetime with one group: the group, the
# lifetime's next queue, the first call that is in no round yet, the last call.
GROUP, NEXT_QUEUE, HEAD, TAIL = range(4)
QUEUE_COLUMNS = 4

GROUPS_OF_LIFETIME_MAX = 64
SWEEPS_MAX = 32
LOOKS_MAX = 1 << 32
"""Looks at processes that a round leaves out: some ten seconds."""


@njit("int64(int64, int64, int64[:, ::1], int32[:, ::1])", cache=True, nogil=True)
def _queue(lifetime: int, group: int, lives: Table, queues: IntTable) -> int:
    """The queue of a lifetime's calls with a group; -1: none, -2: too many to look for it."""
    queue = lives[lifetime, FIRST_QUEUE]
    for _ in range(GROUPS_OF_LIFETIME_MAX):
        if queue < 0 or queues[queue, GROUP] == group:
            return queue
        queue = queues[queue, NEXT_QUEUE]
    return -2


@njit(
    "int64(int8[::1], int32[::1], int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], int64,"
    "int64, int64, boolean, int64[::1], int64[::1], int32[::1], int32[::1], int32[::1],"
    "int64[:, ::1], int32[::1], int32[:, ::1])",
    cache=True,
    nogil=True,
)
def read(
    kind: Bytes, lifetime: Ints, time: Longs, uncertainty: Longs, operation: Ints, detail: Ints,
    process: Ints, processes: int, answers: int, groups: int, suspicion: bool,
    invoked: Longs, ended: Longs, answer: Ints, after: Ints, queue_of: Ints,
    lives: Table, started: Ints, queues: IntTable,
) -> int:  # fmt: skip
    """From events to lifetimes and queues of calls, as `Lifetimes` reads them.

    Args:
      kind, lifetime, time, uncertainty, operation, detail: The columns.
      process: Per lifetime, the position of its process among the participants, or -1.
      processes: How many participants there are.
      answers: How many distinct answers there are.
      groups: How many groups there are.
      suspicion: The failure model; crash-stop otherwise.
      invoked, ended, answer, after, queue_of: Set per operation: its moments, what became of it, the
        next one in its queue, its queue. The last two are -1 if there is none.
      lives: Set per lifetime.
      started: Set to the lifetimes that started, in order, then -1.
      queues: Set per queue.

    Returns:
      How many queues there are, or -1 where that is not for here.
    """
    lifetimes = len(process)
    operations = len(answer)
    latest_of = np.empty(processes, np.int64)
    for p in range(processes):
        latest_of[p] = -1
    for o in range(operations):
        answer[o] = PENDING
    for x in range(lifetimes):
        lives[x, START_AT] = FOREVER
        lives[x, BEGUN] = lives[x, SIGN] = lives[x, ACKNOWLEDGED] = NEVER
        lives[x, NEXT] = lives[x, FIRST_QUEUE] = started[x] = -1
        lives[x, LEFT] = 0
    for e in range(len(kind)):
        if kind[e] == FAIL:
            o = operation[e]
            if o < 0 or o >= operations:
                return -1
            answer[o] = VOID
    seen = 0
    count = 0
    starts = 0
    error = np.int64(0)
    for e in range(len(kind)):
        what = kind[e]
        x = lifetime[e]
        if x < 0 or x >= lifetimes:
            return -1
        if len(uncertainty):
            error = uncertainty[e]
        earliest = time[e] - error
        if CRASH <= what <= LEAVE:
            continue
        if lives[x, LEFT] == 0:
            lives[x, SIGN] = earliest
        if what == START:
            p = process[x]
            if p < 0 or lives[x, START_AT] != FOREVER:
                return -1
            lives[x, START_AT] = time[e] + error
            lives[x, BEGUN] = lives[x, SIGN] = earliest
            if latest_of[p] >= 0:
                lives[latest_of[p], NEXT] = x
            latest_of[p] = x
            started[starts] = x
            starts += 1
            continue
        o = operation[e]
        if CALL <= what <= INVOKE_SHUTDOWN:
            if o != seen or o >= operations:
                return -1
            seen += 1
            invoked[o] = earliest
            ended[o] = FOREVER
            after[o] = queue_of[o] = -1
            if what == CALL and (detail[e] < 0 or detail[e] >= groups):
                return -1
            if answer[o] == VOID:
                continue
            if what != CALL:
                answer[o] = OTHER if what == INVOKE and lives[x, LEFT] == 0 else NO_SIGN
                if what == INVOKE_SHUTDOWN:
                    lives[x, LEFT] = 1
                continue
            queue = _queue(x, detail[e], lives, queues)
            if queue == -1:
                if lives[x, START_AT] == FOREVER or count >= len(queues):
                    return -1
                queue = count
                count += 1
                queues[queue, GROUP] = detail[e]
                queues[queue, NEXT_QUEUE] = lives[x, FIRST_QUEUE]
                queues[queue, HEAD] = o
                lives[x, FIRST_QUEUE] = queue
            elif queue < 0:
                return -1
            else:
                last = queues[queue, TAIL]
                if answer[last] == PENDING:
                    return -1
                after[last] = o
            queues[queue, TAIL] = o
            queue_of[o] = queue
        elif OK <= what <= INFO:
            if o < 0 or o >= seen or ended[o] != FOREVER:
                return -1
            ended[o] = time[e] + error
            was = answer[o]
            if what == OK:
                if was == PENDING:
                    if detail[e] < 0 or detail[e] >= answers:
                        return -1
                    answer[o] = detail[e]
                elif was == OTHER:
                    lives[x, ACKNOWLEDGED] = max(lives[x, ACKNOWLEDGED], invoked[o])
                elif was == VOID:
                    return -1
            elif what == INFO and was == PENDING:
                answer[o] = SKIPPABLE
    for x in range(lifetimes):
        if suspicion:
            lives[x, SIGN] = lives[x, BEGUN]
            if lives[x, ACKNOWLEDGED] != NEVER:
                lives[x, SIGN] = lives[x, ACKNOWLEDGED]
        sign, y = lives[x, SIGN], lives[x, NEXT]
        lives[x, FAILED_AT] = sign if sign != NEVER else 0
        lives[x, FAILED_RANK] = 0
        # A successor that starts before its predecessor is beyond bisection, and one that starts
        # before the predecessor's last sign of life is a contradiction.
        if y >= 0 and (lives[y, START_AT] < lives[x, START_AT] or sign > lives[y, START_AT]):
            return -1
    return count


@njit(
    "int64(int64, int32[::1], int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], int32[::1],"
    "int32[::1], int64[:, ::1], int32[:, ::1], int64[::1])",
    cache=True,
    nogil=True,
)
def _obstacle(
    call: int, answer: Ints, invoked: Longs, ended: Longs, after: Ints, queue_of: Ints,
    first_member: Ints, members: Ints, members_queue: Ints, lives: Table, queues: IntTable,
    window: Longs,
) -> int:  # fmt: skip
    """What keeps the round of a call from forming.

    Returns:
      -1: nothing; the round's queues are in `members_queue`, its window in `window`. -2: something
      for plain Python. Else the queue whose first call must be in a round before.
    """
    own = queue_of[call]
    group = queues[own, GROUP]
    if queues[own, HEAD] != call:
        return own
    told = answer[call]
    lo, hi = invoked[call], ended[call]
    includes_itself = False
    begin = first_member[told]
    for m in range(begin, first_member[told + 1]):
        x = members[m]
        if x < 0:
            return -2
        queue = _queue(x, group, lives, queues)
        if queue < 0:
            return -2
        candidate = queues[queue, HEAD]
        if candidate < 0:
            return -2
        theirs = answer[candidate]
        if theirs >= 0:
            if theirs != told:
                return queue
        elif theirs == SKIPPABLE:
            another = after[candidate]
            if another >= 0 and (answer[another] < 0 or answer[another] == told):
                return -2
        if candidate == call:
            includes_itself = True
        lo = max(lo, invoked[candidate])
        if theirs >= 0:
            hi = min(hi, ended[candidate])
        if lives[x, NEXT] >= 0:
            hi = min(hi, lives[lives[x, NEXT], START_AT])
        members_queue[m - begin] = queue
    if lo > hi or not includes_itself:
        return -2
    window[0] = lo
    window[1] = hi
    return -1


@njit(
    "int64(int8[::1], int32[::1], int32[::1], int64[::1], int64[::1], int32[::1], int32[::1],"
    "int32[::1], int32[::1], int64, int64[:, ::1], int64, int32[:, ::1], int64, int32[::1],"
    "int32[::1], int64[::1], int64[::1])",
    cache=True,
    nogil=True,
)
def form(
    kind: Bytes, operation: Ints, answer: Ints, invoked: Longs, ended: Longs, after: Ints,
    queue_of: Ints, first_member: Ints, members: Ints, members_max: int, lives: Table,
    count: int, queues: IntTable, waits_max: int, round_answer: Ints, round_group: Ints,
    round_lo: Longs, round_hi: Longs,
) -> int:  # fmt: skip
    """Groups answered calls into rounds.

    Args:
      kind, operation: Columns.
      answer, invoked, ended, after, queue_of, lives, queues: As `read` left them; consumed.
      first_member, members: Per answer, the lifetimes that it names; -1 for one that nobody knows.
      members_max: The most members of an answer.
      count: How many queues there are.
      waits_max: How often calls may wait.
      round_answer, round_group, round_lo, round_hi: Set per round.

    Returns:
      How many rounds there are, or -1 where that is not for here.
    """
    members_queue = np.empty(members_max + 1, np.int32)
    window = np.empty(2, np.int64)
    waiting = np.empty(count, np.int32)
    for queue in range(count):
        waiting[queue] = -1
    wait = np.empty(len(answer), np.int32)
    rounds = 0
    waits = 0
    for e in range(len(kind)):
        if kind[e] != OK:
            continue
        call = np.int64(operation[e])
        if answer[call] < 0 or queue_of[call] < 0:
            continue
        # The calls to look at now: this one, then those that waited for a round that it formed.
        wait[call] = -1
        ready = call
        while ready >= 0:
            call = ready
            ready = np.int64(wait[call])
            if queue_of[call] < 0:
                continue
            obstacle = _obstacle(
                call, answer, invoked, ended, after, queue_of, first_member, members,
                members_queue, lives, queues, window,
            )  # fmt: skip
            if obstacle == -2 or (obstacle >= 0 and waits == waits_max):
                return -1
            if obstacle >= 0:
                wait[call] = waiting[obstacle]
                waiting[obstacle] = call
                waits += 1
                continue
            told = answer[call]
            round_answer[rounds] = told
            round_group[rounds] = queues[queue_of[call], GROUP]
            round_lo[rounds] = window[0]
            round_hi[rounds] = window[1]
            rounds += 1
            for m in range(first_member[told + 1] - first_member[told]):
                queue = members_queue[m]
                member = queues[queue, HEAD]
                queues[queue, HEAD] = after[member]
                queue_of[member] = -1
                woken = waiting[queue]
                waiting[queue] = -1
                while woken >= 0:
                    following = wait[woken]
                    wait[woken] = ready
                    ready = np.int64(woken)
                    woken = following
    for queue in range(count):
        if waiting[queue] >= 0:
            return -1
    return rounds


@njit(
    "int64(int64, int32[::1], int32[::1], int64[::1], int64[::1], int64[::1], int32[::1], int32[::1],"
    "int32[::1], int32[::1], int32[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1], int32[::1])",
    cache=True,
    nogil=True,
)
def settle(
    rounds: int, round_answer: Ints, round_group: Ints, instant: Longs, rank: Longs, round_hi: Longs,
    first_member: Ints, members: Ints, first_of_group: Ints, group_processes: Ints, process: Ints,
    mark: Longs, lives: Table, first_start: Longs, starts: Longs, by_process: Ints,
) -> int:  # fmt: skip
    """Moves every round to its least instant, from `instant` on.

    An instant is a time and a rank among equal times.

    Args:
      rounds: How many there are.
      round_answer, round_group, instant, round_hi: As `form` left them.
      rank: Zero per round.
      first_member, members: As in `form`.
      first_of_group, group_processes: Per group, the positions of its processes.
      process, lives: As in `read`.
      mark: Zero per process.
      first_start, starts, by_process: Per process, when it started and which lifetimes, in order.

    Returns:
      `VALID` if every round has an instant in its window, else `UNTOLD`.
    """
    ranks_max = 2 * (rounds + len(process)) + 1
    stamp = np.int64(0)
    looks = np.int64(0)
    for _ in range(SWEEPS_MAX):
        again = False
        for x in range(len(process)):
            lives[x, WATCHED] = FOREVER
        last_told = last_group = last_k = np.int64(-1)
        last_t = until = np.int64(0)
        for r in range(rounds):
            told, group = round_answer[r], round_group[r]
            from_, to = first_member[told], first_member[told + 1]
            t, k = instant[r], rank[r]
            if (
                told != last_told or group != last_group or t > until or t < last_t
                or (t == last_t and k < last_k)
            ):  # fmt: skip
                stamp += 1
                for m in range(from_, to):
                    mark[process[members[m]]] = stamp
                begin, end = first_of_group[group], first_of_group[group + 1]
                moved = True
                while moved and t <= round_hi[r]:
                    moved = False
                    until = FOREVER
                    left_out = 0
                    looks += end - begin
                    for g in range(begin, end):
                        p = group_processes[g]
                        if mark[p] == stamp:
                            continue
                        left_out += 1
                        # The last lifetime that started before t.
                        low, high = first_start[p], first_start[p + 1]
                        after = high
                        if low == high:
                            continue
                        if starts[high - 1] < t:
                            low = high
                        while low < high:
                            middle = (low + high) >> 1
                            if starts[middle] < t:
                                low = middle + 1
                            else:
                                high = middle
                        if low < after:
                            until = min(until, starts[low])
                        if low == first_start[p]:
                            continue
                        x = by_process[low - 1]
                        at, at_rank = lives[x, FAILED_AT], lives[x, FAILED_RANK]
                        if t < at or (t == at and k <= at_rank):
                            t, k = at, at_rank + 1
                            moved = True
                            if k >= ranks_max:
                                return UNTOLD
                        at, at_rank = lives[x, WATCHED], lives[x, WATCHED_RANK]
                        if t < at or (t == at and k < at_rank):
                            lives[x, WATCHED], lives[x, WATCHED_RANK] = t, k
                    if end - begin - left_out != to - from_ or looks > LOOKS_MAX:
                        return UNTOLD
                last_told, last_group = np.int64(told), np.int64(group)
            if t > round_hi[r]:
                return UNTOLD
            last_t, last_k = t, k
            instant[r], rank[r] = t, k
            for m in range(from_, to):
                x = members[m]
                at, at_rank = lives[x, FAILED_AT], lives[x, FAILED_RANK]
                if at < t or (at == t and at_rank < k):
                    lives[x, FAILED_AT], lives[x, FAILED_RANK] = t, k
                    at, at_rank = lives[x, WATCHED], lives[x, WATCHED_RANK]
                    if at < t or (at == t and at_rank <= k):
                        again = True
        if not again:
            return VALID
    return UNTOLD
