"""Signals that end a command which has children to end first."""

from __future__ import annotations

import signal


def end_like_ctrl_c_on_sigterm() -> None:
    """Makes SIGTERM what Ctrl-C is, so that schedulers and `timeout` leave no children behind."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
