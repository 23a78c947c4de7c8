"""What the environment of a process needs: tables of numbers; nothing here needs a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jax_bridge.errors import LaunchFailed
from jax_bridge.platforms import GPU_FLAGS, count_gpus, environment_for, is_cancellation


def test_on_cpu_nothing_but_the_platform_is_set() -> None:
    assert environment_for("cpu", process=1, processes=3) == {"JAX_PLATFORMS": "cpu"}


def test_on_gpu_the_flags_and_variables_are_those_of_the_guide() -> None:
    environment = environment_for("gpu", process=3, processes=4)
    assert environment == {
        "JAX_PLATFORMS": "cuda,cpu",
        "XLA_FLAGS": "--xla_gpu_nccl_terminate_on_error=false --xla_gpu_nccl_async_execution=true "
        "--xla_gpu_nccl_blocking_communicators=false",
        "XLA_PYTHON_CLIENT_ABORT_COLLECTIVES_ON_FAILURE": "1",
        "XLA_PYTHON_CLIENT_USE_TFRT_GPU_CLIENT": "1",
        "JAX_LOCAL_DEVICE_IDS": "3",
    }


def test_flags_of_the_caller_come_last_and_so_win() -> None:
    inherited = {"XLA_FLAGS": "--xla_gpu_nccl_terminate_on_error=true"}
    flags = environment_for("gpu", process=0, processes=1, inherited=inherited)["XLA_FLAGS"]
    assert flags.split() == [*GPU_FLAGS, "--xla_gpu_nccl_terminate_on_error=true"]


@pytest.mark.parametrize(
    ("processes", "devices", "shares"),
    [
        (4, 4, ["0", "1", "2", "3"]),
        (2, 4, ["0,1", "2,3"]),
        (2, 5, ["0,1", "2,3"]),
        (4, 1, ["0", "0", "0", "0"]),
        (3, 2, ["0", "1", "0"]),
    ],
)
def test_devices_are_shared_out_evenly(processes: int, devices: int, shares: list[str]) -> None:
    found = [
        environment_for("gpu", process=process, processes=processes, devices=devices)
        for process in range(processes)
    ]
    assert [environment["JAX_LOCAL_DEVICE_IDS"] for environment in found] == shares


def test_processes_on_one_gpu_share_its_memory() -> None:
    found = [
        environment_for("gpu", process=process, processes=3, devices=2) for process in range(3)
    ]
    fractions = [environment.get("XLA_CLIENT_MEM_FRACTION") for environment in found]
    assert fractions == ["0.375", None, "0.375"], "process 1 has a GPU of its own"


@pytest.mark.parametrize(
    "name",
    ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE"],
)
def test_who_says_how_much_memory_is_not_overruled(name: str) -> None:
    environment = environment_for(
        "gpu", process=0, processes=2, devices=1, inherited={name: "false"}
    )
    assert "XLA_CLIENT_MEM_FRACTION" not in environment


def test_an_unknown_platform_and_no_gpu_are_refused() -> None:
    with pytest.raises(ValueError, match="'tpu' is not a platform; one of cpu, gpu"):
        environment_for("tpu", process=0, processes=1)
    with pytest.raises(ValueError, match="no GPU"):
        environment_for("gpu", process=0, processes=1, devices=0)


@pytest.mark.parametrize("devices", [1, 3, None])
@pytest.mark.parametrize("visible", ["", "-1", "NoDevFiles", "3,-1,5", "3, 5"])
def test_gpus_that_cuda_does_not_show_are_not_shared_out(visible: str, devices: int | None) -> None:
    shown = {"3,-1,5": 1, "3, 5": 2}.get(visible, 0)
    inherited = {"CUDA_VISIBLE_DEVICES": visible}

    def share() -> str:
        environment = environment_for(
            "gpu", process=0, processes=4, devices=devices, inherited=inherited
        )
        return environment["JAX_LOCAL_DEVICE_IDS"]

    if (devices or 4) <= shown:
        assert share() == "0", "JAX counts those that are shown"
    else:
        with pytest.raises(LaunchFailed, match=rf"{visible}' shows {shown}"):
            share()


def test_a_run_with_more_gpus_than_cuda_shows_is_refused_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print('not to be run')\n")
    command = [sys.executable, "-m", "coord_sim.cli.main", "run", "--platform", "gpu"]
    command += ["--devices", "8", "--processes", "4", "--out", str(tmp_path / "run.jsonl")]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "3,5"}
    done = subprocess.run(
        [*command, "--", str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "8 GPUs cannot be shared out: CUDA_VISIBLE_DEVICES='3,5' shows 2" in line
    assert "started" not in done.stdout


@pytest.mark.parametrize(
    ("visible", "count"),
    [(None, 3), ("", 0), ("1", 1), ("0,2", 2), ("0,7,1", 1), ("-1", 0), ("GPU-8f3c,GPU-91aa", 2)],
)
def test_gpus_are_counted_as_cuda_sees_them(
    tmp_path: Path, visible: str | None, count: int
) -> None:
    for number in range(3):
        (tmp_path / f"0000:0{number}:00.0").mkdir()
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    assert count_gpus(environment, tmp_path) == count


def test_without_a_driver_there_are_no_gpus(tmp_path: Path) -> None:
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "0,1"}, tmp_path / "nothing") == 0


def test_a_cancelled_collective_is_known_by_its_words() -> None:
    on_gpu = "FAILED_PRECONDITION: Task with incarnation id 3446767950926952685 is not connected"
    assert is_cancellation(on_gpu)
    assert not is_cancellation("INVALID_ARGUMENT: shapes differ")


@pytest.mark.jax
def test_this_jaxlib_knows_the_flags() -> None:
    """XLA ends a process at a flag that it does not know, also where there is no GPU."""
    found = {}
    for name, flags in {"ours": GPU_FLAGS, "another": ("--xla_gpu_nccl_nothing=true",)}.items():
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)}
        command = [sys.executable, "-c", "import jax; jax.devices()"]
        found[name] = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert found["ours"].returncode == 0, found["ours"].stderr.decode()
    assert b"Unknown flag" in found["another"].stderr
    assert found["another"].returncode != 0
