"""From csrc and a toolchain to commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from standin import Standin

from losscli.cases import ITEM_BYTES
from losscli.extension.ninja_file import render
from losscli.extension.plan import (
    Plan,
    TorchInstall,
    cpu_plan,
    csrc_root,
    instruction_set,
    loss_names,
    read_sources,
)
from losscli.extension.toolchain import Tool
from losscli.losses import LOSSES


@pytest.fixture
def workshop(tmp_path: Path) -> Standin:
    return Standin(tmp_path)


def outputs(plan: Plan) -> list[str]:
    return [edge.output for edge in plan.edges]


def test_the_binding_is_compiled_first_and_each_loss_by_itself(workshop: Standin) -> None:
    assert outputs(workshop.cpu_plan()) == [
        "binding.ops.o",
        "cpu.instantiate.alpha.o",
        "cpu.instantiate.beta.o",
        "liblosscli.so",
    ]


def test_cuda_kernels_are_compiled_for_each_loss_and_dtype(workshop: Standin) -> None:
    objects = [
        f"cuda.instantiate.{loss}.{dtype}.o" for loss in ("alpha", "beta") for dtype in ITEM_BYTES
    ]
    plan = workshop.cuda_plan()
    assert outputs(plan) == ["cuda.engine.o", *objects, "liblosscli_cuda.so"]
    command = plan.edges[1].command
    assert {"-DLOSSCLI_LOSS=alpha", "-DLOSSCLI_DTYPE=float32", "-fmad=false"} <= set(command)


def test_only_the_binding_sees_pytorch_and_openmp(workshop: Standin) -> None:
    binding, *kernels, link = workshop.cpu_plan().edges
    include = str(workshop.root / "torch" / "include")
    assert {include, "-fopenmp"} <= set(binding.command)
    for kernel in kernels:
        assert not {include, "-fopenmp"} & set(kernel.command)
        assert {"-O3", "-ffp-contract=off"} <= set(kernel.command)
    assert "-fopenmp" not in link.command
    assert {"-lc10", "-ltorch_cpu"} <= set(link.command)


def test_a_target_reads_its_own_folders_and_what_is_shared(workshop: Standin) -> None:
    workshop.write("cpu/engine.h~", "left by an editor")
    shared = {"losses.h"}
    cpu = {"binding/ops.cpp", "cpu/engine.h", "cpu/instantiate.cpp"}
    assert set(read_sources(workshop.csrc, "cpu")) == shared | cpu
    cuda = {"cuda/engine.cu", "cuda/instantiate.cu"}
    assert set(read_sources(workshop.csrc, "cuda")) == shared | cuda


def test_a_loss_in_a_comment_is_none() -> None:
    text = b"// lines X(name)\n#define FOR_EACH(X) \\\n  X(one)  \\\n  X(two)\n"
    assert loss_names({"losses.h": text}) == ["one", "two"]


def test_the_lists_of_losses_of_cpp_and_python_are_equal() -> None:
    assert loss_names(read_sources(csrc_root(), "cpu")) == list(LOSSES)


def test_the_cpu_is_told_by_its_first_core_and_without_its_clock(tmp_path: Path) -> None:
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

build cuda.engine.o: compile csrc/cuda/engine.cu
  run = '{root}/nvcc' -O3 -std=c++17 -fmad=false -Xcompiler -fPIC -Xptxas -v -ccbin g++ -Icsrc \
-gencode=arch=sm_90 -MMD -MF cuda.engine.o.d -c csrc/cuda/engine.cu -o cuda.engine.o
  what = compiling csrc/cuda/engine.cu
  depfile = cuda.engine.o.d

build liblosscli_cuda.so: link cuda.engine.o
  run = '{root}/nvcc' -shared -cudart static -ccbin g++ -gencode=arch=sm_90 -Xlinker -Bsymbolic \
-Xlinker --exclude-libs=libstdc++.a -o liblosscli_cuda.so cuda.engine.o
  what = linking liblosscli_cuda.so
"""


def test_build_ninja_whole(tmp_path: Path) -> None:
    """Golden; the compiler's path has characters that the shell and ninja would take amiss."""
    root = tmp_path / "a b$c"
    root.mkdir()
    workshop = Standin(root)
    (workshop.csrc / "cuda" / "instantiate.cu").unlink()
    escaped = str(root).replace("$", "$$")
    assert render(workshop.cuda_plan()) == GOLDEN.replace("{root}", escaped)


def test_the_same_plan_renders_the_same(workshop: Standin) -> None:
    assert render(workshop.cpu_plan()) == render(workshop.cpu_plan())


def test_the_real_sources_make_a_plan(tmp_path: Path) -> None:
    torch = TorchInstall("2.13.0", tmp_path, None, True)
    plan = cpu_plan(csrc_root(), Tool(("g++",), "12"), torch)
    assert {f"cpu.instantiate.{loss}.o" for loss in LOSSES} <= set(outputs(plan))
