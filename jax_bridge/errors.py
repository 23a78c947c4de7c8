"""The errors of the bridge."""

from __future__ import annotations


class BridgeError(Exception):
    """All that this package raises on purpose."""


class LaunchFailed(BridgeError):
    """The service or a process could not be started."""


class RunBroken(LaunchFailed):
    """What a run needs besides its processes has ended by itself; what was recorded is kept."""


class ServiceDied(RunBroken):
    """The service ended by itself, which no fault explains."""
