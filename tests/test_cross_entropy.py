"""cross_entropy is torch.nn.functional.cross_entropy, in any form that PyTorch calls it.

What all losses over rows have in common is tested by ``test_row_losses.py``, and PyTorch's own
samples are put to it by ``kernels/test_outside_judge.py``.
"""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from losscli import functional
from losscli.losses import LOSS, ROW_LOSSES, find_loss
from losscli.nn import CrossEntropyLoss
from tests.gradients import both, ramp
from tests.parameters import naming

SPEC = ROW_LOSSES["cross_entropy"]
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
REDUCTIONS = ("none", "mean", "sum")
GPU = "cuda"
EXTRAS = {"temperature": 1.3, "softcap": 3.7, "z_loss": 1e-2}

Loss = Callable[..., Tensor]
OURS: Loss = functional.cross_entropy
WITH_GRAD: Callable[..., tuple[Tensor, Tensor]] = functional.cross_entropy_with_grad
TORCHS: Loss = torch.nn.functional.cross_entropy

# torch's own advice, of what its tests import.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def logits(*shape: int, device: str, dtype: torch.dtype = torch.float32) -> Tensor:
    return (3 * torch.randn(shape, device=device)).to(dtype).requires_grad_()


def numbers(classes: int, *shape: int, device: str) -> Tensor:
    return torch.randint(classes, shape, device=device)


SHAPES = (
    *((5,), (4, 7), (3, 5, 2), (2, 3, 4, 5), (1, 1), (33, 1000)),
    *((67, 2), (40, 5), (3, 4, 50)),  # of rows that a CPU computes 32 at a time
    *((0, 4), (0, 4, 3), (2, 4, 0)),
)


def test_loss_and_gradient_equal_torchs_in_any_shape(device):
    """In each dtype `test_row_losses.py` measures them by the oracle."""
    for shape, reduction in itertools.product(SHAPES, REDUCTIONS):
        input = logits(*shape, device=device, dtype=torch.float64)
        dim = 0 if len(shape) == 1 else 1
        classes, rows = shape[dim], shape[:dim] + shape[dim + 1 :]
        target = numbers(classes, *rows, device=device)
        weight = torch.rand(classes, device=device).double()
        probabilities = torch.softmax(torch.randn(shape, device=device), dim).double()
        for each, smoothing in itertools.product((None, weight), (0.0, 0.1)):
            settings: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing}
            for of in (target, probabilities):
                losses = (function(input, of, each, **settings) for function in (OURS, TORCHS))
                ours, theirs = (both(loss, input, incoming=ramp(loss)) for loss in losses)
                with naming(shape, settings, of.dtype, "weighted" if each is weight else "plain"):
                    assert_close(ours, theirs, equal_nan=True)


def extended(input: Tensor, target: Tensor, **named: Any) -> Tensor:
    """Write out temperature, softcap and z_loss for class indices, by torch's own loss."""
    capped = 3.7 * torch.tanh(input / 1.3 / 3.7)
    rows = TORCHS(capped, target, reduction="none", ignore_index=1)
    rows = rows + 1e-2 * (target != 1) * capped.logsumexp(1) ** 2
    return rows.sum() / (target != 1).sum()


def test_temperature_softcap_and_z_loss_do_what_they_say(device):
    input, target = logits(11, 8, device=device), numbers(8, 11, device=device)
    target[::3] = 1
    exact = input.detach().double().requires_grad_()
    got = both(OURS(input, target, ignore_index=1, **EXTRAS), input)
    for ours, due in zip(got, both(extended(exact, target), exact), strict=True):
        assert_close(ours.double(), due, rtol=1e-6, atol=1e-7)


def test_formulas_of_the_spec_equal_the_kernels(device):
    input, weight = logits(6, 5, 2, device=device, dtype=torch.float64), torch.rand(5).to(device)
    kinds = {"": numbers(5, 6, 2, device=device)}
    kinds["_with_probabilities"] = torch.rand(6, 5, 2, device=device)
    weight = weight.double()
    for (kind, target), reduction in itertools.product(kinds.items(), REDUCTIONS):
        composed = getattr(torch.ops.losscli, f"{SPEC.name}{kind}_backward_reference")
        for extras in ({}, EXTRAS):
            named: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1, **extras}
            named |= {} if kind else {"ignore_index": 2}
            loss = OURS(input, target, weight, **named)
            value, derivative = both(loss, input, incoming=ramp(loss))
            settings = (named.get(p.name, p.default) for p in SPEC.parameters)
            found = composed(ramp(loss), input, target, weight, reduction, *settings, [True])
            with naming(kind, named):
                assert_close(SPEC.reference(input, target, weight, **named).detach(), value)
                assert_close(found.detach(), derivative)


def test_logits_changed_through_data_are_computed_again(device):
    input, target = logits(9, 8, device=device), numbers(8, 9, device=device)
    loss = OURS(input, target)
    other = logits(9, 8, device=device)
    input.data = other.detach()
    loss.backward()
    assert_close(input.grad, both(TORCHS(other, target), other)[1])


