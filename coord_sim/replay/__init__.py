"""Recorded runs held against the model, and their heartbeats under other time-outs."""

from coord_sim.replay.outcome import COULD, COULD_NOT, UNKNOWN, Finding, Replayed
from coord_sim.replay.replay import replay
from coord_sim.replay.settings import SUSPICIONS, Settings, SettingsError, settings_of

__all__ = [
    "COULD",
    "COULD_NOT",
    "SUSPICIONS",
    "UNKNOWN",
    "Finding",
    "Replayed",
    "Settings",
    "SettingsError",
    "replay",
    "settings_of",
]
