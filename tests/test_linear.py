"""Losses of hidden states are those of the logits that a linear layer makes, by every plan."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.testing import assert_close

from losscli import functional, nn
from losscli.implementations import find_implementation
from losscli.linear import calls, plans
from losscli.losses import ROW_LOSSES
from losscli.losses.linear.logits_plan import (
    CHUNKS,
    SLICES,
    WHOLE,
    Plan,
    Size,
    choose,
    chunks,
    least,
    slices,
)
from losscli.losses.linear.logits_plan import whole as whole_plan
from losscli.machine.allocator import measure_peak
from losscli.runs.records import PASS
from tests.handmade import case_of
from tests.parameters import SLOW, naming
from tests.verify.judging import put

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
REDUCTIONS = ("mean", "sum", "none")
REFERENCE = ROW_LOSSES["cross_entropy"].reference
ROWS, WIDTH, CLASSES = 70, 24, 301
PLANS = {
    # Neither parts of rows nor of classes are whole multiples.
    WHOLE: Plan(WHOLE, ROWS, 0, 0),
    CHUNKS: Plan(CHUNKS, 32, 0, 0),
    SLICES: Plan(SLICES, 128, 0, 0),
    "kept": Plan(SLICES, 128, 2, 0),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "label_smoothing": {"label_smoothing": 0.1},
    "temperature": {"temperature": 1.7},
    "label_smoothing and temperature": {"label_smoothing": 0.1, "temperature": 1.7},
    "softcap": {"softcap": 5.0},
    "z_loss": {"z_loss": 1e-2},
    "all": {"label_smoothing": 0.1, "temperature": 1.7, "softcap": 5.0, "z_loss": 1e-2},
}
MOST_ERROR = {torch.float64: 40.0}
"""In units of the dtype's rounding, of norms, 4 for others: the truth is no better than float64."""


# torch's own advice, of what its transforms import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def by_plan(monkeypatch):
    """Return a function that has the calls that follow computed by a plan."""

    def take(kind):
        monkeypatch.setattr(calls, "_plan", lambda *_: PLANS[kind])

    return take


def operands(dtype: torch.dtype, device: str, *, ignored: bool = True) -> dict[str, Tensor]:
    """Draw hidden states, the layer, class indices, some of which are ignored, and weights."""
    found = {
        "hidden": torch.randn(ROWS, WIDTH),
        "weight": torch.randn(CLASSES, WIDTH),
        "bias": torch.randn(CLASSES),
        "class_weight": torch.rand(CLASSES),
    }
    found = {name: each.to(device, dtype) for name, each in found.items()}
    found["target"] = torch.randint(CLASSES, (ROWS,), device=device)
    if ignored:
        found["target"][::3] = -100
    return found


def leaves(given: dict[str, Tensor], dtype: torch.dtype | None = None) -> list[Tensor]:
    return [given[n].to(dtype, copy=True).requires_grad_() for n in ("hidden", "weight", "bias")]


def logits_of(hidden, weight, bias, temperature=1, softcap=0):
    found = linear(hidden, weight, bias) / temperature
    return softcap * torch.tanh(found / softcap) if softcap else found


def expected(given, reduction, settings, incoming, dtype=torch.float64):
    tensors = leaves(given, dtype)
    weight = given["class_weight"].to(dtype)
    named = {"reduction": reduction, **settings}
    loss = REFERENCE(linear(*tensors), given["target"], weight, **named)
    return [loss, *torch.autograd.grad(loss, tensors, incoming.to(dtype))]


def loss_of(given: dict[str, Tensor], tensors: Sequence[Tensor], **named: Any) -> Any:
    hidden, weight, *bias = tensors
    named |= {"linear_bias": bias[0]} if bias else {}
    return functional.linear_cross_entropy(hidden, weight, given["target"], **named)


def assert_same(loss: Tensor, truth: Tensor, *tensors: Tensor):
    assert_close(loss, truth, equal_nan=True)
    mine, theirs = (torch.autograd.grad(each.sum(), tensors) for each in (loss, truth))
    assert_close(mine, theirs, equal_nan=True)


