"""Losses of hidden states are those of the logits that a linear layer makes, by every plan."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear
from torch.testing import assert_close

from losscli import functional, nn
from losscli.linear import calls
from losscli.linear import whole as whole_logits
from losscli.losses.linear.plan import (
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
from losscli.losses.linear.plan import whole as whole_plan
from losscli.machine.allocations import measure_peak
from tests.parameters import naming

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
REDUCTIONS = ("mean", "sum", "none")
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
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture
def by_plan(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that has the calls that follow computed by a plan."""

    def take(kind: str) -> None:
        monkeypatch.setattr(calls, "_plan", lambda *_: PLANS[kind])

    return take


def operands(dtype: torch.dtype, device: str, *, ignored: bool = True) -> dict[str, Tensor]:
    """Draw hidden states, the layer, class numbers, some of which are ignored, and weights."""
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
    """Return copies of the operands with gradients that want one."""
    return [given[n].to(dtype, copy=True).requires_grad_() for n in ("hidden", "weight", "bias")]


def logits_of(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float = 1, softcap: float = 0
) -> Tensor:
    found = linear(hidden, weight, bias) / temperature
    return softcap * torch.tanh(found / softcap) if softcap else found


def losses_of(
    logits: Tensor,
    target: Tensor,
    class_weight: Tensor | None,
    label_smoothing: float = 0,
    z_loss: float = 0,
) -> Tensor:
    """Return each row's loss as PyTorch computes it."""
    losses = cross_entropy(
        logits, target, class_weight, reduction="none", label_smoothing=label_smoothing
    )
    squares = torch.logsumexp(logits, 1) ** 2
    return losses + torch.where(target == -100, 0.0, z_loss * squares)


def expected(
    given: dict[str, Tensor],
    reduction: str,
    settings: dict[str, Any],
    incoming: Tensor,
    dtype: torch.dtype = torch.float64,
) -> list[Tensor]:
    """Return the loss and its gradients as PyTorch computes them in a dtype."""
    hidden, weight, bias = leaves(given, dtype)
    shape = {name: settings[name] for name in ("temperature", "softcap") if name in settings}
    rest = {name: value for name, value in settings.items() if name not in shape}
    logits, class_weight = logits_of(hidden, weight, bias, **shape), given["class_weight"].to(dtype)
    loss = losses_of(logits, given["target"], class_weight, **rest)
    if reduction != "none":
        counted = given["target"] != -100
        loss = loss.sum()
        if reduction == "mean":
            loss = loss / class_weight[given["target"][counted]].sum()
    return [loss, *torch.autograd.grad(loss, (hidden, weight, bias), incoming.to(dtype))]


def assert_same(loss: Tensor, truth: Tensor, *tensors: Tensor):
    """Compare losses, and the gradients of their sums."""
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
def test_loss_and_gradients_are_those_of_the_logits(
    kind: str, dtype: torch.dtype, device: str, by_plan: Any
):
    for setting, reduction in itertools.product(SETTINGS, REDUCTIONS):
        # No plan of chunks has a gradient for each row.
        by_plan(SLICES if (kind, reduction) == (CHUNKS, "none") else kind)
        with naming(setting, reduction):
            assert_is_that_of_the_logits(SETTINGS[setting], reduction, dtype, device)


def assert_is_that_of_the_logits(
    settings: dict[str, Any], reduction: str, dtype: torch.dtype, device: str
):
    given = operands(dtype, device)
    incoming = torch.randn(ROWS if reduction == "none" else (), device=device).to(dtype)
    hidden, weight, bias = leaves(given)
    loss = functional.linear_cross_entropy(
        hidden,
        weight,
        given["target"],
        linear_bias=bias,
        weight=given["class_weight"],
        reduction=reduction,
        **settings,
    )
    found = [loss, *torch.autograd.grad(loss, (hidden, weight, bias), incoming)]
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
def test_log_probs_have_any_gradient_for_each_token(
    dtype: torch.dtype, kind: str, device: str, by_plan: Any
):
    for softcap, entropy in itertools.product((0.0, 5.0), (False, True)):
        by_plan(SLICES if entropy and kind == WHOLE else kind)
        with naming(f"softcap {softcap}", "with entropies" if entropy else "alone"):
            assert_log_probs_are_those_of_the_logits(dtype, softcap, entropy, device)