def test_with_grad_returns_the_gradient_in_place_or_not(device):
    for strided, reduction, inplace in itertools.product((False, True), REDUCTIONS, (False, True)):
        input, target = logits(6, 12, 2, 3, device=device), numbers(6, 6, 2, 3, device=device)
        input = input[:, ::2].transpose(2, 3) if strided else input[:, :6].contiguous()
        target = target.transpose(1, 2).contiguous() if strided else target
        loss = OURS(input, target, reduction=reduction)
        due = both(loss, input, incoming=torch.ones_like(loss))
        given = input.detach().clone()
        if strided:
            given = torch.empty(6, 12, 2, 3, device=device)[:, ::2].transpose(2, 3).copy_(given)
        before, version = given.clone(), given._version
        got = WITH_GRAD(given, target, reduction=reduction, inplace=inplace)
        with naming("strided" if strided else "contiguous", reduction, inplace):
            assert all(map(torch.equal, got, due))
            assert due[1].stride() == torch.empty_like(input).stride()
            assert (got[1] is given) == inplace
            assert (given._version > version) == inplace
            assert torch.equal(given, got[1] if inplace else before)


def test_with_grad_does_not_write_over_what_requires_grad(device):
    input, target = logits(3, 4, device=device), numbers(4, 3, device=device)
    with pytest.raises(RuntimeError, match="requires grad"):
        WITH_GRAD(input, target, inplace=True)
    with torch.no_grad():
        WITH_GRAD(input, target, inplace=True)
        assert WITH_GRAD(input.half(), target, inplace=True)[0].dtype == torch.float16


