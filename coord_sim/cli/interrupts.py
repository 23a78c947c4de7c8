"""Signals that end a command which has children to end first."""

from __future__ import annotations

import signal


def end_like_ctrl_c_on_sigterm() -> None:
    """Makes SIGTERM and SIGHUP what Ctrl-C is: schedulers and time-outs leave no children behind.

    The first of them raises KeyboardInterrupt, and those that follow change nothing: they would come
    into the end that it began, and cost what the command had to save. A signal that is ignored stays so,
    as under nohup.
    """
    has_come = False

    def interrupt(number: int, _: object) -> None:
        nonlocal has_come
        if not has_come:
            has_come = True
            raise KeyboardInterrupt(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
