"""The errors of the simulator.

CoordSimError
+- ScheduleError (ValueError)   impossible faults or settings; raised before the run
+- ServiceError                 a call of a simulated client failed; .status says how
+- ProcessFailureError          a process died during a `live_devices` block; .failed says which
+- CollectiveError              a collective was cancelled, or a member died in it
+- ProgramError                 a program awaited something that is not the simulator's
"""

from __future__ import annotations

from collections.abc import Iterable

from coord_sim.core.status import Status


class CoordSimError(Exception):
    """All that this package raises on purpose."""


class ScheduleError(CoordSimError, ValueError):
    """A schedule that cannot be run."""


class ServiceError(CoordSimError):
    """The service answered with an error.

    Attributes:
      status: Code, message and payloads.
    """

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(str(status))


class ProcessFailureError(CoordSimError):
    """Raised on leaving a `live_devices` block in which processes died or restarted.

    Attributes:
      failed: Their numbers, ascending.
    """

    def __init__(self, failed: Iterable[int]) -> None:
        self.failed = tuple(sorted(failed))
        super().__init__(f"processes failed: {', '.join(str(p) for p in self.failed)}")

    @property
    def failed_devices(self) -> frozenset[int]:
        """The same as a set, as JAX has it: a simulated process is one device."""
        return frozenset(self.failed)


class CollectiveError(CoordSimError):
    """A collective was cancelled because a member is dead, or broke when one died.

    Attributes:
      failed: The members that are known to be dead, ascending.
    """

    def __init__(self, message: str, failed: Iterable[int] = ()) -> None:
        self.failed = tuple(sorted(failed))
        super().__init__(message)


class ProgramError(CoordSimError):
    """A simulated program did something that the simulator cannot follow."""
