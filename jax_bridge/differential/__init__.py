"""One schedule in the simulator and on real processes: does the same come of it?"""