def error(found: Tensor, truth: Tensor) -> float:
    """Return how far a tensor is from the truth, by norms, in units of its dtype's rounding."""
    found, truth = found.detach(), truth.detach().double()
    apart = (found.double() - truth).norm() / truth.norm()
    return float(apart) / torch.finfo(found.dtype).eps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", PLANS)
def test_loss_and_gradients_are_those_of_the_logits(kind, dtype, device, by_plan):
    for setting, reduction in itertools.product(SETTINGS, REDUCTIONS):
        # No plan of chunks has a gradient for each row.
        by_plan(SLICES if (kind, reduction) == (CHUNKS, "none") else kind)
        with naming(setting, reduction):
            assert_is_that_of_the_logits(SETTINGS[setting], reduction, dtype, device)


def assert_is_that_of_the_logits(settings, reduction, dtype, device):
    given = operands(dtype, device)
    incoming = torch.randn(ROWS if reduction == "none" else (), device=device).to(dtype)
    tensors = leaves(given)
    loss = loss_of(given, tensors, weight=given["class_weight"], reduction=reduction, **settings)
    found = [loss, *torch.autograd.grad(loss, tensors, incoming)]
    assert [each.dtype for each in found] == [dtype] * 4
    truths = expected(given, reduction, settings, incoming)
    # What the rounding of the logits makes of it is PyTorch's error too.
    theirs = expected(given, reduction, settings, incoming, dtype)
    for name, mine, other, truth in zip(
        ("loss", "input", "linear_weight", "linear_bias"), found, theirs, truths, strict=True
    ):
        assert error(mine, truth) < max(MOST_ERROR.get(dtype, 4), 2 * error(other, truth)), name


