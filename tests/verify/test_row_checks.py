from typing import Any

import pytest
import torch

from losscli.cases.case import Case
from losscli.implementations import Implementation, find_implementation
from losscli.losses import ELEMENT, MODEL, ROW, ROW_FORMS
from losscli.runs.records import FAIL, PASS
from losscli.verify import runner
from losscli.verify.checks import CHECKS
from losscli.verify.selftest.surgery import regrade
from tests.handmade import case_of
from tests.parameters import SLOW
from tests.verify.judging import find_wrong

CAUGHT = {
    "counts ignored rows": "value",
    "weight forgotten": "value",
    "dropped classes": "boundary_sizes",
    "maximum kept": "extreme_values",
    "smooths the others": "value",
    "softmax alone": "gradients",
    "gradient of ignored rows": "extreme_values",
    "classes last": "layouts",
    "incoming of the first row": "non_uniform_grad_output",
    "clamps targets": "out_of_range_classes",
    "narrow sum of a row": "boundary_sizes",
    "ignored incoming": "gradients",
    "scales in place": "retain_graph",
    "first row decides": "non_uniform_grad_output",
    "smooths a part": "boundary_sizes",
    "gradient over the logits": "gradients",
    "no gradient of later rows": "boundary_sizes",
    "no gradient of the weight": "gradients",
}
"""A check that catches a mistake, by itself."""
UNREDUCED = {"incoming of the first row", "first row decides"}


def make_case(loss: str = "weighted_cross_entropy", **changes: Any) -> Case:
    usual = {"params": {"label_smoothing": 0.1}, "distribution": "normal", "scale": 2.0}
    return case_of(loss, (37, 101), **usual | changes)


def results(case: Case, implementation: Implementation, *checks: str) -> list[tuple[str, str]]:
    trials = [(implementation, CHECKS[name]) for name in checks or CHECKS]
    found = [r for job in runner.split(case, trials) for r in runner.run(job)]
    return [(result.status, f"{result.check}: {result.reason}") for result in found]


@pytest.mark.parametrize(("mistake", "check"), CAUGHT.items())
def test_check_catches_the_mistake(mistake: str, check: str) -> None:
    case = make_case(reduction="none" if mistake in UNREDUCED else "mean")
    found = results(case, find_wrong(mistake), check)
    assert FAIL in {status for status, _ in found}


@pytest.mark.parametrize(
    ("loss", "dtype", "reduction"),
    [
        ("weighted_cross_entropy", "float32", "none"),
        ("cross_entropy", "float64", "none"),
        ("kl_divergence", "bfloat16", "none"),
        *(
            pytest.param("weighted_cross_entropy", "float32", r, marks=SLOW)
            for r in ("mean", "sum")
        ),
        *(pytest.param(loss, "float64", "none", marks=SLOW) for loss in ROW_FORMS),
        *(pytest.param(loss, "bfloat16", "none", marks=SLOW) for loss in ROW_FORMS),
    ],
)
def test_the_reference_of_each_form_passes(loss: str, dtype: str, reduction: str, request) -> None:
    """`large_outputs` takes longer than all others; its tests put the kernels to it."""
    case = make_case(loss, dtype=dtype, reduction=reduction)
    is_slow = request.node.get_closest_marker("slow")
    checks = [name for name in CHECKS if is_slow or name != "large_outputs"]
    found = results(case, find_implementation("reference"), *checks)
    assert [text for status, text in found if status == FAIL] == []


def test_checks_of_elements_do_not_apply_to_rows_and_say_so() -> None:
    reference = find_implementation("reference")
    elements, rows = make_case("mse", params={}), make_case()
    only = {
        unit: {name for name, check in CHECKS.items() if {*check.units} - {MODEL} == {unit}}
        for unit in (ELEMENT, ROW)
    }
    assert only[ROW] == {"row_relations"}
    assert {"broadcasts", "coverage"} <= only[ELEMENT]
    for name, check in CHECKS.items():
        assert (name in only[ELEMENT]) == ("to elementwise losses" in _why(check, rows, reference))
        assert (name in only[ROW]) == ("to row-wise losses" in _why(check, elements, reference))


def _why(check, case: Case, implementation: Implementation) -> str:
    reason = check.why_not(case, implementation)
    return reason.text if reason else ""


