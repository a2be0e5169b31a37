"""C++ and CUDA files: the Python made of them, and pairs of functions."""

from pathlib import Path

import pytest

from losscli.implementations import extension
from losscli.implementations.definitions import NotJudgeableError, Parsed
from losscli.judge import against_loss
from losscli.judge.job import Job
from losscli.judge.judging import judge_job
from tests.conftest import DATA
from tests.parameters import SLOW

PAIR = (DATA / "extensions" / "mse.cpp").read_text()
MSE = PAIR.partition("\nPYBIND11_MODULE")[0]


def arguments(text, name):
    return Parsed.read(extension.program(text, Path("k.cpp")), "k.cpp").definitions[name].signature


def test_exported_functions_have_the_arguments_of_their_declaration():
    parsed = Parsed.read(extension.program(PAIR, Path("k.cpp")), "k.cpp")
    forward = parsed.definitions["mse_forward"]
    assert [*parsed.definitions] == ["mse_forward", "mse_backward"]
    assert forward.signature.names == ("input", "target")
    assert forward.backward.signature.names == ("grad_output", "input", "target")
    assert extension.INCLUDED.findall(MSE) == ["neighbour.cuh"]


def test_arguments_of_pybind_and_of_a_schema_have_names_and_defaults():
    bound = 'm.def("loss", &f, py::arg("input"), pybind11::arg("target"), py::arg("beta") = 0.5f);'
    signature = arguments(f"PYBIND11_MODULE(e, m) {{ {bound} }}", "loss")
    assert (signature.names, signature.required) == (("input", "target", "beta"), 2)
    schema = 'm.def("loss(Tensor input, Tensor target, *, float beta=1.0) -> Tensor");'
    text = f"TORCH_LIBRARY(mine, m) {{ {schema} }}"
    signature = arguments(text, "loss")
    assert (signature.names, signature.required) == (("input", "target", "beta"), 2)
    assert "torch.ops.mine.loss(input, target, beta)" in extension.program(text, Path("k.cu"))


def test_arguments_that_the_file_does_not_show_are_any():
    assert arguments('PYBIND11_MODULE(e, m) { m.def("loss", &elsewhere); }', "loss").anything


def test_a_file_that_exports_nothing_is_told_which_functions_it_has():
    with pytest.raises(NotJudgeableError, match=r"exports no function.*mse_forward, mse_backward"):
        extension.program(MSE, Path("k.cu"))


PAIRS = {
    "what the forward function kept": """
def smooth_l1_forward(input, target, beta=1.0):
    d = input - target
    loss = torch.where(d.abs() < beta, 0.5 * d * d / beta, d.abs() - 0.5 * beta)
    return loss.mean(), d

def smooth_l1_backward(grad_output, d, beta):
    gradient = torch.where(d.abs() < beta, d / beta, d.sign()) / d.numel() * grad_output
    return gradient, -gradient
""",
    "operands alone, for a gradient of 1": """
def smooth_l1_fwd(prediction, target):
    return torch.nn.functional.smooth_l1_loss(prediction, target)

def smooth_l1_bwd(prediction, target):
    d = prediction - target
    gradient = torch.where(d.abs() < 1, d, d.sign()) / d.numel()
    return gradient, -gradient
""",
    "an autograd function": """
class SmoothL1(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, target, beta=1.0):
        ctx.save_for_backward(input, target)
        ctx.beta = beta
        return torch.nn.functional.smooth_l1_loss(input, target, beta=beta)

    @staticmethod
    def backward(ctx, grad_output):
        input, target = ctx.saved_tensors
        d = input - target
        gradient = torch.where(d.abs() < ctx.beta, d / ctx.beta, d.sign())
        gradient = gradient / d.numel() * grad_output
        return gradient, -gradient, None
""",
}


def verdict_of(path, loss):
    return judge_job(Job(str(path), loss=loss, device="cpu", quick=True, timed=False))


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=SLOW)], ids=["few", "every"])
@pytest.mark.parametrize("what", PAIRS)
def test_two_functions_or_an_autograd_function_are_one_loss_with_its_gradient(
    what, every, judged, monkeypatch
):
    if not every:
        monkeypatch.setattr(against_loss, "QUICK_CHECKS", ("retain_graph",))
    verdict = judged(f"import torch\n{PAIRS[what]}", loss="smooth_l1")
    assert (verdict.correct, verdict.has_gradient) == (True, True), verdict.reasons


def test_a_backward_that_is_wrong_is_wrong(judged):
    wrong = PAIRS["operands alone, for a gradient of 1"].replace("(d.abs() < 1", "(d.abs() < 2")
    verdict = judged(f"import torch\n{wrong}", loss="smooth_l1")
    assert (verdict.word, verdict.facets["value"]) == ("WRONG", "ok")


LAZY = """
import torch
from torch.utils.cpp_extension import load_inline

CODE = "torch::Tensor f(torch::Tensor x, torch::Tensor y) { return (x - y) * (x - y); }"
known = []

def mse_loss(input, target):
    if not known:
        known.append(load_inline("squares", CODE, functions=["f"]))
    return known[0].f(input, target).mean()
"""


@pytest.mark.slow
def test_a_file_of_cpp_is_compiled_and_judged_and_its_first_error_is_placed(tmp_path):
    (tmp_path / "neighbour.cuh").write_text("#include <vector>\n")
    path = tmp_path / "mse.cpp"
    path.write_text(PAIR)
    verdict = verdict_of(path, "mse")
    assert (verdict.correct, verdict.has_gradient) == (True, True), verdict.reasons
    path.write_text(PAIR.replace("input - target", "input - tragte", 1))
    verdict = verdict_of(path, "mse")
    assert verdict.word == "DOES NOT BUILD"
    assert "mse.cpp:6" in verdict.reasons[0].text


@pytest.mark.slow
def test_compilation_in_the_first_call_counts_as_build_time(tmp_path):
    path = tmp_path / "lazy.py"
    path.write_text(LAZY)
    verdict = verdict_of(path, "mse")
    assert (verdict.word, verdict.correct) == ("RIGHT", True), verdict.reasons
    assert 0 < verdict.seconds["tuning"] < verdict.seconds["build"]
