"""A candidate is judged against a Model of any signature, where losscli has no oracle."""

import os
from dataclasses import dataclass

import pytest

from tests.parameters import SLOW

HEAD = """
import torch
from torch import nn
from torch.nn import functional
"""


def model(result, inputs, takes="x, y"):
    return (
        f"class Model(nn.Module):\n    def forward(self, {takes}):\n        return {result}\n"
        f"def get_inputs():\n    return [{inputs}]\n"
    )


KL = model(
    "functional.kl_div(x.log(), y, reduction='batchmean')",
    "torch.rand(64, 50).softmax(-1), torch.rand(64, 50).softmax(-1)",
)
CROSS_ENTROPY = model(
    "functional.cross_entropy(logits, labels)",
    "torch.randn(64, 10), torch.randint(0, 10, (64,))",
    "logits, labels",
)
COSINE = model(
    "1 - functional.cosine_similarity(x, y, dim=1)", "torch.randn(64, 24), torch.randn(64, 24)"
)
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


def new(*lines, takes="x, y"):
    """Return a ModelNew whose forward has a body."""
    body = "".join(f"        {line}\n" for line in lines)
    return f"class ModelNew(nn.Module):\n    def forward(self, {takes}):\n{body}"


def renamed(model):
    return model.partition("def get_inputs")[0].replace("Model(", "ModelNew(")


@pytest.fixture
def judged(judged, tmp_path, monkeypatch):
    """The locks are the test's own, so that it waits for no other judge of this machine."""
    monkeypatch.setenv("LOSSCLI_CACHE_DIR", str(tmp_path / "cache"))
    return lambda *parts, **options: judged(HEAD + "".join(parts), **options)


def codes(verdict):
    return {reason.code for reason in verdict.reasons}


def checks(verdict):
    return {reason.check for reason in verdict.reasons}


RIGHT_KL = new("return (y * (y.log() - x.log())).sum() / len(y)")


def function(*, forward="return Model()(x, y)", backward):
    """Return a ModelNew with passes of its own, in which the Model's gradients can be had."""
    return f"""
def gradients(x, y, incoming):
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in (x, y)]
        return torch.autograd.grad(Model()(*leaves), leaves, incoming)

OUTPUTS = {{}}

class Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        {forward}

    @staticmethod
    def backward(ctx, incoming):
        {backward}

{new("return Function.apply(x, y)")}"""


def smooth_l1(signs=""):
    inputs = f"torch.randn(64, 128){signs}, torch.randn(64, 128){signs}"
    return model("functional.smooth_l1_loss(x, y, beta=2.0)", inputs)


SAME_SMOOTH_L1 = new(
    "distance = (x - y).abs()",
    "near = distance.clamp(max=2.0)",
    "return (near * (distance - 0.5 * near) / 2.0).mean()",
)


@dataclass(frozen=True)
class Beside:
    """A candidate beside a Model, and what its verdict is to hold."""

    model: str
    candidate: str
    word: str = "WRONG"
    found: tuple[str, ...] = ()
    """Checks and codes that are among those of the reasons."""
    text: str = ""
    """A part of the first reason."""


