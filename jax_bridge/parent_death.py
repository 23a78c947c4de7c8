"""Children that do not outlive their parent (Linux: prctl(2), PR_SET_PDEATHSIG)."""

from __future__ import annotations

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def be_killed_with_parent() -> None:
    """Asks for SIGKILL; what `subprocess.Popen` may call between fork and exec."""
    end_with_parent(signal.SIGKILL)


def end_with_parent(number: signal.Signals) -> None:
    """Asks the kernel to send this process a signal when its parent dies; safe after a fork."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)
