"""Recorded heartbeats under other time-outs: who would have been declared dead, and when.

One pass over a recording finds how long each start of each process was silent, between one sign
that resets its clock (a heartbeat, a registration) and the next. A time-out only asks which silences
are longer.

The service looks once a second, so that a silence that is longer than the time-out by less than a
second may be noticed or not. A silence that ended was no death: its process lived. The last silence
of a process is one, if nothing came after it until it was replaced or the recording ended.

Each silence is judged by itself. What a false alarm would have changed in the rest of the run is not
known: a death counts as noticed if its silence is long enough, whatever came before.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from statistics import median
from typing import Final

from checker.history import SHUTDOWN, Event, Fail, History, Info, Invoke, Ok
from coord_sim.core.identifiers import NS_PER_S
from coord_sim.core.service import TICK_NS
from coord_sim.recording.service_recorder import HEARTBEAT, REGISTER

_STILL_BEATING: Final = 2.5
"""A silence at the end of a recording that is no longer than so many usual ones is no death."""

_MARGIN: Final = 1.5
_COMMON_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 100.0)
_QUANTILES: Final = (0.5, 0.9, 0.99, 0.999)
_ROWS_MAX: Final = 12


@dataclass(slots=True)
class Life:
    """The silences of one start of a process.

    Attributes:
      since_ns: When the job let it in.
      last_ns: Its last heartbeat or registration.
      lived_ns: Its last sign of life of any kind, before it left.
      replaced_ns: When another start of its process began to register.
      left: Whether it left in good order.
      beats: How many heartbeats it has.
      silences: All that ended with a heartbeat or a registration: how long each was, and when it began;
        ascending, once all are known.
      usual_ns: The length of its usual silence, if it has enough of them.
    """

    process: int
    lifetime: int
    since_ns: int
    last_ns: int
    lived_ns: int
    replaced_ns: int | None = None
    left: bool = False
    beats: int = 0
    silences: list[tuple[int, int]] = field(default_factory=list)
    usual_ns: int = 0

    def longer(self, timeout_ns: int) -> list[tuple[int, int]]:
        """Its silences of more than this; also the last one, in which it still called."""
        last_ns = self.lived_ns - self.last_ns
        found = self.silences[bisect_right(self.silences, timeout_ns, key=itemgetter(0)) :]
        return [*found, (last_ns, self.last_ns)] if last_ns > timeout_ns else found


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Somebody would have been declared dead.

    Attributes:
      last_heard_ns: When its clock was reset last.
      earliest_ns, latest_ns: When it would have been declared dead, by the phase of the tick.
      lived_ns: When it was heard of again, or last, if it lived; None for a real death.
      is_sure: Whether every phase of the tick declares it; else only some.
    """

    process: int
    lifetime: int
    last_heard_ns: int
    earliest_ns: int
    latest_ns: int
    lived_ns: int | None
    is_sure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a time-out would have done.

    Attributes:
      timeout_s: The time-out.
      false: How many starts have false alarms: whatever the phase of the tick, and by some phases only.
      deaths: Real ones that it notices, surely or by the phase of the tick.
      adapted: False alarms, sure and possible ones, if the clients had beaten every half of it.
    """

    timeout_s: float
    false: tuple[int, int]
    deaths: tuple[Alarm, ...]
    adapted: tuple[int, int]

    @property
    def noticed(self) -> tuple[int, int]:
        """How many deaths are noticed: whatever the phase of the tick, and by some phases only."""
        return _counted(self.deaths)

    @property
    def noticed_after_ns(self) -> tuple[int, int] | None:
        """How long after the last heartbeats deaths are noticed, at the least and at the most."""
        if not self.deaths:
            return None
        return (
            min(alarm.earliest_ns - alarm.last_heard_ns for alarm in self.deaths),
            max(alarm.latest_ns - alarm.last_heard_ns for alarm in self.deaths),
        )


@dataclass(frozen=True, slots=True)
class Silences:
    """All that a recording tells about silence.

    Attributes:
      lives: All starts that the job let in.
      origin_ns, end_ns: The first and the last event.
      gaps_ns: All silences that ended, ascending.
    """

    lives: tuple[Life, ...]
    origin_ns: int
    end_ns: int
    gaps_ns: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no process has beaten."""
        return not any(life.beats for life in self.lives)

    def died(self, life: Life) -> bool:
        """Whether a start ended without leaving, as far as the recording tells."""
        if life.left:
            return False
        if life.replaced_ns is not None:
            return True
        usual_ns = life.usual_ns or self._usual_ns()
        return self.end_ns - life.lived_ns > _STILL_BEATING * usual_ns

    def excess_ns(self, life: Life) -> int:
        """By how much its longest silence was longer than its usual one."""
        if not life.silences:
            return 0
        return max(0, life.silences[-1][0] - (life.usual_ns or self._usual_ns()))

    def row(self, timeout_s: float) -> Row:
        """What a time-out would have done."""
        timeout_ns = round(timeout_s * NS_PER_S)
        surely = perhaps = 0
        deaths: list[Alarm] = []
        sure = possible = 0
        for life in self.lives:
            if life.longer(timeout_ns + TICK_NS):
                surely += 1
            elif life.longer(timeout_ns):
                perhaps += 1
            death = self._death(life, timeout_ns) if self.died(life) else None
            if death is not None:
                deaths.append(death)
            excess_ns = self.excess_ns(life)
            if excess_ns > timeout_ns // 2 + TICK_NS:
                sure += 1
            elif excess_ns > timeout_ns // 2:
                possible += 1
        return Row(
            timeout_s=timeout_s,
            false=(surely, perhaps),
            deaths=tuple(sorted(deaths, key=lambda alarm: alarm.earliest_ns)),
            adapted=(sure, possible),
        )

    def false_alarms(self, timeout_s: float) -> list[Alarm]:
        """Who would have been declared dead while it lived: one for each silence, in order of time."""
        timeout_ns = round(timeout_s * NS_PER_S)
        found = [
            _false_alarm(life, began_ns, length_ns, timeout_ns)
            for life in self.lives
            for length_ns, began_ns in life.longer(timeout_ns)
        ]
        return sorted(found, key=lambda alarm: alarm.earliest_ns)

    def _death(self, life: Life, timeout_ns: int) -> Alarm | None:
        """How a death is noticed; None if a replacement is faster, or the start was alive by then."""
        gone_ns = self.end_ns if life.replaced_ns is None else life.replaced_ns
        earliest_ns = max(life.last_ns + timeout_ns, life.lived_ns)
        latest_ns = min(life.last_ns + timeout_ns + TICK_NS, gone_ns)
        if earliest_ns >= latest_ns:
            return None
        return Alarm(
            process=life.process,
            lifetime=life.lifetime,
            last_heard_ns=life.last_ns,
            earliest_ns=earliest_ns,
            latest_ns=latest_ns,
            lived_ns=None,
            is_sure=life.lived_ns <= life.last_ns + timeout_ns
            and gone_ns > life.last_ns + timeout_ns + TICK_NS,
        )

    def sensible(self, current_s: float | None) -> list[float]:
        """Time-outs worth a row: around the silences that there were, those in use, and round ones."""
        found = {0.0}
        for quantile in _QUANTILES:
            if self.gaps_ns:
                place = min(len(self.gaps_ns) - 1, int(quantile * len(self.gaps_ns)))
                found.add(_rounded_up(self.gaps_ns[place]))
        longest_s = _rounded_up(self.gaps_ns[-1]) if self.gaps_ns else 1.0
        found.update((longest_s, float(math.ceil(longest_s)), self.recommended_s()))
        found.update(s for s in _COMMON_S if longest_s / 4 <= s <= longest_s * 6)
        found.discard(0.0)
        chosen = sorted(found)[-_ROWS_MAX:]
        if current_s is not None and current_s not in chosen:
            chosen = sorted([*chosen, current_s])
        return chosen

    def recommended_s(self) -> float:
        """The smallest time-out in whole seconds that bears half as much again as there was.

        Clients beat every half of it, so it must bear that and the worst delay.
        """
        excess_ns = max(map(self.excess_ns, self.lives), default=0)
        return float(max(2, math.ceil(_MARGIN * 2 * excess_ns / NS_PER_S)))

    def _usual_ns(self) -> int:
        return self.gaps_ns[len(self.gaps_ns) // 2] if self.gaps_ns else TICK_NS


def silences_of(history: History) -> Silences:
    """Reads all silences of a recording with heartbeats, in one pass."""
    events: Sequence[Event] = history.events
    lives: dict[tuple[int, int], Life] = {}
    latest: dict[int, Life] = {}
    open_: dict[int, tuple[str, tuple[int, int]]] = {}
    for event in events:
        if isinstance(event, Invoke):
            key = (event.process, event.lifetime)
            name = event.operation
            life = lives.get(key)
            if name == HEARTBEAT and "incarnation" not in event.arguments:
                if life is not None:
                    _reset(life, event.time_ns)
                    life.beats += 1
                continue
            if name in (REGISTER, SHUTDOWN):
                open_[event.id] = (name, key)
            if life is not None and not life.left:
                life.lived_ns = event.time_ns
            previous = latest.get(event.process)
            if name == REGISTER and previous is not None and previous.lifetime < event.lifetime:
                if previous.replaced_ns is None:
                    previous.replaced_ns = event.time_ns
        elif isinstance(event, Ok | Fail | Info):
            name, key = open_.pop(event.id, ("", (0, 0)))
            if not name or not isinstance(event, Ok):
                continue
            life = lives.get(key)
            if name == SHUTDOWN:
                if life is not None:
                    life.left = True
            elif life is None:
                now_ns = event.time_ns
                life = lives[key] = Life(key[0], key[1], now_ns, now_ns, now_ns)
                latest[key[0]] = life
            else:
                _reset(life, event.time_ns)
    every: list[int] = []
    for life in lives.values():
        life.silences.sort()
        lengths_ns = [length_ns for length_ns, _ in life.silences]
        every += lengths_ns
        if len(lengths_ns) > 2:
            life.usual_ns = round(median(lengths_ns))
    origin_ns = events[0].time_ns if events else 0
    end_ns = events[-1].time_ns if events else 0
    return Silences(tuple(lives.values()), origin_ns, end_ns, tuple(sorted(every)))


def _reset(life: Life, time_ns: int) -> None:
    life.silences.append((time_ns - life.last_ns, life.last_ns))
    life.last_ns = life.lived_ns = time_ns


def _false_alarm(life: Life, began_ns: int, length_ns: int, timeout_ns: int) -> Alarm:
    return Alarm(
        process=life.process,
        lifetime=life.lifetime,
        last_heard_ns=began_ns,
        earliest_ns=began_ns + timeout_ns,
        latest_ns=began_ns + min(length_ns, timeout_ns + TICK_NS),
        lived_ns=began_ns + length_ns,
        is_sure=length_ns > timeout_ns + TICK_NS,
    )


def _counted(alarms: Sequence[Alarm]) -> tuple[int, int]:
    """Of how many starts one is sure, and of how many others one is possible."""
    sure = {(alarm.process, alarm.lifetime) for alarm in alarms if alarm.is_sure}
    return len(sure), len({(alarm.process, alarm.lifetime) for alarm in alarms} - sure)


def _rounded_up(time_ns: int) -> float:
    """A time in seconds, rounded up to two digits that count."""
    time_s = time_ns / NS_PER_S
    if time_s <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(time_s)) - 1)
    return round(math.ceil(time_s / unit) * unit, 9)
