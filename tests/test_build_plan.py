"""Build plans: from csrc and a toolchain to commands."""

from __future__ import annotations

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
from losscli.cases import ITEM_BYTES
from losscli.errors import UnfitError
from losscli.losses import EVERY_LOSS, ROW_LOSSES
from losscli.losses import LOSSES as REAL_LOSSES
from tests.standin import ALPHA, ALPHA_CUDA, BETA, BINDING, CUDA_RUNTIME, LOSSES, Standin


def outputs(plan: Plan) -> list[str]:
    return [step.output for step in plan.steps]


def flags(plan: Plan, step: int = 0) -> set[str]:
    return set(plan.commands("folder")[step][1])


def test_libraries_of_a_call_are_in_loading_order():
    assert [t.name for t in needed("mse", "cpu")] == ["torch", "mse_cpu"]
    assert [t.name for t in needed("mse", "cuda")] == ["torch", "runtime_cuda", "mse_cuda"]
    names = [t.name for t in needed("mse", "cpu", strategies=True)]
    assert names == ["torch", "mse_strategies_cpu"]


def test_libraries_of_production_and_of_benchmarks():
    assert [t.name for t in production(LOSSES, "cpu")] == ["torch", "alpha_cpu", "beta_cpu"]
    assert [t.library for t in benchmarking(LOSSES, "cuda")] == [
        "liblosscli_bench_cuda.so",
        "liblosscli_alpha_strategies_cuda.so",
        "liblosscli_beta_strategies_cuda.so",
    ]


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (BINDING, ["torch.ops.o"]),
        (ALPHA, ["elementwise.cpu.engine.o"]),
        (CUDA_RUNTIME, ["core.cuda.runtime.o"]),
        (Target(BENCH, "cpu"), ["bench.cpu.probe.o"]),
        (Target(BENCH, "cuda"), ["bench.cuda.probe.o"]),
        (
            ALPHA_CUDA,
            [
                *(f"elementwise.cuda.kernel.{dtype}.o" for dtype in ITEM_BYTES),
                "elementwise.cuda.launch.o",
            ],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Target) else "",
)
def test_library_contains_the_sources_of_its_folder(workshop, target, expected):
    assert outputs(workshop.plan(target)) == [*expected, target.library]


def test_library_of_a_loss_gets_its_name_and_header_as_macros(workshop):
    for target in (ALPHA, ALPHA_CUDA):
        told = {"-DLOSSCLI_LOSS=alpha", '-DLOSSCLI_LOSS_HEADER="losses/elementwise/alpha.h"'}
        assert told <= flags(workshop.plan(target))
        assert "-DLOSSCLI_STRATEGIES" not in flags(workshop.plan(target))
        strategies = Target(STRATEGIES, target.device, "alpha")
        assert told | {"-DLOSSCLI_STRATEGIES"} <= flags(workshop.plan(strategies))
    assert {"-DLOSSCLI_DTYPE=float32", "-fmad=false"} <= flags(workshop.plan(ALPHA_CUDA))


def test_every_library_hides_symbols_that_it_does_not_export(workshop):
    for target in (BINDING, ALPHA, ALPHA_CUDA, CUDA_RUNTIME):
        assert {"-fvisibility=hidden", "-Ifolder/csrc"} <= flags(workshop.plan(target))


def test_only_the_operators_see_pytorch_and_openmp(workshop):
    include = str(workshop.root / "torch" / "include")
    assert {include, "-fopenmp"} <= flags(workshop.plan(BINDING))
    assert {"-lc10", "-ltorch_cpu"} <= flags(workshop.plan(BINDING), -1)
    assert "-fopenmp" not in flags(workshop.plan(BINDING), -1)
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


def test_cpu_identity_is_the_first_core_without_its_clock(tmp_path):
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: Fast CPU\ncpu MHz\t\t: 2300.1\nflags\t\t: fma avx2\n\n"
        "processor\t: 1\nmodel name\t: Fast CPU\n\n"
    )
    assert instruction_set(cpuinfo) == "model name\t: Fast CPU\nflags\t\t: fma avx2"


GOLDEN = """\
ninja_required_version = 1.11

rule compile
  command = $run > $out.log 2>&1; status=$$?; cat $out.log; exit $$status
  description = $what
  deps = gcc

rule link
  command = $run > $out.log 2>&1; status=$$?; cat $out.log; exit $$status
  description = $what

build alpha/elementwise.cuda.launch.o: compile alpha/csrc/elementwise/cuda/launch.cu
  run = '{root}/nvcc' -O3 -std=c++17 -fmad=false -Xcompiler -fPIC -Xcompiler -fvisibility=hidden \
-Xptxas -v -DLOSSCLI_LOSS=alpha '-DLOSSCLI_LOSS_HEADER="losses/elementwise/alpha.h"' -ccbin g++ \
-gencode=arch=compute_90,code=sm_90 -Ialpha/csrc -MMD -MF alpha/elementwise.cuda.launch.o.d \
-c alpha/csrc/elementwise/cuda/launch.cu -o alpha/elementwise.cuda.launch.o
  what = compiling csrc/elementwise/cuda/launch.cu for alpha
  depfile = alpha/elementwise.cuda.launch.o.d

build alpha/liblosscli_alpha_cuda.so: link alpha/elementwise.cuda.launch.o
  run = '{root}/nvcc' -shared -cudart static -o alpha/liblosscli_alpha_cuda.so \
alpha/elementwise.cuda.launch.o -ccbin g++ -gencode=arch=compute_90,code=sm_90 \
-Xlinker --exclude-libs=libstdc++.a
  what = linking liblosscli_alpha_cuda.so
"""


def test_ninja_file_as_a_whole(tmp_path):
    """Golden; the compiler's path has characters that the shell and ninja would take amiss."""
    root = tmp_path / "a b$c"
    root.mkdir()
    workshop = Standin(root)
    (workshop.csrc / "elementwise/cuda/kernel.dtype.cu").unlink()
    escaped = str(root).replace("$", "$$")
    text = render([("alpha", workshop.plan(ALPHA_CUDA))])
    assert text == GOLDEN.replace("{root}", escaped)


def test_the_same_plan_renders_the_same(workshop):
    assert render([("a", workshop.plan())]) == render([("a", workshop.plan())])


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


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_each_loss_that_a_case_may_name_has_kernels_to_compile(device):
    for name in EVERY_LOSS:
        for targets in (needed(name, device), production([name], device)):
            assert (csrc_root() / targets[-1].loss_header).is_file(), name
