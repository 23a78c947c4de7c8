"""Known-wrong variants of the service: each must be caught."""

from __future__ import annotations

from collections.abc import Mapping

from coord_sim.core.service import CoordinationService

service_mutants: Mapping[str, type[CoordinationService]] = {}
"""Wrong services by name."""
