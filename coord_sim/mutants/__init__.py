"""Known-wrong variants of service, client and data plane: each must be caught."""

from __future__ import annotations

from coord_sim.mutants.catalogue import CATALOGUE, Mutant, find, service_mutants

__all__ = ["CATALOGUE", "Mutant", "find", "service_mutants"]