@pytest.mark.parametrize("kind", [WHOLE, SLICES, "kept"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_log_probs_have_any_gradient_for_each_token(dtype, kind, device, by_plan):
    for softcap, entropy in itertools.product((0.0, 5.0), (False, True)):
        by_plan(SLICES if entropy and kind == WHOLE else kind)
        with naming(f"softcap {softcap}", "with entropies" if entropy else "alone"):
            assert_log_probs_are_those_of_the_logits(dtype, softcap, entropy, device)


def assert_log_probs_are_those_of_the_logits(dtype, softcap, entropy, device):
    given = operands(dtype, device, ignored=False)
    mask = torch.rand(ROWS, device=device) > 0.4
    hidden, layer, bias = tensors = leaves(given)
    settings: dict[str, Any] = {"temperature": 1.3, "softcap": softcap}
    found = functional.linear_token_log_probs(
        hidden, layer, given["target"], linear_bias=bias, mask=mask, entropy=entropy, **settings
    )
    found = found if entropy else (found,)
    wide = leaves(given, torch.float64)
    logs = logits_of(wide[0], wide[1], wide[2], **settings).log_softmax(1)
    truth = [logs.gather(1, given["target"].unsqueeze(1)).squeeze(1) * mask]
    if entropy:
        truth.append(-(logs.exp() * logs).sum(1) * mask)
    incoming = [torch.randn(ROWS, device=device) for _ in truth]
    narrow = [g.to(f.dtype) for g, f in zip(incoming, found, strict=True)]
    mine = torch.autograd.grad(found, tensors, narrow)
    theirs = torch.autograd.grad(truth, wide, [g.double() for g in incoming])
    for one, other in zip((*found, *mine), (*truth, *theirs), strict=True):
        rounding = torch.finfo(dtype).eps / torch.finfo(one.dtype).eps  # that of the logits
        assert error(one, other) < (40 if dtype == torch.float64 else 12 * rounding)
    assert all((each[~mask] == 0).all() for each in found)
    assert found[0].dtype == torch.promote_types(dtype, torch.float32)
    assert (found[0] <= 0).all()


def ulp_apart(found: Tensor, truth: Tensor) -> float:
    """Return how far an element is from the truth at most, in ulp of float16."""
    exponents = truth.abs().clamp(min=2.0**-14).log2().floor()
    return float(((found.double() - truth).abs() / torch.exp2(exponents - 10)).max())


@pytest.mark.parametrize("by", ["grad_output", "class weights", "grad_output of entropies"])
@pytest.mark.parametrize("softcap", [0.0, 30.0])
@pytest.mark.parametrize("kind", [WHOLE, SLICES, "kept"])
def test_float16_gradients_of_rows_keep_their_digits_however_small_their_factors(
    kind, softcap, by, device, by_plan
):
    """A factor that is a power of two changes a row's gradients by just that.

    Rows with large factors are of the first classes, those with small ones of the others, and
    neither has a gradient for the classes of the other.
    """
    entropy = by == "grad_output of entropies"
    by_plan(SLICES if entropy and kind == WHOLE else kind)
    given = operands(torch.float16, device, ignored=False)
    few, half = CLASSES // 2, ROWS // 2
    given["bias"].fill_(0)
    given["hidden"][:half, 0] = given["weight"][:few, 0] = 8
    given["hidden"][half:, 0] = given["weight"][few:, 0] = -8
    given["target"] = torch.arange(ROWS, device=device) % half
    given["target"][half:] += few
    large = torch.full((ROWS,), 2.0**9, device=device)
    factors = large.clone()
    factors[half:] = 2.0**-10

    def gradients(of_rows):
        tensors, weight = leaves(given), None
        if by == "class weights":
            weight = torch.ones(CLASSES, device=device)
            weight[given["target"]] = of_rows
            of_rows = torch.ones_like(of_rows)
        hidden, linear_weight, bias = tensors
        layer: dict[str, Any] = {"linear_bias": bias, "softcap": softcap}
        rows = (hidden, linear_weight, given["target"])
        if entropy:
            found = functional.linear_token_log_probs(*rows, entropy=True, **layer)
        else:
            layer["weight"] = None if weight is None else weight.half()
            found = (functional.linear_cross_entropy(*rows, reduction="none", **layer),)
        return torch.autograd.grad(found, tensors, [of_rows.to(each.dtype) for each in found])

    other, found = gradients(large), gradients(factors)
    of_rows = (factors / large).double().unsqueeze(1)
    assert ulp_apart(found[0], other[0].double() * of_rows) <= 1
    for classes, factor in ((slice(few), of_rows[0]), (slice(few, None), of_rows[-1])):
        for mine, theirs in zip(found[1:], other[1:], strict=True):
            assert ulp_apart(mine[classes], theirs[classes].double() * factor) <= 1


def test_bfloat16_gradients_are_not_added_up_in_bfloat16(device, by_plan):
    """Parts of rows and of classes cost no digits, however many they are."""
    given = operands(torch.bfloat16, device)
    hidden, weight, _ = leaves(given)
    logits = linear(hidden, weight).detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(cross_entropy(logits, given["target"]), logits)
    exact = slope @ weight.double(), slope.t() @ hidden.double()
    for kind in PLANS:
        by_plan(kind)
        loss = functional.linear_cross_entropy(hidden, weight, given["target"])
        for mine, truth in zip(torch.autograd.grad(loss, (hidden, weight)), exact, strict=True):
            assert error(mine, truth) < 0.5, kind


def test_token_weights_log_sums_and_frozen_operands(device, by_plan):
    """Each with the loss and the gradients of PyTorch, and again from a retained graph."""
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)
    target, counts = given["target"], given["target"] != -100
    of_tokens = torch.rand(ROWS, device=device, dtype=torch.float64)
    whole = linear(hidden, weight)
    mean = cross_entropy(whole, target)
    weighted = (cross_entropy(whole, target, reduction="none") * of_tokens).sum() / of_tokens[
        counts
    ].sum()
    for kind in PLANS:
        with naming(kind):
            by_plan(kind)
            for softcap in (0.0, 5.0):
                loss, found = functional.linear_cross_entropy(
                    hidden, weight, target, softcap=softcap, return_lse=True
                )
                logits = logits_of(hidden, weight, None, 1, softcap)
                assert_close(found, torch.logsumexp(logits, 1).detach())
                assert not found.requires_grad
                assert_same(loss, cross_entropy(logits, target), hidden, weight)
            for frozen, wanted in ((hidden, weight), (weight, hidden)):
                h, w = (x.detach() if x is frozen else x for x in (hidden, weight))
                loss = functional.linear_cross_entropy(h, w, target)
                truth = torch.autograd.grad(mean, wanted, retain_graph=True)
                for _ in range(2):
                    assert_close(torch.autograd.grad(loss, wanted, retain_graph=True), truth)
            by_plan(SLICES if kind == CHUNKS else kind)
            loss = functional.linear_cross_entropy(hidden, weight, target, token_weight=of_tokens)
            mine = torch.autograd.grad(loss, (hidden, weight))
            assert_close(loss, weighted)
            theirs = torch.autograd.grad(weighted, (hidden, weight), retain_graph=True)
            assert_close(mine, theirs)


def test_hidden_states_of_any_shape(device):
    for shape, reduction in itertools.product(((), (1,), (0,), (2, 0), (3, 2, 4)), REDUCTIONS):
        hidden = torch.randn(*shape, WIDTH, device=device, dtype=torch.float64, requires_grad=True)
        weight = torch.randn(CLASSES, WIDTH, device=device).double().requires_grad_()
        target = torch.randint(CLASSES, shape, device=device)
        loss = functional.linear_cross_entropy(hidden, weight, target, reduction=reduction)
        rows = linear(hidden.reshape(-1, WIDTH), weight)
        truth = cross_entropy(rows, target.reshape(-1), reduction=reduction)
        truth = truth.view(shape) if reduction == "none" else truth
        with naming(shape, reduction):
            assert_same(loss, truth, hidden, weight)


OF_VALUES = ("extreme_values", "boundary_sizes", "layouts", "out_of_range_classes")


@pytest.mark.parametrize(
    "kind",
    [each if number % 2 else pytest.param(each, marks=SLOW) for number, each in enumerate(PLANS)],
)
def test_each_plan_passes_the_checks_of_hidden_states(kind, device, by_plan):
    by_plan(kind)
    for dtype in ("float32", "float16"):
        settings = {"dtype": dtype, "device": device, "distribution": "normal", "scale": 2.0}
        for reduction in REDUCTIONS[: 2 if kind == CHUNKS else 3]:
            shape = (ROWS, WIDTH, CLASSES)
            case = case_of("linear_cross_entropy", shape, reduction=reduction, **settings)
            results = put(case, find_implementation("custom"), checks=("retain_graph", *OF_VALUES))
            with naming(dtype, reduction):
                assert [(r.check, r.reason) for r in results if r.status != PASS] == []


@pytest.mark.parametrize("entropy", [False, True], ids=["alone", "with_entropies"])
def test_second_derivatives_are_those_of_the_logits(entropy, device):
    given = operands(torch.float64, device, ignored=not entropy)
    hidden, weight, bias = leaves(given)

    def penalty(loss):
        tensors = (hidden, weight, bias)
        first = torch.autograd.grad(loss, tensors, create_graph=True)
        return torch.autograd.grad(torch.stack([(each**2).sum() for each in first]).sum(), tensors)

    target = given["target"]
    if entropy:
        found = functional.linear_token_log_probs(
            hidden, weight, target, linear_bias=bias, softcap=5.0, entropy=True
        )
        logs = logits_of(hidden, weight, bias, 1, 5.0).log_softmax(1)
        truth = (logs.gather(1, target.unsqueeze(1)).squeeze(1), -(logs.exp() * logs).sum(1))
        mine, theirs = (torch.stack(list(pair)).square().sum() for pair in (found, truth))
    else:
        mine = functional.linear_cross_entropy(hidden, weight, target, linear_bias=bias)
        theirs = cross_entropy(linear(hidden, weight, bias), target)
    assert_close(penalty(mine), penalty(theirs))


def test_compilers_and_transforms_take_all_logits_at_once(device):
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)

    class Program(torch.nn.Module):
        def forward(self, hidden: Tensor, weight: Tensor = weight) -> Tensor:
            loss: Tensor = functional.linear_cross_entropy(hidden.tanh(), weight, given["target"])
            return loss

    loss_of = Program()
    truth = loss_of(hidden, weight)
    torch.compiler.reset()
    compiled = torch.compile(loss_of, backend="aot_eager", fullgraph=True)
    assert_same(compiled(hidden, weight), truth, hidden, weight)
    exported = torch.export.export(loss_of, (given["hidden"], given["weight"])).module()
    assert_close(exported(given["hidden"], given["weight"]), truth)
    hidden, weight = given["hidden"], given["weight"]
    several = torch.stack([hidden, 2 * hidden])
    of = partial(loss_of, weight=weight)
    assert_close(torch.vmap(of)(several), torch.stack([of(each) for each in several]))
    wanted = hidden.clone().requires_grad_()
    (slope,) = torch.autograd.grad(of(wanted), wanted)
    assert_close(torch.func.grad(of)(hidden), slope)
    assert_close(torch.func.jvp(of, (hidden,), (hidden,))[1], (slope * hidden).sum())


