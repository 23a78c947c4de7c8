"""The protocol in virtual time: one thread, one seed."""

from coord_sim.sim.nemesis import draw_faults
from coord_sim.sim.process import Client, Process, Program
from coord_sim.sim.programs import training_loop
from coord_sim.sim.simulate import KILLED, Run, simulate

__all__ = [
    "KILLED",
    "Client",
    "Process",
    "Program",
    "Run",
    "draw_faults",
    "simulate",
    "training_loop",
]
