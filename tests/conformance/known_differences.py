"""Where our service or client differs from jaxlib's, and why; and where jaxlib differs from the note.

Every entry must occur: one that does not fails its scenario's test.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDifference:
    """An observation that an arm makes differently from its baseline.

    Attributes:
      scenario: Id.
      observation: Name of the observation.
      arms: Such as `stub on model`.
      jaxlib: Versions begin so; empty for all.
      reason: Why it is left so.
    """

    scenario: str
    observation: str
    arms: tuple[str, ...]
    jaxlib: str = ""
    reason: str

    def concerns(self, scenario: str, arm: str, jaxlib: str) -> bool:
        """Whether this entry is about such a run."""
        return self.scenario == scenario and arm in self.arms and jaxlib.startswith(self.jaxlib)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteDifference:
    """Something that the design note says and the installed jaxlib does not do.

    Attributes:
      section: Of the note.
      note: What it says.
      jaxlib: What is measured.
      scenario: That shows it.
    """

    section: str
    note: str
    jaxlib: str
    scenario: str


KNOWN: tuple[KnownDifference, ...] = tuple(
    KnownDifference(
        scenario=scenario,
        observation="report",
        arms=("stub on model",),
        jaxlib="0.10.",
        reason="UNIMPLEMENTED on both; our server says which method it does not have",
    )
    for scenario in ("10", "13")
)

NOTE: tuple[NoteDifference, ...] = (
    NoteDifference(
        section="7",
        note="NUL is a plain character of a key.",
        jaxlib="A key ends at its first NUL, before it is normalised; answers echo it as sent.",
        scenario="k3",
    ),
    NoteDifference(
        section="4",
        note="A service that was stopped declares all its tasks dead at once, else none.",
        jaxlib="Each queued heartbeat races with the overdue tick for itself: one of two was seen too.",
        scenario="47r",
    ),
)

BEYOND = """\
- **TLS refusals** (`tests/server/test_tls.py`). The same peers are refused. Our server sends the
  TLS alert and logs one line with the reason; jaxlib's closes the connection after the handshake
  without a word. jaxlib's client, told or not, tries until `init_timeout` + 5 s and then ends its
  process; ours ends at once with UNAUTHENTICATED and the reason. As in jaxlib, the client's URI
  prefix replaces its check of the host name; a prefix on the service alone does not.
- **What aborts the process of jaxlib's service** is answered by ours with INVALID_ARGUMENT: a watch
  of a version that is yet to come, a report of code 0, an arrival of an unknown task at a barrier
  of all tasks.
- **A port that is taken.** Starting jaxlib's service on a port that somebody else listens on ends
  the process with SIGSEGV (0.10.2) or raises (0.12, through JAX); `coordlab wrap` always raises.
- **Order.** Where jaxlib goes through tasks in the order of a hash table (deaths of one tick,
  leaving together, which two of several missing tasks a message names), our server goes in ascending
  order. The simulator, the explorer, `coordlab replay` and `coordlab diff` try other orders of deaths.
- **JAX's own tests** are not in this repository. `tests/multiprocess/key_value_store_test.py` and
  `wait_barrier_test.py`, run by hand with four processes through `jax._src.test_multiprocess` under
  `coordlab wrap`, pass on 0.10.2 (with JAX's tag) and 0.12.0.1 (with JAX's main of 0.11.1), as do those
  of `multihost_utils`, `all_gather`, `all_to_all`, `thread_guard`, `socket_transfer` and others. `pgle`
  and `tpu_device` fail with either service. What the first two check, scenarios 16, 17, 26, 28, b1, k1
  and k2 check too.
- **Our client's rules** of registration, heartbeats and death (41, 42, 49) are not compared here:
  it ends itself where jaxlib's ends the process. `tests/core/test_client.py` has them.
"""
"""What the catalogue cannot show side by side."""
