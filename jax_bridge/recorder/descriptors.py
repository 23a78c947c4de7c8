"""A descriptor where programs do not look for one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource

_HIGH = 900
"""Below the usual limit of 1,024, so that the kernel's table need not grow."""

_BELOW_LIMIT = 32


def high_descriptor(descriptor: int) -> int:
    """Moves a descriptor to a high number, if there is one, and returns that.

    Programs close descriptors that they do not know, as daemons do when they start, and the next files
    that they open get these numbers: the lowest that are free. Whoever still writes to one would write
    into the program's file. A high number is not given again; writing to it fails, once it is closed.

    Args:
      descriptor: Is closed, if it could be moved. The new one is not inherited by other programs.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = _HIGH if limit == resource.RLIM_INFINITY else min(_HIGH, limit - _BELOW_LIMIT)
    if descriptor >= lowest:
        return descriptor
    with contextlib.suppress(OSError):  # The limit may be less than what is open.
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
        os.close(descriptor)
        return moved
    return descriptor
