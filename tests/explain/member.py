"""One process of a job that is to fail: bare jaxlib, or JAX, does what its arguments say.

Run as a script. Steps are words, carried out in order:

  serve              start the C++ service at the address
  serve-recoverable  the same, recoverable
  serve-brief        the same, with 15 s for all to register
  connect            a client connects; failing ends the process, as in any job
  say:TEXT           print a line
  load               import jaxlib, which takes its time
  await:FILE         until there is such a file
  sleep:S            seconds
  wait               for ever: until a signal
  barrier:ID:S       wait at a barrier for so many seconds
  try-barrier:ID:S   the same, and go on if it fails
  set:KEY            store a key
  get:KEY:S          wait for a key
  live:0,1           ask for the live processes
  raise:TEXT         an exception that nobody catches
  full               write to a disk that is full
  leave              disconnect in good order
  stop               shut the service of this process down
  exit:CODE          end at once, without leaving
  jax                jax.distributed.initialize() in place of serve and connect
  jax-again          the same, although it was done before
  jax-without-address  the same, knowing nothing
  proxy              set a proxy variable
  no-preemption-service  switch it off
  compute            the first computation, which makes the back end
  psum               a sum over all processes
  preemption         step with `reached_preemption_sync_point` until it is True
  sync:NAME          multihost_utils.sync_global_devices
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

POLL_S = 0.02


class Member:
    """What the steps share."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.service: Any = None
        self.client: Any = None

    def serve(self, recoverable: bool = False, register_s: int = 3600) -> None:
        from jaxlib import _jax

        self.service = _jax.get_distributed_runtime_service(
            self.options.address,
            self.options.processes,
            heartbeat_timeout=self.options.heartbeat,
            cluster_register_timeout=register_s,
            shutdown_timeout=self.options.shutdown,
            recoverable=recoverable,
        )

    def connect(self) -> None:
        from jaxlib import _jax

        self.client = _jax.get_distributed_runtime_client(
            self.options.address,
            self.options.process,
            init_timeout=self.options.init,
            heartbeat_timeout=self.options.heartbeat,
            shutdown_timeout=self.options.shutdown,
            use_compression=True,
        )
        self.client.connect()
        print("connected", flush=True)

    def jax(self) -> None:
        import jax

        jax.distributed.initialize(
            self.options.address,
            self.options.processes,
            self.options.process,
            cluster_detection_method="deactivate",
            initialization_timeout=self.options.init,
            heartbeat_timeout_seconds=self.options.heartbeat,
            shutdown_timeout_seconds=self.options.shutdown,
            coordinator_bind_address=self.options.address,
        )
        print("connected", flush=True)

    def _try_barrier(self, barrier: str, timeout_s: float) -> None:
        from jaxlib import _jax

        try:
            self.client.wait_at_barrier(barrier, int(timeout_s * 1000))
        except _jax.JaxRuntimeError as error:
            print("ignored:", str(error).partition("\n")[0][:40], flush=True)

    def psum(self) -> None:
        import jax
        from jax.experimental import multihost_utils

        value = multihost_utils.process_allgather(jax.numpy.ones(()))
        print("sum", float(value.sum()), flush=True)

    def preemption(self) -> None:
        from jax.experimental import multihost_utils

        step = 0
        print("stepping", flush=True)
        while not multihost_utils.reached_preemption_sync_point(step):
            step += 1
            time.sleep(0.2)
        print("stopped at step", step, flush=True)

    def step(self, word: str) -> None:
        name, _, rest = word.partition(":")
        words = rest.split(":")
        steps: dict[str, Callable[[], object]] = {
            "serve": self.serve,
            "serve-recoverable": lambda: self.serve(recoverable=True),
            "serve-brief": lambda: self.serve(register_s=15),
            "connect": self.connect,
            "say": lambda: print(rest, flush=True),
            "load": _load,
            "await": lambda: _await(rest),
            "sleep": lambda: time.sleep(float(rest)),
            "wait": lambda: time.sleep(3600),
            "barrier": lambda: self.client.wait_at_barrier(words[0], int(float(words[1]) * 1000)),
            "try-barrier": lambda: self._try_barrier(words[0], float(words[1])),
            "set": lambda: self.client.key_value_set(rest, "value"),
            "get": lambda: self.client.blocking_key_value_get(words[0], int(words[1]) * 1000),
            "live": lambda: self.client.get_live_nodes([int(p) for p in rest.split(",")]),
            "raise": lambda: _raise(rest),
            "full": _fill,
            "leave": lambda: self.client.shutdown(),  # noqa: PLW0108 - not there yet
            "stop": lambda: self.service.shutdown(),  # noqa: PLW0108
            "exit": lambda: os._exit(int(rest)),
            "jax": self.jax,
            "jax-again": self.jax,
            "jax-without-address": _initialize_unknowing,
            "proxy": lambda: os.environ.update(https_proxy="http://proxy.invalid:3128"),
            "no-preemption-service": lambda: os.environ.update(JAX_ENABLE_PREEMPTION_SERVICE="0"),
            "compute": _compute,
            "psum": self.psum,
            "preemption": self.preemption,
            "sync": lambda: _sync(rest),
        }
        steps[name]()


def _raise(text: str) -> None:
    raise ValueError(text)


def _load() -> None:
    from jaxlib import _jax

    print("loaded", _jax.__name__, flush=True)


def _await(name: str) -> None:
    while not os.path.exists(name):  # noqa: PTH110 - nothing is imported that need not be
        time.sleep(POLL_S)


def _fill() -> None:
    with open("/dev/full", "w") as checkpoint:
        checkpoint.write("weights")


def _initialize_unknowing() -> None:
    import jax

    jax.distributed.initialize(cluster_detection_method="deactivate")


def _compute() -> None:
    import jax

    print(jax.numpy.ones(3).sum(), flush=True)


def _sync(name: str) -> None:
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    parser.add_argument("--process", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--heartbeat", type=int, default=12)
    parser.add_argument("--init", type=int, default=60)
    parser.add_argument("--shutdown", type=int, default=4)
    parser.add_argument("steps", nargs="+")
    options = parser.parse_args()
    member = Member(options)
    for word in options.steps:
        member.step(word)


if __name__ == "__main__":
    main()
