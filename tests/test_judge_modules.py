"""A candidate is judged against a Model of any signature, where losscli has no oracle."""

import os
from typing import Any

import pytest

from losscli.judge.job import Job
from losscli.judge.stages import judge_job

HEAD = """
import torch
from torch import nn
from torch.nn import functional
"""
KL = """
class Model(nn.Module):
    def forward(self, predictions, targets):
        return functional.kl_div(predictions.log(), targets, reduction="batchmean")

def get_inputs():
    return [torch.rand(64, 50).softmax(-1), torch.rand(64, 50).softmax(-1)]

def get_init_inputs():
    return []
"""
CROSS_ENTROPY = """
class Model(nn.Module):
    def forward(self, logits, labels):
        return functional.cross_entropy(logits, labels)

def get_inputs():
    return [torch.randn(64, 10), torch.randint(0, 10, (64,))]
"""
TRIPLET = """
class Model(nn.Module):
    def __init__(self, margin):
        super().__init__()
        self.loss = nn.TripletMarginLoss(margin=margin)

    def forward(self, anchor, positive, negative):
        return self.loss(anchor, positive, negative)

def get_inputs():
    return [torch.randn(64, 24), torch.randn(64, 24), torch.randn(64, 24)]

def get_init_inputs():
    return [1.5]
"""
COSINE = """
class Model(nn.Module):
    def forward(self, x, y):
        return 1 - functional.cosine_similarity(x, y, dim=1)

def get_inputs():
    return [torch.randn(64, 24), torch.randn(64, 24)]
"""
LINEAR = """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 5)

    def forward(self, x, labels):
        return functional.cross_entropy(self.linear(x), labels)

def get_inputs():
    return [torch.randn(64, 24), torch.randint(0, 5, (64,))]
"""


def new(body, arguments="predictions, targets"):
    """Return a ModelNew whose forward has a body."""
    return f"class ModelNew(nn.Module):\n    def forward(self, {arguments}):\n        {body}\n"


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """Return a function that judges a source quickly, without times unless they are asked for.

    The locks are the test's own, so that it waits for no other judge of this machine.
    """
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))

    def judge(*parts, **options):
        path = tmp_path / "candidate.py"
        path.write_text(HEAD + "".join(parts))
        given: dict[str, Any] = {"device": "cpu", "quick": True, "timed": False} | options
        return judge_job(Job(file=str(path), **given))

    return judge


def codes(verdict):
    return {reason.code for reason in verdict.reasons}


def checks(verdict):
    return {reason.check for reason in verdict.reasons}


RIGHT_KL = new("return (targets * (targets.log() - predictions.log())).sum() / len(targets)")


def test_right_kl_divergence_is_right_and_timed(judged):
    verdict = judged(KL, RIGHT_KL, timed=True)

    assert verdict.word in ("RIGHT", "SLOWER"), verdict.reasons
    assert verdict.against == "Model"
    assert verdict.trains
    assert verdict.accuracy.deterministic
    assert {speed.pass_ for speed in verdict.speed} == {"forward", "forward_backward"}
    assert all("reference" in speed.ratios for speed in verdict.speed)


@pytest.mark.parametrize(
    ("model", "candidate"),
    [
        pytest.param(
            CROSS_ENTROPY,
            new(
                "rows = torch.arange(len(labels))\n"
                "        return -logits.log_softmax(-1)[rows, labels].mean()",
                "logits, labels",
            ),
            id="cross-entropy-with-integer-labels",
        ),
        pytest.param(
            COSINE,
            new(
                "dot, norms = (x * y).sum(1), x.norm(dim=1) * y.norm(dim=1)\n"
                "        return 1 - dot / norms",
                "x, y",
            ),
            id="cosine-of-each-row",
        ),
        pytest.param(
            TRIPLET,
            TRIPLET.partition("def get_inputs")[0].replace("Model(", "ModelNew("),
            id="triplet-with-a-margin",
        ),
        pytest.param(
            LINEAR,
            LINEAR.partition("def get_inputs")[0].replace("Model(", "ModelNew("),
            id="with-parameters-of-the-reference",
        ),
    ],
)
def test_right_candidate_of_any_signature_is_right(judged, model, candidate):
    verdict = judged(model, candidate)

    assert verdict.word == "RIGHT", verdict.reasons
    assert verdict.checks["pass"] > 5


WRONG_GRADIENT = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, predictions, targets):
        ctx.save_for_backward(predictions, targets)
        return functional.kl_div(predictions.log(), targets, reduction="batchmean")

    @staticmethod
    def backward(ctx, incoming):
        predictions, targets = ctx.saved_tensors
        return -targets / predictions / len(targets), (targets.log() + 1 - predictions.log()) / 64
