"""The scenarios that are shipped, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from coord_sim.scenarios.problems import Problem, ScenarioError, nearest
from coord_sim.scenarios.reading import read_scenario
from coord_sim.scenarios.scenario import Scenario

LIBRARY: Final = Path(__file__).parent / "library"
SUFFIX: Final = ".toml"


def names() -> tuple[str, ...]:
    """The names of all shipped scenarios, in order."""
    return tuple(sorted(path.stem for path in LIBRARY.glob(f"*{SUFFIX}")))


def scenario_named(name: str) -> Scenario:
    """A shipped scenario, or the one in a file.

    Args:
      name: One of `names()`, or the path of a file that ends in `.toml` or has a folder.

    Raises:
      ScenarioError: there is none of that name, or the file is no scenario.
      OSError: the file cannot be read.
    """
    if name.endswith(SUFFIX) or "/" in name:
        return read_scenario(Path(name))
    if name not in names():
        known = nearest(name, names()) if len(name) > 2 else ""
        hint = known if "did you mean" in known else "; `coordlab scenarios` lists them"
        raise ScenarioError([Problem("scenarios", 0, (), f"no scenario {name!r}{hint}")])
    return read_scenario(LIBRARY / f"{name}{SUFFIX}")
