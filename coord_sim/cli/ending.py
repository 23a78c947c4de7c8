"""How a command ends: what stops it becomes an exit code and at most one line.

Imported before anything that takes long, so that Ctrl-C is quiet from the beginning.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from coord_sim.cli.exit_codes import BAD_INPUT, BROKEN_PIPE, INTERRUPTED


def exit_code_of(run: Callable[[], int]) -> int:
    """Runs a command; what stops it becomes an exit code and at most one line."""
    try:
        code = run()
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough; Python must not complain about that at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print("coordlab: interrupted", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        from checker import MalformedHistory
        from coord_sim.cli.errors import CommandError, complain, problem_of

        if not isinstance(error, CommandError | MalformedHistory | OSError):
            raise
        complain(problem_of(error))
        return BAD_INPUT
    return code
