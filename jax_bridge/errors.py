"""The errors of the bridge."""

from __future__ import annotations


class BridgeError(Exception):
    """All that this package raises on purpose."""


class LaunchFailed(BridgeError):
    """The service or a process could not be started."""
