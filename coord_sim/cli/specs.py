"""Specifications by the names that the command line knows."""

from __future__ import annotations

from checker.specification import SetSpecification, Specification
from checker.specs import spec_named
from coord_sim.cli.errors import CommandError


def named_spec(name: str) -> Specification | SetSpecification:
    """The specification with a name.

    Raises:
      CommandError: there is none; it lists those that there are.
    """
    try:
        return spec_named(name)
    except ValueError as error:
        raise CommandError(str(error)) from None
