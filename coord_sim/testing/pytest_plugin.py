"""The pytest plugin: simulations and servers as fixtures, seeds as options, evidence of failures.

pytest loads it by itself where coordlab is installed, so that it imports next to nothing until a test
asks for one of its fixtures.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from coord_sim.testing.evidence import Evidence
    from coord_sim.testing.serving import ServerFactory
    from coord_sim.testing.simulating import SimulationFactory

_MARKER = "coord(processes=..., semantics=..., faults=..., seeds=...): settings of `simulation`"
_EVIDENCE = pytest.StashKey[list["Evidence"]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("coordlab", "simulations of the coordination service")
    group.addoption(
        "--coord-seed", type=int, metavar="S", help="the (first) seed of `simulation` (default: 0)"
    )
    group.addoption(
        "--coord-seeds",
        type=_count,
        metavar="N",
        help="run each test that uses `simulation` with N seeds (default: 1, or what its marker says)",
    )
    group.addoption(
        "--coord-out",
        metavar="DIR",
        help="keep histories and servers' logs of failed tests there (default: in pytest's cache)",
    )
    group.addoption(
        "--coord-tape", metavar="FILE", help="play the draws of a run that was kept, not its seed's"
    )


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"a count of seeds is at least 1, found {text!r}")
    return int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker."""
    config.addinivalue_line("markers", _MARKER)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each seed, whose number is part of its name."""
    if "coord_seed" not in metafunc.fixturenames:
        return
    first = metafunc.config.getoption("coord_seed")
    count = metafunc.config.getoption("coord_seeds")
    if count is None:
        count = _settings(metafunc.definition).get("seeds", 1) if first is None else 1
    first = first or 0
    seeds = range(first, first + count)
    metafunc.parametrize("coord_seed", seeds, ids=[f"seed{seed}" for seed in seeds], indirect=True)


@pytest.fixture
def coord_seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test's simulations: from the options, or its marker."""
    return int(request.param)


@pytest.fixture
def simulation(request: pytest.FixtureRequest, coord_seed: int) -> SimulationFactory:
    """Simulates a program: `simulation(program, processes=3, ...)` gives a `SimulatedRun`."""
    from coord_sim.testing.simulating import SimulationFactory, read_tape

    settings = _settings(request.node)
    settings.pop("seeds", None)
    tape = request.config.getoption("coord_tape")
    place = request.config.invocation_params.dir
    factory = SimulationFactory(
        coord_seed, settings, tape=None if tape is None else read_tape(place / tape)
    )
    _evidence_of(request.node).append(factory)
    return factory


@pytest.fixture
def coordination_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerFactory]:
    """Starts real servers: `coordination_server(processes=2, ...)` gives a `RunningServer`."""
    from coord_sim.testing.serving import ServerFactory

    settings = {
        name: value
        for name, value in _settings(request.node).items()
        if name in ("processes", "semantics")
    }
    with ServerFactory(tmp_path_factory.mktemp("coordination-server"), settings) as factory:
        _evidence_of(request.node).append(factory)
        yield factory


def _settings(item: pytest.Item) -> dict[str, Any]:
    """What the markers say; the nearest one wins."""
    settings: dict[str, Any] = {}
    for marker in item.iter_markers("coord"):
        if marker.args:
            raise pytest.UsageError(f"{item.nodeid}: settings of the marker have names: {_MARKER}")
        settings = {**marker.kwargs, **settings}
    return settings


def _evidence_of(item: pytest.Item) -> list[Evidence]:
    return item.stash.setdefault(_EVIDENCE, [])


# --- what is left of a failure -----------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keeps what a failed test simulated, and says how to run it again."""
    report = yield
    if report.failed and item.stash.get(_EVIDENCE, None):
        try:
            text = _keep(item)
        except Exception as error:  # noqa: BLE001 - the test's own failure must be seen in any case
            text = f"what was simulated could not be kept: {type(error).__name__}: {error}"
        report.sections.append(("coordlab", text))
    return report


def _keep(item: pytest.Item) -> str:
    from coord_sim.testing.evidence import fresh_folder

    config = item.config
    out = config.getoption("coord_out")
    here = config.invocation_params.dir
    folder = fresh_folder(_cache(config) if out is None else here / out, item.nodeid)
    file, colons, rest = item.nodeid.partition("::")  # Its file is told from the root.
    name = os.path.relpath(config.rootpath / file, here) + colons + rest
    lines = [f"kept in: {_shown(folder, here)}"]
    for each in item.stash[_EVIDENCE]:
        lines += each.keep(folder)
        if each.seed is not None:
            lines.append(
                f"replay: pytest {shlex.quote(name)} --coord-seed {each.seed}",
            )
    return "\n".join(lines)


def _cache(config: pytest.Config) -> Path:
    cache = getattr(config, "cache", None)
    if cache is None:  # Without the plugin of the cache.
        return config.rootpath / ".coordlab"
    return Path(cache.mkdir("coordlab"))


def _shown(path: Path, here: Path) -> str:
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
