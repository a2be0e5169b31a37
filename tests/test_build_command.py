"""``losscli build``, with stand-in compilers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from standin import Standin

from losscli.cli.build import command
from losscli.errors import UnfitError, UsageError
from losscli.extension import build as build_module
from losscli.extension.plan import TorchInstall


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    """A machine with both compilers and a PyTorch with CUDA."""
    workshop = Standin(tmp_path)
    monkeypatch.setenv("CXX", str(tmp_path / "g++"))
    monkeypatch.setenv("CUDACXX", str(tmp_path / "nvcc"))
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(workshop.cache.root))
    monkeypatch.setattr(build_module, "csrc_root", lambda: workshop.csrc)
    torch = TorchInstall("2.13.0", tmp_path, "13.0", True)
    monkeypatch.setattr(build_module, "installed_torch", lambda: torch)
    monkeypatch.setattr(build_module, "present_capabilities", list)
    return workshop


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def rows(result: Result) -> list[list[str]]:
    """Return the words of the first table's rows."""
    lines = result.stdout.splitlines()
    return [line.split() for line in lines[2 : lines.index("") if "" in lines else None]]


def test_the_table_has_a_row_a_target(workshop: Standin) -> None:
    result = run()
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].split() == ["target", "status", "seconds", "path"]
    cpu, cuda = rows(result)
    assert cpu[:2] == ["cpu", "built"]
    assert float(cpu[2]) >= 0
    assert Path(cpu[3]).name == "liblosscli.so"
    assert Path(cpu[3]).is_file()
    assert Path(cuda[3]).name == "liblosscli_cuda.so"


def test_what_goes_on_is_told_on_stderr_without_control_codes(workshop: Standin) -> None:
    assert run("--device", "cpu").stderr == "losscli: building the CPU kernels for this machine\n"


def test_a_second_time_everything_is_cached(workshop: Standin) -> None:
    run()
    result = run()
    assert [row[:2] for row in rows(result)] == [["cpu", "cached"], ["cuda", "cached"]]
    assert result.stderr == ""


def test_force_builds_again(workshop: Standin) -> None:
    run("--device", "cpu")
    assert rows(run("--device", "cpu", "--force"))[0][1] == "built"


def test_why_a_target_is_skipped_stands_under_the_table(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDACXX", "nowhere")
    result = run()
    assert ["cuda", "skipped"] in [line.split() for line in result.stdout.splitlines()]
    assert result.stdout.splitlines()[-1].startswith("cuda skipped: CUDACXX should name nvcc")


def test_verbose_shows_commands_and_kernels_of_a_cached_build_too(workshop: Standin) -> None:
    run()
    result = run("--verbose")
    assert f"$ {workshop.root}/g++ -std=c++17" in result.stderr
    assert "ptxas info" not in result.stderr
    kernels = [line.split() for line in result.stdout.splitlines() if "sm_90" in line]
    assert kernels[0][:5] == ["cuda.engine.o", "sm_90", "8", "0", "B"]
    assert result.stdout.splitlines()[-1] == "9 kernels, 0 of them spill registers"


def test_an_unknown_device_lists_what_there_is(workshop: Standin) -> None:
    with pytest.raises(UsageError, match=r"unknown device 'gpu'.*auto, cpu, cuda"):
        run("--device", "gpu")


def test_no_compiler_is_an_unfit_environment(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "nowhere")
    with pytest.raises(UnfitError) as caught:
        run()
    assert caught.value.exit_code == 4


def test_a_cache_that_cannot_be_written_names_the_variable(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(workshop.csrc / "losses.h" / "cache"))
    with pytest.raises(UnfitError, match="LOSSCLI_CACHE_DIR"):
        run()


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_architectures_that_are_none_are_a_slip_on_any_device(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setenv("LOSSCLI_CUDA_ARCHITECTURES", "hopper")
    with pytest.raises(UsageError, match="LOSSCLI_CUDA_ARCHITECTURES should list"):
        run("--device", device)


def test_a_bad_max_jobs_is_told_before_anything_is_said_to_be_built(
    workshop: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAX_JOBS", "0")
    with pytest.raises(UsageError, match="MAX_JOBS"):
        workshop.ensure(workshop.cpu_plan())
    assert workshop.notes == []
