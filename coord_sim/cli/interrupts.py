"""Signals that end a command which has children to end first."""

from __future__ import annotations

import math
import signal
import time
from typing import Final

_TOGETHER_S: Final = 2.0


def end_like_ctrl_c_on_sigterm() -> None:
    """Makes SIGTERM and SIGHUP what Ctrl-C is: schedulers and time-outs leave no children behind.

    They raise KeyboardInterrupt, but for those that follow another one closely: people press it twice,
    and schedulers signal groups and their leaders; the second would come into the end that the first
    began. A signal that is ignored stays so, as under nohup.
    """
    raised_s = -math.inf

    def interrupt(number: int, _: object) -> None:
        nonlocal raised_s
        now_s = time.monotonic()
        if now_s - raised_s > _TOGETHER_S:
            raised_s = now_s
            raise KeyboardInterrupt(signal.Signals(number).name)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interrupt)