def test_meta_tensors_have_the_form_of_real_ones():
    given = operands(torch.bfloat16, "cpu")
    real = (given["hidden"], given["weight"], given["target"])
    meta = [each.to("meta") for each in real]
    for reduction in ("mean", "none"):
        named: dict[str, Any] = {"reduction": reduction, "return_lse": True}
        found = functional.linear_cross_entropy(*meta, **named)
        truths = functional.linear_cross_entropy(*real, **named)
        for one, other in zip(found, truths, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
            assert one.is_meta


def test_autocast_takes_its_dtype_and_returns_float32_and_leaves_float64(device, by_plan):
    for kind, inside in itertools.product(PLANS, (True, False)):
        by_plan(kind)
        given = operands(torch.float32, device)
        tensors = leaves(given)
        named: dict[str, Any] = {"label_smoothing": 0.1}
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(given, tensors, **named)
            truth = cross_entropy(linear(*tensors), given["target"], **named)
            mine = torch.autograd.grad(loss, tensors) if inside else ()
        with naming(kind, "backward inside" if inside else "backward outside"):
            assert loss.dtype == truth.dtype == torch.float32
            assert_close(loss, truth, rtol=1e-2, atol=1e-2)
            mine = mine or torch.autograd.grad(loss, tensors)
            assert [each.dtype for each in mine] == [torch.float32] * 3
            for one, other in zip(mine, torch.autograd.grad(truth, tensors), strict=True):
                assert error(one, other) * torch.finfo(torch.float32).eps < 2e-2
    given = operands(torch.float64, device)
    with torch.autocast(device, torch.bfloat16):
        loss = loss_of(given, tensors := leaves(given))
    assert_close(loss, cross_entropy(linear(*tensors), given["target"]))


def test_a_weight_that_also_made_the_hidden_states(device, by_plan):
    given = operands(torch.float64, device)
    weight = given["weight"].clone().requires_grad_()
    words = torch.randint(CLASSES, (ROWS,), device=device)

    def slope_of(loss, create_graph):
        hidden = torch.nn.functional.embedding(words, weight).tanh()
        found: Tensor = loss(hidden, weight, given["target"])
        return torch.autograd.grad(found, weight, create_graph=create_graph)[0]

    def theirs(hidden, weight, target):
        return cross_entropy(linear(hidden, weight), target)

    for kind, create_graph in itertools.product(PLANS, (False, True)):
        by_plan(kind)
        with naming(kind, create_graph):
            mine = slope_of(functional.linear_cross_entropy, create_graph)
            assert_close(mine, slope_of(theirs, create_graph))


def test_class_indices_of_other_integers(device):
    given = operands(torch.float64, device, ignored=False)
    target = torch.tensor([156, 1, 200, 255], device=device)
    hidden, named = given["hidden"][:4], {"reduction": "none"}
    truth = cross_entropy(linear(hidden, given["weight"]), target, reduction="none")
    for of in (target.byte(), target.int()):
        assert_close(loss_of({"target": of}, (hidden, given["weight"]), **named), truth)


def test_float16_logits_that_are_too_large(device, by_plan):
    by_plan(SLICES)
    hidden = torch.full((1, 2), 300.0, device=device).half().requires_grad_()
    weight = torch.cat([torch.full((128, 2), -300.0), torch.randn(20, 2) / 100]).to(device).half()
    loss = functional.linear_cross_entropy(hidden, weight, torch.tensor([130], device=device))
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert gradient.isfinite().all()


def test_backward_raises_after_the_class_weight_was_changed_in_place(device):
    given = operands(torch.float32, device)
    loss = loss_of(given, leaves(given), weight=given["class_weight"], memory_budget=10**5)
    given["class_weight"].mul_(7)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_classes_that_a_bias_leaves_out(device, by_plan):
    """Logits of -inf, of whole slices, of the first classes of others, and of a row's own."""
    by_plan(SLICES)
    given = operands(torch.float64, device, ignored=False)
    given["bias"][:140] = -torch.inf
    given["target"] = given["target"].clamp(min=140)
    given["target"][7] = 3
    hidden, weight, _ = tensors = leaves(given)
    losses = loss_of(given, tensors, reduction="none")
    truth = cross_entropy(linear(*tensors), given["target"], reduction="none")
    assert_close(losses, truth)
    assert torch.isinf(losses[7])
    incoming = torch.rand(ROWS, device=device, dtype=torch.float64)
    incoming[7] = 0
    mine = torch.autograd.grad(losses, (hidden, weight), incoming)
    assert_close(mine, torch.autograd.grad(truth, (hidden, weight), incoming))


GIVEN: dict[str, Any] = {
    "input": torch.zeros(4, 8),
    "linear_weight": torch.zeros(9, 8),
    "target": torch.zeros(4, dtype=torch.int64),
}


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"linear_weight": torch.zeros(9, 7)}, ValueError, r"input is \[4, 8\] and linear_weight"),
    ({"linear_weight": torch.zeros(8)}, ValueError, r"linear_weight must be \(C, D\)"),
    ({"linear_bias": torch.zeros(8)}, ValueError, r"linear_bias must have .* \[9\]"),
    ({"weight": torch.zeros(8)}, ValueError, r"weight must have .* \[9\]"),
    ({"weight": torch.zeros(9, requires_grad=True)}, ValueError, r"weight\.detach"),
    ({"target": torch.zeros(3, dtype=torch.int64)}, ValueError, r"target must .* \[4\]"),
    ({"target": torch.zeros(4, 9)}, TypeError, "probabilities call cross_entropy"),
    ({"input": torch.zeros(4, 8, dtype=torch.int64)}, TypeError, "but is torch.int64"),
    ({"input": torch.zeros(4, 8).half()}, TypeError, "linear_weight must have the dtype"),
    ({"token_weight": torch.zeros(3)}, ValueError, r"token_weight must have the shape"),
    ({"reduction": "max"}, ValueError, "reduction must be"),
    ({"temperature": 0.0}, ValueError, "linear_cross_entropy: temperature must be"),
    ({"label_smoothing": 1.5}, ValueError, "label_smoothing must be"),
    ({"memory_budget": 10}, ValueError, "memory_budget is 10 B.* give at least 224 bytes"),
]


