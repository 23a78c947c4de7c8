"""What a campaign knows: the sum of its batches, taken in the order of their seeds."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from coord_sim.campaign.batch import Batch, Failure, Seen, add_seen

FAILURES_MAX: Final = 1000
"""So many failures are kept; all are counted."""

_COUNTERS: Final = ("kinds", "unknown", "faults", "reached", "ends")
_PLAIN: Final = ("first_seed", "digest")
_SEEN: Final = ("states", "transitions")
_SUMS: Final = ("runs", "events", "history_events", "virtual_ns")


@dataclass(slots=True)
class Statistics:
    """Sums over batches; the attributes that are named as those of `Batch` mean the same.

    Attributes:
      digest: Of all runs, in order: campaigns with the same one saw the same.
      first_seed: Of the first batch.
    """

    first_seed: int = 0
    runs: int = 0
    events: int = 0
    history_events: int = 0
    virtual_ns: int = 0
    digest: str = ""
    failures: list[Failure] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    states: Seen = field(default_factory=dict)
    transitions: Seen = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """How many runs failed."""
        return self.kinds.total()

    def add(self, batch: Batch) -> None:
        """Takes the next batch."""
        if self.runs == 0:
            self.first_seed = batch.first_seed
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(batch, name))
        for name in _COUNTERS:
            getattr(self, name).update(getattr(batch, name))
        for name in _SEEN:
            add_seen(getattr(self, name), getattr(batch, name))
        digest = bytes.fromhex(self.digest)
        for each in batch.digests:
            digest = hashlib.blake2b(digest + each, digest_size=16).digest()
        self.digest = digest.hex()
        room = FAILURES_MAX - len(self.failures)
        self.failures += batch.failures[:room]

    def seen_once(self, seen: Seen) -> int:
        """How many of the `states` or `transitions` were seen in one run only."""
        return sum(1 for runs, _ in seen.values() if runs == 1)

    def new_since(self, seen: Seen, part: float) -> int:
        """How many of them were seen first after a part (0 to 1) of the runs."""
        from_seed = self.first_seed + part * self.runs
        return sum(1 for _, seed in seen.values() if seed >= from_seed)

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it; mappings in the order of their keys."""
        told: dict[str, Any] = {name: getattr(self, name) for name in (*_SUMS, *_PLAIN)}
        told["failures"] = [asdict(failure) for failure in self.failures]
        for name in (*_COUNTERS, *_SEEN):
            told[name] = dict(sorted(getattr(self, name).items()))
        return told

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Statistics:
        """What `to_json` gave.

        Raises:
          ValueError, TypeError, KeyError: it is something else.
        """
        values: dict[str, Any] = {each.name: told[each.name] for each in fields(cls)}
        for name in _COUNTERS:
            values[name] = Counter({str(key): int(count) for key, count in values[name].items()})
        for name in (*_SUMS, "first_seed"):
            values[name] = int(values[name])
        for name in _SEEN:
            values[name] = {
                key: (int(runs), int(seed)) for key, (runs, seed) in values[name].items()
            }
        bytes.fromhex(values["digest"])
        values["failures"] = [Failure(**each) for each in values["failures"]]
        return cls(**values)
