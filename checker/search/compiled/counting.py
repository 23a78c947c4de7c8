"""The counting frontier on guarded assignments, compiled.

The theory of the frontier is in `checker/search/frontier.py`. Three things differ here.

*Words.* Every operation is one 64-bit word `guard? state := value`, so that which open operations are
legal, free or hidden in a state is a handful of masks, kept up as operations open and close.

*Counting.* Only operations that respond have a bit: 64 of them may be open at once. Operations of
unknown outcome with the same word form a *class*, and a configuration counts how many of each class
it used. More arguments of exchange (R is any completion):

6. *Counts suffice.* Give the k uses of a class in R to its k earliest invocations, in order. So
   dominance compares counts, componentwise.
7. *Respond first.* R uses one of a class while an identical operation that responds is unspent:
   swap them. If R never shows that one, it is done here and the use is saved.
8. *Needed.* A use of a class that satisfies no pure operation is followed in R by a visible k. The
   result of a guarded assignment does not depend on the state, so if k was legal before, leave the
   use out. So the new state must be tested by an open operation, or the old one forbidden by one,
   or the new one be where another class starts (a *chain*). Kept: a blind use that hides something,
   before one that is not.
9. *Join.* The componentwise minimum of two configurations' counts admits every completion of both.

*Modes.* Exact is the frontier. `LEAN` keeps at most `keep` configurations per situation and `beam`
in all, the cheapest: it never invents one, so YES is definite (and NO, if nothing was dropped). `JOIN`
joins what is beyond `keep`: NO is definite (and YES, if nothing was joined).

A lean search that dies goes back to a checkpoint before its death, 1, 2, 4, ... strides, and runs that
stretch wide.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from checker.search.compiled.bits import lowest_bit

YES, NO, SLOTS, LIMIT, UNDECIDED, STOPPED = 1, 0, 2, 3, 4, 5
RUNNING = -1
LEAN, JOIN = 0, 1
CHAINS_NEVER, CHAINS_ALWAYS, CHAINS_IF_NEEDED = 0, 1, 2

VALUE_MASK = 0x3FFFFFFF
NEVER = np.int64(1) << 60
ROW_BLOCK = 32

# Columns of a configuration.
STATE, SATISFIED, SPENT, IDLE, ROW, NEXT, NODE = range(7)
FIELDS = 8

# Columns of the index of a value: masks of the open operations ...
IS_PURE, NOT_PURE, IS_EFFECT, NOT_EFFECT, WRITES = range(5)
INDEXES = 5

# Registers.
NOT_EQUAL_PURE, NOT_EQUAL_EFFECT, BLIND, FREE, PURE = range(5)
BLIND_CLASSES, UNEQUAL_CLASSES, CHAINED_CLASSES = 5, 6, 7
ROWS, DROPPED, NODES, LIVE_NODES = 8, 9, 10, 11
REGISTERS = 12


# Copies are loops: assignments of slices compile ten times as long.


@njit(cache=True, nogil=True)
def _grown(array: Any) -> Any:
    levels, entries, fields = array.shape
    bigger = np.empty((levels, entries * 2, fields), array.dtype)
    for level in range(levels):
        for entry in range(entries):
            for field in range(fields):
                bigger[level, entry, field] = array[level, entry, field]
    return bigger


@njit(cache=True, nogil=True)
def _grown_rows(array: Any) -> Any:
    entries, fields = array.shape
    bigger = np.empty((entries * 2, fields), array.dtype)
    for entry in range(entries):
        for field in range(fields):
            bigger[entry, field] = array[entry, field]
    return bigger


@njit("void(int64[:, :, ::1], int64, int64, int64, int64)", cache=True, nogil=True)
def _copy_entry(conf, to_level, to, from_level, from_):
    for field in range(FIELDS):
        conf[to_level, to, field] = conf[from_level, from_, field]


@njit("void(int16[:, ::1], int64, int16[:, ::1], int64, int64)", cache=True, nogil=True)
def _copy_row(to_rows, to, from_rows, from_, width):
    for column in range(width):
        to_rows[to, column] = from_rows[from_, column]


@njit(cache=True, nogil=True)
def _copy(to, from_):
    for position in range(len(from_)):
        to[position] = from_[position]


@njit(cache=True, nogil=True)
def _copy_table(to, from_):
    for position in range(from_.shape[0]):
        for column in range(from_.shape[1]):
            to[position, column] = from_[position, column]


@njit(
    "void(int64, int64, int64, int64[::1], int64[:, ::1], int64[:, ::1], int64[::1])",
    cache=True,
    nogil=True,
)
def open_slot(x, slot, word, responded, index, slots, reg):
    """Sets the bits of an operation that responds, in the slot it was given."""
    bit = np.int64(1) << slot
    guard = word & 3
    value = (word >> 3) & VALUE_MASK
    new = (word >> 33) & VALUE_MASK
    reg[FREE] &= ~bit
    slots[slot, 0] = x
    slots[slot, 1] = 0
    slots[slot, 2] = word
    slots[slot, 3] = responded[x]
    if word & 4 == 0:
        reg[PURE] |= bit
        if guard == 1:
            index[value, IS_PURE] |= bit
        else:
            reg[NOT_EQUAL_PURE] |= bit
            if guard == 2:
                index[value, NOT_PURE] |= bit
        return
    if guard == 0:
        like = index[new, WRITES]
        index[new, WRITES] |= bit
        reg[BLIND] |= bit
    elif guard == 1:
        like = index[value, IS_EFFECT]
        index[value, IS_EFFECT] |= bit
    else:
        like = index[value, NOT_EFFECT]
        index[value, NOT_EFFECT] |= bit
        reg[NOT_EQUAL_EFFECT] |= bit
    earlier = np.int64(0)
    while like != 0:
        other = lowest_bit(like)
        like &= like - 1
        if slots[other, 2] == word:
            if slots[other, 3] <= responded[x]:
                earlier |= np.int64(1) << other
            else:
                slots[other, 1] |= bit
    slots[slot, 1] = earlier


@njit("void(int64, int64, int64[:, ::1], int64[:, ::1], int64[::1])", cache=True, nogil=True)
def close_slot(slot, word, index, slots, reg):
    """Clears the bits of an operation."""
    keep = ~(np.int64(1) << slot)
    guard = word & 3
    value = (word >> 3) & VALUE_MASK
    new = (word >> 33) & VALUE_MASK
    reg[FREE] |= ~keep
    if word & 4 == 0:
        reg[PURE] &= keep
        if guard == 1:
            index[value, IS_PURE] &= keep
        else:
            reg[NOT_EQUAL_PURE] &= keep
            if guard == 2:
                index[value, NOT_PURE] &= keep
        return
    if guard == 0:
        index[new, WRITES] &= keep
        like = index[new, WRITES]
        reg[BLIND] &= keep
    elif guard == 1:
        index[value, IS_EFFECT] &= keep
        like = index[value, IS_EFFECT]
    else:
        index[value, NOT_EFFECT] &= keep
        like = index[value, NOT_EFFECT]
        reg[NOT_EQUAL_EFFECT] &= keep
    while like != 0:
        other = lowest_bit(like)
        like &= like - 1
        slots[other, 1] &= keep


@njit("boolean(int16[:, ::1], int64, int64, int64)", cache=True, nogil=True)
def _row_le(rows, one, other, width):
    """Whether all counts of a row are at most those of the other. Blocks, so that it is vectorised."""
    if one == other:
        return True
    if rows[one, width - 1] > rows[other, width - 1]:
        return False
    for start in range(0, width - 1, ROW_BLOCK):
        exceeds = False
        for column in range(start, min(start + ROW_BLOCK, width - 1)):
            exceeds |= rows[one, column] > rows[other, column]
        if exceeds:
            return False
    return True


@njit("boolean(int16[:, ::1], int64, int64, int64, int64)", cache=True, nogil=True)
def _row_le_used(rows, one, other, used, width):
    """Whether row `one` is at most row `other` with one more use of class `used`."""
    if one == other:
        return True
    last = width - 1
    if rows[one, last] > rows[other, last] + 1 or rows[one, used] > rows[other, used] + 1:
        return False
    for start in range(0, last, ROW_BLOCK):
        exceeding = 0
        end = min(start + ROW_BLOCK, last)
        for column in range(start, end):
            exceeding += rows[one, column] > rows[other, column]
        if start <= used < end and rows[one, used] > rows[other, used]:
            exceeding -= 1
        if exceeding > 0:
            return False
    return True


@njit("boolean(int16[:, ::1], int64, int64, int64, int64)", cache=True, nogil=True)
def _used_row_le(rows, one, used, other, width):
    """Whether row `one` with one more use of class `used` is at most row `other`."""
    if rows[one, used] + 1 > rows[other, used] or rows[one, width - 1] + 1 > rows[other, width - 1]:
        return False
    return _row_le(rows, one, other, width)


@njit(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, int64, "
    "int16[:, ::1], int64, int64[:, :, ::1], int64[:, :, ::1], int64, int64[::1])",
    cache=True,
    nogil=True,
)
def insert(
    level, count, state, satisfied, spent, idle, row, used, node,
    mode, keep, rows, width, conf, chains, generation, reg,
):  # fmt: skip
    """Adds a configuration to a level unless one there dominates it; removes those it dominates.

    `used` is a class of which it used one more than `row` says, or -1. Returns the new number of
    entries. There must be room for one more entry and two more rows. In mode `JOIN`, `used` is -1, and
    `row` may be the first one beyond those in use.
    """
    link = -1
    similar = 0
    like = np.int64(-1)
    if chains[level, state, 1] == generation:
        cost = rows[row, width - 1] + (1 if used >= 0 else 0)
        k = chains[level, state, 0]
        while k >= 0:
            following = conf[level, k, NEXT]
            dead = conf[level, k, STATE] < 0
            if not dead:
                its_satisfied = conf[level, k, SATISFIED]
                its_spent = conf[level, k, SPENT]
                its_idle = conf[level, k, IDLE]
                its_row = conf[level, k, ROW]
                its_cost = rows[its_row, width - 1]
                if (
                    its_cost <= cost
                    and (its_satisfied & satisfied) == satisfied
                    and (its_spent & spent) == its_spent
                    and its_idle <= idle
                ):
                    if used < 0:
                        dominated = _row_le(rows, its_row, row, width)
                    else:
                        dominated = _row_le_used(rows, its_row, row, used, width)
                    if dominated:
                        return count
                    if mode == LEAN:
                        similar += 1
                        if similar >= keep:
                            reg[DROPPED] = 1
                            return count
                if (
                    cost <= its_cost
                    and (its_satisfied & satisfied) == its_satisfied
                    and (its_spent & spent) == spent
                    and idle <= its_idle
                ):
                    if used < 0:
                        dead = _row_le(rows, row, its_row, width)
                    else:
                        dead = _used_row_le(rows, row, used, its_row, width)
                    if not dead and mode == LEAN and keep == 1:
                        reg[DROPPED] = 1
                        dead = True
                if (
                    not dead
                    and mode == JOIN
                    and its_satisfied == satisfied
                    and its_spent == spent
                    and its_idle == idle
                ):
                    similar += 1
                    like = k
                if dead:
                    conf[level, k, STATE] = -1
            if dead:
                if link < 0:
                    chains[level, state, 0] = following
                else:
                    conf[level, link, NEXT] = following
            else:
                link = k
            k = following
        conf[level, count, NEXT] = chains[level, state, 0]
    else:
        chains[level, state, 1] = generation
        conf[level, count, NEXT] = -1
    if mode == JOIN and like >= 0 and similar >= keep:
        reg[DROPPED] = 1
        joined = reg[ROWS] + (1 if row == reg[ROWS] else 0)
        its_row = conf[level, like, ROW]
        for column in range(width):
            rows[joined, column] = min(rows[row, column], rows[its_row, column])
        row = joined
        conf[level, like, STATE] = -1  # Unlinked when the chain is next walked.
    if used >= 0:
        fresh = reg[ROWS]
        for column in range(width):
            rows[fresh, column] = rows[row, column]
        rows[fresh, used] += 1
        rows[fresh, width - 1] += 1
        row = fresh
    if row >= reg[ROWS]:
        reg[ROWS] = row + 1
    chains[level, state, 0] = count
    conf[level, count, STATE] = state
    conf[level, count, SATISFIED] = satisfied
    conf[level, count, SPENT] = spent
    conf[level, count, IDLE] = idle
    conf[level, count, ROW] = row
    conf[level, count, NODE] = node
    return count + 1


@njit(
    "int64(int64, int64, int64, int64, int64, int64, int64, int64[:, :, ::1], int64[:, :, ::1], int64)",
    cache=True,
    nogil=True,
)
def insert_plain(level, count, state, satisfied, spent, idle, node, conf, chains, generation):
    """`insert` where nothing is counted, dropped or joined: most histories, at half the time."""
    link = -1
    head = np.int64(-1)
    if chains[level, state, 1] == generation:
        k = chains[level, state, 0]
        head = k
        while k >= 0:
            following = conf[level, k, NEXT]
            its_satisfied = conf[level, k, SATISFIED]
            its_spent = conf[level, k, SPENT]
            its_idle = conf[level, k, IDLE]
            if (
                (its_satisfied & satisfied) == satisfied
                and (its_spent & spent) == its_spent
                and its_idle <= idle
            ):
                return count
            if (
                (its_satisfied & satisfied) == its_satisfied
                and (its_spent & spent) == spent
                and idle <= its_idle
            ):
                conf[level, k, STATE] = -1
                if link < 0:
                    head = following
                    chains[level, state, 0] = following
                else:
                    conf[level, link, NEXT] = following
            else:
                link = k
            k = following
    else:
        chains[level, state, 1] = generation
    conf[level, count, NEXT] = head
    chains[level, state, 0] = count
    conf[level, count, STATE] = state
    conf[level, count, SATISFIED] = satisfied
    conf[level, count, SPENT] = spent
    conf[level, count, IDLE] = idle
    conf[level, count, ROW] = 0
    conf[level, count, NODE] = node
    return count + 1


@njit(cache=True, nogil=True, inline="always")
def satisfied_free(state, satisfied, spent, index, reg):
    """Rules 1 and 7: `satisfied`, and what is legal in `state` and changes nothing."""
    return (
        satisfied
        | index[state, IS_PURE]
        | (reg[NOT_EQUAL_PURE] & ~index[state, NOT_PURE])
        | (index[state, WRITES] & ~spent)
    )


@njit("int64(int32[:, ::1], int64[::1], int64, int64, int64)", cache=True, nogil=True)
def _new_node(nodes, reg, parent, used, event):
    node = reg[NODES]
    nodes[node, 0] = parent
    nodes[node, 1] = used
    nodes[node, 2] = event
    reg[NODES] = node + 1
    return node


@njit(
    "UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64, int64, int64, boolean, "
    "int16[:, ::1], int64, int64[:, :, ::1], int64, int64, int64[:, :, ::1], int64, "
    "int64[:, ::1], int64[:, ::1], int64[::1], int32[:, ::1])",
    cache=True,
    nogil=True,
)
def expand_open(
    k, count, reached, target_slot, target_word, event, mode, keep, record, rows, width,
    conf, now, waiting, chains, generation, index, slots, reg, nodes,
):  # fmt: skip
    """Uses each open operation that responds, where that is legal and not pointless, in entry `k`.

    Returns the new numbers of entries of `waiting` and of `now`, the reached ones.
    """
    state = conf[waiting, k, STATE]
    satisfied = conf[waiting, k, SATISFIED]
    spent = conf[waiting, k, SPENT]
    idle = conf[waiting, k, IDLE]
    row = conf[waiting, k, ROW]
    node = conf[waiting, k, NODE]
    target = np.int64(1) << target_slot
    target_effect = target_word & 4 != 0
    candidates = index[state, IS_EFFECT] | (reg[NOT_EQUAL_EFFECT] & ~index[state, NOT_EFFECT])
    if idle == 0:
        candidates |= reg[BLIND]
    candidates &= ~spent
    while candidates != 0:
        slot = lowest_bit(candidates)
        candidates &= candidates - 1
        bit = np.int64(1) << slot
        earlier = slots[slot, 1] & ~spent
        if earlier != 0 and ((satisfied & bit) != 0 or (earlier & ~satisfied) != 0):
            continue
        word = slots[slot, 2]
        new = (word >> 33) & VALUE_MASK
        used = spent | bit
        held = satisfied | bit | index[new, IS_PURE]
        held |= reg[NOT_EQUAL_PURE] & ~index[new, NOT_PURE]
        gained = (held & reg[PURE] & ~satisfied) != 0
        is_blind = word & 3 == 0
        if is_blind and new == state and bit != target and (reg[BLIND] & ~used & ~satisfied) == 0:
            continue
        is_optional = is_blind or (satisfied & bit) != 0
        if is_blind:
            held |= reg[BLIND] & ~used
        held |= index[new, WRITES] & ~used
        made = _new_node(nodes, reg, node, slots[slot, 0], event) if record else 0
        is_reached = bit == target or (not target_effect and (held & target) != 0)
        its_idle = 1 if is_optional and not gained else 0
        if width == 1:
            if is_reached:
                reached = insert_plain(
                    now, reached, new, held & ~target, used & ~target, 0, made,
                    conf, chains, generation,
                )  # fmt: skip
            else:
                count = insert_plain(
                    waiting, count, new, held, used, its_idle, made, conf, chains, generation
                )
        elif is_reached:
            reached = insert(
                now, reached, new, held & ~target, used & ~target, 0, row, -1, made,
                mode, keep, rows, width, conf, chains, generation, reg,
            )  # fmt: skip
        else:
            count = insert(
                waiting, count, new, held, used, its_idle, row, -1, made,
                mode, keep, rows, width, conf, chains, generation, reg,
            )  # fmt: skip
    return count, reached


@njit(
    "int64(int64, int64, int64, int64, boolean, boolean, boolean, int64[:, ::1], "
    "int64[::1], int64[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], "
    "int32[::1], int64[::1], int64, int32[::1])",
    cache=True,
    nogil=True,
)
def useful_classes(
    state, satisfied, spent, idle, chained, away, hides, slots, reg,
    class_words, by_value, first_of, active_of, blind_of, blind, unequal, seen, look, chosen,
):  # fmt: skip
    """Rule 8: writes to `chosen` the classes that may be worth a use in a state; returns how many."""
    count = 0
    first = first_of[state]
    if away or chained or reg[UNEQUAL_CLASSES] > 0:
        for position in range(first, first + active_of[state]):
            chosen[count] = by_value[position]
            count += 1
        if idle == 0:
            for position in range(reg[BLIND_CLASSES]):
                chosen[count] = blind[position]
                count += 1
        for position in range(reg[UNEQUAL_CLASSES]):
            if (class_words[unequal[position]] >> 3) & VALUE_MASK != state:
                chosen[count] = unequal[position]
                count += 1
        return count
    if idle != 0 and active_of[state] == 0:
        return 0
    # Only values that an open operation waits for.
    waiting = ~reg[FREE] & ~(reg[PURE] & satisfied) & ~spent
    while waiting != 0:
        slot = lowest_bit(waiting)
        waiting &= waiting - 1
        word = slots[slot, 2]
        if word & 3 != 1:
            continue
        value = (word >> 3) & VALUE_MASK
        if seen[value] == look:
            continue
        seen[value] = look
        if idle == 0 and blind_of[value] >= 0:
            chosen[count] = blind_of[value]
            count += 1
        if value != state:
            for position in range(first, first + active_of[state]):
                if (class_words[by_value[position]] >> 33) & VALUE_MASK == value:
                    chosen[count] = by_value[position]
                    count += 1
    if idle == 0 and hides and (reg[NOT_EQUAL_EFFECT] & ~spent) != 0:
        for position in range(reg[BLIND_CLASSES]):
            value = (class_words[blind[position]] >> 33) & VALUE_MASK
            if seen[value] != look:
                chosen[count] = blind[position]
                count += 1
    if count < active_of[state] + (0 if idle != 0 else reg[BLIND_CLASSES]):
        if reg[CHAINED_CLASSES] > 0:
            reg[DROPPED] = 1
    return count


@njit("boolean(int64, int64, int64[:, ::1], int64[:, ::1])", cache=True, nogil=True)
def has_identical(word, spent, index, slots):
    """Rule 7: whether an open operation that responds, unspent, is the same as a class."""
    guard = word & 3
    value = (word >> 3) & VALUE_MASK
    if guard == 0:
        return (index[(word >> 33) & VALUE_MASK, WRITES] & ~spent) != 0
    like = (index[value, IS_EFFECT] if guard == 1 else index[value, NOT_EFFECT]) & ~spent
    while like != 0:
        slot = lowest_bit(like)
        like &= like - 1
        if slots[slot, 2] == word:
            return True
    return False


@njit(
    "UniTuple(int64, 2)(int64, int64, int64, int64, int64, int64, int64, int64, boolean, "
    "boolean, int16[:, ::1], int64, int64[:, :, ::1], int64, int64, int64[:, :, ::1], "
    "int64, int64[:, ::1], int64[:, ::1], int64[::1], int32[:, ::1], int64[::1], "
    "int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], int32[::1], "
    "int64[::1], int64, int32[::1])",
    cache=True,
    nogil=True,
)
def expand_classes(
    k, count, reached, target_slot, target_word, event, mode, keep, record, chained, rows, width,
    conf, now, waiting, chains, generation, index, slots, reg, nodes,
    class_words, called, by_value, first_of, active_of, blind_of, blind, unequal, seen, look, chosen,
):  # fmt: skip
    """Uses operations of unknown outcome in entry `k`; returns as `expand_open` does."""
    state = conf[waiting, k, STATE]
    satisfied = conf[waiting, k, SATISFIED]
    spent = conf[waiting, k, SPENT]
    idle = conf[waiting, k, IDLE]
    row = conf[waiting, k, ROW]
    node = conf[waiting, k, NODE]
    target = np.int64(1) << target_slot
    target_effect = target_word & 4 != 0
    away = ((index[state, NOT_PURE] & ~satisfied) | (index[state, NOT_EFFECT] & ~spent)) != 0
    hides = (reg[BLIND] & ~spent & ~satisfied) != 0
    useful = useful_classes(
        state, satisfied, spent, idle, chained, away, hides, slots, reg,
        class_words, by_value, first_of, active_of, blind_of, blind, unequal, seen, look, chosen,
    )  # fmt: skip
    for position in range(useful):
        klass = chosen[position]
        if rows[row, klass] >= called[klass]:
            continue
        word = class_words[klass]
        new = (word >> 33) & VALUE_MASK
        into = len(class_words) + new
        if mode == JOIN and (
            rows[row, into] >= called[into] or rows[row, width - 1] >= called[width - 1]
        ):
            continue
        is_blind = word & 3 == 0
        goes_on = active_of[new] > 0 or reg[UNEQUAL_CLASSES] > 0
        if (
            ((index[new, IS_PURE] & ~satisfied) | (index[new, IS_EFFECT] & ~spent)) == 0
            and not (away and new != state)
            and not (
                is_blind
                and hides
                and ((reg[NOT_EQUAL_EFFECT] & ~spent) != 0 or reg[UNEQUAL_CLASSES] > 0)
            )
            and not (chained and goes_on)
        ):
            if not chained and goes_on:
                reg[DROPPED] = 1
            continue
        if has_identical(word, spent, index, slots):
            continue
        if is_blind and new == state and not hides:
            continue
        held = satisfied | index[new, IS_PURE]
        held |= reg[NOT_EQUAL_PURE] & ~index[new, NOT_PURE]
        gained = (held & reg[PURE] & ~satisfied) != 0
        if is_blind:
            held |= reg[BLIND] & ~spent
        held |= index[new, WRITES] & ~spent
        its_row, used = row, klass
        if mode == JOIN:
            its_row, used = reg[ROWS], np.int64(-1)
            for column in range(width):
                rows[its_row, column] = rows[row, column]
            rows[its_row, klass] += 1
            rows[its_row, into] += 1
            rows[its_row, width - 1] += 1
        made = _new_node(nodes, reg, node, ~klass, event) if record else 0
        if not target_effect and (held & target) != 0:
            reached = insert(
                now, reached, new, held & ~target, spent & ~target, 0, its_row, used, made,
                mode, keep, rows, width, conf, chains, generation, reg,
            )  # fmt: skip
        else:
            count = insert(
                waiting, count, new, held, spent, 0 if gained else 1, its_row, used, made,
                mode, keep, rows, width, conf, chains, generation, reg,
            )  # fmt: skip
    return count, reached


@njit("int64[::1](int32[::1], int64)", cache=True, nogil=True)
def _responses(events, operations):
    responded = np.full(operations, NEVER, np.int64)
    for position in range(len(events)):
        if events[position] < 0:
            responded[~events[position]] = position
    return responded


@njit(cache=True, nogil=True)
def _classes(words, responded):
    """The distinct words of what never responds and has an effect; per operation, its class."""
    size = 16
    unknown = 0
    for x in range(len(words)):
        if responded[x] == NEVER and words[x] & 4 != 0:
            unknown += 1
    while size < 2 * unknown + 2:
        size *= 2
    table = np.full(size, -1, np.int32)
    class_words = np.empty(unknown, np.int64)
    class_of = np.full(len(words) if unknown else 0, -1, np.int32)
    count = 0
    if unknown:
        for x in range(len(words)):
            word = words[x]
            if responded[x] != NEVER or word & 4 == 0:
                continue
            place = ((word * np.int64(-7046029254386353131)) >> 40) & (size - 1)
            while table[place] >= 0 and class_words[table[place]] != word:
                place = (place + 1) & (size - 1)
            if table[place] < 0:
                table[place] = count
                class_words[count] = word
                count += 1
            class_of[x] = table[place]
    return class_words[:count].copy(), class_of


@njit("void(int16[:, ::1], int64[:, :, ::1], int64, int64, int64[::1])", cache=True, nogil=True)
def _live_rows(rows, conf, level, count, reg):
    """Moves the rows that are in use to the front."""
    kept = 0
    place = np.full(reg[ROWS], -1, np.int64)
    for k in range(count):
        place[conf[level, k, ROW]] = 0
    for row in range(reg[ROWS]):
        if place[row] == 0:
            if kept != row:
                _copy_row(rows, kept, rows, row, rows.shape[1])
            place[row] = kept
            kept += 1
    for k in range(count):
        conf[level, k, ROW] = place[conf[level, k, ROW]]
    reg[ROWS] = kept


@njit("void(int32[:, ::1], int64[:, :, ::1], int64, int64, int64[::1])", cache=True, nogil=True)
def _live_nodes(nodes, conf, level, count, reg):
    """Moves the nodes that lead to a configuration to the front."""
    place = np.full(reg[NODES], -1, np.int64)
    place[0] = 0
    for k in range(count):
        node = conf[level, k, NODE]
        while place[node] < 0:
            place[node] = 0
            node = nodes[node, 0]
    kept = 0
    for node in range(reg[NODES]):
        if place[node] == 0:
            place[node] = kept
            nodes[kept, 0] = place[nodes[node, 0]]
            nodes[kept, 1] = nodes[node, 1]
            nodes[kept, 2] = nodes[node, 2]
            kept += 1
    for k in range(count):
        conf[level, k, NODE] = place[conf[level, k, NODE]]
    reg[NODES] = kept
    reg[LIVE_NODES] = kept


@njit(
    "int64(int64[:, :, ::1], int64, int64, int64, int64, int16[:, ::1], int64)",
    cache=True,
    nogil=True,
)
def _cheapest(conf, now, spare, count, beam, rows, width):
    """Keeps the `beam` configurations with the fewest uses; stable."""
    least, most = np.int64(1) << 40, np.int64(0)
    for k in range(count):
        cost = np.int64(rows[conf[now, k, ROW], width - 1])
        least, most = min(least, cost), max(most, cost)
    starts = np.zeros(most - least + 2, np.int64)
    for k in range(count):
        starts[rows[conf[now, k, ROW], width - 1] - least + 1] += 1
    for cost in range(most - least + 1):
        starts[cost + 1] += starts[cost]
    for k in range(count):
        cost = rows[conf[now, k, ROW], width - 1] - least
        place = starts[cost]
        starts[cost] += 1
        if place < beam:
            _copy_entry(conf, spare, place, now, k)
    for k in range(beam):
        _copy_entry(conf, now, k, spare, k)
    return beam


CHECKPOINTS = 64
CHECKPOINT_ENTRIES = 64


@njit(cache=True, nogil=True)
def search(
    events, length, words, values, start, start_conf, start_rows,
    mode, keep_wanted, beam_wanted, chains_wanted, entries_max, made_max, restores, record, stop,
):  # fmt: skip
    """Runs a history.

    Args:
      events: int32, as in `Operations.events`.
      length: How many of them to run; responses after them count as known.
      words: int64 per operation.
      values: Number of value codes.
      start: Position from which configurations are kept up; before it, operations only open and close.
      start_conf: The configurations there: columns as in `conf`, with their rows in `start_rows`.
      start_rows: Their counts. If there are none, nothing was used.
      mode: `LEAN` (exact if `keep` and `beam` are out of reach and chains are always tried) or `JOIN`.
      keep_wanted, beam_wanted, chains_wanted: See the module.
      entries_max: Limit on the configurations of one event; status `LIMIT` above.
      made_max: Limit on all configurations; status `LIMIT` above, soon.
      restores: How often a dead lean search may go back.
      record: Whether to keep the uses that lead to each configuration.
      stop: int64[1]; status `STOPPED` soon after it becomes non-zero.

    Returns:
      status, position, configurations made; and what was possible just before: the configurations, which
      level of them, how many, their rows of counts, the slots, the nodes, the words of the classes.
    """
    responded = _responses(events, len(words))
    class_words, class_of = _classes(words, responded)
    classes = len(class_words)
    width = classes + 1 + (values if mode == JOIN else 0)
    called = np.zeros(width, np.int32)
    first_of = np.zeros(values + 1 if classes else 1, np.int32)
    active_of = np.zeros(values, np.int32)
    blind_of = np.full(values if classes else 1, -1, np.int32)
    by_value = np.empty(classes, np.int32)
    blind = np.empty(classes, np.int32)
    unequal = np.empty(classes, np.int32)
    chosen = np.empty(2 * classes + 64, np.int32)
    seen = np.zeros(values if classes else 1, np.int64)
    look = 0
    if classes:
        for klass in range(classes):
            if class_words[klass] & 3 == 1:
                first_of[((class_words[klass] >> 3) & VALUE_MASK) + 1] += 1
        for value in range(values):
            first_of[value + 1] += first_of[value]

    entries = 64
    while entries < 2 * len(start_conf) + 8:
        entries *= 2
    conf = np.empty((3, entries, FIELDS), np.int64)
    chains = np.zeros((3, values, 2), np.int64)
    rows = np.zeros((entries, width), np.int16)
    index = np.zeros((values, INDEXES), np.int64)
    slots = np.zeros((64, 4), np.int64)
    reg = np.zeros(REGISTERS, np.int64)
    reg[FREE] = -1
    reg[ROWS] = max(1, len(start_rows))
    nodes = np.zeros((256 if record else 1, 3), np.int32)
    reg[NODES] = 1
    slot_of = np.empty(len(words), np.int8)
    now, before, waiting = 1, 0, 2
    count = len(start_conf)
    for k in range(count):
        for field in range(FIELDS):
            conf[before, k, field] = start_conf[k, field]
    for row in range(len(start_rows)):
        _copy_row(rows, row, start_rows, row, width)
    made = 1
    generation = 0
    keep, beam, chains_mode = keep_wanted, beam_wanted, chains_wanted

    points = CHECKPOINTS if restores > 0 else 0
    stride = min(64, max(4, len(events) // 16))
    point_event = np.full(points, -1, np.int64)
    point_count = np.zeros(points, np.int64)
    point_conf = np.empty((points, CHECKPOINT_ENTRIES, FIELDS), np.int64)
    point_rows = np.empty((points, CHECKPOINT_ENTRIES, width), np.int16)
    point_index = np.empty((points, values, INDEXES), np.int64)
    point_slots = np.empty((points, 64, 4), np.int64)
    point_called = np.empty((points, width), np.int32)
    point_active = np.empty((points, values), np.int32)
    point_reg = np.empty((points, REGISTERS), np.int64)
    taken = 0
    restored = 0
    back = 1
    wide_until = np.int64(-1)
    next_point = np.int64(0)

    status = RUNNING
    position = np.int64(-1)
    while True:
        position += 1
        if position >= length:
            break
        if points:
            if position == wide_until:
                keep, beam, chains_mode = keep_wanted, beam_wanted, chains_wanted
            if position >= next_point and count <= CHECKPOINT_ENTRIES:
                next_point = position + stride
                z = taken % CHECKPOINTS
                taken += 1
                point_event[z] = position
                point_count[z] = count
                for k in range(count):
                    for field in range(FIELDS):
                        point_conf[z, k, field] = conf[before, k, field]
                    _copy_row(point_rows[z], k, rows, conf[before, k, ROW], width)
                _copy_table(point_index[z], index)
                _copy_table(point_slots[z], slots)
                _copy(point_called[z], called)
                _copy(point_active[z], active_of)
                _copy(point_reg[z], reg)
        x = events[position]
        if x >= 0:
            word = words[x]
            if responded[x] == NEVER:
                if word & 4 == 0:
                    continue
                klass = class_of[x]
                value = (word >> 3) & VALUE_MASK
                new = (word >> 33) & VALUE_MASK
                if called[klass] == 0:
                    if word & 3 == 0:
                        blind[reg[BLIND_CLASSES]] = klass
                        reg[BLIND_CLASSES] += 1
                        blind_of[new] = klass
                    elif word & 3 == 1:
                        by_value[first_of[value] + active_of[value]] = klass
                        active_of[value] += 1
                        reg[CHAINED_CLASSES] += 1
                    else:
                        unequal[reg[UNEQUAL_CLASSES]] = klass
                        reg[UNEQUAL_CLASSES] += 1
                called[klass] += 1
                called[width - 1] += 1
                if mode == JOIN:
                    called[classes + new] += 1
                continue
            if reg[FREE] == 0:
                status = SLOTS
                break
            slot = lowest_bit(reg[FREE])
            slot_of[x] = slot
            open_slot(x, slot, word, responded, index, slots, reg)
            continue
        x = ~x
        slot = np.int64(slot_of[x])
        bit = np.int64(1) << slot
        word = words[x]
        if position < start:
            close_slot(slot, word, index, slots, reg)
            continue
        effect = word & 4 != 0
        settled = True
        for k in range(count):
            held = satisfied_free(
                conf[before, k, STATE],
                conf[before, k, SATISFIED],
                conf[before, k, SPENT],
                index,
                reg,
            )
            conf[before, k, SATISFIED] = held
            if held & bit == 0 or (effect and conf[before, k, SPENT] & bit == 0):
                settled = False
        if settled:
            for k in range(count):
                conf[before, k, SATISFIED] &= ~bit
                conf[before, k, SPENT] &= ~bit
            close_slot(slot, word, index, slots, reg)
            continue
        if stop[0] != 0:
            status = STOPPED
            break
        chained = chains_mode == CHAINS_ALWAYS
        left = 0
        while True:
            generation += 1
            waits = 0
            reached = 0
            while 2 * count + 8 > conf.shape[1]:
                conf = _grown(conf)
            while reg[ROWS] + 2 * count + 8 > rows.shape[0]:
                rows = _grown_rows(rows)
            for k in range(count):
                state = conf[before, k, STATE]
                held = conf[before, k, SATISFIED]
                spent = conf[before, k, SPENT]
                row = conf[before, k, ROW]
                node = conf[before, k, NODE]
                if held & bit != 0:
                    if width == 1:
                        reached = insert_plain(
                            now, reached, state, held & ~bit, spent & ~bit, 0, node,
                            conf, chains, generation,
                        )  # fmt: skip
                    else:
                        reached = insert(
                            now, reached, state, held & ~bit, spent & ~bit, 0, row, -1, node,
                            mode, keep, rows, width, conf, chains, generation, reg,
                        )  # fmt: skip
                if (spent if effect else held) & bit == 0:
                    if width == 1:
                        waits = insert_plain(
                            waiting, waits, state, held, spent, 0, node, conf, chains, generation
                        )
                    else:
                        waits = insert(
                            waiting, waits, state, held, spent, 0, row, -1, node,
                            mode, keep, rows, width, conf, chains, generation, reg,
                        )  # fmt: skip
            k = 0
            while k < waits:
                if conf[waiting, k, STATE] < 0:
                    k += 1
                    continue
                room = 70 + 2 * classes
                while max(waits, reached) + room > conf.shape[1]:
                    conf = _grown(conf)
                while reg[ROWS] + 2 * room > rows.shape[0]:
                    rows = _grown_rows(rows)
                if record:
                    while reg[NODES] + room > nodes.shape[0]:
                        nodes = _grown_rows(nodes)
                waits, reached = expand_open(
                    k, waits, reached, slot, word, position, mode, keep, record, rows, width,
                    conf, now, waiting, chains, generation, index, slots, reg, nodes,
                )  # fmt: skip
                if called[width - 1] > 0:
                    look += 1
                    waits, reached = expand_classes(
                        k, waits, reached, slot, word, position, mode, keep, record, chained,
                        rows, width, conf, now, waiting, chains, generation, index, slots, reg,
                        nodes, class_words, called, by_value, first_of, active_of, blind_of, blind,
                        unequal, seen, look, chosen,
                    )  # fmt: skip
                if max(waits, reached) > entries_max or reg[ROWS] * width > 150_000_000:
                    status = LIMIT
                    break
                if k & 1023 == 1023 and stop[0] != 0:
                    status = STOPPED
                    break
                k += 1
            if status != RUNNING:
                break
            made += reached + waits
            if made > made_max:
                status = LIMIT
                break
            left = 0
            for k in range(reached):
                if conf[now, k, STATE] >= 0:
                    if left != k:
                        _copy_entry(conf, now, left, now, k)
                    left += 1
            if left or chains_mode != CHAINS_IF_NEEDED or chained:
                break
            chained = True
        if status != RUNNING:
            break
        if left == 0:
            if mode == JOIN or reg[DROPPED] == 0:
                status = NO
                break
            if restored >= restores:
                status = UNDECIDED
                break
            restored += 1
            back = 1 if position > wide_until + stride else back * 2
            z = -1
            k = taken - 1
            while k >= 0 and k > taken - CHECKPOINTS:
                z = k % CHECKPOINTS
                if point_event[z] <= position - back * stride // 2:
                    break
                k -= 1
            if z < 0:
                status = UNDECIDED
                break
            if k >= 0 and k > taken - CHECKPOINTS:
                taken = k + 1
            count = point_count[z]
            while count + 8 > conf.shape[1]:
                conf = _grown(conf)
            while count + 8 > rows.shape[0]:
                rows = _grown_rows(rows)
            made_nodes, live_nodes = reg[NODES], reg[LIVE_NODES]
            _copy(reg, point_reg[z])
            reg[NODES], reg[LIVE_NODES] = made_nodes, live_nodes
            reg[DROPPED] = 1
            for k in range(count):
                for field in range(FIELDS):
                    conf[before, k, field] = point_conf[z, k, field]
                conf[before, k, ROW] = k
                _copy_row(rows, k, point_rows[z], k, width)
            reg[ROWS] = count
            _copy_table(index, point_index[z])
            _copy_table(slots, point_slots[z])
            _copy(called, point_called[z])
            _copy(active_of, point_active[z])
            wide_until = max(wide_until, position + stride // 2)
            keep, beam, chains_mode = (4 if back <= 2 else 16), 512, CHAINS_ALWAYS
            next_point = point_event[z] + stride
            position = point_event[z] - 1
            continue
        count = left
        if mode == LEAN and count > beam:
            reg[DROPPED] = 1
            count = _cheapest(conf, now, waiting, count, beam, rows, width)
        now, before = before, now
        if reg[ROWS] > 64 + 8 * count:
            _live_rows(rows, conf, before, count, reg)
        # Checkpoints refer to nodes, so with restores none may move.
        if record and restores == 0 and reg[NODES] > 4096 + 4 * reg[LIVE_NODES]:
            _live_nodes(nodes, conf, before, count, reg)
        close_slot(slot, word, index, slots, reg)
    if status == RUNNING:
        status = UNDECIDED if mode == JOIN and reg[DROPPED] != 0 else YES
    return status, position, made, conf, before, count, rows, slots, nodes, class_words


@njit(
    "UniTuple(int64, 3)(int32[::1], int64, int64[::1], int64, int64, int64, int64, int64, int64, "
    "int64, int64, int64[::1])",
    cache=True,
    nogil=True,
)
def decide(
    events, length, words, values, mode, keep, beam, chains, entries_max, made_max, restores, stop
):  # fmt: skip
    """`search` from the beginning, without traces: status, position, configurations made."""
    outcome = search(
        events, length, words, values, 0, np.zeros((1, FIELDS), np.int64),
        np.zeros((0, 1), np.int16), mode, keep, beam, chains, entries_max, made_max, restores,
        False, stop,
    )  # fmt: skip
    return outcome[0], outcome[1], outcome[2]


@njit(
    "int64(int64[::1], int64, int64, int32[::1], int32[::1], int32[::1], int64)",
    cache=True,
    nogil=True,
)
def _renumber(words, start, end, code, coded, tested, look):
    """Gives the values of one object dense codes from 0, the initial one, in place.

    Values that no guard tests are indistinguishable: they share a code, so that identical operations are
    recognised. Returns the number of codes.
    """
    tested[0] = coded[0] = look
    code[0] = 0
    count = 1
    other = -1
    for x in range(start, end):
        if words[x] & 3 != 0:
            tested[(words[x] >> 3) & VALUE_MASK] = look
    for x in range(start, end):
        word = words[x]
        value = (word >> 3) & VALUE_MASK
        new = (word >> 33) & VALUE_MASK
        packed = word & 7
        if word & 3 != 0:
            if coded[value] != look:
                coded[value] = look
                code[value] = count
                count += 1
            packed |= np.int64(code[value]) << 3
        if word & 4 != 0:
            if tested[new] != look:
                if other < 0:
                    other = count
                    count += 1
                packed |= np.int64(other) << 33
            else:
                if coded[new] != look:
                    coded[new] = look
                    code[new] = count
                    count += 1
                packed |= np.int64(code[new]) << 33
        words[x] = packed
    return count


@njit(
    "Tuple((int8[::1], int64[::1], int32[::1], int64[::1], int64[::1], int64[::1], int64[::1]))"
    "(int32[::1], int32[::1], int64[::1], int64, int64, int64, int64, int64[::1])",
    cache=True,
    nogil=True,
)
def decide_all(events, part, words, parts, values, unknown_max, made_per_event, stop):
    """Splits a history by object and runs the search that is likely to decide each.

    Args:
      events: int32, as in `Operations.events`.
      part: int32 per operation: its object, or -1 to leave it out.
      words: int64 per operation, with codes common to all objects; 0 is everybody's initial value.
      parts: Number of objects.
      values: Number of value codes.
      unknown_max: Objects with more operations of unknown outcome are searched leanly.
      made_per_event: Limit of configurations, by the object's number of events.
      stop: As in `search`.

    Returns:
      Per object, a status and a position; then the history split: events in local numbers, where each
      object's begin; words with codes of the object's own, where each object's begin; how many codes.
    """
    first = np.zeros(parts + 1, np.int64)
    first_event = np.zeros(parts + 1, np.int64)
    for x in range(len(part)):
        if part[x] >= 0:
            first[part[x] + 1] += 1
    for event in events:
        x = event if event >= 0 else ~event
        if part[x] >= 0:
            first_event[part[x] + 1] += 1
    for p in range(parts):
        first[p + 1] += first[p]
        first_event[p + 1] += first_event[p]
    next_word = first[:-1].copy()
    next_event = first_event[:-1].copy()
    local = np.empty(len(part), np.int32)
    own_words = np.empty(first[parts], np.int64)
    own_events = np.empty(first_event[parts], np.int32)
    for x in range(len(part)):
        p = part[x]
        if p >= 0:
            local[x] = next_word[p] - first[p]
            own_words[next_word[p]] = words[x]
            next_word[p] += 1
    for event in events:
        x = event if event >= 0 else ~event
        p = part[x]
        if p >= 0:
            own_events[next_event[p]] = local[x] if event >= 0 else ~local[x]
            next_event[p] += 1
    code = np.zeros(values, np.int32)
    coded = np.zeros(values, np.int32)
    tested = np.zeros(values, np.int32)
    codes = np.empty(parts, np.int64)
    beginning = np.zeros((1, FIELDS), np.int64)
    nothing_used = np.zeros((0, 1), np.int16)
    status = np.empty(parts, np.int8)
    position = np.empty(parts, np.int64)
    for p in range(parts):
        codes[p] = _renumber(own_words, first[p], first[p + 1], code, coded, tested, p + 1)
        its_events = own_events[first_event[p] : first_event[p + 1]]
        its_words = own_words[first[p] : first[p + 1]]
        responses = 0
        for event in its_events:
            if event < 0:
                responses += 1
        lean = len(its_words) - responses > unknown_max
        outcome = search(
            its_events, len(its_events), its_words, codes[p], 0, beginning, nothing_used, LEAN,
            1 if lean else np.int64(1) << 30,
            16 if lean else np.int64(1) << 40,
            CHAINS_IF_NEEDED if lean else CHAINS_ALWAYS,
            1 << 16, made_per_event * len(its_events) + 10_000, 1 if lean else 0, False, stop,
        )  # fmt: skip
        status[p] = outcome[0]
        position[p] = outcome[1]
    return status, position, own_events, first_event, own_words, first, codes