WITHOUT_NAN = "return Model()(x, y).nan_to_num(1.0)"
NO_HISTORY = "with torch.no_grad():"
RUNS = {
    "no gradient of the target": Beside(
        KL, new("return Model()(x, y.detach())"), text="no gradient for y"
    ),
    "another value": Beside(
        KL, new("return functional.kl_div(x.log(), y, reduction='mean')"), text="expected"
    ),
    "no gradient": Beside(KL, new(NO_HISTORY, "    return Model()(x, y)"), "RIGHT BUT NO GRADIENT"),
    "overwrites its input": Beside(
        KL,
        new("loss = Model()(x, y)", "y.data.mul_(2)", "return loss"),
        found=("known_limitation", "y_gradient"),
    ),
    "remembers results by address": Beside(
        KL,
        "KNOWN = {}\n"
        + new(
            "key = y.data_ptr()",
            "if key not in KNOWN:",
            "    KNOWN[key] = Model()(x, y).detach()",
            "return KNOWN[key]",
        ),
    ),
    "sets threads": Beside(
        COSINE,
        new("torch.set_num_threads(1)", "return Model()(x, y)"),
        found=("global_state_leak",),
    ),
}
SLOW_RUNS = {
    "another shape": Beside(
        KL, new("return functional.kl_div(x.log(), y, reduction='none')"), text="expected shape"
    ),
    "another dtype": Beside(KL, new("return Model()(x, y).double()"), text="torch.float64"),
    "rows of get_inputs fixed": Beside(
        KL, new("return functional.kl_div(x.log(), y, reduction='sum') / 64"), text="expected"
    ),
    "no gradient, and strides ignored": Beside(
        COSINE,
        new(
            NO_HISTORY,
            "    x = x.as_strided(x.shape, torch.empty(x.shape).stride())",
            "    return Model()(x, y)",
        ),
        "RIGHT BUT NO GRADIENT",
    ),
    "triplet with a margin": Beside(TRIPLET, renamed(TRIPLET), "RIGHT"),
    "has no curvature": Beside(
        COSINE,
        function(
            backward="found = gradients(*ctx.saved_tensors, torch.ones_like(incoming))\n"
            "        return tuple(each * incoming[:, None] for each in found)"
        ),
        "RIGHT WITHIN LIMITS",
        found=("second_derivatives", "unsupported_input"),
    ),
    "scales what it saved": Beside(
        COSINE,
        function(
            forward="ctx.found = gradients(x, y, torch.ones(len(x)))\n        return Model()(x, y)",
            backward="return tuple(each.mul_(incoming[:, None]) for each in ctx.found)",
        ),
        word="RIGHT WITHIN LIMITS",
        found=("retain_graph",),
    ),
    "cross entropy with integer labels": Beside(
        CROSS_ENTROPY,
        new(
            "rows = torch.arange(len(labels))",
            "return -logits.log_softmax(-1)[rows, labels].mean()",
            takes="logits, labels",
        ),
        "RIGHT",
    ),
    "cosine of each row": Beside(
        COSINE,
        new("dot, norms = (x * y).sum(1), x.norm(dim=1) * y.norm(dim=1)", "return 1 - dot / norms"),
        "RIGHT WITHIN LIMITS",
    ),
    "parameters of the reference": Beside(LINEAR, renamed(LINEAR), "RIGHT"),
    "no gradient, and no NaN": Beside(
        COSINE,
        new(NO_HISTORY, f"    {WITHOUT_NAN}"),
        "RIGHT BUT NO GRADIENT",
        found=("special_values",),
    ),
    "no NaN": Beside(COSINE, new(WITHOUT_NAN), "RIGHT WITHIN LIMITS", found=("special_values",)),
    "refuses other layouts": Beside(
        KL,
        new(
            "if not y.is_contiguous():",
            "    raise ValueError('not contiguous')",
            "return Model()(x, y)",
        ),
        "RIGHT",
        found=("unsupported_input",),
    ),
    "one output": Beside(
        COSINE,
        function(
            forward="known = OUTPUTS.setdefault(len(x), torch.empty(len(x)))\n"
            "        return known.copy_(Model()(x, y))",
            backward="return gradients(*ctx.saved_tensors, incoming)",
        ),
        found=("memory",),
    ),
    "memory kept": Beside(
        COSINE,
        "HELD = []\n" + new("HELD.append(torch.empty(2**16).fill_(1))", "return Model()(x, y)"),
        found=("memory",),
    ),
    "curvature where the formula changes": Beside(smooth_l1(".sign()"), SAME_SMOOTH_L1, "RIGHT"),
}