"""


def test_gradient_that_ignores_the_incoming_one_is_wrong(judged):
    verdict = judged(KL, WRONG_GRADIENT, new("return Function.apply(predictions, targets)"))

    assert verdict.word == "WRONG", verdict.reasons
    assert checks(verdict) == {"predictions_gradient", "targets_gradient"}


def test_missing_gradient_of_the_target_is_wrong(judged):
    body = "return functional.kl_div(predictions.log(), targets.detach(), reduction='batchmean')"
    verdict = judged(KL, new(body))

    assert verdict.word == "WRONG", verdict.reasons
    assert "no gradient for targets" in verdict.reasons[0].text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "return functional.kl_div(predictions.log(), targets, reduction='none')",
            "expected shape",
        ),
        (
            "return functional.kl_div(predictions.log(), targets, reduction='batchmean').double()",
            "torch.float64",
        ),
        ("return functional.kl_div(predictions.log(), targets, reduction='mean')", "expected"),
        (
            "return functional.kl_div(predictions.log(), targets, reduction='sum') / 64",
            "expected",
        ),
    ],
    ids=["shape", "dtype", "value", "rows-of-get-inputs-fixed"],
)
def test_wrong_result_is_wrong(judged, body, text):
    verdict = judged(KL, new(body))

    assert verdict.word == "WRONG", verdict.reasons
    assert text in verdict.reasons[0].text


def test_candidate_without_gradient_is_right_but_cannot_train(judged):
    body = "with torch.no_grad():\n            return Model()(predictions, targets)"
    verdict = judged(KL, new(body))

    assert verdict.word == "RIGHT BUT NO GRADIENT", verdict.reasons
    assert verdict.trains is False


@pytest.mark.parametrize(
    ("body", "check", "word"),
    [
        ("return Model()(x, y).nan_to_num(1.0)", "specials", "RIGHT BUT NO GRADIENT"),
        (
            "x = x.as_strided(x.shape, (x.shape[1], 1), 0)\n            return Model()(x, y)",
            "layouts",
            "WRONG",
        ),
    ],
    ids=["nan", "strides"],
)
def test_candidate_without_gradient_has_its_forward_checked(judged, body, check, word):
    verdict = judged(COSINE, new(f"with torch.no_grad():\n            {body}", "x, y"))

    assert verdict.word == word, verdict.reasons
    assert check in checks(verdict)
    assert verdict.checks["pass"] > 3


def test_candidate_that_overwrites_its_input_is_told_so(judged):
    body = (
        "result = Model()(predictions, targets)\n        targets.data.mul_(2)\n"
        "        return result"
    )
    verdict = judged(KL, new(body))

    assert verdict.word == "WRONG", verdict.reasons
    assert "overwrote" in codes(verdict)


def test_candidate_that_refuses_other_layouts_is_right(judged):
    body = (
        "if not targets.is_contiguous():\n            raise ValueError('not contiguous')\n"
        "        return Model()(predictions, targets)"
    )
    verdict = judged(KL, new(body))

    assert verdict.word == "RIGHT", verdict.reasons
    assert codes(verdict) == {"refuses"}


def test_candidate_that_takes_only_the_rows_of_get_inputs_is_right(judged):
    body = "assert len(targets) == 64\n        return Model()(predictions, targets)"
    verdict = judged(KL, new(body), timed=True)

    assert verdict.right, verdict.reasons
    assert codes(verdict) <= {"refuses", "slower"}
    assert verdict.reasons[0].case == "37x50 float32, 37x50 float32"
    assert {speed.case for speed in verdict.speed} == {"64x50 float32, 64x50 float32"}


def test_candidate_that_remembers_results_by_address_is_wrong(judged):
    source = "KNOWN = {}\n"
    body = (
        "key = targets.data_ptr()\n        if key not in KNOWN:\n"
        "            KNOWN[key] = Model()(predictions, targets).detach()\n"
        "        return KNOWN[key]"
    )
    verdict = judged(KL, source, new(body))

    assert verdict.word == "WRONG", verdict.reasons


def test_candidate_that_remembers_after_many_calls_cheats(judged):
    source = """
class ModelNew(Model):
    calls, known = 0, None

    def forward(self, predictions, targets):
        self.calls += len(targets) == 64  # the size that is timed
        if self.calls < 7:
            return super().forward(predictions, targets)
        if self.known is None:
            self.known = super().forward(predictions, targets).detach()
        return self.known.clone().requires_grad_()
"""
    verdict = judged(KL, source, timed=True)

    assert verdict.word == "CHEATS", verdict.reasons
    assert "wrong_later" in codes(verdict)


SCALES_WHAT_IT_SAVED = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (x, y)]
            loss = Model()(*leaves)
        ctx.gradients = torch.autograd.grad(loss, leaves, torch.ones_like(loss))
        return loss.detach()

    @staticmethod
    def backward(ctx, incoming):
        return tuple(each.mul_(incoming[:, None]) for each in ctx.gradients)
"""
ONE_OUTPUT = """
OUTPUTS = {}

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        known = OUTPUTS.setdefault(len(x), torch.empty(len(x)))
        return known.copy_(Model()(x, y))

    @staticmethod
    def backward(ctx, incoming):
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            return torch.autograd.grad(Model()(*leaves), leaves, incoming)
"""
NO_CURVATURE = """
class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return Model()(x, y)

    @staticmethod
    def backward(ctx, incoming):
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in ctx.saved_tensors]
            found = torch.autograd.grad(Model()(*leaves), leaves, torch.ones_like(incoming))
        return tuple(each * incoming[:, None] for each in found)
"""


