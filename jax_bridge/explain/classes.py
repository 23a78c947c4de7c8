"""The classes of failures, for schedulers: what to do with the job."""

from __future__ import annotations

from enum import Enum


class FailureClass(Enum):
    """Whose business a failure is; the value is the name in JSON."""

    USER_ERROR = "user-error"
    INFRASTRUCTURE = "infrastructure"
    PREEMPTION = "preemption"
    TEARDOWN = "teardown"
    UNKNOWN = "unknown"


NOTHING_WRONG = 0

EXIT_CODES = {
    FailureClass.USER_ERROR: 10,
    FailureClass.INFRASTRUCTURE: 11,
    FailureClass.PREEMPTION: 12,
    FailureClass.TEARDOWN: 13,
    FailureClass.UNKNOWN: 14,
}
"""What `coordlab explain` exits with, by the class of the first cause; 0 if nothing is wrong."""

ADVICE = {
    FailureClass.USER_ERROR: "mend the program or its settings; running it again fails again",
    FailureClass.INFRASTRUCTURE: "run the job again, elsewhere if it comes back",
    FailureClass.PREEMPTION: "run the job again from its checkpoint",
    FailureClass.TEARDOWN: "the work was done: do not run the job again",
    FailureClass.UNKNOWN: "look at the evidence",
}