def assert_log_probs_are_those_of_the_logits(
    dtype: torch.dtype, softcap: float, entropy: bool, device: str
):
    given = operands(dtype, device, ignored=False)
    mask = torch.rand(ROWS, device=device) > 0.4
    hidden, layer, bias = tensors = leaves(given)
    settings: dict[str, Any] = {"temperature": 1.3, "softcap": softcap}
    found = functional.linear_token_log_probs(
        hidden,
        layer,
        given["target"],
        linear_bias=bias,
        mask=mask,
        entropy=entropy,
        **settings,
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
    kind: str, softcap: float, by: str, device: str, by_plan: Any
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

    def gradients(of_rows: Tensor) -> tuple[Tensor, ...]:
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


@pytest.mark.parametrize("kind", PLANS)
def test_bfloat16_gradients_are_not_added_up_in_bfloat16(kind: str, device: str, by_plan: Any):
    """Parts of rows and of classes cost no digits, however many they are."""
    by_plan(kind)
    given = operands(torch.bfloat16, device)
    hidden, weight, _ = leaves(given)
    loss = functional.linear_cross_entropy(hidden, weight, given["target"])
    found = torch.autograd.grad(loss, (hidden, weight))
    logits = linear(hidden, weight).detach().double().requires_grad_()
    (slope,) = torch.autograd.grad(cross_entropy(logits, given["target"]), logits)
    exact = slope @ weight.double(), slope.t() @ hidden.double()
    for mine, truth in zip(found, exact, strict=True):
        assert error(mine, truth) < 0.5


@pytest.mark.parametrize("kind", PLANS)
def test_a_token_weight_multiplies_and_divides_the_mean(kind: str, device: str, by_plan: Any):
    by_plan(SLICES if kind == CHUNKS else kind)
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)
    of_tokens = torch.rand(ROWS, device=device, dtype=torch.float64)
    loss = functional.linear_cross_entropy(hidden, weight, given["target"], token_weight=of_tokens)
    counts = given["target"] != -100
    losses = losses_of(linear(hidden, weight), given["target"], None)
    truth = (losses * of_tokens).sum() / of_tokens[counts].sum()
    assert_same(loss, truth, hidden, weight)


@pytest.mark.parametrize("softcap", [0.0, 5.0])
@pytest.mark.parametrize("kind", PLANS)
def test_return_lse_returns_that_of_all_rows(kind: str, softcap: float, device: str, by_plan: Any):
    by_plan(kind)
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)
    loss, found = functional.linear_cross_entropy(
        hidden, weight, given["target"], softcap=softcap, return_lse=True
    )
    logits = logits_of(hidden, weight, None, 1, softcap)
    assert_close(found, torch.logsumexp(logits, 1).detach())
    assert not found.requires_grad
    assert_same(loss, cross_entropy(logits, given["target"]), hidden, weight)


def test_hidden_states_of_any_shape(device: str):
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


@pytest.mark.parametrize("kind", PLANS)
def test_all_rows_ignored(kind: str, device: str, by_plan: Any):
    dtypes = (torch.float32, torch.float16)
    for reduction, dtype, lse in itertools.product(REDUCTIONS, dtypes, (False, True)):
        by_plan(SLICES if (kind, reduction) == (CHUNKS, "none") else kind)
        given = operands(dtype, device)
        given["target"].fill_(-100)
        hidden, weight, _ = leaves(given)
        found = functional.linear_cross_entropy(
            *(hidden, weight, given["target"]),
            reduction=reduction,
            label_smoothing=0.1,
            return_lse=lse,
        )
        loss = found[0] if lse else found
        truth = cross_entropy(linear(hidden, weight), given["target"], reduction=reduction)
        with naming(reduction, dtype, "with the logarithms of sums" if lse else "alone"):
            assert_close(loss, truth, equal_nan=True)
            for gradient in torch.autograd.grad(loss.sum(), (hidden, weight)):
                assert not gradient.any()


@pytest.mark.parametrize("kind", PLANS)
def test_a_second_backward_of_a_retained_graph_returns_the_same(
    kind: str, device: str, by_plan: Any
):
    by_plan(kind)
    given = operands(torch.float32, device)
    tensors = leaves(given)
    loss = functional.linear_cross_entropy(
        tensors[0], tensors[1], given["target"], linear_bias=tensors[2]
    )
    first = torch.autograd.grad(loss, tensors, retain_graph=True)
    assert_close(torch.autograd.grad(loss, tensors), first, rtol=0, atol=0)


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
@pytest.mark.parametrize("kind", PLANS)
def test_frozen_operands_get_no_gradient(kind: str, frozen: str, device: str, by_plan: Any):
    by_plan(kind)
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)
    (hidden if frozen == "hidden" else weight).requires_grad_(False)
    wanted = weight if frozen == "hidden" else hidden
    loss = functional.linear_cross_entropy(hidden, weight, given["target"])
    truth = cross_entropy(linear(hidden, weight), given["target"])
    assert_close(torch.autograd.grad(loss, wanted), torch.autograd.grad(truth, wanted))


