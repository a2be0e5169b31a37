import shlex
import shutil
import subprocess

import pytest

from losscli.build.ninja import render
from losscli.build.plan import Plan, csrc_root, instruction_set, make_plan
from losscli.build.targets import (
    BENCH,
    STRATEGIES,
    Target,
    benchmarking,
    needed,
    production,
    read_sources,
)
from losscli.cases.case import ITEM_BYTES
from losscli.errors import UnfitError
from losscli.losses import EVERY_LOSS, ROW_LOSSES
from losscli.losses import LOSSES as REAL_LOSSES
from losscli.machine import kernel_files
from tests.standin import ALPHA, ALPHA_CUDA, BETA, BINDING, CUDA_RUNTIME, LOSSES, Standin


def flags(plan: Plan, step: int = 0) -> set[str]:
    return set(plan.commands("folder")[step][1])


def test_libraries_of_a_call_of_production_and_of_benchmarks():
    for found, names in (
        (needed("mse", "cpu"), ["torch", "mse_cpu"]),
        (needed("mse", "cuda"), ["torch", "runtime_cuda", "mse_cuda"]),
        (needed("mse", "cpu", strategies=True), ["torch", "mse_strategies_cpu"]),
        (production(LOSSES, "cpu"), ["torch", "alpha_cpu", "beta_cpu"]),
        (
            benchmarking(LOSSES, "cuda"),
            ["bench_cuda", "alpha_strategies_cuda", "beta_strategies_cuda"],
        ),
    ):
        assert [target.name for target in found] == names


def test_library_contains_the_sources_of_its_folder(workshop):
    kernels = [f"elementwise.cuda.kernel.{dtype}.o" for dtype in ITEM_BYTES]
    for target, expected in {
        BINDING: ["torch.ops.o"],
        ALPHA: ["elementwise.cpu.engine.o"],
        CUDA_RUNTIME: ["core.cuda.runtime.o"],
        Target(BENCH, "cpu"): ["bench.cpu.probe.o"],
        Target(BENCH, "cuda"): ["bench.cuda.probe.o"],
        ALPHA_CUDA: [*kernels, "elementwise.cuda.launch.o"],
    }.items():
        outputs = [step.output for step in workshop.plan(target).steps]
        assert outputs == [*expected, f"liblosscli_{target.name}.so"]


def test_library_of_a_loss_gets_its_name_and_header_as_macros(workshop):
    for target in (ALPHA, ALPHA_CUDA):
        told = {"-DLOSSCLI_LOSS=alpha", '-DLOSSCLI_LOSS_HEADER="losses/elementwise/alpha.h"'}
        assert told <= flags(workshop.plan(target))
        assert "-DLOSSCLI_STRATEGIES" not in flags(workshop.plan(target))
        strategies = Target(STRATEGIES, target.device, "alpha")
        assert told | {"-DLOSSCLI_STRATEGIES"} <= flags(workshop.plan(strategies))
    assert {"-DLOSSCLI_DTYPE=float32", "-fmad=false"} <= flags(workshop.plan(ALPHA_CUDA))


def test_only_the_operators_see_pytorch_and_openmp(workshop):
    include = str(workshop.root / "torch" / "include")
    assert {include, "-fopenmp"} <= flags(workshop.plan(BINDING))
    assert {"-lc10", "-ltorch_cpu"} <= flags(workshop.plan(BINDING), -1)
    assert "-fopenmp" not in flags(workshop.plan(BINDING), -1)
    for target in (BINDING, ALPHA, ALPHA_CUDA, CUDA_RUNTIME):
        assert {"-fvisibility=hidden", "-Ifolder/csrc"} <= flags(workshop.plan(target))
    for target in (ALPHA, ALPHA_CUDA):
        assert not {include, "-fopenmp"} & flags(workshop.plan(target))
        assert not {"-lc10", "-ltorch_cpu"} & flags(workshop.plan(target), -1)
    assert {"-O3", "-ffp-contract=off"} <= flags(workshop.plan(ALPHA))


