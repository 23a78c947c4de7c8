"""What is wrong with a planned job is found before it starts."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from coord_sim.cli.main import main
from jax_bridge.doctor import Finding, Level
from jax_bridge.doctor.addresses import Address, check_host, check_port, parse_address
from jax_bridge.doctor.environment import (
    check_accelerator_flags,
    check_detection,
    check_proxies,
)
from jax_bridge.doctor.flags import check_flags
from jax_bridge.doctor.installation import (
    Installation,
    check_settings,
    check_timeouts,
    check_versions,
)
from jax_bridge.doctor.probe import Stage, probe
from jax_bridge.doctor.scripts import ScriptError, check_script
from tests.ports import reserved_port
from tests.server.certificates import Authority


def told(findings: Iterable[Finding]) -> dict[str, Level]:
    return {finding.check: finding.level for finding in findings}


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


# --- addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("10.0.0.1:8476", "10.0.0.1", 8476),
        ("train-0.jobs:1", "train-0.jobs", 1),
        ("[fd00::1]:65535", "fd00::1", 65535),
        ("[fe80::1%eth0]:8476", "fe80::1%eth0", 8476),
    ],
)
def test_addresses_that_jax_takes_are_taken_apart(text: str, host: str, port: int) -> None:
    assert parse_address(text) == Address(text, host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("::1:8476", "needs brackets"),
        ("fd00::1", "needs brackets"),
        ("host", "not HOST:PORT"),
        (":8476", "not HOST:PORT"),
        ("a:b:1", "too many colons"),
        ("host:http", "must be a number"),
        ("host:0", "must be a number"),
        ("host:65536", "must be a number"),
        ("host:-1", "must be a number"),
        ("[nonsense]:1", "no IPv6 address"),
    ],
)
def test_a_wrong_address_is_named_with_the_reason(text: str, why: str) -> None:
    finding = parse_address(text)
    assert isinstance(finding, Finding)
    assert finding.level is Level.ERROR
    assert why in finding.sentence
    assert finding.remedy


def test_a_loopback_address_with_several_hosts_is_an_error() -> None:
    address = Address("127.0.0.1:8476", "127.0.0.1", 8476)
    assert told(check_host(address, 4, 2))["loopback"] is Level.ERROR
    assert told(check_host(address, 4, None))["loopback"] is Level.WARNING
    assert "loopback" not in told(check_host(address, 4, 1))
    assert "loopback" not in told(check_host(address, 1, None))


def test_a_name_that_does_not_resolve_is_an_error() -> None:
    (finding,) = check_host(Address("no.invalid:1", "no.invalid", 1), 2, 2)
    assert (finding.check, finding.level) == ("name", Level.ERROR)


def test_a_taken_port_and_a_foreign_bind_address_are_errors(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    (taken,) = check_port(Address(f"127.0.0.1:{port}", "127.0.0.1", port), f"127.0.0.1:{port}")
    assert (taken.check, taken.level) == ("port", Level.ERROR)
    assert "in use" in taken.sentence
    (foreign,) = check_port(Address("a:8476", "a", 8476), "203.0.113.7:8476")
    assert foreign.level is Level.ERROR


def test_a_free_port_is_good_and_free_afterwards() -> None:
    with reserved_port() as port:
        for _ in range(2):
            findings = list(check_port(Address(f"127.0.0.1:{port}", "127.0.0.1", port), None))
            assert findings[0].level is Level.GOOD


# --- how far a connection comes --------------------------------------------------------------------


def test_each_stage_of_a_connection_is_told(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    silent = probe(Address("", "127.0.0.1", port), 0.5)
    assert (silent.stage, "says nothing" in silent.sentence) == (Stage.HTTP2, True)
    with reserved_port() as nobody:
        refused = probe(Address("", "127.0.0.1", nobody), 5.0)
    assert (refused.stage, "refused" in refused.sentence) == (Stage.TCP, True)
    assert probe(Address("", "no.invalid", port), 5.0).stage is Stage.NAME


def test_a_service_that_wants_tls_is_told_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority("ours")
    files = authority.sign("127.0.0.1").write(tmp_path / "files", authority.pem)
    command = [
        *(sys.executable, "-m", "coord_sim.cli.main", "serve", "--processes", "1"),
        *("--mtls-cert-file", files.cert, "--mtls-key-file", files.key, "--mtls-ca-file", files.ca),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            address = service.stdout.readline().split()[1].removeprefix("address=")
            assert main(["doctor", "--attach", address]) == 1
        finally:
            service.terminate()
    out = capsys.readouterr().out
    assert f"port {address.rpartition(':')[2]} speaks TLS" in out
    assert "jax_mtls_cert_file" in out


# --- the environment and the installation ----------------------------------------------------------


def test_a_proxy_on_the_way_is_an_error_unless_the_host_is_exempt() -> None:
    address = Address("train-0.jobs:8476", "train-0.jobs", 8476)
    proxy = {"https_proxy": "http://proxy:3128"}
    assert told(check_proxies(proxy, address))["proxies"] is Level.ERROR
    exempt = {**proxy, "no_proxy": "localhost, .jobs"}
    assert told(check_proxies(exempt, address))["proxies"] is Level.GOOD
    assert not list(check_proxies({}, address))


def test_the_time_outs_are_those_of_the_installed_jax() -> None:
    import inspect

    import jax

    parameters = inspect.signature(jax.distributed.initialize).parameters
    (finding,) = check_timeouts(Installation.found())
    for name, parameter in parameters.items():
        if "timeout" in name:
            assert f"{name}={parameter.default}" in finding.sentence


def test_settings_that_nothing_reads_are_named_and_others_are_not() -> None:
    environment = {
        "JAX_RPC_TIMEOUT_MS": "1",
        "JAX_COORDINATION_SERVICE_HEARTBEAT_TIMEOUT_SECONDS": "900",
        "JAX_COORDINATOR_ADDRESS": "a:1",
        "JAX_ENABLE_X64": "1",
        "JAX_LOGGING_LEVEL": "INFO",
        "GRPC_VERBOSITY": "debug",
        "TF_CPP_MIN_LOG_LEVEL": "0",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
        "PATH": "/bin",
    }
    findings = list(check_settings(Installation.found(), environment))
    assert [finding.sentence.partition(" ")[0] for finding in findings] == [
        "JAX_COORDINATION_SERVICE_HEARTBEAT_TIMEOUT_SECONDS",
        "JAX_RPC_TIMEOUT_MS",
    ]


DEVICES = "--xla_force_host_platform_device_count"

FLAGS = [
    (f"{DEVICES}=2", []),
    (f'\n {DEVICES}=\'2\'\t--xla_dump_to="/tmp/\\" b"', []),
    ("--xla_cpu_enable_fast_math", []),
    ("file of good flags", []),
    (f"{DEVICES}=2 --xla_no_such_flag=1", [("error", "has --xla_no_such_flag=1")]),
    ("--xla_force", [("error", "has --xla_force")]),
    (f"-{DEVICES}=2", [("error", f"has -{DEVICES}=2")]),
    (f"{DEVICES}=many", [("error", f"has {DEVICES}=many")]),
    (f"{DEVICES} 4", [("warning", "has '4'"), ("error", f"has {DEVICES}:")]),
    (f"{DEVICES}=2 xla_x=4", [("warning", "has 'xla_x=4'")]),
    ("--help", [("error", "does not take XLA_FLAGS")]),
    ("xla_x=4", [("error", "'xla_x=4' cannot be read (No such file")]),
    ("no such file", [("error", "'no such file' cannot be read (No such file")]),
    (" ", [("error", "' ' cannot be read (No such file")]),
    (
        "file of bad flags",
        [("error", "the file 'file of bad flags', which XLA_FLAGS names, has --x")],
    ),
    (
        "file without dashes",
        [("warning", "the file 'file without dashes', which XLA_FLAGS names,")],
    ),
    ("folder", [("warning", "'folder' is no regular file")]),
]
"""Values of XLA_FLAGS, and what is said of each."""


@pytest.fixture
def files_of_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file of good flags").write_text(f"{DEVICES}=2\n--xla_cpu_enable_fast_math=true\n")
    (tmp_path / "file of bad flags").write_text("--xla_nope=1\n")
    (tmp_path / "file without dashes").write_text("xla_nope=1\n")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("value", "expected"), FLAGS, ids=[value for value, _ in FLAGS])
@pytest.mark.usefixtures("files_of_flags")
def test_flags_that_end_a_program_or_are_ignored_are_named(
    value: str, expected: list[tuple[str, str]]
) -> None:
    findings = list(check_flags({"XLA_FLAGS": value, "TF_CPP_MIN_LOG_LEVEL": "3"}))
    assert [finding.level.name.lower() for finding in findings] == [level for level, _ in expected]
    for finding, (_, words) in zip(findings, expected, strict=True):
        assert words in finding.sentence
        assert finding.remedy


@pytest.mark.jax
@pytest.mark.parametrize(("value", "expected"), FLAGS, ids=[value for value, _ in FLAGS])
@pytest.mark.usefixtures("files_of_flags")
def test_flags_that_are_called_errors_are_those_that_end_a_program_of_jax(
    value: str, expected: list[tuple[str, str]]
) -> None:
    command = [sys.executable, "-c", "import jax; jax.devices()"]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": value}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    is_fatal = any(level == "error" for level, _ in expected)
    assert (done.returncode != 0) is is_fatal, done.stderr.decode()


def test_the_command_finds_flags_that_end_a_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", "xla_x=4")
    assert main(["doctor", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [f["check"] for f in findings if f["level"] == "error"] == ["flags"]


def test_without_flags_nothing_is_asked() -> None:
    assert not list(check_flags({}))
    assert not list(check_flags({"XLA_FLAGS": ""}))


def test_the_installed_versions_are_supported() -> None:
    assert told(check_versions()) == {"versions": Level.GOOD}


def test_the_cluster_that_jax_would_detect_is_the_one_that_it_detects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from jax._src.clusters import ClusterEnv

    names = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")
    for environment, name in (
        (dict.fromkeys(names, "1"), "Slurm"),
        ({"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:1"}, "Open MPI"),
    ):
        with monkeypatch.context() as patch:
            for variable, value in environment.items():
                patch.setenv(variable, value)
            present = [
                kind.__name__
                for kind in ClusterEnv._cluster_types
                if not kind.opt_in_only_method and kind.is_env_present()
            ]
        assert present == [{"Slurm": "SlurmCluster", "Open MPI": "OmpiCluster"}[name]]
        (finding,) = check_detection(environment, all_told=False)
        assert name in finding.sentence


def test_the_missing_time_out_of_nccl_is_told_on_gpus_only() -> None:
    assert list(check_accelerator_flags({"JAX_PLATFORMS": "cuda"}))
    flags = "--xla_gpu_nccl_termination_timeout_seconds=600"
    assert not list(check_accelerator_flags({"JAX_PLATFORMS": "cuda", "XLA_FLAGS": flags}))


# --- programs --------------------------------------------------------------------------------------

LOADER = "from torch.utils.data import DataLoader as D\n"
BEGINNING = "import jax\nfrom jax.experimental.multihost_utils import live_devices\n"


@pytest.mark.parametrize(
    ("program", "words", "level"),
    [
        ("jax.devices()\njax.distributed.initialize()\n", "before initialize()", Level.ERROR),
        (
            "import jax.numpy as jnp\nx = jnp.ones(3)\njax.distributed.initialize()\n",
            "jax.numpy.ones() before initialize()",
            Level.ERROR,
        ),
        ("jax.distributed.initialize()\n", "without jax.distributed.shutdown()", Level.WARNING),
        (
            "jax.distributed.initialize()\njax.distributed.initialize()\n",
            "called in 2 places",
            Level.WARNING,
        ),
        (
            "with live_devices(d):\n  pass\nwith live_devices(d):\n  pass\n",
            "2 live_devices blocks",
            Level.WARNING,
        ),
        (
            "with live_devices(d):\n  with live_devices(d):\n    pass\n",
            "inside another",
            Level.ERROR,
        ),
        (
            "with live_devices(a):\n  pass\nwith live_devices(b):\n  pass\n",
            "different arguments (a, b)",
            Level.ERROR,
        ),
        ("import os\nos.fork()\n", "starts child processes", Level.WARNING),
        (
            LOADER + "jax.distributed.initialize()\nD(x, num_workers=4)\n",
            "runs whenever the file is imported",
            Level.ERROR,
        ),
    ],
)
def test_mistakes_in_a_program_are_found(
    program: str, words: str, level: Level, tmp_path: Path
) -> None:
    path = tmp_path / "train.py"
    path.write_text(BEGINNING + program)
    found = [finding for finding in check_script(str(path)) if words in finding.sentence]
    assert [finding.level for finding in found] == [level]


def test_a_good_program_is_good(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(
        BEGINNING
        + "import jax.numpy as jnp\n"
        + "def main():\n  jax.distributed.initialize()\n  print(jnp.ones(3), jnp.float32)\n"
        + "  with live_devices(jax.devices()):\n    pass\n  jax.distributed.shutdown()\n"
        + "DTYPE = jnp.dtype('float32')\n"
        + "if __name__ == '__main__':\n  main()\n"
    )
    assert list(check_script(str(path))) == []


def test_what_is_no_program_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("import jax\ndef f(:\n")
    with pytest.raises(ScriptError, match=r"train\.py:2: not a Python program"):
        list(check_script(str(path)))


@pytest.mark.parametrize("depth", [1000, 3000, 100_000])
def test_a_program_that_is_nested_too_deeply_is_named(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(f"x = {'-' * depth}1\n")
    with pytest.raises(ScriptError, match=r"train\.py: cannot be looked through: .* too deeply"):
        list(check_script(str(path)))


# --- the command -----------------------------------------------------------------------------------


def test_the_command_finds_a_taken_port(
    listener: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    port = listener.getsockname()[1]
    address = f"127.0.0.1:{port}"
    words = [
        "doctor",
        "--address",
        address,
        "--bind",
        address,
        "--processes",
        "2",
        "--process",
        "0",
    ]
    assert main([*words, "--hosts", "1", "--json"]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert {"port"} == {f["check"] for f in findings if f["level"] == "error"}


@pytest.mark.parametrize("bind", ["127.0.0.1:0", "[::]:0"])
@pytest.mark.parametrize("by", ["option", "environment"])
def test_process_0_whose_own_service_idles_looks_for_the_other_one(
    bind: str,
    by: str,
    listener: socket.socket,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    job = ["--process", "0", "--processes", "2", "--hosts", "1", "--timeout", "0.5", "--json"]
    if by == "environment":
        monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", bind)
    else:
        job += ["--bind", bind]
    with reserved_port() as nobody:
        assert main(["doctor", "--address", f"127.0.0.1:{nobody}", *job]) == 0
    findings = json.loads(capsys.readouterr().out)
    levels = {finding["check"]: finding["level"] for finding in findings}
    assert levels["port"] == "good"
    assert levels["reachable"] == "note", "nobody is there yet"
    silent = f"127.0.0.1:{listener.getsockname()[1]}"
    assert main(["doctor", "--address", silent, *job]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [f["check"] for f in findings if f["level"] == "error"] == ["reachable"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--process", "4", "--processes", "4"], "processes count from 0"),
        (["--attach", "nowhere"], "not HOST:PORT"),
        (["--watch"], "needs a program"),
        (["train.py"], "--watch"),
        (["--watch", "--", "/no/such/program"], "cannot be run"),
        (["--attach", "a:1", "--watch", "--", "true"], "--attach alone"),
        (["--attach", "a:1", "--script", "x.py", "--processes", "2"], "--processes, --script: not"),
        (["--watch", "--json", "--address", "a:1", "--", "true"], "--address, --json: not"),
        (["--give-up"], "--watch"),
        (["--patience", "3", "--address", "localhost:1"], "--patience is for"),
        (["--patience", "3", "--attach", "localhost:1"], "--patience is for"),
    ],
)
def test_bad_usage_is_told_in_one_line(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", *words]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1


def test_scripts_that_cannot_be_read_are_findings_beside_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, fine = tmp_path / "broken.py", tmp_path / "fine.py"
    broken.write_text("def f(:\n")
    fine.write_text("print(1)\n")
    words = [word for name in ("/no/such.py", broken, fine) for word in ("--script", str(name))]
    assert main(["doctor", "--json", *words]) == 1
    findings = json.loads(capsys.readouterr().out)
    assert [f["sentence"].partition(": ")[0] for f in findings if f["check"] == "script"] == [
        "/no/such.py",
        f"{broken}:1",
        str(fine),
    ]
    assert "versions" in {f["check"] for f in findings}
