"""Runs a program and says which stage of its start it is in when it stays there too long.

It stands between the program and whoever started it: signals that tell a program something (SIGTERM is a
notice of preemption) are passed on, and the program ends with the one who watches it, as nobody would
read its standard error any more.

JAX tells its stages on standard error if it is asked to (`JAX_LOGGING_LEVEL`, `TF_CPP_MIN_LOG_LEVEL`);
where it waits inside one is found out by asking the service, as another process would.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO

from coord_sim.cli.doctor import FAULTY, UNSEEN, attach
from coord_sim.cli.errors import CommandError
from coord_sim.cli.terminal import plain
from jax_bridge.doctor import Finding, Level
from jax_bridge.doctor.addresses import Address, parse_address
from jax_bridge.doctor.probe import Stage
from jax_bridge.parent_death import end_with_parent

_POLL_S = 0.1
_END_S = 10.0
_SILENCE_S = 0.5
_LINE_MAX = 1 << 16
_QUIET = ("2", "3")

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What schedulers send. Ctrl-C ends the watching, and the program with it."""

_OUT_OF_SIGHT = (Stage.TLS.value, UNSEEN)
"""Checks that fail where a service answers, but not us: that says nothing about the program."""

_CONNECTING = re.compile(rb"Connecting to JAX distributed service on (\S+)")
_SERVING = re.compile(rb"Starting JAX distributed service on (\S+)")
_CONNECTED = re.compile(
    rb"Connected to distributed JAX controller|agent has successfully connected"
)
_LEFT = re.compile(rb"Distributed task shutdown initiated")


@dataclass(slots=True)
class _Progress:
    """How far the program has come, as its standard error tells.

    Attributes:
      stage: `detection`, `service`, `registration`, `running` or `leaving`.
      since_s: Since when, by the monotonic clock.
      address: Of the service, once it is told.
    """

    stage: str = "detection"
    since_s: float = field(default_factory=time.monotonic)
    address: bytes = b""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, line: bytes) -> None:
        """Takes a line of standard error."""
        if found := _CONNECTING.search(line):
            self._enter("registration", found[1])
        elif found := _SERVING.search(line):
            self._enter("service", found[1])
        elif _CONNECTED.search(line):
            self._enter("running")
        elif _LEFT.search(line):
            self._enter("leaving")

    def _enter(self, stage: str, address: bytes = b"") -> None:
        with self.lock:
            if stage != self.stage:
                self.stage, self.since_s = stage, time.monotonic()
            self.address = address or self.address

    def now(self) -> tuple[str, float, bytes]:
        """The stage, for how long, and the address."""
        with self.lock:
            return self.stage, time.monotonic() - self.since_s, self.address


def watch(command: Sequence[str], *, patience_s: float, timeout_s: float, give_up: bool) -> int:
    """Runs a program to its end, and says where its start hangs.

    Args:
      command: The program and its arguments.
      patience_s: A stage that takes longer is a hang.
      timeout_s: For each answer of the service.
      give_up: Whether to end the program then.

    Returns:
      The program's exit code (128 and the signal's number if a signal ended it), or 1 if it was
      given up.

    Raises:
      CommandError: it cannot be started.
    """
    environment = dict(os.environ)
    if environment.get("TF_CPP_MIN_LOG_LEVEL", "1") not in _QUIET:
        environment["TF_CPP_MIN_LOG_LEVEL"] = "0"
    environment.setdefault("JAX_LOGGING_LEVEL", "INFO")
    environment.setdefault("PYTHONUNBUFFERED", "1")
    with _started(command, environment, is_leader=give_up) as program:
        assert program.stderr is not None
        progress = _Progress()
        ended = threading.Event()
        arguments = (program.stderr, progress, ended)
        reader = threading.Thread(target=_read, args=arguments, daemon=True)
        reader.start()
        try:
            return _wait(program, progress, patience_s, timeout_s, give_up=give_up)
        finally:
            if program.poll() is None:
                _end(program, with_group=give_up)
            ended.set()
            reader.join(_END_S)