@pytest.mark.parametrize("entropy", [False, True], ids=["alone", "with_entropies"])
def test_second_derivatives_are_those_of_the_logits(entropy: bool, device: str):
    given = operands(torch.float64, device, ignored=not entropy)
    hidden, weight, bias = leaves(given)

    def penalty(loss: Tensor) -> tuple[Tensor, ...]:
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


def test_compiled_programs_have_one_graph(device: str):
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)

    def loss_of(hidden: Tensor, weight: Tensor) -> Tensor:
        loss: Tensor = functional.linear_cross_entropy(hidden.tanh(), weight, given["target"])
        return loss

    torch.compiler.reset()
    found = torch.compile(loss_of, backend="aot_eager", fullgraph=True)(hidden, weight)
    truth = loss_of(hidden, weight)
    assert_same(found, truth, hidden, weight)


def test_transforms_take_all_logits_at_once(device: str):
    given = operands(torch.float64, device)
    hidden, weight = given["hidden"], given["weight"]

    def loss_of(hidden: Tensor) -> Tensor:
        loss: Tensor = functional.linear_cross_entropy(hidden, weight, given["target"])
        return loss

    several = torch.stack([hidden, 2 * hidden])
    assert_close(torch.vmap(loss_of)(several), torch.stack([loss_of(each) for each in several]))
    wanted = hidden.clone().requires_grad_()
    (truth,) = torch.autograd.grad(loss_of(wanted), wanted)
    assert_close(torch.func.grad(loss_of)(hidden), truth)
    assert_close(torch.func.jvp(loss_of, (hidden,), (hidden,))[1], (truth * hidden).sum())


def test_meta_tensors_have_the_form_of_real_ones():
    given = operands(torch.bfloat16, "cpu")
    real = (given["hidden"], given["weight"], given["target"])
    for reduction in ("mean", "none"):
        found, log_sums = functional.linear_cross_entropy(
            *(each.to("meta") for each in real), reduction=reduction, return_lse=True
        )
        truths = functional.linear_cross_entropy(*real, reduction=reduction, return_lse=True)
        for one, other in zip((found, log_sums), truths, strict=True):
            assert (one.shape, one.dtype) == (other.shape, other.dtype)
        assert found.is_meta


def test_exported_programs_have_the_loss(device: str):
    given = operands(torch.float32, device)

    class Program(torch.nn.Module):
        def forward(self, hidden: Tensor, weight: Tensor, target: Tensor) -> Tensor:
            loss: Tensor = functional.linear_cross_entropy(hidden, weight, target)
            return loss

    arguments = (given["hidden"], given["weight"], given["target"])
    program = torch.export.export(Program(), arguments)
    assert_close(program.module()(*arguments), Program()(*arguments))


@pytest.mark.parametrize("inside", [True, False], ids=["backward_inside", "backward_outside"])
@pytest.mark.parametrize("kind", PLANS)
def test_autocast_takes_its_dtype_and_returns_float32(
    kind: str, inside: bool, device: str, by_plan: Any
):
    by_plan(kind)
    given = operands(torch.float32, device)
    tensors = leaves(given)
    hidden, weight, bias = tensors
    with torch.autocast(device, torch.bfloat16):
        loss = functional.linear_cross_entropy(
            hidden, weight, given["target"], linear_bias=bias, label_smoothing=0.1
        )
        truth = cross_entropy(linear(hidden, weight, bias), given["target"], label_smoothing=0.1)
        mine = torch.autograd.grad(loss, tensors) if inside else ()
    assert loss.dtype == truth.dtype == torch.float32
    assert_close(loss, truth, rtol=1e-2, atol=1e-2)
    mine = mine or torch.autograd.grad(loss, tensors)
    assert [each.dtype for each in mine] == [torch.float32] * 3
    for one, other in zip(mine, torch.autograd.grad(truth, tensors), strict=True):
        assert error(one, other) * torch.finfo(torch.float32).eps < 2e-2


