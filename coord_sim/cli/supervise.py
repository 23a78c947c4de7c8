"""Keeps a coordinator running: a parent that holds its sockets and starts it again when it dies.

While the coordinator is down its port goes on accepting connections, which then wait instead of being
refused. That is what lets jaxlib's clients live through it: they give a heartbeat half of their time-out
to be answered, but no second chance to a refused connection.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType

from jax_bridge.parent_death import end_with_parent

_MEANT = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals by which somebody wants it to end."""
_TOO_SOON_S = 1.0
_TOO_OFTEN = 5
_BROKEN = 70
"""Exit code of a coordinator that raised what nobody expected (EX_SOFTWARE)."""


class Supervisor:
    """Runs a coordinator in a child process, and again whenever a signal that nobody meant ended it.

    Args:
      serve: The coordinator; told the number of the start, from 1 on. Its exit code is the child's.
    """

    def __init__(self, serve: Callable[[int], int]) -> None:
        self._serve = serve
        self._child = 0
        self._meant: int | None = None

    def run(self) -> int:
        """Supervises; returns the exit code of the last child.

        A child that exits by itself is not started again, nor is one that was killed within a second of
        its start for the fifth time in a row.
        """
        # Signals wait while there is no child to pass them on to.
        signal.pthread_sigmask(signal.SIG_BLOCK, _MEANT)
        for number in _MEANT:
            signal.signal(number, self._forward)
        quick_deaths = 0
        for attempt in itertools.count(1):
            began_s = time.monotonic()
            self._child = self._start(attempt)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _MEANT)
            os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOWAIT)
            signal.pthread_sigmask(signal.SIG_BLOCK, _MEANT)
            _, status = os.waitpid(self._child, 0)
            code = os.waitstatus_to_exitcode(status)
            if code >= 0:
                return code
            if self._meant is not None or -code in _MEANT:
                return 128 - code
            quick_deaths = quick_deaths + 1 if time.monotonic() - began_s < _TOO_SOON_S else 0
            name = signal.Signals(-code).name
            if quick_deaths == _TOO_OFTEN:
                print(
                    f"coordlab: the coordinator is ended by {name} at each start", file=sys.stderr
                )
                return 128 - code
            print(
                f"coordlab: the coordinator was ended by {name}; it starts again", file=sys.stderr
            )
        raise AssertionError("attempts are endless")

    def _start(self, attempt: int) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        parent = os.getpid()
        child = os.fork()
        if child:
            return child
        code = _BROKEN
        try:
            for number in _MEANT:
                signal.signal(number, signal.SIG_DFL)
            end_with_parent(signal.SIGTERM)  # None is left without a supervisor.
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _MEANT)
            if os.getppid() == parent:
                code = self._serve(attempt)
        except BaseException:  # noqa: BLE001 - whatever it is, this process ends here
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _forward(self, number: int, _: FrameType | None) -> None:
        self._meant = number
        os.kill(self._child, number)