@contextlib.contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str], *, is_leader: bool
) -> Iterator[subprocess.Popen[bytes]]:
    """Runs a program; inside, it gets the signals that come here, from its very beginning.

    Args:
      command: The program and its arguments.
      environment: All of it.
      is_leader: Whether it gets a group of its own; then all of the group get the signals.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    before = {}

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        # SIGTERM would not do: JAX programs catch it, as a notice of preemption, and go on.
        end_with_parent(signal.SIGKILL)

    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, _PASSED_ON)
        try:
            program = subprocess.Popen(
                command,
                stderr=subprocess.PIPE,
                env=environment,
                start_new_session=is_leader,
                preexec_fn=prepare,  # noqa: PLW1509 - there are no threads yet
            )
        except OSError as error:
            raise CommandError(f"{command[0]}: cannot be run: {error.strerror}") from None

        def pass_on(number: int, _frame: object) -> None:
            with contextlib.suppress(ProcessLookupError):
                if is_leader and program.returncode is None:
                    os.killpg(program.pid, number)
                else:
                    program.send_signal(number)

        before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield program
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _wait(
    program: subprocess.Popen[bytes],
    progress: _Progress,
    patience_s: float,
    timeout_s: float,
    *,
    give_up: bool,
) -> int:
    told: set[str] = set()
    while (code := program.poll()) is None:
        stage, seconds, address = progress.now()
        if seconds > patience_s and stage not in told:
            told.add(stage)
            if _tell(stage, seconds, address, timeout_s) and give_up:
                return FAULTY
        time.sleep(_POLL_S)
    return code if code >= 0 else 128 - code


def _tell(stage: str, seconds: float, address: bytes, timeout_s: float) -> bool:
    """Says where the program stands; whether that is a hang."""
    parsed = parse_address(address.decode(errors="replace")) if address else None
    if stage == "detection":
        _say(
            f"after {seconds:.0f} s the program has not begun to connect: it still imports, detects "
            "a cluster (look-ups of metadata), or never calls jax.distributed.initialize()"
        )
        return True
    if stage == "service":
        _say(f"after {seconds:.0f} s the service of this process does not run: see its messages")
        return True
    if stage == "registration":
        _say(
            f"for {seconds:.0f} s the program asks to register at {address.decode(errors='replace')}"
        )
        for finding in _asked(parsed, timeout_s):
            _say_finding(finding)
        return True
    if stage == "running" and isinstance(parsed, Address):
        findings = [f for f in _asked(parsed, timeout_s) if f.level is Level.ERROR]
        for finding in findings:
            if finding.check in _OUT_OF_SIGHT:
                _say(f"how the program's job stands cannot be seen from here: {finding.sentence}")
            else:
                _say_finding(finding)
        return any(finding.check not in _OUT_OF_SIGHT for finding in findings)
    if stage == "leaving":
        _say(
            f"for {seconds:.0f} s the program waits in the exit barrier for the others to leave; if it "
            "raised, its exception stands above"
        )
        return True
    return False


def _asked(parsed: Address | Finding | None, timeout_s: float) -> list[Finding]:
    """What the service says; that it cannot be asked from here does not end the program."""
    if not isinstance(parsed, Address):
        return [] if parsed is None else [parsed]
    findings: list[Finding] = []
    try:
        findings.extend(attach(parsed, timeout_s))
    except CommandError as error:
        findings.append(Finding(Level.ERROR, UNSEEN, str(error)))
    return findings


def _say_finding(finding: Finding) -> None:
    _say(finding.sentence + (f" -> {finding.remedy}" if finding.remedy else ""))


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError):  # The program goes on if nobody listens to us.
        print(f"coordlab doctor: {plain(sentence)}", file=sys.stderr, flush=True)


def _read(stream: IO[bytes], progress: _Progress, ended: threading.Event) -> None:
    """Passes standard error on, and reads it by the way.

    If nobody takes it any more it is read all the same, as the program would wait at a full pipe. Once
    the program has ended, children that it left behind may hold it open: then until they are silent.
    """
    unfinished = b""
    while _goes_on(stream, ended) and (data := os.read(stream.fileno(), _LINE_MAX)):
        text = unfinished + data
        end = text.rfind(b"\n") + 1
        if len(text) - end > _LINE_MAX:
            end = len(text)
        _pass_on(text[:end], progress)
        unfinished = text[end:]
    _pass_on(unfinished, progress)


def _goes_on(stream: IO[bytes], ended: threading.Event) -> bool:
    """Waits for something to read, or the end of the stream; False if there is nothing to wait for."""
    while True:
        # Asked first: then all that the program wrote is there when we look.
        has_ended = ended.is_set()
        if select.select([stream], [], [], _SILENCE_S)[0]:
            return True
        if has_ended:
            return False


def _pass_on(text: bytes, progress: _Progress) -> None:
    for line in text.split(b"\n"):
        progress.read(line)
    with contextlib.suppress(OSError):
        sys.stderr.buffer.write(text)
        sys.stderr.buffer.flush()


def _end(program: subprocess.Popen[bytes], *, with_group: bool) -> None:
    """Ends the program, and the group that it leads: by SIGTERM, and in the end by SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            if with_group:
                os.killpg(program.pid, number)
            else:
                program.send_signal(number)
        except ProcessLookupError:
            return
        try:
            program.wait(_END_S)
        except subprocess.TimeoutExpired:
            continue
        return