def test_bad_arguments_are_named():
    for changes, kind, said in BAD:
        with pytest.raises(kind, match=said):
            functional.linear_cross_entropy(**{**GIVEN, **changes})
    for mask in (torch.ones(3, dtype=torch.bool), torch.ones(4)):
        with pytest.raises(ValueError, match="mask must be bool and have the shape of tokens"):
            functional.linear_token_log_probs(*GIVEN.values(), mask=mask)


def test_running_out_of_memory_says_which_budget_fits(monkeypatch):
    def forward(*_):
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setitem(plans.PLANS, WHOLE, (forward, None))
    weight = torch.zeros(9, 8, requires_grad=True)
    with pytest.raises(torch.OutOfMemoryError, match=r"plan 'whole'.* least is \d+ bytes"):
        functional.linear_cross_entropy(GIVEN["input"], weight, GIVEN["target"])
    assert weight.grad is None


def test_the_module_is_torchs():
    mine = nn.LinearCrossEntropyLoss(8, 9, bias=True, ignore_index=-1, softcap=3.0)  # type: ignore[attr-defined]
    assert [name for name, _ in mine.named_parameters()] == ["linear.weight", "linear.bias"]
    found = mine(GIVEN["input"], GIVEN["target"])
    logits = 3 * torch.tanh(mine.linear(GIVEN["input"]) / 3)
    assert_close(found, cross_entropy(logits, GIVEN["target"]))
    assert "softcap=3.0" in repr(mine)
    for setting in ("soft_cap", "token_weight"):
        with pytest.raises(TypeError, match=f"no setting '{setting}'"):
            nn.LinearCrossEntropyLoss(8, 9, **{setting: 3.0})  # type: ignore[arg-type,attr-defined]


