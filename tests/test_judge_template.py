import ast
import itertools
import re
import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest
from torch.utils.cpp_extension import include_paths

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.implementations.source import Source
from losscli.judge import against_loss
from losscli.judge.job import Job
from losscli.judge.judging import judge_job
from losscli.judge.template import STARTS, Template, render
from losscli.losses import LOSSES
from tests.parameters import SLOW, naming
from tests.without_torch import run_without_torch


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_file_is_python_that_defines_the_loss():
    for loss, template, cuda in itertools.product(STARTS, get_args(Template), (True, False)):
        source = render("mine", loss, template, cuda=cuda)
        with naming(loss, template, cuda):
            ast.parse(source)
            assert re.findall("@[A-Z_]+@", source) == []
            assert max(map(len, source.splitlines())) <= 100
            assert ("__global__" in source) is (cuda and template == "cpp")
            spec = LOSSES[loss]
            definition = Source("", Path("mine.py"), "", "", source.encode()).definition(loss)
            assert definition.name == spec.function_name
            assert definition.signature.order(spec.names) == spec.names
            names = ("reduction", *(parameter.name for parameter in spec.parameters))
            assert all(map(definition.takes, names))


def test_command_says_how_to_judge_and_overwrites_nothing(capsys, tmp_path):
    (tmp_path / "kernels").mkdir()
    for arguments, part in {
        "mine": "torch.where",
        "kernels/mine.py --template triton": "@triton.jit",
        "kernels/both --cuda --loss hinge": "__global__",
        "host --cpu": "load_inline",
    }.items():
        assert main.run(["new", *arguments.split()]) == EXIT_OK
        path = capsys.readouterr().out.split()[1].rstrip(";")
        assert part in (tmp_path / path).read_text(), arguments
        assert main.run(["new", *arguments.split()]) == EXIT_USAGE
        told = f"losscli: error: '{path}' exists. Choose another name, or remove it.\n"
        assert capsys.readouterr().err == told
    assert main.run(["new", "other", "--loss", "mse"]) == EXIT_OK
    told = "wrote other.py; judge it with `losscli judge other.py --loss mse`\n"
    assert capsys.readouterr().out == told


def test_bad_usage_needs_no_torch(monkeypatch):
    monkeypatch.chdir(main.__file__.rpartition("/losscli/")[0])
    assert run_without_torch("new", "mine", "--loss", "mes").returncode == EXIT_USAGE


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="there is no nvcc")
def test_cuda_source_compiles(tmp_path):
    written = render("mine", "hinge", "cpp", cuda=True)
    source = dict(re.findall(r'^([A-Z]+) = r"""\n(.*?)"""', written, re.DOTALL | re.MULTILINE))
    (tmp_path / "mine.cu").write_text(source["FORMULA"] + source["CUDA"])
    macros = tmp_path / "c10" / "cuda" / "impl" / "cuda_cmake_macros.h"
    macros.parent.mkdir(parents=True)
    macros.touch()  # which a torch without CUDA lacks
    folders = [f"-isystem={path}" for path in (tmp_path, *include_paths())]
    flags = ["-std=c++20", "-arch=sm_80", "--expt-relaxed-constexpr", *folders]
    command = ["nvcc", "-ptx", "mine.cu", *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("loss", "template"),
    [
        ("mse", "torch"),
        *(pytest.param(loss, "torch", marks=SLOW) for loss in STARTS[1:]),
        *(pytest.param(loss, "cpp", marks=SLOW) for loss in STARTS),
        *(pytest.param(loss, "triton", marks=pytest.mark.gpu) for loss in STARTS[:3]),
    ],
)
def test_file_as_written_is_right(loss, template, tmp_path, monkeypatch):
    if (loss, template) == ("mse", "torch"):
        monkeypatch.setattr(against_loss, "QUICK_CHECKS", ("value", "gradients", "layouts"))
    if template == "cpp":
        monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "mine.py").write_text(render("mine", loss, template, cuda=True))
    device = "cuda" if template == "triton" else "cpu"
    found = judge_job(Job("mine.py", loss=loss, device=device, quick=True, timed=False))
    assert found.word in ("RIGHT", "RIGHT WITHIN LIMITS"), found.reasons
    assert found.trains