def test_gradients_of_target_and_weight_are_torchs(device):
    input = logits(4, 5, device=device, dtype=torch.float64)
    target = torch.rand(4, 5, device=device, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(5, device=device, dtype=torch.float64, requires_grad=True)
    leaves, results = (input, target, weight), []
    for function in (OURS, TORCHS):
        loss = function(input, target, weight, label_smoothing=0.1)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        total = torch.stack([(each**2).sum() for each in first]).sum()
        results.append((*first, *torch.autograd.grad(total, leaves)))
    for ours, theirs in zip(*results, strict=True):
        assert_close(ours, theirs)


# --- compilers, autocast, modules ---


def test_compilers_take_loss_gradient_and_module(device):
    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(input, target):
        doubled = 2 * input
        _, gradient = WITH_GRAD(doubled, target, inplace=True)
        return gradient + doubled

    input, target = logits(3, 5, device=device), numbers(5, 3, device=device)
    plain = input.detach()
    assert_close(step(plain, target), 2 * WITH_GRAD(2 * plain, target)[1])
    settings: dict[str, Any] = {"ignore_index": 2, "reduction": "sum", "label_smoothing": 0.1}
    module = CrossEntropyLoss(torch.rand(5), **settings).to(device)
    theirs = torch.nn.CrossEntropyLoss(torch.rand(5), **settings).to(device)
    theirs.load_state_dict(module.state_dict())
    assert_close(module(plain, target), theirs(plain, target))
    exported = torch.export.export(module, (plain, target)).module()
    assert torch.equal(exported(plain, target), module(plain, target))
    due = both(OURS(input, target), input)[1]
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager", fullgraph=True)):
        OURS(input, target).backward()
    assert_close(input.grad, due)


def test_autocast_computes_as_torchs(device):
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        input, target = logits(4, 7, device=device, dtype=dtype), numbers(7, 4, device=device)
        with torch.autocast(device, dtype=torch.bfloat16):
            ours = OURS(input, target)
            assert ours.dtype == TORCHS(input, target).dtype
        # On a GPU torch's log_softmax rounds to 16 bits in between.
        theirs = TORCHS(input.float() if dtype.itemsize == 2 else input, target)
        for got, due in zip(both(ours, input), both(theirs, input), strict=True):
            assert_close(got, due.to(got.dtype))


def test_probabilities_of_another_dtype_are_promoted(device):
    input = logits(4, 5, device=device, dtype=torch.float16)
    target = torch.rand(4, 5, device=device)
    ours, theirs = OURS(input, target), TORCHS(input.float(), target)
    assert ours.dtype == torch.float32
    got, due = both(ours, input), both(theirs, input)
    assert got[1].dtype == torch.float16
    assert_close(got, due)


# The bytes of a row and where it lies decide its kernel: columns, registers, teams of 1 to 8 warps,
# rings of 1 to 8 blocks; a thread of each warp, a warp, a block, or the slots of teams.
FEW_CLASSES = (1, 2, 7, 16, 33, 64, 129, 1000, 1001, 4097)
MANY_CLASSES = (8192, 16384, 32000, 50257, 140003, 300007)
FORMS = (
    *(("numbers", each) for each in (0.0, 0.1, 1.0)),
    ("weighted", 0.1),
    ("probabilities", 0.1),
)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["dense", "shifted", "strided", "low", "sure", "large"])
@pytest.mark.parametrize("classes", [*FEW_CLASSES, *MANY_CLASSES])
@pytest.mark.parametrize("softcap", [0.0, 30.0])
@pytest.mark.parametrize(("form", "smoothing"), FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_rows_equal_the_formula_in_float64(dtype, form, smoothing, softcap, classes, kind):
    rows = 301 if classes in FEW_CLASSES else 101
    input = 3 * torch.randn(rows, classes + 3, device=GPU)
    target = numbers(classes, rows, device=GPU)
    target[::7] = -100
    target[1::50], target[2::50] = 0, classes - 1
    shares = torch.softmax(torch.randn(rows, classes + 3, device=GPU), 1)
    if kind == "sure":
        input[torch.arange(rows), target.clamp(min=0) + 1] += 25
    if kind == "large":
        input *= 1000
    if kind == "low" and classes > 1:
        input[::3, classes // 2], shares[::3, classes // 2] = -torch.inf, 0

    def laid(values):
        values = values.to(dtype)[:, 1 : classes + 1]
        if kind == "strided":
            return values.t().contiguous().t()
        return values if kind == "shifted" else values.contiguous()

    count: Any = rows
    leaves, weight = [laid(input).requires_grad_()], None
    if form == "probabilities":
        leaves.append(laid(shares).requires_grad_())
        target = leaves[1]
    if form == "weighted" or (form == "probabilities" and kind != "dense"):
        weight = (torch.rand(classes, device=GPU) + 0.1).to(dtype)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    wide = exact[-1] if form == "probabilities" else target
    of_classes = None if weight is None else weight.double()
    if form != "probabilities":
        counted = target[target != -100]
        count = len(counted) if of_classes is None else of_classes[counted].sum()
    named = {"label_smoothing": smoothing, "softcap": softcap, "temperature": 1.3, "z_loss": 1e-3}
    terms = SPEC.terms.of(exact[0].detach(), wide.detach(), of_classes, **named)
    names = ("input", "target")[: len(leaves)]
    name = "cross_entropy_with_probabilities" if form == "probabilities" else "cross_entropy"
    tolerance = find_loss(name if weight is None else f"weighted_{name}").tolerance
    ulps = max(4 * tolerance.factor if tolerance else 0, 6)
    eps, tiny = torch.finfo(dtype).eps, torch.finfo(dtype).smallest_normal
    for reduction in REDUCTIONS:
        loss = OURS(leaves[0], target, weight, reduction=reduction, **named)
        got = both(loss, *leaves, incoming=ramp(loss))
        losses = SPEC.reference(exact[0], wide, of_classes, reduction="none", **named)
        divisor = {"none": 1, "mean": count, "sum": 1}[reduction]
        due, of_loss = (
            each if reduction == "none" else each.sum() / divisor
            for each in (losses, terms[LOSS].nan_to_num(posinf=0.0))
        )
        (of_row,) = torch.autograd.grad(due, losses, ramp(due), retain_graph=True)
        expected = both(due, *exact, incoming=ramp(due))
        is_loose = form == "numbers" or reduction != "none"
        scales = [of_loss, *(terms[name] * of_row.abs()[:, None] for name in names)]
        for ours, theirs, scale in zip(got, expected, scales, strict=True):
            # Roundings of float32, then of the dtype. Sums and gradients that cancel are off by
            # what float32 rounds of their parts. float16 has subnormal gradients; of a logit beyond
            # its cap float64 rounds the slope.
            factor = 4 if is_loose else float(eps > 2**-23)
            allowed = factor * eps * theirs.abs() + ulps * 2**-23 * scale.nan_to_num(posinf=0.0)
            allowed = allowed + tiny * eps + (2**-48 if softcap else 0)
            if is_loose and theirs.dim() > 1:
                allowed += 2**-23 * theirs.nan_to_num().abs().amax(1, keepdim=True)
            error = (ours.double() - theirs).abs()
            right = (error <= allowed) | (ours == theirs.to(dtype))
            wrong = ~(right | (ours.isnan() & theirs.isnan()))
            assert not wrong.any(), (wrong.sum(), wrong.nonzero()[:3], error[wrong][:3])


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1e20, 2.0**94, 1e30])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradient_of_huge_logits_is_finite(size, smoothing):
    input = torch.randn(13, 37, device="cuda").bfloat16()
    target = numbers(37, 13, device="cuda")
    input[::2, 19], input[1::3, 5] = size, -size
    input[3] = size
    input.requires_grad_()
    loss = OURS(input, target, reduction="sum", label_smoothing=smoothing)
    exact = input.detach().double().requires_grad_()
    due = TORCHS(exact, target, reduction="sum", label_smoothing=smoothing)
    for ours, theirs in zip(both(loss, input), both(due, exact), strict=True):
        assert_close(ours.double(), theirs, rtol=2**-6, atol=2**-20)
