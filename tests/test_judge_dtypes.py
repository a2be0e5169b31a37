import pytest

from losscli.cases.axes import DTYPES
from losscli.judge import against_loss
from tests.parameters import SLOW

MSE = """
import torch
from torch import nn

def mse_loss(input, target, *, reduction="mean"):
    {before}
    each = (input - target) ** 2
    if reduction == "none":
        return each
    return {mean} if reduction == "mean" else each.sum()
"""
FITS = {"before": "", "mean": "each.mean()"}
OVERFLOWS = FITS | {"mean": "each.sum() / each.numel()"}
HALVES = "(torch.float16, torch.bfloat16)"
REFUSES = FITS | {"before": f"if input.dtype in {HALVES}: raise TypeError('expected 32 bits')"}
COMPILER = "type('CompilationError', (Exception,), {})('at 38:8')"
NO_HALVES = FITS | {"before": f"if input.dtype in {HALVES}: raise {COMPILER}"}
RIGHT = "RIGHT", "SAME ERROR AS PYTORCH"
LIMITED = ("RIGHT WITHIN LIMITS",)
FILES = {
    "of all dtypes": (FITS, (), RIGHT, DTYPES, set()),
    "whose sum overflows": (OVERFLOWS, (), LIMITED, DTYPES, {("known_limitation", "float16")}),
    "whose sum overflows where nothing is asked": (OVERFLOWS, DTYPES[:1], RIGHT, DTYPES[:1], set()),
    "that raises for some": (REFUSES, (), RIGHT, DTYPES[:2], {("unsupported_input", "float16")}),
    "that cannot be compiled for some": (
        NO_HALVES,
        (),
        RIGHT,
        DTYPES[:2],
        {("unsupported_input", "float16")},
    ),
    "that raises for what is asked": (
        *(REFUSES, ("float16",), ("CRASHED",)),
        *(("float16",), {("raised", "float16")}),
    ),
    "that returns another for some": (
        *(FITS | {"mean": "each.float().mean()"}, (), LIMITED),
        *(DTYPES[:1], {("known_limitation", "float64")}),
    ),
    "that has no gradient for some": (
        FITS | {"before": f"if input.dtype in {HALVES}: input, target = input.data, target.data"},
        *((), LIMITED, DTYPES[:2], {("known_limitation", "float16")}),
    ),
    "that rounds all to float32": (
        FITS | {"mean": "each.float().mean().to(input.dtype)"},
        *((), LIMITED, (DTYPES[0], *DTYPES[2:]), {("known_limitation", "float64")}),
    ),
}
LONG = {
    *("of all dtypes", "whose sum overflows"),
    *("that rounds all to float32", "that returns another for some"),
}
MODEL = """
class Model(nn.Module):
    def forward(self, x, y):
        return mse_loss(x, y)

class ModelNew(Model):
    pass

def get_inputs():
    return [torch.randn(64, 64).to(torch.{dtype}) for _ in range(2)]
"""


@pytest.fixture(autouse=True)
def _few_checks(monkeypatch):
    monkeypatch.setattr(against_loss, "QUICK_CHECKS", ("value",))


@pytest.mark.parametrize(
    ("parts", "asked", "words", "dtypes", "due"),
    [pytest.param(*of, id=name, marks=SLOW if name in LONG else []) for name, of in FILES.items()],
)
def test_the_verdict_has_the_dtypes_of_a_file(judged, parts, asked, words, dtypes, due):
    verdict = judged(MSE.format(**parts), dtypes=asked, sizes=((64, 64),))
    reasons = {(reason.code, reason.case.split()[2]) for reason in verdict.reasons}
    assert verdict.word in words, verdict.reasons
    assert verdict.dtypes == dtypes
    assert {each for each in reasons if each[0] != "same_error_as_pytorch"} == due


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=SLOW), "bfloat16"])
def test_a_model_that_is_recognised_is_judged_in_the_dtype_of_its_inputs(judged, dtype):
    verdict = judged(MSE.format(**FITS) + MODEL.format(dtype=dtype), sizes=((64, 64),))
    assert verdict.right, verdict.reasons
    all_others = ("float64", "float16", "bfloat16") if dtype == "float32" else ()
    assert (verdict.against, verdict.dtypes) == ("mse", (dtype, *all_others))
