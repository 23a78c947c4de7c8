"""Drives the compiled check of `live_processes`: columns in, `valid` or nothing out."""

from __future__ import annotations

from typing import Final

import numpy as np

from checker.live_processes.columns import Columns
from checker.live_processes.compiled import rounds
from checker.live_processes.spec import LiveProcesses

WAITS_PER_CALL_MAX: Final = 8
"""How often a call may wait for another round, on average, where clock errors let it wait at all."""


def is_surely_valid(columns: Columns, spec: LiveProcesses) -> bool:
    """Whether a history is valid and the compiled check can tell; False says nothing.

    What is valid under the round reading is so under the published one, too: every answer takes the
    instant of its round, at which all members are in the round's calls and everybody else is dead.
    """
    position = {process: at for at, process in enumerate(columns.header.participants)}
    first_of_group = [0]
    group_processes: list[int] = []
    for group in columns.groups:
        if not group <= position.keys():
            return False
        group_processes += sorted(position[process] for process in group)
        first_of_group.append(len(group_processes))
    lifetime_of = {
        (process, incarnation): lifetime
        for lifetime, (process, incarnation) in enumerate(
            zip(columns.processes, columns.incarnations, strict=True)
        )
        if incarnation is not None
    }
    first_member = [0]
    members: list[int] = []
    for answer in columns.answers:
        members += [lifetime_of.get(meant, -1) for meant in answer.items()]  # type: ignore[arg-type]
        first_member.append(len(members))
    kind, operation = (
        np.frombuffer(columns.kind, np.int8),
        np.frombuffer(columns.operation, np.int32),
    )
    uncertainty = np.frombuffer(columns.uncertainty_ns, np.int64)
    process = np.array([position.get(process, -1) for process in columns.processes], np.int32)
    operations, lifetimes = columns.operations, len(process)
    invoked, ended = np.empty(operations, np.int64), np.empty(operations, np.int64)
    answer, after, queue_of = (np.empty(operations, np.int32) for _ in range(3))
    lives = np.empty((lifetimes, rounds.LIFE_COLUMNS), np.int64)
    started = np.empty(lifetimes, np.int32)
    groups = len(columns.groups)
    queues_max = min(operations, lifetimes * min(groups, rounds.GROUPS_OF_LIFETIME_MAX))
    queues = np.empty((queues_max, rounds.QUEUE_COLUMNS), np.int32)
    queues_count = rounds.read(
        kind, np.frombuffer(columns.lifetime, np.int32), np.frombuffer(columns.time_ns, np.int64),
        uncertainty, operation, np.frombuffer(columns.detail, np.int32), process, len(position),
        len(columns.answers), groups, spec.failures == "suspicion", invoked, ended, answer, after,
        queue_of, lives, started, queues,
    )  # fmt: skip
    if queues_count < 0:
        return False
    round_answer, round_group = np.empty(operations, np.int32), np.empty(operations, np.int32)
    round_lo, round_hi = np.empty(operations, np.int64), np.empty(operations, np.int64)
    first_member_of, member = np.array(first_member, np.int32), np.array(members, np.int32)
    count = rounds.form(
        kind, operation, answer, invoked, ended, after, queue_of, first_member_of, member,
        max(map(len, columns.answers), default=0), lives, queues_count, queues,
        WAITS_PER_CALL_MAX * operations if len(uncertainty) else 0, round_answer, round_group,
        round_lo, round_hi,
    )  # fmt: skip
    if count < 0:
        return False
    started = started[started >= 0]
    by_process = started[np.argsort(process[started], kind="stable")]
    status = rounds.settle(
        count, round_answer, round_group, round_lo, np.zeros(count, np.int64), round_hi,
        first_member_of, member, np.array(first_of_group, np.int32),
        np.array(group_processes, np.int32), process, np.zeros(len(position), np.int64), lives,
        np.searchsorted(process[by_process], np.arange(len(position) + 1)),
        np.ascontiguousarray(lives[by_process, rounds.START_AT]), by_process,
    )  # fmt: skip
    return bool(status == rounds.VALID)