BIG = Size(rows=8192, width=4096, classes=128256, item=2)
LOGITS = 8192 * 128256 * 2
SUMS = 2048 * 4096 * 4


def test_the_fastest_plan_that_fits_is_chosen():
    for budget in (None, LOGITS + SUMS):
        assert choose(BIG, budget, 2 * (LOGITS + SUMS)) == whole_plan(BIG)
    for budget in (LOGITS + SUMS - 1, 300 * 10**6):
        found = choose(BIG, budget, 2 * (LOGITS + SUMS))
        assert found.kind == SLICES
        assert found.part % 128 == 0
        assert 0.8 * budget < found.bytes <= budget
    kept = replace(BIG, whole=False)  # as memory allows
    assert choose(kept, 10**9, 0) == slices(kept, 8192, 4)
    assert choose(kept, 5 * 10**9, 0) == slices(kept, 8192, 16)
    size = Size(rows=65536, width=1024, classes=32000, item=2)  # of many rows
    found = choose(size, 2**30, 0)
    assert found == chunks(size, found.part)
    assert found.part >= 512
    assert found.bytes <= 2**30
    size = Size(8192, 4096, 128256, 2, gradients=False)  # no more than a slice is held
    found = choose(size, None, 2**40)
    assert found == slices(size, found.part)
    assert found.bytes <= 2**28


