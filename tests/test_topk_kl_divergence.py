"""The divergence from k classes of a teacher equals that of distributions of k + 1 bins."""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import losscli.linear.topk_kl_divergence
from losscli.functional import kl_divergence, reverse_kl_divergence, topk_kl_divergence
from losscli.losses.rows.topk_kl_divergence import reference as formula_of
from tests.parameters import naming

ROWS, CLASSES, K = 12, 70, 5
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


class Pair(NamedTuple):
    """A student's logits, and what is known of a teacher."""

    logits: Tensor
    classes: Tensor
    target: Tensor
    teacher: Tensor
    """All of its logits."""


@pytest.fixture
def pair(device):
    return pair_of(device)


def pair_of(device: str, rows: int = ROWS, classes: int = CLASSES, k: int = K) -> Pair:
    generator = torch.Generator().manual_seed(0)
    student, teacher = (
        2 * torch.randn(rows, classes, generator=generator, dtype=torch.float64) for _ in range(2)
    )
    target, numbers = teacher.log_softmax(-1).topk(k)
    return Pair(*(each.to(device) for each in (student, numbers, target, teacher)))


def bins_of(logits: Tensor, classes: Tensor, temperature: float) -> Tensor:
    """The probabilities of the classes, and of all others, added up one by one."""
    probabilities = (logits / temperature).softmax(-1)
    others = torch.ones_like(logits).scatter(-1, classes, 0.0)
    rest = (probabilities * others).sum(-1, keepdim=True)
    return torch.cat([probabilities.gather(-1, classes), rest], -1)


def reference(
    logits, classes, target, *, reverse=False, temperature=1.0, mask=None, reduction="mean"
):
    p = bins_of(logits, classes, temperature)
    q = torch.cat([target.exp(), 1 - target.exp().sum(-1, keepdim=True)], -1)
    first, second = (p, q) if reverse else (q, p)
    loss = (first * (first.log() - second.log())).sum(-1)
    mask = torch.ones_like(loss, dtype=torch.bool) if mask is None else mask
    if reduction == "none":
        return loss * mask
    return (loss * mask).sum() / (mask.sum() if reduction == "mean" else 1)


def gradients(function: Callable[..., Tensor], pair: Pair, **settings: Any) -> tuple[Tensor, ...]:
    """Return loss and gradients for an incoming gradient of -3."""
    logits, target = (each.clone().requires_grad_() for each in (pair.logits, pair.target))
    loss = function(logits, pair.classes, target, **settings)
    found = torch.autograd.grad(-3 * loss.sum(), (logits, target))
    return loss.detach(), *found


SETTINGS: list[dict[str, Any]] = [
    {},
    {"reverse": True},
    {"temperature": 1.7},
    {"reverse": True, "temperature": 0.6},
    {"reduction": "sum"},
    {"reduction": "none", "reverse": True},
]


def test_loss_and_gradients_equal_the_definition(pair, device, monkeypatch):
    mask = torch.arange(ROWS, device=device) % 3 > 0
    for settings, given in itertools.product(SETTINGS, (None, mask)):
        with naming(settings, "with a mask" if given is not None else "without a mask"):
            found = gradients(topk_kl_divergence, pair, mask=given, **settings)
            expected = gradients(reference, pair, mask=given, **settings)
            assert_close(found, expected, rtol=1e-10, atol=1e-14)
    whole = gradients(topk_kl_divergence, pair)
    for rows in (1, 5):  # in chunks
        monkeypatch.setattr(losscli.linear.topk_kl_divergence, "_CHUNK", rows * CLASSES * 8)
        # A CPU computes many rows side by side and few one by one: the last bit may differ.
        assert_close(gradients(topk_kl_divergence, pair), whole, rtol=1e-14, atol=0)


