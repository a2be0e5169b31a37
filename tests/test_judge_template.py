"""The file that `losscli new` writes."""

import ast
import itertools
import math
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from losscli.cli import main
from losscli.config.schema import off_default
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.implementations.files import read_file
from losscli.judge.job import Job
from losscli.judge.row_formulas import ROW_FORMULAS
from losscli.judge.template import FORMULAS, part, render
from losscli.losses import LOSSES, ROW_FORMS, ROW_LOSSES
from losscli.machine.commands import command_in
from tests.judging import judge_one
from tests.parameters import few, naming
from tests.without_torch import run_without_torch


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_file_is_python_without_a_placeholder():
    assert FORMULAS.keys() <= LOSSES.keys()
    assert ROW_FORMULAS.keys() <= ROW_LOSSES.keys()
    for loss, cuda in itertools.product([*FORMULAS, *ROW_FORMULAS], (True, False)):
        source = render("mine", loss, cuda=cuda)
        with naming(loss, cuda):
            ast.parse(source)
            assert re.findall("@[A-Z_]+@", source) == []
            assert max(map(len, source.splitlines())) <= 100
            assert ("__global__" in source) is cuda


def test_file_defines_the_loss_with_its_operands_and_parameters():
    for loss in (*FORMULAS, *ROW_FORMULAS):
        with naming(loss):
            assert main.run(["new", loss, "--loss", loss]) == EXIT_OK
            spec = LOSSES[loss] if loss in FORMULAS else ROW_FORMS[loss]
            definition = read_file(f"{loss}.py").definition(loss)
            assert definition.name == spec.function_name
            assert definition.signature.order(spec.names) == spec.names
            names = {"reduction"} if len(spec.reductions) > 1 else set()
            if loss in FORMULAS:
                assert definition.signature.order() == ("input", "target")
                names |= {parameter.name for parameter in spec.parameters}
            assert all(definition.takes(name) for name in names)


def test_command_says_how_to_judge_and_overwrites_nothing(capsys, refused, tmp_path):
    assert main.run(["new", "mine"]) == EXIT_OK
    told = "wrote mine.py; judge it with `losscli judge mine.py --loss smooth_l1`\n"
    assert capsys.readouterr().out == told
    (tmp_path / "kernels").mkdir()
    assert main.run(["new", "kernels/mine.py", "--cpu"]) == EXIT_OK
    assert (tmp_path / "kernels" / "mine.py").exists()

    capsys.readouterr()
    (tmp_path / "mine.py").write_text("precious")
    for arguments, message in {
        "mine": "'mine.py' exists. Choose another name, or remove it.",
        "my-kernel": "'my-kernel' cannot name a file of Python.",
        "no/where": "there is no directory 'no'.",
        "mine --loss mes": "unknown loss 'mes'. Did you mean 'mse'?",
        "": "Missing argument 'NAME'.",
    }.items():
        refused(f"new {arguments}", message)
    assert (tmp_path / "mine.py").read_text() == "precious"


def test_bad_usage_needs_no_torch(monkeypatch):
    monkeypatch.chdir(main.__file__.rpartition("/losscli/")[0])
    assert run_without_torch("new", "mine", "--loss", "mes").returncode == EXIT_USAGE


DATA = Path(__file__).parent / "data"