def planted(change):
    """Return the reference, of whose bound formula a function makes another."""

    def bind(case):
        def formula(*operands):
            return case.spec.reference(*operands, reduction=case.reduction, **case.settings)

        return change(formula)

    return Implementation("planted", "one mistake", bind)


def takes_anything(formula):
    return lambda *operands: operands[0].sum() * 0 + torch.tensor(1.0)


def zero_for_nan(formula):
    return lambda *operands: formula(*operands).nan_to_num(0.0)


def reads_uint8_as_int8(formula):
    def loss(input, target, *others):
        if target.dtype == torch.uint8:
            target = target.to(torch.int8).long() % input.shape[1]
        return formula(input, target, *others)

    return loss


@pytest.mark.parametrize(
    ("loss", "change", "check", "reason"),
    [
        (
            "cross_entropy",
            takes_anything,
            "out_of_range_classes",
            "-1: expected an error, got none",
        ),
        ("cross_entropy", zero_for_nan, "extreme_values", "all rows ignored"),
        ("weighted_cross_entropy", reads_uint8_as_int8, "layouts", "target of uint8"),
    ],
)
def test_mistake_with_targets_is_found(loss, change, check, reason):
    ((status, text),) = results(make_case(loss), planted(change), check)
    assert status == FAIL
    assert reason in text


def test_repeat_takes_a_loss_over_rows(capsys) -> None:
    from losscli.verify import repeat

    repeat("reference", "value", "cross_entropy", (5, 9), ignore_index=3)
    assert capsys.readouterr().out.startswith(f"{PASS.upper()} cross_entropy ignore_index=3 5x9")


@pytest.mark.parametrize("temperature", [1.0, 1.1])
def test_differences_of_total_variation_meet_no_tie(temperature: float) -> None:
    params = {"temperature": temperature}
    for seed in range(3):
        case = make_case("total_variation", dtype="float64", seed=seed, params=params)
        found = results(case, find_implementation("custom"), "numeric")
        assert found == [(PASS, "numeric: ")], seed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_does_not_judge_log_probabilities_of_float32(dtype: str) -> None:
    """A handful of roundings of float32 may lean; the gradients are of 16 bits."""
    params = {"temperature": 1.1}
    case = make_case("token_log_probs", dtype=dtype, reduction="none", params=params)
    assert results(case, find_implementation("custom"), "rounding") == [(PASS, "rounding: ")]


def spoiled(spoil):
    """Return the reference, whose gradient of the logits goes through a function of both."""

    def change(formula):
        def loss(input, *others):
            changed = regrade(input, lambda gradient: spoil(input.detach(), gradient.clone()))
            return formula(changed, *others)

        return loss

    return planted(change)


def a_line_is_not_written(logits, gradient):
    if gradient.numel() >= 2**20:
        gradient.view(-1)[2**20 : 2**20 + 16] = 0
    return gradient


def confident_long_rows(logits, gradient):
    """Lose the gradient of the largest logit where rows are long, and it is far above."""
    if logits.dim() == 2 and logits.shape[1] > 1000 and len(logits) > 1:
        top = logits.topk(2).values
        gradient[(top[:, 0] - top[:, 1]) > 20] *= 0.5
    return gradient


def strided_long_rows(logits, gradient):
    strided = logits.dim() == 2 and logits.stride(1) != 1
    return gradient * 0.5 if strided and len(logits) < 8 and logits.shape[1] > 256 else gradient


def single_very_long_rows(logits, gradient):
    return gradient * (1 if logits.shape[-1] <= 2**16 else 0.5)


@pytest.mark.parametrize(
    ("spoil", "check", "reason"),
    [
        (a_line_is_not_written, "large_outputs", "repeat 30 of 246, input gradient: expected "),
        (confident_long_rows, "extreme_values", "one class far above the others, long rows"),
        (strided_long_rows, "layouts", "a few long rows next to each other, input gradient"),
        (single_very_long_rows, "boundary_sizes", "1 rows of 132099, input gradient: expected "),
    ],
)
def test_mistake_that_needs_many_or_long_rows_is_found(spoil, check, reason):
    ((status, text),) = results(make_case(reduction="none"), spoiled(spoil), check)
    assert status == FAIL
    assert reason in text
