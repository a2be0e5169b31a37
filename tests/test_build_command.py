import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from losscli.build import builder as build_module
from losscli.build import compilers
from losscli.build.plan import TorchInstall
from losscli.cli import build as build_cli
from losscli.cli.build import command
from losscli.errors import UnfitError, UsageError
from losscli.losses import EVERY_LOSS, operators_for
from tests.standin import Standin


@pytest.fixture
def workshop(tmp_path, monkeypatch):
    """A machine with both compilers, a PyTorch with CUDA and a GPU."""
    workshop = Standin(tmp_path)
    monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    monkeypatch.setenv("CUDACXX", str(tmp_path / "nvcc"))
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(workshop.cache.root))
    monkeypatch.setattr(build_module, "csrc_root", lambda: workshop.csrc)
    monkeypatch.setattr(build_cli, "LOSSES", {"alpha": None})
    monkeypatch.setattr(build_cli, "ROW_LOSSES", {})
    torch = TorchInstall("2.13.0", tmp_path, "13.0", True)
    monkeypatch.setattr(build_module, "installed_torch", lambda: torch)
    monkeypatch.setattr(compilers, "driver_cuda", lambda: (13, 0))
    monkeypatch.setattr("losscli.build.nvcc.present_capabilities", lambda: [(9, 0)])
    return workshop


LIBRARIES = ["torch", "alpha_cpu", "runtime_cuda", "alpha_cuda"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def rows(result: Result) -> list[list[str]]:
    found = [line.split() for line in result.stdout.splitlines()[2:]]
    return [words for words in found if words and words[-1].endswith(".so")]


def statuses(result: Result) -> dict[str, str]:
    return {row[0]: row[1] for row in rows(result)}


def test_table_has_one_row_per_library_and_reasons_below(workshop, monkeypatch, golden):
    told = ""

    def show(*arguments):
        nonlocal told
        result = run(*arguments)
        told += f"{' '.join(('$ losscli build', *arguments))}\n{result.stdout}{result.stderr}\n"
        return result

    with monkeypatch.context() as patch:
        patch.setenv("CUDACXX", "nowhere")
        show()
    paths = [Path(path) for _, _, path in rows(show())]
    assert [path.name for path in paths] == [f"liblosscli_{name}.so" for name in LIBRARIES]
    assert all(path.is_file() for path in paths)
    assert show().stderr == ""
    assert set(statuses(run("--device", "cpu", "--force")).values()) == {"built"}
    paths[1].write_bytes(paths[1].read_bytes()[:20])
    show("--device", "cpu")
    monkeypatch.setenv("CXX", "nowhere")
    show("--device", "cpu")
    for pattern, text in {
        re.escape(str(workshop.root)): "ROOT",
        "-[0-9a-f]{8,}": "-KEY",
        "-{3,}": "---",
        r"\b[\d.]+ (s|min|of \d+ bytes)\b": "N",
    }.items():
        told = re.sub(pattern, text, told)
    golden("build.txt", told)


def test_option_all_also_builds_libraries_for_benchmarks(workshop):
    assert set(statuses(run("--device", "cpu", "--all"))) == {
        *("torch", "alpha_cpu", "bench_cpu", "alpha_strategies_cpu")
    }


def test_verbose_shows_commands_and_kernels_of_a_cached_build_too(workshop):
    run()
    result = run("--verbose")
    assert f"$ {workshop.root}/g++ -std=c++17" in result.stderr
    assert "ptxas info" not in result.stderr
    kernels = [line.split() for line in result.stdout.splitlines() if "sm_90" in line]
    assert kernels[0][:5] == ["core.cuda.runtime.o", "sm_90", "8", "0", "B"]
    assert "\n6 kernels, 0 of them spill registers\n" in result.stdout


@pytest.mark.parametrize(
    ("variables", "device", "error", "message"),
    [
        ({}, "gpu", UsageError, r"unknown device 'gpu'.*auto, cpu, cuda"),
        ({"CXX": "nowhere"}, "auto", UnfitError, "CXX should name"),
        ({"LOSSCLI_CACHE_DIR": __file__ + "/cache"}, "auto", UnfitError, "LOSSCLI_CACHE_DIR"),
        ({"LOSSCLI_CUDA_ARCHITECTURES": "hopper"}, "auto", UsageError, "ARCHITECTURES should list"),
        ({"LOSSCLI_CUDA_ARCHITECTURES": "hopper"}, "cuda", UsageError, "ARCHITECTURES should list"),
        ({"MAX_JOBS": "0"}, "cpu", UsageError, "MAX_JOBS"),
    ],
)
def test_bad_device_or_variable_is_refused_before_the_build(
    workshop, monkeypatch, variables, device, error, message
):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(error, match=message):
        run("--device", device)
    assert workshop.compiled() == []


@pytest.fixture
def asked(monkeypatch):
    """Return the names of the libraries that options ask for, by device."""

    def names(*options):
        found: dict[str, list[str]] = {}

        def build(device, targets_of, **_):
            found.update({each: [t.name for t in targets_of(each)] for each in ("cpu", "cuda")})
            return []

        monkeypatch.setattr(build_module, "build", build)
        run(*options)
        return found

    return names


def test_option_loss_leaves_out_the_other_losses(asked):
    found = asked("--loss", "mse", "--loss", "weighted_hinge,cross_entropy")
    assert found["cpu"] == ["torch", "mse_cpu", "weighted_hinge_cpu", "cross_entropy_cpu"]
    assert found["cuda"][:3] == ["torch", "runtime_cuda", "mse_cuda"]


def test_option_for_bench_adds_the_probe_to_the_losses_of_the_default_config(asked):
    assert asked("--for", "bench")["cpu"] == [
        *("torch", "hinge_cpu", "mse_cpu", "smooth_l1_cpu", "bench_cpu")
    ]
    assert asked("--for", "bench", "--loss", "huber")["cpu"] == ["torch", "huber_cpu", "bench_cpu"]


def test_option_for_verify_builds_all_losses_and_strategies_of_its_config(asked):
    found = asked("--for", "verify")["cpu"]
    every = {f"{name}_cpu" for loss in EVERY_LOSS for name in operators_for(loss)}
    assert every <= set(found)
    assert set(found) - every == {"torch", "smooth_l1_strategies_cpu"}
    only = asked("--for", "verify", "--loss", "mse")["cpu"]
    assert set(only) == {"torch", "mse_cpu", "mse_strategies_cpu"}


def test_wrong_options_are_refused():
    with pytest.raises(UsageError, match="Leave out one"):
        run("--for", "bench", "--all")
    with pytest.raises(UsageError, match=r"unknown loss 'huberr'.*huber"):
        run("--loss", "huberr")


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_cuda_sources_compile_in_all_dtypes_also_without_a_gpu(tmp_path):
    environ = {"LOSSCLI_CACHE_DIR": str(tmp_path), "LOSSCLI_CUDA_ARCHITECTURES": "90"}
    command = [sys.executable, "-m", "losscli", "build", "--device", "cuda", "--loss", "mse,nll"]
    built = subprocess.run(command, env=os.environ | environ, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert {"mse_cuda", "nll_cuda", "runtime_cuda"} <= {*built.stdout.split()}