@pytest.mark.parametrize(
    ("source", "body", "check"),
    [
        (SCALES_WHAT_IT_SAVED, "return Function.apply(x, y)", "retained"),
        (ONE_OUTPUT, "return Function.apply(x, y)", "memory"),
        (NO_CURVATURE, "return Function.apply(x, y)", "second_derivatives"),
        (
            "HELD = []\n",
            "HELD.append(torch.empty(2**16).fill_(1))\n        return Model()(x, y)",
            "memory",
        ),
        ("", "torch.set_num_threads(1)\n        return Model()(x, y)", "left_behind"),
    ],
    ids=["saved-tensors", "one-output", "second-derivatives", "memory-kept", "threads"],
)
def test_check_that_needs_no_formula_finds_what_is_wrong_with_a_module(judged, source, body, check):
    verdict = judged(COSINE, source, new(body, "x, y"))

    assert verdict.word == "WRONG", verdict.reasons
    assert check in checks(verdict) | codes(verdict), verdict.reasons


SMOOTH_L1 = """
class Model(nn.Module):
    def forward(self, x, y):
        return functional.smooth_l1_loss(x, y, beta=2.0)

def get_inputs():
    return [torch.randn(64, 128){signs}, torch.randn(64, 128){signs}]
"""
SAME_SMOOTH_L1 = """distance = (x - y).abs()
        near = distance.clamp(max=2.0)
        return (near * (distance - 0.5 * near) / 2.0).mean()"""


def test_second_derivative_of_a_module_may_differ_where_its_formula_changes(judged):
    verdict = judged(SMOOTH_L1.format(signs=".sign()"), new(SAME_SMOOTH_L1, "x, y"))

    assert verdict.word == "RIGHT", verdict.reasons


def test_second_derivative_that_is_a_sum_is_judged_by_the_terms_that_cancel(judged, monkeypatch):
    drawn = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: (48).to_bytes(n) if n == 3 else drawn(n))

    verdict = judged(SMOOTH_L1.format(signs=""), new(SAME_SMOOTH_L1, "x, y"))

    assert verdict.word == "RIGHT", verdict.reasons


def test_module_that_is_wrong_for_nan_alone_is_right_within_limits(judged):
    verdict = judged(COSINE, new("return Model()(x, y).nan_to_num(1.0)", "x, y"))

    assert verdict.word == "RIGHT WITHIN LIMITS", verdict.reasons
    assert "specials" in checks(verdict)


def test_module_whose_sums_change_from_run_to_run_is_told_so(judged):
    body = "return Model()(x, y) + 2e-7 * torch.randint(2, ()) * torch.ones(len(x))"
    body = f"state = torch.get_rng_state()\n        torch.seed()\n        found = {body[7:]}\n"
    body += "        torch.set_rng_state(state)\n        return found"
    verdict = judged(COSINE, new(body, "x, y"))

    assert verdict.right, verdict.reasons
    assert verdict.accuracy.deterministic is False


@pytest.mark.parametrize(
    ("model", "text"),
    [
        pytest.param(
            KL.replace("return functional", "raise ValueError('unfinished')\n        return F"),
            "raised ValueError: unfinished",
            id="raises",
        ),
        pytest.param(
            KL.replace('"batchmean")', '"batchmean").detach()'),
            "cannot be differentiated",
            id="detached",
        ),
        pytest.param(KL.partition("def get_inputs")[0], "has no get_inputs", id="without-inputs"),
        pytest.param(
            KL.replace("predictions.log()", "functional.dropout(predictions, 0.5)"),
            "different results for the same inputs",
            id="random",
        ),
        pytest.param(LINEAR, "parameters and buffers", id="other-parameters"),
    ],
)
def test_reference_that_is_no_truth_is_not_judged(judged, model, text):
    verdict = judged(model, RIGHT_KL)

    assert verdict.word == "NOT JUDGED", verdict.reasons
    assert codes(verdict) == {"bad_reference"}
    assert text in verdict.reasons[0].text


def test_reference_of_another_file_is_named_in_the_verdict(judged, tmp_path):
    reference = tmp_path / "reference.py"
    reference.write_text(HEAD + KL)
    verdict = judged(RIGHT_KL, reference=str(reference))

    assert verdict.word == "RIGHT", verdict.reasons
    assert verdict.against == str(reference)
