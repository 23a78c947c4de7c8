"""The data plane: collectives between processes, which do not pass through the coordination service.

`DataPlane` is what the processes share, `Devices` what a program of one process uses.
"""

from coord_sim.sim.data_plane.devices import Array, Devices, DevicesHost
from coord_sim.sim.data_plane.plane import WITHOUT_INCARNATIONS, DataPlane

__all__ = [
    "WITHOUT_INCARNATIONS",
    "Array",
    "DataPlane",
    "Devices",
    "DevicesHost",
]
