"""The generated code that is committed is what the compiler makes of the definitions."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROTO = ROOT / "proto"
GENERATED = ROOT / "coord_sim" / "wire" / "_generated"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with newly generated code."""
    folder = tmp_path_factory.mktemp("generated")
    subprocess.run(
        [
            sys.executable,
            *("-m", "grpc_tools.protoc", "-I", str(PROTO)),
            *(f"--python_out={folder}", f"--pyi_out={folder}"),
            *sorted(path.name for path in PROTO.glob("*.proto")),
        ],
        check=True,
        timeout=60,
    )
    return folder


def test_the_generated_code_is_what_the_compiler_makes(fresh: Path) -> None:
    made = {path.name: path.read_bytes() for path in fresh.iterdir()}
    kept = {
        path.name: path.read_bytes()
        for path in GENERATED.iterdir()
        if path.is_file() and path.name != "__init__.py"
    }
    differing = sorted(name for name in made | kept if made.get(name) != kept.get(name))
    assert not differing, (
        f"{', '.join(differing)} in {GENERATED.relative_to(ROOT)} is not what grpcio-tools "
        f"{metadata.version('grpcio-tools')} makes of proto/: run `make proto`"
    )


def test_the_generated_package_has_nothing_of_its_own() -> None:
    assert (GENERATED / "__init__.py").read_bytes() == b""
