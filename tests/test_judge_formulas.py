"""PyTorch's own functions and textbooks' formulas are right, as files; what is worse is not."""

import itertools
from functools import partial
from inspect import signature

import pytest
import torch

from losscli.implementations.errors import SubjectError
from losscli.implementations.implementation import Implementation
from losscli.implementations.requests import Forward
from losscli.implementations.subject import bind
from losscli.losses import EVERY_LOSS, HIDDEN_STATE
from losscli.reasons import Code
from losscli.runs.records import FAIL, PASS, WARN
from losscli.truth.problem import Problem
from losscli.truth.setup import ThirdParty
from losscli.truth.tolerances import Outcome
from losscli.verify.checks import CHECKS
from losscli.verify.checks.check import Tally
from tests.handmade import case_of
from tests.parameters import SLOW, few, naming
from tests.textbook_files import TEXTBOOKS, TORCHS, textbook_file, torchs_file

QUICK = {"textbook-log_cosh"}
"""What is judged in each run; the others are slow."""
FILES = {
    f"{kind}-{loss}": (make(loss), loss)
    for kind, make, table in (
        ("torch", torchs_file, TORCHS),
        ("textbook", textbook_file, TEXTBOOKS),
    )
    for loss in table
}


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request):
    return request.param


@pytest.mark.parametrize(
    ("source", "loss"),
    [pytest.param(*of, id=name, marks=[] if name in QUICK else SLOW) for name, of in FILES.items()],
)
def test_own_functions_and_textbook_formulas_are_right(source, loss, device, judged):
    verdict = judged(source, loss=loss, device=device)
    assert verdict.exit_code == 0, verdict.reasons
    assert verdict.checks.get(PASS, 0) + verdict.checks.get(WARN, 0) > 10


@pytest.mark.filterwarnings("ignore:reduction. 'mean'")
@pytest.mark.parametrize(("source", "loss"), FILES.values(), ids=FILES)
def test_own_functions_and_textbook_formulas_are_right_in_16_bits(source, loss):
    spec, module = EVERY_LOSS[loss], {}
    exec(source, module)
    function = module[spec.function_name]
    takes = signature(function).parameters
    given = {p.name: p.off_default if p.name in takes else p.absent for p in spec.parameters}
    params = spec.resolve({name: value for name, value in given.items() if value is not None})

    def bound(case):
        settings = {name: value for name, value in case.settings.items() if name in takes}
        return partial(function, reduction=case.reduction, **settings)

    kernel = Implementation("kernel", "a kernel", bound)
    shapes = ((33, 65), "none"), ((33, 65), "mean"), ((2003, 3), "mean")
    for (shape, reduction), dtype in itertools.product(shapes, ("float16", "bfloat16")):
        of = problem(loss, shape, dtype=dtype, reduction=reduction, params=params)
        if loss == "multi_margin":  # PyTorch has none in 16 bits
            with pytest.raises(SubjectError, match="not implemented for"):
                bind(kernel, of.case).send(Forward(of.operands))
            continue
        answer = bind(kernel, of.case).send(of.call(of.filled(1.0)))
        for part, got in answer.items().items():
            with naming(part, shape, reduction, dtype):
                assert of.judge(part, got, of.filled(1.0))[0].status != FAIL


@pytest.mark.parametrize("loss", few(EVERY_LOSS))
def test_formulas_that_excuse_a_kernel_compute_the_loss_for_every_parameter(loss):
    """At ordinary operands they are right; TripletMargin's leaves out an epsilon of 1e-6."""
    spec = EVERY_LOSS[loss]
    shape = (4, 5, 17) if spec.unit == HIDDEN_STATE else (33, 65)
    values = {(p.name, n) for p in spec.parameters for n in (p.off_default, p.absent)}
    for change in [{}, *({name: value} for name, value in values if value is not None)]:
        for reduction in spec.reductions[-2:]:
            settings = {"reduction": reduction, "params": spec.resolve(change)}
            of = problem(loss, shape, dtype="float64", **settings)
            truth = torch.cat([each.value.flatten() for each in of.value()])
            for number, formula in enumerate(of.torchs_own):
                with naming(settings, number):
                    found = formula.send(Forward(of.copies())).flatten()
                    torch.testing.assert_close(found, truth, rtol=2e-5, atol=1e-6)


class GradientInForward(torch.autograd.Function):
    """Smooth L1, whose gradient is rounded before it is multiplied by what comes in."""

    @staticmethod
    def forward(ctx, input, target):
        distance = input - target
        ctx.save_for_backward(distance.clamp(-1, 1) / distance.numel())
        return torch.nn.functional.smooth_l1_loss(input, target)

    @staticmethod
    def backward(ctx, incoming):
        gradient = ctx.saved_tensors[0] * incoming
        return gradient, -gradient