def test_small_rest_of_a_confident_student_keeps_its_digits(device):
    """A rest of 1e-12 beside 1, which a difference in float32 would take for 0 or for 1e-7."""
    pair = pair_of(device)
    confident = torch.full_like(pair.classes, 30.0, dtype=torch.float64)
    logits = pair.logits.scatter_add(1, pair.classes, confident).float()
    narrow = pair._replace(logits=logits, target=pair.target.float())
    wide = narrow._replace(logits=logits.double(), target=narrow.target.double())
    rest = bins_of(wide.logits, wide.classes, 1.0)[:, -1]
    assert (rest < 1e-9).all()
    for reverse in (False, True):
        found = gradients(topk_kl_divergence, narrow, reverse=reverse, reduction="none")
        expected = gradients(reference, wide, reverse=reverse, reduction="none")
        assert_close(found[0].double(), expected[0], rtol=2e-6, atol=2e-6 if reverse else 0)
        own, other = found[1].double(), expected[1]
        assert ((own - other).norm(dim=-1) <= 3e-6 * other.norm(dim=-1) + 1e-6 * reverse).all()


def test_all_classes_give_the_divergence_of_all_logits(device):
    """The bin of the rest is empty then, whatever roundings leave of the teacher's 1."""
    pair = pair_of(device, k=CLASSES)
    for reverse, whole in ((False, kl_divergence), (True, reverse_kl_divergence)):
        logits = pair.logits.clone().requires_grad_()
        loss = topk_kl_divergence(logits, pair.classes, pair.target - 1e-12, reverse=reverse)
        (gradient,) = torch.autograd.grad(loss, logits)
        other = pair.logits.clone().requires_grad_()
        expected = whole(other, pair.teacher)
        (due,) = torch.autograd.grad(expected, other)
        assert_close((loss, gradient), (expected, due), rtol=1e-9, atol=1e-11)


def test_classes_that_are_impossible_have_no_gradient(pair):
    """Logits of -inf for all but the k classes: the rest is 0, and so is the teacher's."""
    others = torch.ones_like(pair.logits).scatter(1, pair.classes, 0.0).bool()
    target = pair.target.log_softmax(-1) + 1e-15  # whose sum is not below 1
    logits = pair.logits.masked_fill(others, -torch.inf).requires_grad_()
    loss = topk_kl_divergence(logits, pair.classes, target)
    (gradient,) = torch.autograd.grad(loss, logits)
    short = pair.logits.gather(1, pair.classes).requires_grad_()
    expected = kl_divergence(short, target)
    (due,) = torch.autograd.grad(expected, short)
    assert_close(loss, expected)
    assert_close(gradient.gather(1, pair.classes), due)
    assert not gradient[others].any()


def test_rest_that_rounding_leaves_is_none_where_the_student_has_none(device):
    """Both have masked all classes but k: the divergence is that of these."""
    pair = pair_of(device, rows=300)
    others = torch.ones_like(pair.logits).scatter(1, pair.classes, 0.0).bool()
    for dtype, reverse, is_infinite in itertools.product(DTYPES, (False, True), (False, True)):
        least = -torch.inf if is_infinite else torch.finfo(dtype).min
        target = pair.target.to(dtype).log_softmax(-1)
        assert (1 - target.double().exp().sum(-1) > 0).sum() > 20
        logits = pair.logits.to(dtype).masked_fill(others, least)
        masked = pair._replace(logits=logits, target=target)
        settings: dict[str, Any] = {"reverse": reverse, "reduction": "none"}
        found = gradients(topk_kl_divergence, masked, **settings)
        composed = gradients(formula_of, masked, **settings)
        whole = reverse_kl_divergence if reverse else kl_divergence
        short = masked._replace(logits=masked.logits.gather(1, pair.classes))
        due = gradients(lambda x, _, y, whole=whole: whole(x, y, reduction="none"), short)
        rounding: dict[str, Any] = dict.fromkeys(("rtol", "atol"), 40 * torch.finfo(dtype).eps)
        with naming(dtype, settings, least):
            assert_close(found[0], due[0].to(found[0].dtype), **rounding)
            assert_close((found[1].gather(1, pair.classes), found[2]), due[1:], **rounding)
            assert not found[1].masked_select(others).any()
            assert_close(found, composed, **rounding)


