"""Programs of the simulator on real processes: the same coroutines, over jaxlib's client and real time.

`process.py` and `client.py` offer what `coord_sim.sim.process` and `coord_sim.sim.client` do; `main.py`
runs a program in a process of its own.
"""
