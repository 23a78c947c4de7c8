"""The frontier on a table of transitions, compiled: for any specification with one successor per step.

Kinds of operations and states are numbers; `table[kind, state]` is the next state, `ILLEGAL`, or
`UNASKED`. The search stops when it meets entries that were not asked yet; Python asks the specification,
once per distinct pair, and the search goes on with the same event. The theory is in
`checker/search/frontier.py`.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from checker.search.compiled.bits import lowest_bit
from checker.search.compiled.counting import (
    LIMIT,
    NEVER,
    NO,
    NODE,
    NODES,
    SATISFIED,
    SLOTS,
    SPENT,
    STATE,
    STOPPED,
    YES,
    _copy_entry,
    _live_nodes,
    _new_node,
    insert_plain,
)

UNASKED, ILLEGAL = -2, -1
MISSES, GROW = 6, 7
PURE_FLAG, TOTAL_FLAG, BLIND_FLAG = 1, 2, 4

# Registers beside those of the nodes (10 and 11).
POSITION, COUNT, BEFORE, GENERATION = 0, 1, 2, 3
OPEN, UNKNOWN, PURE, TOTAL = 4, 5, 6, 7
BLIND, MADE, MISSED = 12, 13, 14
REGISTERS = 15

# Columns of a slot.
OPERATION, EARLIER, KIND, DEADLINE = 0, 1, 2, 3
ROOM = 70


@njit(
    "int64(int64, int64, int32[:, ::1], int64[:, ::1], int64[::1], int32[:, ::1])",
    cache=True,
    nogil=True,
)
def _free_in(state, settled, table, slots, reg, misses):
    """What is open, not settled, legal and changes nothing. Notes entries that are missing."""
    free = np.int64(0)
    others = reg[OPEN] & ~settled
    while others != 0:
        slot = lowest_bit(others)
        others &= others - 1
        following = table[slots[slot, KIND], state]
        if following == state:
            free |= np.int64(1) << slot
        elif following == UNASKED and reg[MISSED] < len(misses):
            misses[reg[MISSED], 0] = slots[slot, KIND]
            misses[reg[MISSED], 1] = state
            reg[MISSED] += 1
    return free


@njit(
    "void(int64, int64, int64, int64[::1], uint8[::1], int64[:, ::1], int64[::1])",
    cache=True,
    nogil=True,
)
def _open(x, slot, kind, responded, flags, slots, reg):
    bit = np.int64(1) << slot
    earlier = np.int64(0)
    others = reg[OPEN]
    while others != 0:
        other = lowest_bit(others)
        others &= others - 1
        if slots[other, KIND] == kind:
            if slots[other, DEADLINE] <= responded[x]:
                earlier |= np.int64(1) << other
            else:
                slots[other, EARLIER] |= bit
    slots[slot, OPERATION] = x
    slots[slot, EARLIER] = earlier
    slots[slot, KIND] = kind
    slots[slot, DEADLINE] = responded[x]
    reg[OPEN] |= bit
    if responded[x] == NEVER:
        reg[UNKNOWN] |= bit
    if flags[kind] & PURE_FLAG:
        reg[PURE] |= bit
    if flags[kind] & TOTAL_FLAG:
        reg[TOTAL] |= bit
    if flags[kind] & BLIND_FLAG:
        reg[BLIND] |= bit


@njit("void(int64, int64[:, ::1], int64[::1])", cache=True, nogil=True)
def _close(closed, slots, reg):
    """Frees the slots of a mask."""
    for register in (OPEN, UNKNOWN, PURE, TOTAL, BLIND):
        reg[register] &= ~closed
    for slot in range(64):
        slots[slot, EARLIER] &= ~closed


@njit(
    "UniTuple(int64, 2)(int64, int64, int64, int64, int64, boolean, int64, int32[:, ::1], "
    "int64[:, :, ::1], int64[:, :, ::1], int64[:, ::1], int64[::1], int32[:, ::1], int32[:, ::1])",
    cache=True,
    nogil=True,
)
def _expand(
    k, count, reached, target, now, record, event, table, conf, chains, slots, reg, nodes, misses
):  # fmt: skip
    waiting = 2
    state = conf[waiting, k, STATE]
    satisfied = conf[waiting, k, SATISFIED]
    spent = conf[waiting, k, SPENT]
    idle = conf[waiting, k, 3]
    node = conf[waiting, k, NODE]
    target_is_pure = reg[PURE] & target != 0
    candidates = reg[OPEN] & ~spent & ~reg[PURE]
    if idle != 0:
        candidates &= ~reg[BLIND]
    while candidates != 0:
        slot = lowest_bit(candidates)
        candidates &= candidates - 1
        bit = np.int64(1) << slot
        earlier = slots[slot, EARLIER] & ~spent
        if earlier != 0 and ((satisfied & bit) != 0 or (earlier & ~satisfied) != 0):
            continue
        following = np.int64(table[slots[slot, KIND], state])
        if following < 0:
            if following == UNASKED and reg[MISSED] < len(misses):
                misses[reg[MISSED], 0] = slots[slot, KIND]
                misses[reg[MISSED], 1] = state
                reg[MISSED] += 1
            continue
        used = spent | bit
        held = satisfied | bit
        hidden = reg[TOTAL] & ~used if reg[BLIND] & bit != 0 else np.int64(0)
        if following == state and bit != target and hidden & ~held == 0:
            continue
        held |= hidden
        free = _free_in(following, held | used, table, slots, reg, misses)
        is_optional = ((reg[TOTAL] | satisfied) & bit) != 0
        is_idle = 1 if is_optional and free & ~reg[TOTAL] == 0 else 0
        held |= free
        made = _new_node(nodes, reg, node, slots[slot, OPERATION], event) if record else np.int64(0)
        if bit == target or (target_is_pure and held & target != 0):
            reached = insert_plain(
                now, reached, following, held & ~target, used & ~target, 0, made,
                conf, chains, reg[GENERATION],
            )  # fmt: skip
        else:
            count = insert_plain(
                waiting, count, following, held, used, is_idle, made,
                conf, chains, reg[GENERATION],
            )  # fmt: skip
    return count, reached


@njit(
    "int64(int32[::1], int32[::1], int64[::1], int32[:, ::1], uint8[::1], int64[:, :, ::1], "
    "int64[:, :, ::1], int64[:, ::1], int64[::1], int8[::1], int32[:, ::1], "
    "int32[:, ::1], int64, int64, boolean, int64[::1])",
    cache=True,
    nogil=True,
)
def run_table(
    events, kind, responded, table, flags, conf, chains, slots, reg, slot_of, nodes, misses,
    entries_max, made_max, record, stop,
):  # fmt: skip
    """Goes on from where `reg` says.

    Returns:
      `YES`, `NO`, `SLOTS`, `LIMIT`, `STOPPED`, `MISSES` (entries of `table` are missing: see
      `misses`) or `GROW` (`conf` or `nodes` is too small). After the last two it can be called again.
    """
    waiting = 2
    while reg[POSITION] < len(events):
        x = np.int64(events[reg[POSITION]])
        before = reg[BEFORE]
        count = reg[COUNT]
        if x >= 0:
            if responded[x] == NEVER and flags[kind[x]] & PURE_FLAG:
                reg[POSITION] += 1
                continue
            if reg[OPEN] == -1:
                # Operations of unknown outcome that every configuration has used need no slot.
                done = reg[UNKNOWN]
                for k in range(count):
                    done &= conf[before, k, SPENT]
                if done == 0:
                    return SLOTS
                for k in range(count):
                    conf[before, k, SPENT] &= ~done
                    conf[before, k, SATISFIED] &= ~done
                _close(done, slots, reg)
            slot = lowest_bit(~reg[OPEN])
            slot_of[x] = slot
            _open(x, slot, np.int64(kind[x]), responded, flags, slots, reg)
            reg[POSITION] += 1
            continue
        if stop[0] != 0:
            return STOPPED
        x = ~x
        now = 1 - before
        target = np.int64(1) << np.int64(slot_of[x])
        target_is_pure = reg[PURE] & target != 0
        if 2 * count + ROOM > conf.shape[1] or (record and reg[NODES] + ROOM > len(nodes)):
            return GROW
        reg[GENERATION] += 1
        reg[MISSED] = 0
        waits = 0
        reached = 0
        for k in range(count):
            state = conf[before, k, STATE]
            spent = conf[before, k, SPENT]
            held = conf[before, k, SATISFIED] | reg[UNKNOWN]
            held |= _free_in(state, held | spent, table, slots, reg, misses)
            node = conf[before, k, NODE]
            if held & target != 0:
                reached = insert_plain(
                    now, reached, state, held & ~target, spent & ~target, 0, node,
                    conf, chains, reg[GENERATION],
                )  # fmt: skip
            if (held if target_is_pure else spent) & target == 0:
                waits = insert_plain(
                    waiting, waits, state, held, spent, 0, node, conf, chains, reg[GENERATION]
                )  # fmt: skip
        k = 0
        while k < waits and reg[MISSED] == 0:
            if max(waits, reached) + ROOM > conf.shape[1]:
                return GROW if max(waits, reached) < entries_max else LIMIT
            if record and reg[NODES] + ROOM > len(nodes):
                return GROW
            if conf[waiting, k, STATE] >= 0:
                waits, reached = _expand(
                    k, waits, reached, target, now, record, reg[POSITION], table, conf, chains,
                    slots, reg, nodes, misses,
                )  # fmt: skip
            k += 1
            if k & 1023 == 0 and stop[0] != 0:
                return STOPPED
        if reg[MISSED] > 0:
            return MISSES
        reg[MADE] += waits + reached
        if reg[MADE] > made_max:
            return LIMIT
        left = 0
        for k in range(reached):
            if conf[now, k, STATE] >= 0:
                if left != k:
                    _copy_entry(conf, now, left, now, k)
                left += 1
        if left == 0:
            return NO
        reg[COUNT] = left
        reg[BEFORE] = now
        _close(target, slots, reg)
        if record and reg[NODES] > 4096 + 4 * reg[11]:
            _live_nodes(nodes, conf, now, left, reg)
        reg[POSITION] += 1
    return YES
