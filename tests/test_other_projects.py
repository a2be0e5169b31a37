"""Kernels of other projects: what they run, and why not what they do not."""

import sys
from types import ModuleType

import pytest
import torch
from msgspec.structs import replace

from losscli.cases.case import Case
from losscli.implementations import find_implementation, other_projects
from losscli.implementations.subject import subject_of
from losscli.truth.problem import Problem
from tests.handmade import case_of


def make_case(loss: str = "cross_entropy", device: str = "cuda", **params: float) -> Case:
    made: Case = case_of(loss, (9, 11), device=device, distribution="normal", params=params)
    return made


def test_a_peer_runs_its_cases_where_it_is_installed_and_says_why_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{other_projects.__name__}.find_spec", lambda package: None)
    for name, case, said in (
        ("liger", make_case("mse"), "liger has no mse"),
        ("quack", make_case("weighted_cross_entropy"), "quack has no weighted_cross_entropy"),
        ("liger", make_case(temperature=1.3), "liger takes no temperature"),
        ("quack", make_case(label_smoothing=0.1), "quack takes no label_smoothing"),
        ("quack", replace(make_case(), dtype="float64"), "quack takes no float64"),
        ("liger", make_case(device="cpu"), "liger runs only on a GPU"),
        ("liger", make_case(), "liger_kernel is not installed. Install it with"),
    ):
        reason = find_implementation(name).unavailable(case)
        assert reason is not None
        assert reason.text.startswith(said)
    monkeypatch.setattr(f"{other_projects.__name__}.find_spec", lambda package: object())
    for name in ("liger", "quack"):
        assert find_implementation(name).unavailable(make_case(ignore_index=3)) is None


def overwrites(
    input, target, *, reduction, ignore_index, label_smoothing, lse_square_scale, softcap
):
    """Write the gradient over the logits in forward, as Liger does."""

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits):
            with torch.enable_grad():
                leaf = logits.detach().clone().requires_grad_()
                loss = torch.nn.functional.cross_entropy(leaf, target, reduction=reduction)
            if logits.requires_grad:
                (gradient,) = torch.autograd.grad(loss, leaf)
                ctx.gradient = logits.copy_(gradient)
            return loss.detach()

        @staticmethod
        def backward(ctx, incoming):
            return ctx.gradient * incoming

    return Function.apply(input)


def test_liger_works_on_a_copy_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("liger_kernel", "liger_kernel.transformers"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module = ModuleType("liger_kernel.transformers.functional")
    monkeypatch.setattr(module, "liger_cross_entropy", overwrites, raising=False)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    problem = Problem.of(make_case(device="cpu"))
    problem.mark()
    answer = subject_of("liger", problem.case).send(problem.call(problem.usual))
    assert problem.spoiled() == ""
    assert problem.judge_loss(answer.loss)[0].status == "pass"
    assert problem.judge("input", answer.gradients["input"], problem.usual)[0].status == ("pass")
