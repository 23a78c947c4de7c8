"""The network between the processes of a job and its services, as far as it can be made bad."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from coord_sim.faults import Degrade, Fault, Partition, Refuse, Reset
from coord_sim.moments import SERVICE, Member
from coord_sim.scenarios.for_processes import sides_of
from jax_bridge.errors import LaunchFailed, RunBroken
from jax_bridge.parent_death import be_killed_with_parent

NETWORK_FAULTS: Final = (Degrade, Partition, Refuse, Reset)


class Network:
    """A relay before each process of a job; `jax_bridge.relay` has what it can do.

    Faults of one process may overlap: a direction is open again when nobody holds it back any more, and
    what makes a link bad adds up, as in the simulator.

    Args:
      upstreams: The service of each process, as `HOST:PORT`.
      errors: Where the relay's complaints go.

    Attributes:
      addresses: What each process has to connect to.
    """

    def __init__(self, upstreams: Sequence[str], errors: int) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "jax_bridge.relay"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            preexec_fn=be_killed_with_parent,  # noqa: PLW1509 - the launcher has one thread
        )
        answer = self._ask(list(upstreams))
        try:
            ports = json.loads(answer)
        except ValueError:
            self.stop()
            raise LaunchFailed("the relay did not come up; see relay.log") from None
        self.addresses = tuple(f"127.0.0.1:{port}" for port in ports)
        self._held_up: Counter[int] = Counter()
        self._held_down: Counter[int] = Counter()
        self._refused: Counter[int] = Counter()
        self._bad: list[list[Degrade]] = [[] for _ in upstreams]

    def begin(self, fault: Fault) -> Callable[[], None] | None:
        """Lets a fault begin; what ends it, if it has an end."""
        match fault:
            case Reset():
                self._order(fault.process, "reset")
                return None
            case Partition():
                return self._partition(fault)
            case Refuse():
                return self._refuse(fault.process)
            case Degrade():
                return self._worsen(fault)
        raise TypeError(f"{fault} is no fault of the network")

    @property
    def is_running(self) -> bool:
        """Whether the relay is there."""
        return self._popen.poll() is None

    def stop(self) -> None:
        """Ends the relay."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.kill()
        self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            with contextlib.suppress(OSError):
                pipe.close()

    def _partition(self, fault: Partition) -> Callable[[], None]:
        side, other = sides_of(fault, len(self.addresses))
        up = _processes(side) if SERVICE in other else set()
        down = _processes(other) if SERVICE in side else set()
        if not fault.one_way:
            up = down = up | down

        def hold(by: int) -> None:
            for process in up:
                self._held_up[process] += by
            for process in down:
                self._held_down[process] += by
            for process in up | down:
                is_up, is_down = self._held_up[process] > 0, self._held_down[process] > 0
                self._order(process, "hold", up=is_up, down=is_down)

        hold(1)
        return lambda: hold(-1)

    def _refuse(self, process: int) -> Callable[[], None]:
        def refuse(by: int) -> None:
            self._refused[process] += by
            self._order(process, "refuse", on=self._refused[process] > 0)

        refuse(1)
        return lambda: refuse(-1)

    def _worsen(self, fault: Degrade) -> Callable[[], None]:
        whose: Iterable[int] = (
            range(len(self.addresses)) if fault.process is None else (fault.process,)
        )

        def begin() -> None:
            for process in whose:
                self._bad[process].append(fault)
                self._tell(process)

        def end() -> None:
            for process in whose:
                self._bad[process].remove(fault)
                self._tell(process)

        begin()
        return end

    def _tell(self, process: int) -> None:
        names = ("delay_s", "jitter_s", "loss", "bytes_per_s")
        bad = [{name: getattr(fault, name) for name in names} for fault in self._bad[process]]
        self._order(process, "set", bad=bad)

    def _order(self, link: int, do: str, **fields: object) -> None:
        if not self._ask({"link": link, "do": do, **fields}):
            raise RunBroken("the relay between processes and service has died; see relay.log")

    def _ask(self, message: object) -> bytes:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        try:
            self._popen.stdin.write(json.dumps(message).encode() + b"\n")
            self._popen.stdin.flush()
            answer = self._popen.stdout.readline()
        except OSError:
            answer = b""
        return answer


def _processes(members: set[Member]) -> set[int]:
    return {member for member in members if isinstance(member, int)}
