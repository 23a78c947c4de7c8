"""Holds a recorded run against the model: could it have given these answers, at these times?"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace as with_changes
from statistics import median
from typing import Final

from checker.collector import collector_paused
from checker.history import History, Invoke
from coord_sim.core.identifiers import NS_PER_S, seconds
from coord_sim.recording.service_recorder import HEARTBEAT
from coord_sim.replay.caller_side import SECONDS_MAX, STEPS_MAX, CallerReplay
from coord_sim.replay.outcome import COULD, Replayed
from coord_sim.replay.service_side import ServiceReplay, has_all_calls
from coord_sim.replay.settings import Settings, settings_of

_BEATS_MIN: Final = 3
_LATE_FIRST_NS: Final = (seconds(0.005), seconds(0.05))
_STEPS_FIRST: Final = 4

_WHOLE: Final = 0.05
"""A time-out is taken to be whole seconds if it is that near to them, as JAX's are."""


def replay(
    history: History,
    settings: Settings | None = None,
    *,
    steps_max: int | None = None,
    seconds_max: float = SECONDS_MAX,
) -> Replayed:
    """Holds a history against the model.

    Args:
      history: What a service or its callers saw.
      settings: Of the service; None: what the history tells.
      steps_max: How much to search.
      seconds_max: How long to search, where heartbeats are not recorded; s.

    Raises:
      MalformedHistory: an operation's arguments are not what they must be.
      SettingsError: the header tells of a service that cannot be.
    """
    if settings is None:
        settings = settings_of(history)
    if history.header.source != "server" or not has_all_calls(history):
        moves_max = STEPS_MAX if steps_max is None else steps_max
        return _of_callers(history, settings, moves_max, seconds_max)
    notes = []
    if settings.heartbeat_timeout_ns is None:
        timeout_ns = guessed_timeout_ns(history)
        if timeout_ns is not None:
            settings = with_changes(settings, heartbeat_timeout_ns=timeout_ns)
            notes.append(
                "the heartbeat time-out of the service is not recorded: "
                f"{timeout_ns / NS_PER_S:g} s is twice what lies between heartbeats; --service-timeout "
                "sets it"
            )
        else:
            notes.append(
                "the heartbeat time-out of the service is not recorded, and there are too few "
                "heartbeats to guess it: 100 s, JAX's default, was taken; --service-timeout sets it"
            )
    with collector_paused():
        replayed = _of_service(history, settings, steps_max)
        if replayed.verdict != COULD and not settings.is_recoverable_known:
            other = with_changes(settings, recoverable=not settings.recoverable)
            again = _of_service(history, other, steps_max)
            if _farther(again, replayed):
                replayed, settings = again, other
    if not settings.is_recoverable_known:
        kind = "recoverable" if settings.recoverable else "not recoverable"
        notes.append(
            f"whether the service is recoverable is not recorded: it was taken to be {kind}"
        )
    return with_changes(replayed, notes=(*notes, *replayed.notes))


def _of_callers(
    history: History, settings: Settings, steps_max: int, seconds_max: float
) -> Replayed:
    """Searches without deaths of the living first, if they are allowed: most runs need none."""
    if settings.suspicions == "any":
        few = with_changes(settings, suspicions="faults")
        steps = min(steps_max, _STEPS_FIRST * len(history.events))
        first = CallerReplay(history, few, steps_max=steps, seconds_max=seconds_max / 2)
        replayed = first.run()
        if replayed.verdict == COULD:
            return replayed
        seconds_max /= 2
    return CallerReplay(history, settings, steps_max=steps_max, seconds_max=seconds_max).run()


def _of_service(history: History, settings: Settings, steps_max: int | None) -> Replayed:
    """Replays with punctual ticks first: then few orders are possible, and wrong ones show soon."""
    for late_ns in _LATE_FIRST_NS:
        if late_ns < settings.late_ns:
            few = _STEPS_FIRST * len(history.events)
            steps = few if steps_max is None else min(few, steps_max)
            replayed = ServiceReplay(history, settings, late_ns=late_ns, steps_max=steps).run()
            if replayed.verdict == COULD or not replayed.had_choices:
                return replayed
    return ServiceReplay(history, settings, steps_max=steps_max).run()


def _farther(one: Replayed, other: Replayed) -> bool:
    if one.verdict == COULD or one.finding is None or other.finding is None:
        return one.verdict == COULD
    return one.finding.event > other.finding.event


def guessed_timeout_ns(history: History) -> int | None:
    """The time-out of which clients beat every half, as they do; None if too few beats are recorded."""
    latest: dict[tuple[int, int], int] = {}
    gaps: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, Invoke) and event.operation == HEARTBEAT:
            key = (event.process, event.lifetime)
            if key in latest:
                gaps[key].append(event.time_ns - latest[key])
            latest[key] = event.time_ns
    medians = [median(each) for each in gaps.values() if len(each) >= _BEATS_MIN]
    if not medians:
        return None
    timeout_s = 2 * median(medians) / NS_PER_S
    whole_s = round(timeout_s)
    is_whole = whole_s > 0 and abs(timeout_s - whole_s) <= _WHOLE * whole_s
    return seconds(whole_s if is_whole else round(timeout_s, 2)) or None
