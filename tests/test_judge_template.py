"""The file that `losscli new` writes."""

import ast
import re

import pytest

from losscli.cli import main
from losscli.errors import EXIT_OK, EXIT_USAGE
from losscli.implementations.files import read_file
from losscli.judge.template import FORMULAS, render
from losscli.losses import LOSSES
from tests.without_torch import run_without_torch


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_loss_has_a_formula():
    assert FORMULAS.keys() == LOSSES.keys()


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
