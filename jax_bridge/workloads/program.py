"""What workloads have in common: arguments, joining the job, rounds, and the comparison with NumPy.

A workload is a script that is started once per process:

    python NAME.py PROCESS PROCESSES ADDRESS [--rounds N] [--recoverable] [--heartbeat-timeout S]

It does the same thing in every round. Before a round each process says in the coordination service's
store that it begins, so that a kill can be tied to a place in the program: `1@in:key_value_set#3` is
process 1 at the beginning of its third round, when the others are about to compute without it.
"""

# mypy: disable-error-code="no-untyped-call"
# JAX has functions without types.

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

COLLECTIVE_TIMEOUT_S = 4
"""How long a process waits in a collective on CPU for one that does not come; by default 30 minutes."""
INITIALIZATION_TIMEOUT_S = 30
"""How long a process tries to join; by default 5 minutes."""
ROUNDS = 5
PAUSE_S = 0.2
"""Between rounds, so that a run lasts long enough to be disturbed."""


@dataclass(frozen=True, slots=True)
class Program:
    """This process's part in the job.

    Attributes:
      process, processes, address: As on the command line.
      rounds_wanted: How often the program does what it does.
      client: Of the coordination service, as `jax.distributed.initialize` made it.
    """

    process: int
    processes: int
    address: str
    rounds_wanted: int
    client: Any

    @classmethod
    def join(
        cls,
        description: str | None,
        *,
        devices: int,
        rounds: int = ROUNDS,
        recoverable: bool = False,
    ) -> Self:
        """Reads the arguments, and joins the job with some CPU devices.

        Args:
          description: The script's docstring, for `--help`.
          devices: How many CPU devices this process brings.
          rounds: How often, if the command line does not say.
          recoverable: Whether this process may come back, and lives on when another one dies; the
            command line may say so, too.
        """
        parser = argparse.ArgumentParser(
            description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("process", type=int, metavar="PROCESS", help="from 0")
        parser.add_argument("processes", type=int, metavar="PROCESSES")
        parser.add_argument("address", metavar="ADDRESS", help="of the coordination service")
        parser.add_argument("--rounds", type=int, default=rounds, metavar="N")
        parser.add_argument("--recoverable", action="store_true", default=recoverable)
        parser.add_argument("--heartbeat-timeout", type=int, default=3, metavar="S")
        options = parser.parse_args()
        # Before the first device is used, which is when XLA reads its flags.
        limit = f"--xla_cpu_collective_timeout_seconds={COLLECTIVE_TIMEOUT_S}"
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {limit}"

        import jax
        from jax._src import distributed  # There is no public way to the client.

        jax.config.update("jax_num_cpu_devices", devices)
        # GPUs would multiply float32 matrices with fewer digits, which the comparison would call wrong.
        jax.config.update("jax_default_matmul_precision", "highest")
        jax.config.update("jax_enable_recoverability", options.recoverable)
        jax.distributed.initialize(
            options.address,
            options.processes,
            options.process,
            heartbeat_timeout_seconds=options.heartbeat_timeout,
            initialization_timeout=INITIALIZATION_TIMEOUT_S,
        )
        client: Any = distributed.global_state.client
        if options.recoverable and options.process == 0:
            # Process 0 tells the others the topology under this key, once: it refuses to come back
            # as long as its predecessor's is there.
            client.key_value_delete("cpu:global_topology/cpu")
        return cls(options.process, options.processes, options.address, options.rounds, client)

    def rounds(self) -> Iterator[int]:
        """The numbers of the rounds, from 0, each announced in the store and on the terminal."""
        for number in range(self.rounds_wanted):
            self.announce(number)
            yield number
            time.sleep(PAUSE_S)

    def announce(self, number: int) -> None:
        """Says that this process begins a round."""
        self.client.key_value_set(f"round/{self.process}", str(number), allow_overwrite=True)
        say(f"round {number}")

    def has(self, key: str) -> bool:
        """Whether somebody wrote this key into the store."""
        import jax

        try:
            self.client.key_value_try_get(key)
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" not in str(error):
                raise
            return False
        return True

    def publish(self, key: str, value: str) -> str:
        """Writes a key, unless it is there; returns what is there."""
        import jax

        try:
            self.client.key_value_set(key, value)
        except jax.errors.JaxRuntimeError as error:
            if "ALREADY_EXISTS" not in str(error):
                raise
            return str(self.client.key_value_try_get(key))
        return value

    def leave(self) -> None:
        """Leaves the job, in step with all others."""
        import jax

        jax.distributed.shutdown()
        say("done")


def say(sentence: str) -> None:
    """Prints a line at once."""
    print(sentence, flush=True)


def spread(values: Any, sharding: Any) -> Any:
    """A global array of `values`, of which this process places its own shards.

    Args:
      values: A NumPy array that every process has, whole.
      sharding: Of the result.
    """
    import jax

    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])


def check(what: str, found: Any, expected: Any, *, bound: float) -> None:
    """Compares what this process holds of a result with NumPy's, and says how far they are apart.

    Args:
      what: Is compared.
      found: A JAX array, of which the local shards are compared, or anything that NumPy takes.
      expected: The whole result, in float64.
      bound: The greatest error that is right, relative to the greatest entry of `expected` (or to 1).

    Raises:
      SystemExit: it is wrong; the exit code is 1, and the message begins with "wrong".
    """
    import numpy as np

    whole = np.asarray(expected)
    shards = getattr(found, "addressable_shards", None)
    if shards is None:
        pairs = [(np.asarray(found), whole)]
    else:
        pairs = [(np.asarray(shard.data), whole[shard.index]) for shard in shards]
    scale = max(1.0, float(np.max(np.abs(whole))))
    error = 0.0
    for mine, right in pairs:
        if mine.shape != right.shape:
            raise SystemExit(f"wrong: {what} has the shape {mine.shape}, not {right.shape}")
        # In Python, a comparison with NaN is false: a NaN must not count as right.
        worst = float(np.max(np.abs(mine.astype(np.float64) - right))) / scale
        error = worst if not worst <= error else error
    shown = f" {whole.item():g}" if whole.size == 1 else f" ({'x'.join(map(str, whole.shape))})"
    if not error <= bound:
        raise SystemExit(f"wrong: {what}{shown}: error {error:.1e}, more than {bound:.0e}")
    say(f"right: {what}{shown}, error {error:.1e} (bound {bound:.0e})")