def blocks(source):
    """Return the C++ and CUDA of the file, by name."""
    return dict(re.findall(r'^([A-Z]+) = r"""\n(.*?)"""', source, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("loss", few(FORMULAS, ("smooth_l1",)))
def test_formula_is_that_of_the_loss(loss, tmp_path):
    spec = LOSSES[loss]
    formula = blocks(render("mine", loss, cuda=False))["FORMULA"]
    (tmp_path / "main.cpp").write_text(
        re.sub("#include.*", "", formula) + (DATA / "formula_main.cpp").read_text()
    )
    compiler = [*(command_in("CXX") or ("c++",)), "-std=c++17", "main.cpp", "-o", "main"]
    subprocess.run(compiler, cwd=tmp_path, check=True)
    grid = [-3.0, -1.0, -0.7, -0.5, 0.0, 0.2, 0.5, 0.7, 1.0, 2.5, math.inf, math.nan]
    x, y = torch.cartesian_prod(*[torch.tensor(grid, dtype=torch.float64)] * 2).T
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    for value in {0.7} if not spec.parameters else {0.7, 1.0, max(0.0, spec.parameters[0].minimum)}:
        parameters = {parameter.name: value for parameter in spec.parameters}
        text = "".join(f"{a} {b}\n" for a, b in zip(x.tolist(), y.tolist(), strict=True))
        done = subprocess.run(
            ["./main", str(value)], cwd=tmp_path, input=text, capture_output=True, text=True
        )
        rows = [[float(word) for word in line.split()] for line in done.stdout.splitlines()]
        got = torch.tensor(rows, dtype=torch.float64).T
        losses = spec.reference(x, y, reduction="none", **parameters)
        slopes = torch.autograd.grad(losses.nan_to_num().sum(), (x, y))
        torch.testing.assert_close(got[0], losses.detach(), equal_nan=True)
        for found, expected in zip(got[1:], slopes, strict=True):
            finite = losses.isfinite() & expected.isfinite()
            torch.testing.assert_close(found[finite], expected[finite])


def formulas_of_rows(folder):
    """Return a program that computes every formula of a loss over rows, and its derivatives."""
    parts = [(DATA / "row_formulas.h").read_text()]
    for loss, formula in ROW_FORMULAS.items():
        value = "template <typename Row> double loss_of(const Row& row, const double* p) {\n"
        slopes = (
            "template <typename Row> void slopes_of(const Row& row, const double* p, double g) {"
        )
        parts += [f"namespace {loss} {{", part("rows_functions"), value, formula.value, "}", slopes]
        parts += [f"{formula.slopes}}}", "}"]
    every = "\n".join(f"OF({loss})" for loss in ROW_FORMULAS)
    parts.append((DATA / "row_formulas_main.cpp").read_text().replace("EACH", every))
    (folder / "main.cpp").write_text("\n".join(parts))
    compiler = [*(command_in("CXX") or ("c++",)), "-std=c++17", "main.cpp", "-o", "main"]
    subprocess.run(compiler, cwd=folder, check=True)
    return folder / "main"


def test_formulas_of_rows_and_their_pytorch_forms_are_those_of_the_losses(tmp_path):
    program = formulas_of_rows(tmp_path)
    for loss in ROW_FORMULAS:
        with naming(loss):
            assert_formula_is_that_of_the_loss(loss, program)


def assert_formula_is_that_of_the_loss(loss, program):
    spec, formula = ROW_LOSSES[loss], ROW_FORMULAS[loss]
    parameters = {n: off_default(spec)[n] for n in formula.parameters}
    if loss == "triplet_margin":
        parameters["p"] = 3.0
    generator = torch.Generator().manual_seed(3)
    rows, size = 6, 5
    operands = {
        name: torch.randn(rows, size, generator=generator, dtype=torch.float64).requires_grad_()
        for name in formula.rows
    }
    label = torch.randint(size, (rows,), generator=generator)
    number = torch.tensor([1.0, -1.0, 0.0] * 2, dtype=torch.float64)
    others = {name: t for name, t in ((formula.label, label), (formula.number, number)) if name}
    if "target" in operands and loss != "reverse_kl_divergence":  # which is infinite there
        operands["target"].data[2, 1] = -math.inf
    text = ""
    for i in range(rows):
        values = [v for x in operands.values() for v in x[i].tolist()]
        named = (*parameters.values(), 0.0, 0.0, 0.0)[:3]
        head = (len(operands), size, int(label[i]), float(number[i]), *named)
        text += " ".join(map(repr, (*head, *values))) + "\n"
    text = text.replace("inf", "INF")
    done = subprocess.run([program, loss], input=text, capture_output=True, text=True)
    got = torch.tensor([[float(w) for w in line.split()] for line in done.stdout.splitlines()])
    got = got.double()

    source = render("mine", loss, cuda=False)
    namespace: dict[str, Any] = {"torch": torch}
    exec(source[source.index("def times(") : source.index("def of_rows(")], namespace)
    for due in (
        spec.reference(**operands, **others, reduction="none", **parameters),
        namespace["in_pytorch"]([*operands.values()], label, number, [*parameters.values()]),
    ):
        gradients = torch.autograd.grad(due, [*operands.values()], torch.full_like(due, 1.5))
        torch.testing.assert_close(got[:, 0], due.detach(), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(got[:, 1:], torch.cat(gradients, 1), rtol=1e-6, atol=1e-7)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
@pytest.mark.parametrize("loss", ["hinge", "js_divergence"])
def test_cuda_source_compiles(tmp_path, loss):
    source = blocks(render("mine", loss, cuda=True))
    (tmp_path / "mine.cu").write_text(source["FORMULA"] + source["CUDA"])
    macros = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    macros.parent.mkdir(parents=True)
    macros.touch()  # which a torch without CUDA lacks
    folders = [f"-isystem={path}" for path in (tmp_path, *include_paths())]
    flags = ["-std=c++20", "-arch=sm_80", "--expt-relaxed-constexpr", *folders]
    command = ["nvcc", "-ptx", "mine.cu", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["hinge", "kl_divergence"])
def test_file_as_written_is_right(loss, tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(render("mine", loss, cuda=True))
    job = Job(file="mine.py", loss=loss, device="cpu", quick=True, timed=False)
    found = judge_one(job)
    assert found.word in ("RIGHT", "NO WORSE THAN TORCH"), found.feedback
    assert found.trains
