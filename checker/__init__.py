"""A checker for histories of concurrent, failing processes.

>>> import checker
>>> recorder = checker.Recorder()
>>> write = recorder.invoke(0, "write", 1)
>>> read = recorder.invoke(1, "read")
>>> recorder.ok(read, 1)
>>> recorder.ok(write)
>>> checker.check(recorder.operations(), checker.specs.Register()).word
'valid'

Names are loaded when they are first used: importing this package costs next to nothing, and numpy,
networkx and numba are imported only by what needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from checker import specs
    from checker.anomaly import Anomaly, Reason
    from checker.checks import check
    from checker.errors import (
        CheckerError,
        Inconclusive,
        MalformedHistory,
        SpecificationError,
        Violation,
    )
    from checker.formats import read_operations, write_operations
    from checker.history import History, loads, read
    from checker.linearization import Contradiction, Linearization
    from checker.live_processes import LiveProcesses, Witness
    from checker.monitor import Monitor
    from checker.operations import UNKNOWN, Failed, Operation, Operations, Recorder
    from checker.report import Report, report_of, report_of_history
    from checker.service import ObjectVerdict, check_service
    from checker.specification import (
        Guarded,
        Hint,
        Illegal,
        OneOf,
        SetSpecification,
        Specification,
    )
    from checker.verdict import Invalid, Unknown, Valid, Verdict

_HOMES = {
    "checker.anomaly": ("Anomaly", "Reason"),
    "checker.checks": ("check",),
    "checker.errors": (
        "CheckerError",
        "Inconclusive",
        "MalformedHistory",
        "SpecificationError",
        "Violation",
    ),
    "checker.formats": ("read_operations", "write_operations"),
    "checker.history": ("History", "loads", "read"),
    "checker.linearization": ("Contradiction", "Linearization"),
    "checker.live_processes": ("LiveProcesses", "Witness"),
    "checker.monitor": ("Monitor",),
    "checker.operations": ("UNKNOWN", "Failed", "Operation", "Operations", "Recorder"),
    "checker.report": ("Report", "report_of", "report_of_history"),
    "checker.service": ("ObjectVerdict", "check_service"),
    "checker.specification": (
        "Guarded",
        "Hint",
        "Illegal",
        "OneOf",
        "SetSpecification",
        "Specification",
    ),
    "checker.verdict": ("Invalid", "Unknown", "Valid", "Verdict"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "UNKNOWN",
    "Anomaly",
    "CheckerError",
    "Contradiction",
    "Failed",
    "Guarded",
    "Hint",
    "History",
    "Illegal",
    "Inconclusive",
    "Invalid",
    "Linearization",
    "LiveProcesses",
    "MalformedHistory",
    "Monitor",
    "ObjectVerdict",
    "OneOf",
    "Operation",
    "Operations",
    "Reason",
    "Recorder",
    "Report",
    "SetSpecification",
    "Specification",
    "SpecificationError",
    "Unknown",
    "Valid",
    "Verdict",
    "Violation",
    "Witness",
    "check",
    "check_service",
    "loads",
    "read",
    "read_operations",
    "report_of",
    "report_of_history",
    "specs",
    "write_operations",
]


def __getattr__(name: str) -> object:
    if name == "specs":
        return importlib.import_module("checker.specs")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'checker' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
