"""Checks of fused linear losses: legitimate ones pass, each mistake fails for its own reason."""

from typing import Any

import pytest
import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.functional import linear_cross_entropy
from losscli.implementations import Implementation, find_implementation
from losscli.implementations.requests import Forward
from losscli.implementations.subject import bind
from losscli.losses import LINEAR_LOSSES
from losscli.runs.records import FAIL, PASS, VerifyResult
from losscli.verify.checks.memory import PLAN_SHAPE, _budgets
from tests.truth.test_linear_oracle import make_case
from tests.verify import judging
from tests.verify.judging import find_wrong

OWN = ("extreme_values", "boundary_sizes", "layouts", "linear_plans")


def put(case: Case, implementation: Implementation, *checks: str) -> list[VerifyResult]:
    found: list[VerifyResult] = judging.put(case, implementation, checks=checks)
    return found


@pytest.mark.parametrize("loss", LINEAR_LOSSES)
@pytest.mark.parametrize("name", ["custom", "reference"])
def test_legitimate_implementations_pass_the_checks_of_hidden_states(loss: str, name: str) -> None:
    results = put(make_case(loss), find_implementation(name), *OWN, "out_of_range_classes")
    assert [(r.check, r.status) for r in results if r.status != PASS] == []
    assert len(results) == len(OWN) + 1


def test_torchs_own_function_passes_where_it_has_the_loss() -> None:
    functional = find_implementation("functional")
    case = make_case(params={"ignore_index": 3})
    assert functional.unavailable(case) is None
    assert {r.status for r in put(case, functional, "value", "gradients")} == {PASS}
    other = functional.unavailable(make_case(params={"label_smoothing": 0.1}))
    assert str(other) == "PyTorch takes no label_smoothing"
    assert functional.unavailable(make_case("linear_token_log_probs"))


NO_REDUCTION, BF16 = {"reduction": "none"}, {"dtype": "bfloat16", "shape": (512, 32, 200)}
MISTAKES: list[tuple[str, dict[str, Any], str, str]] = [
    ("sums in bfloat16", BF16, "linear_weight_gradient", "times one product of the rounded"),
    ("incoming of the first row", NO_REDUCTION, "input_gradient", "grad_output of normal"),
    ("filtered gradients, fused linear", {}, "linear_weight_gradient", "expected"),
    ("maximum kept, fused linear", {}, "extreme_values", "logits around 1e4, loss: expected"),
    (
        "counts ignored rows, fused linear",
        {"params": {"ignore_index": 3}},
        "value",
        "allowed: 7.7e-06 relative",
    ),
]


@pytest.mark.parametrize(("name", "changes", "check", "reason"), MISTAKES)
def test_each_mistake_is_caught_for_its_own_reason(
    name: str, changes: dict[str, Any], check: str, reason: str
) -> None:
    case, wrong = make_case(**changes), find_wrong(name)
    run = "gradients" if check.endswith("gradient") else check
    (result,) = [r for r in put(case, wrong, run) if r.check == check]
    assert (result.status, wrong.unavailable(case)) == (FAIL, None)
    assert reason in result.reason
    others = {r.check for r in put(case, wrong, "value") if r.status == FAIL}
    assert others <= {check}


def test_budgets_of_the_check_ask_for_each_kind_of_plan() -> None:
    for reduction, kinds in (
        ("mean", {"whole", "slices", "chunks"}),
        ("none", {"whole", "slices"}),
    ):
        case = make_case(shape=PLAN_SHAPE, reduction=reduction)
        budgets = _budgets(case)
        assert budgets.keys() == kinds
        for kind, budget in budgets.items():
            plan = case.spec.plan(  # type: ignore[attr-defined]
                *(case.shape, 4, reduction, {**case.params, "memory_budget": float(budget)}),
                gradients=True,
                free=2**40,
            )
            assert plan.kind == kind


def test_more_memory_than_the_budget_or_than_before_fails() -> None:
    kept: list[Tensor] = []

    def greedy(operands: Any, loss: Tensor) -> Tensor:
        return loss + 0 * torch.empty(operands[0].shape[0], 4096)[0, 0].nan_to_num()

    def leaking(operands: Any, loss: Tensor) -> Tensor:
        kept.append(torch.ones(8 * max(operand.numel() for operand in operands)))
        return loss

    for change, check, told in (
        (greedy, "linear_plans", "expected at most the budget, but a call held"),
        (leaking, "memory", "expected no memory growth"),
    ):

        def changed(case: Case, change: Any = change) -> Any:
            own = find_implementation("custom").bind(case)
            return lambda *operands: change(operands, own(*operands))

        wrong = Implementation("planted", "", changed, temporaries=0)
        (result,) = put(make_case(), wrong, check)
        assert result.status == FAIL
        assert told in result.reason


@pytest.mark.slow
def test_pytorchs_own_samples() -> None:
    from torch.testing._internal.common_methods_invocations import op_db  # takes seconds

    taken = 0
    samples = (
        sample
        for op in op_db
        if op.name == "nn.functional.linear_cross_entropy"
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=True)
    )
    for sample in samples:
        weight, target, *rest = sample.args
        settings = {k: v for k, v in sample.kwargs.items() if k != "options"}
        takes = weight.dim() == 2 and not target.is_floating_point() and not rest
        if not takes or any(
            isinstance(v, Tensor) and v.requires_grad for k, v in settings.items() if k == "weight"
        ):
            continue
        taken += 1
        due = torch.nn.functional.linear_cross_entropy(sample.input, weight, target, **settings)
        got = linear_cross_entropy(sample.input, weight, target, **settings)
        torch.testing.assert_close(got, due)
        g = torch.rand_like(due)
        wanted = [x for x in (sample.input, weight, settings.get("linear_bias")) if x is not None]
        found = [torch.autograd.grad(x, wanted, g) for x in (got, due)]
        torch.testing.assert_close(*found)
    assert taken


def test_reference_is_bound_by_name_to_the_operands_of_the_spec() -> None:
    case = make_case("biased_linear_cross_entropy", reduction="none")
    from losscli.truth.inputs import make_inputs

    operands = make_inputs(case)
    own, torchs = (
        bind(find_implementation(name), case).send(Forward(operands))
        for name in ("custom", "reference")
    )
    torch.testing.assert_close(own, torchs)