def test_library_key_covers_the_files_that_it_may_include(workshop):
    workshop.write("elementwise/cpu/engine.h~", "left by an editor")
    workshop.write("core/cuda/slots.h", "header")
    shared = {"core/operand.h", "losses/elementwise/loss.h", "elementwise/kernels.h"}
    assert set(read_sources(workshop.csrc, BINDING)) == shared | {"bench/probe.h", "torch/ops.cpp"}
    assert set(read_sources(workshop.csrc, BETA)) == shared | {
        "losses/elementwise/beta.h",
        "elementwise/cpu/engine.h",
        "elementwise/cpu/engine.cpp",
        "elementwise/cpu/sums.cpp",
        "reduce/cpu/sums.h",
    }
    assert set(read_sources(workshop.csrc, ALPHA_CUDA)) == shared | {
        "core/cuda/slots.h",
        "losses/elementwise/alpha.h",
        "elementwise/cuda/launch.cu",
        "elementwise/cuda/kernel.dtype.cu",
        "reduce/cuda/sums.cuh",
    }


def test_missing_sources_of_a_library_are_an_error(workshop):
    (workshop.csrc / "torch/ops.cpp").unlink()
    with pytest.raises(UnfitError, match=r"sources of torch are missing from .*Reinstall losscli"):
        make_plan(BINDING, workshop.csrc, workshop.torch())


def test_every_loss_has_a_header():
    elementwise, rows = (
        {path.stem for path in (csrc_root() / "losses" / kind).glob("*.h")}
        for kind in ("elementwise", "rows")
    )
    assert elementwise == {"loss", "weighted", *REAL_LOSSES}
    assert rows == {"loss", *(spec.header or spec.name for spec in ROW_LOSSES.values())}


def test_cpu_identity_is_the_first_core_without_its_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(kernel_files, "PROC", tmp_path)
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: Fast CPU\ncpu MHz\t\t: 2300.1\nflags\t\t: fma avx2\n\n"
        "processor\t: 1\nmodel name\t: Fast CPU\n\n"
    )
    assert instruction_set() == "model name\t: Fast CPU\nflags\t\t: fma avx2"


def test_ninja_file_as_a_whole(tmp_path, golden):
    """The compiler's path has characters that the shell and ninja would take amiss."""
    root = tmp_path / "a b$c"
    root.mkdir()
    workshop = Standin(root)
    (workshop.csrc / "elementwise/cuda/kernel.dtype.cu").unlink()
    text = render([("alpha", workshop.plan(ALPHA_CUDA))])
    golden("build.ninja", text.replace(str(root).replace("$", "$$"), "ROOT"))


@pytest.mark.parametrize("target", [ALPHA, ALPHA_CUDA], ids=lambda target: target.name)
def test_a_real_compiler_finds_the_header_of_the_loss(tmp_path, target):
    """Through ninja's quotes and the shell's; the compiler is asked for its preprocessor alone."""
    program = "nvcc" if target.device == "cuda" else "g++"
    if not shutil.which(program):
        pytest.skip(f"there is no {program}")
    workshop = Standin(tmp_path)
    source = "probe.cu" if target.device == "cuda" else "probe.cpp"
    (tmp_path / source).write_text("#include LOSSCLI_LOSS_HEADER\nconst char* LOSSCLI_LOSS;\n")
    defines = [flag for flag in workshop.plan(target).steps[0].flags if flag.startswith("-D")]
    command = shlex.join([program, *defines, f"-I{workshop.csrc}", "-E", source])
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "const char* alpha;" in done.stdout


def test_each_loss_that_a_case_may_name_has_kernels_to_compile():
    for name in EVERY_LOSS:
        for device in ("cpu", "cuda"):
            for targets in (needed(name, device), production([name], device)):
                assert (csrc_root() / targets[-1].loss_header).is_file(), name
