"""Checks a planned job before it starts, and says at which stage one hangs that is starting."""

from __future__ import annotations

from jax_bridge.doctor.findings import Finding, Level

__all__ = ["Finding", "Level"]