def test_autocast_leaves_float64(device: str):
    given = operands(torch.float64, device)
    hidden, weight, _ = leaves(given)
    with torch.autocast(device, torch.bfloat16):
        loss = functional.linear_cross_entropy(hidden, weight, given["target"])
    assert_close(loss, cross_entropy(linear(hidden, weight), given["target"]))


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("kind", PLANS)
def test_a_weight_that_also_made_the_hidden_states(
    kind: str, create_graph: bool, device: str, by_plan: Any
):
    by_plan(kind)
    given = operands(torch.float64, device)
    weight = given["weight"].clone().requires_grad_()
    words = torch.randint(CLASSES, (ROWS,), device=device)

    def loss_of(loss: Any) -> Tensor:
        hidden = torch.nn.functional.embedding(words, weight).tanh()
        found: Tensor = loss(hidden)
        return torch.autograd.grad(found, weight, create_graph=create_graph)[0]

    mine = loss_of(lambda hidden: functional.linear_cross_entropy(hidden, weight, given["target"]))
    assert_close(mine, loss_of(lambda h: cross_entropy(linear(h, weight), given["target"])))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_slices_whose_sums_are_equal(dtype: torch.dtype, device: str, by_plan: Any):
    by_plan(SLICES)
    weight = torch.zeros(CLASSES, WIDTH, dtype=dtype, device=device)
    weight[3] = weight[140] = 4.0  # each the largest of its slice
    hidden = torch.ones(2, WIDTH, dtype=dtype, device=device)
    target = torch.tensor([3, 140], device=device)
    tensors = hidden.requires_grad_(), weight.requires_grad_()
    losses = functional.linear_cross_entropy(*tensors, target, reduction="none")
    truths = cross_entropy(linear(*tensors).double(), target, reduction="none")
    assert_close(losses.double(), truths, rtol=1e-2, atol=1e-2)
    for mine, other in zip(
        torch.autograd.grad(losses.sum(), tensors),
        torch.autograd.grad(truths.sum(), tensors),
        strict=True,
    ):
        assert_close(mine, other, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32], ids=str)
def test_class_numbers_of_other_integers(dtype: torch.dtype, device: str):
    given = operands(torch.float64, device, ignored=False)
    target = torch.tensor([156, 1, 200, 255], device=device)
    hidden = given["hidden"][:4]
    found = functional.linear_cross_entropy(
        hidden, given["weight"], target.to(dtype), reduction="none"
    )
    assert_close(found, cross_entropy(linear(hidden, given["weight"]), target, reduction="none"))


def test_float16_logits_that_are_too_large(device: str, by_plan: Any):
    by_plan(SLICES)
    hidden = torch.full((1, 2), 300.0, device=device).half().requires_grad_()
    weight = torch.cat([torch.full((128, 2), -300.0), torch.randn(20, 2) / 100]).to(device).half()
    loss = functional.linear_cross_entropy(hidden, weight, torch.tensor([130], device=device))
    (gradient,) = torch.autograd.grad(loss, hidden)
    assert gradient.isfinite().all()


def test_backward_raises_after_the_class_weight_was_changed_in_place(device: str):
    given = operands(torch.float32, device)
    hidden, weight, _ = leaves(given)
    loss = functional.linear_cross_entropy(
        hidden, weight, given["target"], weight=given["class_weight"], memory_budget=10**5
    )
    given["class_weight"].mul_(7)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("number", [CLASSES, -1])
@pytest.mark.parametrize("kind", [WHOLE, SLICES])
def test_a_target_that_is_no_class(kind: str, number: int, device: str, by_plan: Any):
    by_plan(kind)
    given = operands(torch.float32, device)
    given["target"][5] = number
    hidden, weight, _ = leaves(given)
    if device == "cpu":
        with pytest.raises(IndexError, match=rf"has class {number}, but .* 0 to {CLASSES - 1}"):
            functional.linear_cross_entropy(hidden, weight, given["target"], label_smoothing=0.1)
        return
    loss = functional.linear_cross_entropy(hidden, weight, given["target"], reduction="none")
    assert loss.isnan().nonzero().tolist() == [[5]]
    (gradient,) = torch.autograd.grad(loss.sum(), hidden)
    assert gradient.isnan().any(1).nonzero().tolist() == [[5]]


def test_classes_that_a_bias_leaves_out(device: str, by_plan: Any):
    """Logits of -inf, of whole slices, of the first classes of others, and of a row's own."""
    by_plan(SLICES)
    given = operands(torch.float64, device, ignored=False)
    given["bias"][:140] = -torch.inf
    given["target"] = given["target"].clamp(min=140)
    given["target"][7] = 3
    hidden, weight, bias = leaves(given)
    losses = functional.linear_cross_entropy(
        hidden, weight, given["target"], linear_bias=bias, reduction="none"
    )
    truth = losses_of(linear(hidden, weight, bias), given["target"], None)
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


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
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
    ],
)
def test_bad_arguments_are_named(changes: dict[str, Any], kind: type[Exception], said: str):
    with pytest.raises(kind, match=said):
        functional.linear_cross_entropy(**{**GIVEN, **changes})


