"""The protocol in virtual time: one thread, one seed."""

from coord_sim.sim.client import Client
from coord_sim.sim.entropy import Stream, Tape
from coord_sim.sim.live_devices import LiveSet
from coord_sim.sim.nemesis import draw_faults
from coord_sim.sim.process import Process, Program
from coord_sim.sim.programs import training_loop
from coord_sim.sim.run import End, LogLine, Run
from coord_sim.sim.simulation import KILLED, Simulation, simulate

__all__ = [
    "KILLED",
    "Client",
    "End",
    "LiveSet",
    "LogLine",
    "Process",
    "Program",
    "Run",
    "Simulation",
    "Stream",
    "Tape",
    "draw_faults",
    "simulate",
    "training_loop",
]
