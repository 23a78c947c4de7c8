"""Commands that run under one of ours: started, sent the signals that we get, and waited for."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence

from coord_sim.cli.errors import CommandError
from jax_bridge.parent_death import end_with_parent

_PASSED_ON = {
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
}
_FROM_KEYBOARD = {signal.SIGINT, signal.SIGQUIT}
"""Ctrl-C and Ctrl-\\ reach all in the foreground, the command too, and must not come twice.

They come from the kernel; what a process sends has a code of at most 0 (sigaction(2)).
"""

_SIGNAL_BASE = 128


def without_dashes(words: Sequence[str]) -> list[str]:
    """A command as `argparse.REMAINDER` has it, without the `--` before it."""
    return list(words[1:] if words[:1] == ["--"] else words)


class Command:
    """A command that runs.

    Args:
      words: Its name and arguments.
      environment: All of it.
      mask: The signals that are blocked in it.
      ends_with_us: Kill it when this process is killed. SIGTERM would not do: JAX takes that for the
        notice of a preemption, and goes on.

    Raises:
      CommandError: it cannot be run.
    """

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        mask: set[int | signal.Signals],
        *,
        ends_with_us: bool,
    ) -> None:
        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            if ends_with_us:
                end_with_parent(signal.SIGKILL)

        try:
            self._running = subprocess.Popen(words, env=environment, preexec_fn=prepare)  # noqa: PLW1509 - there are no threads yet
        except OSError as error:
            raise CommandError(f"cannot run {words[0]}: {error.strerror}") from None

    @property
    def pid(self) -> int:
        """Its process."""
        return self._running.pid

    def wait(self) -> int:
        """Waits for its end, and passes signals on to it; its return code as `Popen` has it."""
        while True:
            came = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
            if came.si_signo == signal.SIGCHLD:
                code = self._running.poll()
                if code is not None:
                    return code
            elif came.si_signo not in _FROM_KEYBOARD or came.si_code <= 0:
                self._running.send_signal(came.si_signo)


@contextlib.contextmanager
def running(
    words: Sequence[str], environment: Mapping[str, str], *, ends_with_us: bool = True
) -> Iterator[Command]:
    """Runs a command; inside, signals wait for `Command.wait`.

    Enter it before there are threads: they do not like forks, and must have the signals blocked, too.

    Args:
      words: The command's name and arguments.
      environment: All of it.
      ends_with_us: Whether the command cannot go on without what we do for it, and is killed with us.

    Raises:
      CommandError: it cannot be run.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # If ignored, ends of children would be, too.
        yield Command(words, environment, mask, ends_with_us=ends_with_us)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def exit_code_of_command(code: int) -> int:
    """Ours, as shells have it: the command's, or 128 + the number of the signal that ended it."""
    return code if code >= 0 else _SIGNAL_BASE - code
