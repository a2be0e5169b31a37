"""The file that `losscli new` writes."""

import ast
import math
import re
import shutil
import subprocess

import pytest
import torch
from torch.utils.cpp_extension import include_paths

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.implementations.files import read_file
from losscli.judge.job import Job
from losscli.judge.pool import judge_one
from losscli.judge.template import FORMULAS, render
from losscli.losses import LOSSES
from losscli.machine.commands import command_in
from tests.without_torch import run_without_torch


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_each_formula_is_of_a_loss():
    assert FORMULAS.keys() <= LOSSES.keys()


@pytest.mark.parametrize("cuda", [True, False], ids=["cuda", "cpu"])
@pytest.mark.parametrize("loss", FORMULAS)
def test_file_is_python_without_a_placeholder(loss, cuda):
    source = render("mine", loss, cuda=cuda)
    ast.parse(source)
    assert re.findall("@[A-Z_]+@", source) == []
    assert max(map(len, source.splitlines())) <= 100
    assert ("__global__" in source) is cuda


@pytest.mark.parametrize("loss", FORMULAS)
def test_file_defines_the_loss_with_its_parameters(loss, tmp_path):
    assert main.run(["new", "mine", "--loss", loss]) == EXIT_OK
    definition = read_file("mine.py").definition(loss)
    assert definition.name == f"{loss}_loss"
    assert definition.signature.order() == ("input", "target")
    names = {"reduction", *(parameter.name for parameter in LOSSES[loss].parameters)}
    assert all(definition.signature.takes(name) for name in names)


def test_command_says_how_to_judge(capsys):
    assert main.run(["new", "mine"]) == EXIT_OK
    told = "wrote mine.py; judge it with `losscli judge mine.py --loss smooth_l1`\n"
    assert capsys.readouterr().out == told


def test_name_may_have_a_folder_and_an_ending(tmp_path):
    (tmp_path / "kernels").mkdir()
    assert main.run(["new", "kernels/mine.py", "--cpu"]) == EXIT_OK
    assert (tmp_path / "kernels" / "mine.py").exists()


def test_file_is_not_overwritten(capsys, tmp_path):
    (tmp_path / "mine.py").write_text("precious")
    assert main.run(["new", "mine"]) == EXIT_USAGE
    assert capsys.readouterr().err == (
        "losscli: error: 'mine.py' exists. Choose another name, or remove it.\n"
    )
    assert (tmp_path / "mine.py").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["my-kernel"], "'my-kernel' cannot name a file of Python."),
        (["no/where"], "there is no directory 'no'."),
        (["mine", "--loss", "mes"], "unknown loss 'mes'. Did you mean 'mse'?"),
        ([], "Missing argument 'NAME'."),
    ],
)
def test_bad_usage_is_one_message_and_needs_no_torch(arguments, message, monkeypatch):
    monkeypatch.chdir(main.__file__.rpartition("/losscli/")[0])
    result = run_without_torch("new", *arguments)
    assert result.returncode == EXIT_USAGE
    assert result.stderr.startswith(f"losscli: error: {message}")


MAIN = """
#include <cstdio>
#include <cstdlib>
int main(int, char** given) {
  const double p = std::atof(given[1]);
  double x, y;
  while (std::scanf("%lf %lf", &x, &y) == 2)
    std::printf("%.17g %.17g %.17g\\n", value_of<double>(x, y, p),
                slope_of<double>(x, y, p, false), slope_of<double>(x, y, p, true));
}
"""


def blocks(source):
    """Return the C++ and CUDA of the file, by name."""
    return dict(re.findall(r'^([A-Z]+) = r"""\n(.*?)"""', source, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("loss", FORMULAS)
def test_formula_is_that_of_the_loss(loss, tmp_path):
    spec = LOSSES[loss]
    formula = blocks(render("mine", loss, cuda=False))["FORMULA"]
    (tmp_path / "main.cpp").write_text(re.sub("#include.*", "", formula) + MAIN)
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


@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_cuda_source_compiles(tmp_path):
    source = blocks(render("mine", "hinge", cuda=True))
    (tmp_path / "mine.cu").write_text(source["FORMULA"] + source["CUDA"])
    macros = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    macros.parent.mkdir(parents=True)
    macros.touch()  # which a torch without CUDA lacks
    folders = [f"-isystem={path}" for path in (tmp_path, *include_paths())]
    flags = ["-std=c++20", "-arch=sm_80", "--expt-relaxed-constexpr", *folders]
    done = subprocess.run(
        ["nvcc", "-ptx", "mine.cu", *flags],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_file_as_written_is_right(tmp_path, monkeypatch):
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(render("mine", "hinge", cuda=True))
    job = Job(file="mine.py", loss="hinge", device="cpu", quick=True, timed=False)
    found = judge_one(job)
    assert found.word in ("RIGHT", "NO WORSE THAN TORCH"), found.feedback
    assert found.trains