def test_the_least_plan_is_the_smallest():
    for bent in (False, True):
        size = Size(rows=10, width=4, classes=50, item=4, bent=bent)
        assert least(size).bytes <= min(slices(size, part).bytes for part in range(1, 51))
        assert least(size).bytes <= whole_plan(size).bytes
        assert choose(size, least(size).bytes, 0) == least(size)
        with pytest.raises(ValueError, match=str(least(size).bytes)):
            choose(size, least(size).bytes - 1, 0)


BUDGETS = [
    *((share, torch.float32, 0.0) for share in (0.15, 0.4, 0.9, 2.0)),
    *((0.0, dtype, cap) for dtype in (torch.float32, torch.float64) for cap in (0.0, 5.0)),
]


def test_a_call_takes_no_more_than_its_budget():
    """It takes the least that a plan can take where its share of the logits' bytes is less."""
    rows, width, classes = 256, 16, 1024
    target = torch.randint(classes, (rows,))
    for (share, dtype, softcap), gradients in itertools.product(BUDGETS, (True, False)):
        hidden = torch.randn(rows, width, dtype=dtype, requires_grad=gradients)
        weight = torch.randn(classes, width, dtype=dtype, requires_grad=gradients)
        size = Size(rows, width, classes, dtype.itemsize, gradients, bent=softcap != 0)
        budget = max(int(share * rows * classes * dtype.itemsize), least(size).bytes)
        named: dict[str, Any] = {"softcap": softcap, "memory_budget": budget}
        of = partial(functional.linear_cross_entropy, hidden, weight, target, **named)

        def call(hidden=hidden, weight=weight, of=of):
            loss = of()
            if loss.requires_grad:
                hidden.grad, weight.grad = torch.autograd.grad(loss, (hidden, weight))

        call()
        olds = 2 * (hidden.nbytes + weight.nbytes) if gradients else 0  # which go late
        with naming(share, dtype, softcap, gradients):
            assert measure_peak(call, "cpu") < budget + olds + 64 * rows
            truth = cross_entropy(logits_of(hidden, weight, None, 1, softcap), target)
            assert_close(of(), truth)
