"""The cases that ranks compute together, and how they share the operands of one."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from losscli import sharded
from losscli.cases.case import Case
from losscli.losses import LOSS
from losscli.truth.inputs import make_inputs
from losscli.truth.problem import Problem
from tests.handmade import case_of

RANKS = (2, 4)
CLASSES = 131
SHAPE = (23, CLASSES)
LINEAR_SHAPE = (23, 12, CLASSES)
DTYPES = ("float64", "float32", "bfloat16", "float16")
SIZES = {2: (90, 41), 4: (1, 57, 0, 73)}
"""How many classes each rank has: no two as many, one of them none, one a single one."""
SETTINGS: dict[str, dict[str, float]] = {
    "plain": {},
    "ignored": {"ignore_index": 3},
    "label_smoothing": {"label_smoothing": 0.1},
    "temperature": {"temperature": 1.7},
    "label_smoothing and temperature": {"label_smoothing": 0.1, "temperature": 1.7},
    "softcap": {"softcap": 3.7},
    "z_loss": {"z_loss": 1e-2},
}
SETTINGS["all"] = {name: value for each in SETTINGS.values() for name, value in each.items()}
_FUNCTIONS = {
    "cross_entropy": ("input", "weight"),
    "token_log_probs": ("logits",),
    "kl_divergence": ("input", "target"),
    "reverse_kl_divergence": ("input", "target"),
    "linear_cross_entropy": ("linear_weight", "linear_bias"),
    "linear_token_log_probs": ("linear_weight", "linear_bias"),
}
"""The functions of ranks, and which operands have classes."""
_PREFIXES = ("weighted_", "masked_", "biased_")


def _cases() -> Iterator[tuple[str, Case]]:
    for dtype in DTYPES:
        for said, params in SETTINGS.items():
            if dtype != "float32" and said not in ("plain", "all"):
                continue
            for loss in ("cross_entropy", "weighted_cross_entropy"):
                for reduction in ("none", "mean", "sum") if said == "all" else ("mean",):
                    yield said, _case(loss, dtype, reduction, params)
        for loss in ("token_log_probs", "token_log_probs_with_entropy"):
            for said in ("plain", "temperature"):
                yield said, _case(loss, dtype, "none", SETTINGS[said])
        for loss in ("kl_divergence", "masked_kl_divergence", "reverse_kl_divergence"):
            for reduction in ("none", "mean"):
                yield "temperature", _case(loss, dtype, reduction, SETTINGS["temperature"])
        for loss in ("linear_cross_entropy", "biased_linear_cross_entropy"):
            for said in ("plain", "all"):
                yield said, _case(loss, dtype, "mean", SETTINGS[said], LINEAR_SHAPE)
        yield "plain", _case("linear_token_log_probs", dtype, "none", {}, LINEAR_SHAPE)


def _case(loss, dtype, reduction, params, shape=SHAPE):
    grad_output = 1.0 if reduction == "none" else -3.0
    drawn = {"distribution": "normal", "scale": 3.0, "grad_output": grad_output}
    return case_of(loss, shape, dtype=dtype, reduction=reduction, params=params, **drawn)


DTYPES_OF = {2: DTYPES, 4: ("float32",)}
"""The dtypes of the cases of so many ranks: two compute all; that four split alike needs one."""


def cases_of(count: int) -> list[str]:
    return [name for name, case in CASES.items() if case.dtype in DTYPES_OF[count]]


CASES = {f"{case.loss}-{said}-{case.reduction}-{case.dtype}": case for said, case in _cases()}


def problem_of(case: Case) -> Problem:
    """Return a case with its operands: whole ones, the same in each process."""
    operands = make_inputs(case)
    if case.params.get("ignore_index") == 3:
        operands["target"][::5] = 3
    return Problem(case, operands, excuses=False)


def parts_of(sizes: tuple[int, ...]) -> list[slice]:
    ends = [sum(sizes[:k]) for k in range(len(sizes) + 1)]
    return [slice(*ends_of) for ends_of in pairwise(ends)]


def function_name(case: Case) -> str:
    name = case.loss.removesuffix("_with_entropy")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    return name


def class_dimension(case: Case, name: str) -> int | None:
    """Return which dimension of an operand has the classes; None of one that all ranks have."""
    function = function_name(case)
    if name not in _FUNCTIONS[function]:
        return None
    return 0 if name in ("weight", "linear_weight", "linear_bias") else 1


def compute(problem: Problem, mine: slice, sizes: tuple[int, ...]) -> dict[str, Tensor]:
    """Return the loss and the gradients of this rank's parts of the operands."""
    case, incoming = problem.case, problem.usual
    leaves = {}
    for name, operand in problem.operands.items():
        dim = class_dimension(case, name)
        leaf = operand if dim is None else operand.movedim(dim, 0)[mine].movedim(0, dim)
        wants = name in incoming.wrt and not (name == "weight" and dim is not None)
        leaves[name] = leaf.detach().clone().requires_grad_(wants)
    named: dict[str, Any] = dict(case.settings)
    if "none" not in case.spec.reductions or len(case.spec.reductions) > 1:
        named["reduction"] = case.reduction
    if case.loss.endswith("_with_entropy"):
        named["entropy"] = True
    for k in (name for name in ("mask", "linear_bias", "weight") if name in leaves):
        named[k] = leaves[k]
    positional = [leaf for name, leaf in leaves.items() if name not in named]
    if function_name(case).startswith("linear"):
        hidden, numbers, weight = (leaves[name] for name in list(leaves)[:3])
        positional = [hidden, weight, numbers]
    loss = getattr(sharded, function_name(case))(*positional, **named, sizes=sizes)
    loss = torch.stack(loss) if isinstance(loss, tuple) else loss
    loss.backward(incoming.grad_output)
    found = {LOSS: loss.detach()}
    for name, leaf in leaves.items():
        if leaf.requires_grad:
            found[name] = leaf.grad
    return found
