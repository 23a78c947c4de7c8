"""Programs to simulate, by name.

A program is made by a function whose arguments are numbers, texts, lists of them, and process numbers
(`ProcessNumber`): what a file can write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from coord_sim.sim.process import Program
from coord_sim.sim.programs.barriers import drifting_ids, reused_barrier
from coord_sim.sim.programs.collectives import agreed_preemption, lone_preemption, rendezvous
from coord_sim.sim.programs.guide import (
    ignore_the_dead,
    late_results,
    recover_the_restarted,
)
from coord_sim.sim.programs.leaving import leaving
from coord_sim.sim.programs.lockstep import lockstep
from coord_sim.sim.programs.mixed import (
    barrier_traffic,
    block_traffic,
    nested_sets,
    store_traffic,
    takeover,
)
from coord_sim.sim.programs.naming import PROCESS, ProcessNumber
from coord_sim.sim.programs.store import announced, claimed_key, steady_writes, topology
from coord_sim.sim.programs.training import crossed_blocks, raising_loop, training_loop

PROGRAMS: Final[Mapping[str, Callable[..., Program]]] = {
    make.__name__: make
    for make in (
        agreed_preemption,
        announced,
        barrier_traffic,
        block_traffic,
        claimed_key,
        crossed_blocks,
        drifting_ids,
        ignore_the_dead,
        late_results,
        leaving,
        lockstep,
        lone_preemption,
        nested_sets,
        raising_loop,
        recover_the_restarted,
        rendezvous,
        reused_barrier,
        steady_writes,
        store_traffic,
        takeover,
        topology,
        training_loop,
    )
}

__all__ = [
    "PROCESS",
    "PROGRAMS",
    "ProcessNumber",
    "training_loop",
]
