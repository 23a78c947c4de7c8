"""One question, one function: does this history satisfy that specification?"""

from __future__ import annotations

from checker.history.history import History
from checker.live_processes.check import check_live_processes
from checker.live_processes.spec import LiveProcesses
from checker.verdict import Verdict


def check(history: History, spec: LiveProcesses | None = None) -> Verdict:
    """Checks a history.

    Args:
      history: What the callers saw.
      spec: What they were promised; the `live_processes` barrier (round reading, suspicion) if left
        out.

    Returns:
      `Valid` with a witness, `Invalid` with an anomaly, or `Unknown` with a reason.

    Raises:
      MalformedHistory: the events do not form a history (a response without an invocation).
    """
    return check_live_processes(history, spec or LiveProcesses())