@pytest.mark.parametrize("mask", [torch.ones(3, dtype=torch.bool), torch.ones(4)], ids=str)
def test_a_mask_that_does_not_fit_is_named(mask: Tensor):
    with pytest.raises(ValueError, match="mask must be bool and have the shape of tokens"):
        functional.linear_token_log_probs(*GIVEN.values(), mask=mask)


def test_running_out_of_memory_says_which_budget_fits(monkeypatch: pytest.MonkeyPatch):
    def forward(*_: Any) -> None:
        raise torch.OutOfMemoryError("none left")

    monkeypatch.setattr(whole_logits, "forward", forward)
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


@pytest.mark.parametrize(
    ("budget", "plan"),
    [
        (None, whole_plan(BIG)),
        (LOGITS + SUMS, whole_plan(BIG)),
        (LOGITS + SUMS - 1, None),
        (300 * 10**6, None),
    ],
)
def test_the_fastest_plan_that_fits_is_chosen(budget: int | None, plan: Plan | None):
    found = choose(BIG, budget, 2 * (LOGITS + SUMS))
    if plan:
        assert found == plan
        return
    assert budget
    assert found.kind == SLICES
    assert found.part % 128 == 0
    assert 0.8 * budget < found.bytes <= budget


def test_chunks_of_rows_are_chosen_where_there_are_many_rows():
    size = Size(rows=65536, width=1024, classes=32000, item=2)
    found = choose(size, 2**30, 0)
    assert found == chunks(size, found.part)
    assert found.part >= 512
    assert found.bytes <= 2**30


@pytest.mark.parametrize("bent", [False, True])
def test_the_least_plan_is_the_smallest(bent: bool):
    size = Size(rows=10, width=4, classes=50, item=4, bent=bent)
    assert least(size).bytes <= min(slices(size, part).bytes for part in range(1, 51))
    assert least(size).bytes <= whole_plan(size).bytes
    assert choose(size, least(size).bytes, 0) == least(size)
    with pytest.raises(ValueError, match=str(least(size).bytes)):
        choose(size, least(size).bytes - 1, 0)


@pytest.mark.parametrize(
    ("share", "dtype", "softcap"),
    [
        *((share, torch.float32, 0.0) for share in (0.15, 0.4, 0.9, 2.0)),
        *((0.0, dtype, cap) for dtype in (torch.float32, torch.float64) for cap in (0.0, 5.0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("gradients", [True, False], ids=["with_gradients", "without"])
def test_a_call_takes_no_more_than_its_budget(
    share: float, gradients: bool, dtype: torch.dtype, softcap: float
):
    """It takes the least that a plan can take where its share of the logits' bytes is less."""
    rows, width, classes = 256, 16, 1024
    hidden = torch.randn(rows, width, dtype=dtype, requires_grad=gradients)
    weight = torch.randn(classes, width, dtype=dtype, requires_grad=gradients)
    target = torch.randint(classes, (rows,))
    size = Size(rows, width, classes, dtype.itemsize, gradients, bent=softcap != 0)
    budget = max(int(share * rows * classes * dtype.itemsize), least(size).bytes)

    def call() -> None:
        loss = functional.linear_cross_entropy(
            hidden, weight, target, softcap=softcap, memory_budget=budget
        )
        if gradients:
            hidden.grad, weight.grad = torch.autograd.grad(loss, (hidden, weight))

    call()
    gradient_bytes = 2 * (hidden.nbytes + weight.nbytes) if gradients else 0  # the old ones go late
    assert measure_peak(call, "cpu") < budget + gradient_bytes + 64 * rows
    truth = cross_entropy(logits_of(hidden, weight, None, 1, softcap), target)
    found = functional.linear_cross_entropy(
        hidden, weight, target, softcap=softcap, memory_budget=budget
    )
    assert_close(found, truth)


def test_without_gradients_no_more_than_a_slice_is_held():
    size = Size(8192, 4096, 128256, 2, gradients=False)
    found = choose(size, None, 2**40)
    assert found == slices(size, found.part)
    assert found.bytes <= 2**28


@pytest.mark.parametrize(("budget", "kept"), [(10**9, 4), (5 * 10**9, 16)])
def test_slices_are_kept_as_memory_allows(budget: int, kept: int):
    size = replace(BIG, whole=False)
    assert choose(size, budget, 0) == slices(size, 8192, kept)
