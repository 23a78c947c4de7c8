"""Drives the compiled check of `live_processes`: columns in, `valid` or nothing out."""

from __future__ import annotations

import numpy as np

from checker.live_processes.columns import Columns
from checker.live_processes.compiled import rounds
from checker.live_processes.spec import LiveProcesses


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
    status = rounds.decide(
        np.frombuffer(columns.kind, np.int8),
        np.frombuffer(columns.lifetime, np.int32),
        np.frombuffer(columns.time_ns, np.int64),
        np.frombuffer(columns.uncertainty_ns, np.int64),
        np.frombuffer(columns.operation, np.int32),
        np.frombuffer(columns.detail, np.int32),
        columns.operations,
        np.array([position.get(process, -1) for process in columns.processes], np.int32),
        len(position),
        np.array(first_member, np.int32),
        np.array(members, np.int32),
        max((len(answer) for answer in columns.answers), default=0),
        np.array(first_of_group, np.int32),
        np.array(group_processes, np.int32),
        spec.failures == "suspicion",
    )
    return bool(status == rounds.VALID)