@pytest.mark.parametrize(
    "of",
    [
        *(pytest.param(of, id=name) for name, of in RUNS.items()),
        *(pytest.param(of, id=name, marks=SLOW) for name, of in SLOW_RUNS.items()),
    ],
)
def test_candidate_beside_a_model_gets_its_verdict(judged, of):
    verdict = judged(of.model, of.candidate)
    assert verdict.word == of.word, verdict.reasons
    assert {*of.found} <= checks(verdict) | codes(verdict), verdict.reasons
    assert not of.text or of.text in verdict.reasons[0].text
    if of.word.startswith("RIGHT"):
        assert codes(verdict) <= {*of.found, "no_gradient", "known_limitation", "unsupported_input"}
        assert verdict.checks["pass"] > 3
        assert verdict.trains is ("NO GRADIENT" not in of.word)


def test_gradient_that_ignores_the_incoming_one_is_wrong(judged):
    backward = "return gradients(*ctx.saved_tensors, torch.tensor(1.0))"
    verdict = judged(KL, function(backward=backward))
    assert verdict.word == "WRONG", verdict.reasons
    assert checks(verdict) == {"x_gradient", "y_gradient"}


@pytest.mark.slow
def test_right_kl_divergence_is_right_and_timed(judged):
    verdict = judged(KL, RIGHT_KL, timed=True)
    assert verdict.word in ("RIGHT", "SLOWER"), verdict.reasons
    assert verdict.against == "Model"
    assert verdict.trains
    assert verdict.accuracy.deterministic
    assert {speed.pass_ for speed in verdict.speed} == {"forward", "forward_backward"}
    assert all("reference" in speed.ratios for speed in verdict.speed)


@pytest.mark.slow
def test_candidate_that_takes_only_the_rows_of_get_inputs_is_right(judged):
    body = "assert len(y) == 64", "return Model()(x, y)"
    verdict = judged(KL, new(*body), timed=True)
    assert verdict.right, verdict.reasons
    assert codes(verdict) <= {"unsupported_input", "slower"}
    assert verdict.reasons[0].case == "37x50 float32, 37x50 float32"
    assert {speed.case for speed in verdict.speed} == {"64x50 float32, 64x50 float32"}


def test_candidate_that_remembers_after_many_calls_cheats(judged):
    source = """
class ModelNew(Model):
    calls, known = 0, None

    def forward(self, x, y):
        self.calls += len(y) == 64  # the size that is timed
        if self.calls < 7:
            return super().forward(x, y)
        if self.known is None:
            self.known = super().forward(x, y).detach()
        return self.known.clone().requires_grad_()
"""
    verdict = judged(KL, source, timed=True)
    assert verdict.word == "CHEATS", verdict.reasons
    assert "wrong_after_warm_up" in codes(verdict)


@pytest.mark.slow
def test_second_derivative_that_is_a_sum_is_judged_by_the_terms_that_cancel(judged, monkeypatch):
    drawn = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: (48).to_bytes(n) if n == 3 else drawn(n))
    verdict = judged(smooth_l1(), SAME_SMOOTH_L1)
    assert verdict.word == "RIGHT", verdict.reasons


@pytest.mark.slow
def test_module_whose_sums_change_from_run_to_run_is_told_so(judged):
    candidate = new(
        "state = torch.get_rng_state()",
        "torch.seed()",
        "found = Model()(x, y) + 2e-7 * torch.randint(2, ()) * torch.ones(len(x))",
        "torch.set_rng_state(state)",
        "return found",
    )
    verdict = judged(COSINE, candidate)
    assert verdict.right, verdict.reasons
    assert verdict.accuracy.deterministic is False


NO_TRUTH = {
    "raises": (
        KL.replace("return functional", "raise ValueError('unfinished')\n        return F"),
        "raised ValueError: unfinished",
    ),
    "detached": (KL.replace("mean')", "mean').detach()"), "cannot be differentiated"),
    "without inputs": (KL.partition("def get_inputs")[0], "has no get_inputs"),
    "random": (
        KL.replace("x.log()", "functional.dropout(x, 0.5)"),
        "different results for the same inputs",
    ),
    "other parameters": (LINEAR, "parameters and buffers"),
}


@pytest.mark.parametrize(("model", "text"), NO_TRUTH.values(), ids=[*NO_TRUTH])
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
