"""The tap's recorder: a process of its own, which ends when the relay is gone and all is written."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Final

from coord_sim.tap import feed
from coord_sim.tap.feed import Feed
from coord_sim.tap.recording import TapRecording

_log = logging.getLogger(__name__)

_PIPE_BYTES: Final = 4 << 20
_NICER: Final = 10
"""Where cores are short, the job and the relay go first; the recorder still gets a share."""
_LAST_LINES_S: Final = 30.0
_BROKEN: Final = 70
"""Exit code of a recorder that raised what nobody expected (EX_SOFTWARE)."""


class RecorderProcess:
    """The recorder, seen from the relay.

    Args:
      record: Runs in the process: reads what was passed on until that ends.
      closing: What the process has no use for, such as sockets that listen.
    """

    def __init__(
        self, record: Callable[[socket.socket], None], closing: Iterable[socket.socket]
    ) -> None:
        mine, theirs = socket.socketpair()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _PIPE_BYTES)
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if not self.pid:
            code = _BROKEN
            try:
                # Ctrl-C goes to both: this one ends when the other has.
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_IGN)
                mine.close()
                os.nice(_NICER)
                for each in closing:
                    each.close()
                record(theirs)
                code = 0
            except Exception:  # noqa: BLE001 - there is nobody above to be told
                traceback.print_exc()
            finally:
                os._exit(code)
        theirs.close()
        self.feed = Feed(mine)

    def finish(self) -> None:
        """Waits until all is written, or for half a minute."""
        self.feed.finish(_LAST_LINES_S)
        deadline_s = time.monotonic() + _LAST_LINES_S
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline_s:
                os.kill(self.pid, signal.SIGKILL)
                status = os.waitpid(self.pid, 0)[1]
                break
            time.sleep(0.01)
        if os.WIFSIGNALED(status):
            name = signal.Signals(os.WTERMSIG(status)).name
            _log.warning("the recorder was ended by %s: what it had not written is lost", name)


def follow(pipe: socket.socket, recording: TapRecording) -> None:
    """Records what comes, until the relay is gone or nothing can be written."""
    from coord_sim.tap.calls import Calls, Messages  # The relay itself needs no protobuf.

    connections: dict[int, Calls] = {}
    messages, ids = Messages(), itertools.count()
    now_ns = time.monotonic_ns()
    for kind, connection, now_ns, data in feed.read(pipe):
        if kind == feed.UNREACHABLE:
            recording.unreachable(now_ns)
        elif kind in (feed.CLOSED_BY_CLIENT, feed.CLOSED_BY_SERVICE):
            gone = connections.pop(connection, None)
            by_client = kind == feed.CLOSED_BY_CLIENT
            if gone is not None:
                gone.closed(now_ns, by_client=by_client)
            if not connections and not by_client:
                recording.lost()
        else:
            calls = connections.get(connection)
            if calls is None:
                recording.reachable()
                calls = connections[connection] = Calls(recording, messages, ids)
            if kind == feed.ASKED:
                calls.asked(data, now_ns)
            else:
                calls.answered(data, now_ns)
        if not recording.is_open:
            return
    recording.close(now_ns)
