"""One question, one function: does this history satisfy that specification?"""

from __future__ import annotations

from checker.history.history import History
from checker.live_processes.check import check_live_processes
from checker.live_processes.spec import LiveProcesses
from checker.operations import Operations, Recorder
from checker.specification import SetSpecification, Specification
from checker.verdict import Verdict


def check(
    history: History | Operations | Recorder,
    spec: LiveProcesses | Specification | SetSpecification | None = None,
    *,
    timeout_s: float | None = None,
    memory_bytes_max: int | None = None,
    paranoid: bool = False,
) -> Verdict:
    """Checks a history.

    Args:
      history: What the callers saw: our own kind, or the operations of any object.
      spec: What they were promised; the `live_processes` barrier (round reading, suspicion) if left
        out, which needs a history of our own kind.
      timeout_s: Seconds after which the verdict is `Unknown`; not for `LiveProcesses`, whose check takes
        little more than linear time.
      memory_bytes_max: Memory for a search, above which the verdict is `Unknown`; 2 GiB if left out.
      paranoid: Whether to search without pruning rules, and to replay the witness.

    Returns:
      `Valid` with a witness, `Invalid` with an anomaly, or `Unknown` with a reason.

    Raises:
      MalformedHistory: the events do not form a history (a response without an invocation), or an
        operation is none of the specification's.
      SpecificationError: a specification broke its own rules.
    """
    if isinstance(history, Recorder):
        history = history.operations()
    if spec is None or isinstance(spec, LiveProcesses):
        if isinstance(history, Operations):
            raise TypeError("these operations need a specification, for example checker.specs.Kv()")
        return check_live_processes(history, spec or LiveProcesses())
    if not isinstance(spec, Specification | SetSpecification):
        raise TypeError(
            f"a specification is an instance, e.g. checker.specs.Kv(); found {spec!r:.80}"
        )
    from checker.formats.from_history import operations_of
    from checker.search import check_operations
    from checker.search.budget import MEMORY_BYTES_MAX

    operations = history if isinstance(history, Operations) else operations_of(history)
    return check_operations(
        operations,
        spec,
        timeout_s=timeout_s,
        memory_bytes_max=MEMORY_BYTES_MAX if memory_bytes_max is None else memory_bytes_max,
        paranoid=paranoid,
    )
