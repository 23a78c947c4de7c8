"""A checker for histories of concurrent, failing processes.

>>> import checker
>>> history = checker.loads(open("run.jsonl").read())  # doctest: +SKIP
>>> print(checker.check(history).explain())  # doctest: +SKIP
"""

from checker.anomaly import Anomaly, Reason
from checker.check import check
from checker.errors import CheckerError, Inconclusive, MalformedHistory, Violation
from checker.history import History, loads, read
from checker.live_processes import LiveProcesses, Witness
from checker.verdict import Invalid, Unknown, Valid, Verdict

__all__ = [
    "Anomaly",
    "CheckerError",
    "History",
    "Inconclusive",
    "Invalid",
    "LiveProcesses",
    "MalformedHistory",
    "Reason",
    "Unknown",
    "Valid",
    "Verdict",
    "Violation",
    "Witness",
    "check",
    "loads",
    "read",
]
