"""Signals that end a command which has children to end first."""

from __future__ import annotations

import signal


def end_like_ctrl_c_on_sigterm() -> None:
    """Makes SIGTERM and SIGHUP what Ctrl-C is: schedulers and time-outs leave no children behind."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
