"""Clocks of several hosts: how far apart they can be, and histories that allow for it.

>>> there_and_back = [Message(0, 100, 1, 1_120, "ping"), Message(1, 1_130, 0, 150, "pong")]
>>> clocks = estimate(there_and_back, hosts=(0, 1))
>>> str(clocks.offsets[1])
'is between 980 ns ahead of it and 1.020 us ahead of it'
"""

from checker.clocks.correction import with_uncertainty
from checker.clocks.jobs import DifferentJobs, Joined, UnknownClocks, join
from checker.clocks.messages import messages_between, messages_of
from checker.clocks.offsets import (
    Clocks,
    InconsistentClocksError,
    Message,
    Offset,
    estimate,
    estimate_drifting,
    within,
)
from checker.clocks.report import clock_report
from checker.clocks.services import Job, in_turn, jobs_of

__all__ = [
    "Clocks",
    "DifferentJobs",
    "InconsistentClocksError",
    "Job",
    "Joined",
    "Message",
    "Offset",
    "UnknownClocks",
    "clock_report",
    "estimate",
    "estimate_drifting",
    "in_turn",
    "jobs_of",
    "join",
    "messages_between",
    "messages_of",
    "with_uncertainty",
    "within",
]