def test_rest_of_the_teacher_alone_makes_the_divergence_infinite(device):
    """It is more than rounding leaves: 16 times eps for the k classes and their entropy."""
    pair = pair_of(device)
    others = torch.ones_like(pair.logits).scatter(1, pair.classes, 0.0).bool()
    for dtype in DTYPES:
        logits = pair.logits.masked_fill(others, -torch.inf).to(dtype)
        less = math.log1p(-16 * torch.finfo(dtype).eps)
        target = (pair.target.log_softmax(-1) + less).to(dtype)
        loss = topk_kl_divergence(logits, pair.classes, target, reduction="none")
        assert loss.isposinf().all(), dtype


def test_divergence_of_some_classes_is_never_more_than_that_of_all(pair):
    for reverse, whole in ((False, kl_divergence), (True, reverse_kl_divergence)):
        few = topk_kl_divergence(*pair[:3], reverse=reverse, reduction="none")
        every = whole(pair.logits, pair.teacher, reduction="none")
        assert (few <= every).all()
        assert (few >= 0).all()


def test_rows_that_do_not_count_may_hold_anything(pair, device):
    mask = torch.arange(ROWS, device=device) != 4
    expected = gradients(topk_kl_divergence, pair, mask=mask)
    spoiled = Pair(*(each.clone() for each in pair))
    spoiled.logits[4] = torch.nan
    spoiled.classes[4] = -100
    spoiled.target[4] = torch.inf
    found = gradients(topk_kl_divergence, spoiled, mask=mask)
    assert_close(found, expected, rtol=0, atol=0)
    assert not found[1][4].any()


def test_second_derivatives_and_transforms(device):
    pair = pair_of(device, rows=2, classes=9, k=3)
    for reverse in (False, True):

        def of(logits, target, classes, which=reverse):
            return topk_kl_divergence(logits, classes, target, reverse=which)

        logits, target = (each.clone().requires_grad_() for each in (pair.logits, pair.target))
        assert torch.autograd.gradcheck(of, (logits, target, pair.classes))
        assert torch.autograd.gradgradcheck(of, (logits, target, pair.classes))
        rows = torch.func.vmap(torch.func.grad(of))(pair.logits, pair.target, pair.classes)
        (due,) = torch.autograd.grad(2 * of(logits, target, pair.classes), logits)
        assert_close(rows, due)


UNFIT: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"reduction": "median"}, ValueError, "reduction must be 'none', 'mean' or 'sum'"),
    ({"temperature": 0.0}, ValueError, "temperature must be above 0"),
    ({"classes": torch.zeros(ROWS, K)}, TypeError, "classes must hold class indices"),
    ({"classes": torch.zeros(ROWS, 0).long()}, ValueError, "with k from 1 to C"),
    ({"target": torch.zeros(ROWS, K + 1)}, ValueError, "target must have the shape of classes"),
    ({"input": torch.zeros(ROWS, CLASSES).long()}, TypeError, "input must be float32"),
    ({"mask": torch.ones(ROWS)}, ValueError, "mask must be bool"),
]


def test_operands_that_do_not_fit_raise(pair):
    given: dict[str, Any] = {"input": pair.logits, "classes": pair.classes, "target": pair.target}
    for change, error, message in UNFIT:
        with pytest.raises(error, match=message):
            topk_kl_divergence(**given | change)
    on_cpu = pair_of("cpu")
    with pytest.raises(IndexError, match=r"row 0 has class \d+, but there are classes 0 to 69"):
        topk_kl_divergence(on_cpu.logits, on_cpu.classes + CLASSES, on_cpu.target)