@pytest.mark.parametrize(("factor", "fails"), [(1, False), (1.1, True)])
def test_a_gradient_of_16_bits_may_be_rounded_before_it_is_scaled(factor, fails):
    of = problem("smooth_l1", dtype="float16", reduction="mean")
    kernel = Implementation("kernel", "a kernel", lambda _: GradientInForward.apply)
    found = []
    for incoming in of.others:
        gradient = bind(kernel, of.case).send(of.call(incoming)).gradients["input"]
        found.append(of.judge("input", factor * gradient, incoming)[0].status)
    assert (FAIL in found) == fails


WITH_LOGITS = """
from torch.nn import functional as F

def binary_cross_entropy_with_logits(input, target, *, pos_weight=None, reduction="mean"):
    return F.binary_cross_entropy_with_logits(
        input, target, pos_weight=POS_WEIGHT, reduction=reduction
    )
"""


@pytest.mark.parametrize(
    ("given", "right"), [pytest.param("pos_weight", True, marks=SLOW), ("None", False)]
)
def test_a_pos_weight_is_judged_where_the_function_takes_one(given, right, judged):
    verdict = judged(WITH_LOGITS.replace("POS_WEIGHT", given))
    assert verdict.right == right, verdict.reasons
    assert any("pos_weight" in each.case for each in verdict.reasons)


def problem(loss, shape=(33, 65), *, of_others=True, **changes):
    usual = {"reduction": "none", "distribution": "normal", "seed": 11, "scale": 2.0}
    case = case_of(loss, shape, **usual | changes)
    return Problem.of(case, third_party=ThirdParty() if of_others else None)


def log_cosh(input, target):
    """The formula, its terms in another order than the textbook's."""
    difference = (target - input).abs()
    return (torch.log1p(torch.exp(-2 * difference)) - 0.6931471805599453) + difference


def judgement(of, function):
    kernel = Implementation("kernel", "a kernel", lambda case: function)
    return of.judge_loss(bind(kernel, of.case).send(Forward(of.operands)))[0]


def with_nan(input, target):
    loss = log_cosh(input, target)
    loss.view(-1)[7] = torch.nan
    return loss


@pytest.mark.parametrize(
    ("steps", "of_others", "status"), [(6, True, PASS), (6, False, FAIL), (40, True, FAIL)]
)
def test_a_third_partys_gradient_may_lose_what_is_subnormal_before_grad_output_multiplies_it(
    steps, of_others, status
):
    of = problem("mse", of_others=of_others)
    step = torch.finfo(torch.float32).tiny * torch.finfo(torch.float32).eps
    input = torch.full((33, 65), 45 * step)
    of = of.like({"input": input, "target": torch.zeros(33, 65)})
    incoming = of.filled(32768.0, ("input",))
    outcome, _ = of.judge("input gradient", (2 * input + steps * step) * 32768.0, incoming)
    assert outcome.status == status, outcome


def test_a_textbooks_formula_excuses_what_is_as_wrong_of_third_parties_alone(monkeypatch):
    of = problem("log_cosh")
    outcome = judgement(of, log_cosh)
    assert (outcome.status, outcome.code) == (WARN, Code.SAME_ERROR_AS_PYTORCH)
    for wrong in (lambda *each: log_cosh(*each) + 3e-6, with_nan):
        assert judgement(of, wrong).status == FAIL
    own = problem("log_cosh", of_others=False)
    assert judgement(own, lambda *each: log_cosh(*each) + 1e-7).status == FAIL
    monkeypatch.setattr("losscli.truth.problem.free_bytes", lambda device: 2**16)  # they do not fit
    assert judgement(problem("log_cosh"), log_cosh).status == FAIL


WRONG = Outcome(FAIL, "wrong"), None
LIMITS = (
    (["NaN"], "known_limitation"),
    (["NaN", "infinity"], "known_limitation"),
    (["NaN", "a tie"], "wrong"),
    (["NaN", None], "wrong"),  # a failure of no variant
)


def test_a_check_that_only_its_limits_fail_has_the_code_limited():
    for variants, code in LIMITS:
        tally = Tally(limits=lambda variant, _: variant in ("NaN", "infinity"))
        tally.count("ordinary", "loss", (Outcome(PASS), None))
        for variant in variants:
            if variant:
                tally.count(variant, "loss", WRONG)
            else:
                tally.fail("all of it is wrong")
        with naming(*variants):
            finished = tally.finish(problem("mse", (3, 5)), "kernel", "special_values")
            assert finished.code == code


def test_contiguous_operands_are_no_limit_and_broadcasts_are_one():
    def limits(variant):
        return CHECKS["layouts"].limits(variant, None)

    assert limits("both operands transposed")
    assert limits("target of bfloat16")
    assert not limits("square operands")
    assert limits("target of one row")
    assert limits("var of one number")
