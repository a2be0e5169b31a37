"""What ranks check themselves, beside the oracle: each check runs in all ranks of a group."""

import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.debug import CommDebugMode

from losscli import functional, sharded

from .cases import parts_of
from .dtensor_checks import DTENSOR_CHECKS
from .operator_checks import OPERATOR_CHECKS

WIDTHS = {2: (5, 7), 4: (1, 4, 0, 7)}
CLASSES = 12
ROWS = 9


def _mine(dim: int = 1) -> tuple[slice, ...]:
    """Return the index of what this rank has of logits."""
    part = parts_of(WIDTHS[distributed.get_world_size()])[distributed.get_rank()]
    return (*(slice(None) for _ in range(dim)), part)


def _logits(*shape: int, scale: float = 4.0, dtype: torch.dtype = torch.float64) -> Any:
    generator = torch.Generator().manual_seed(sum(shape))
    numbers = torch.randn(*(shape or (ROWS, CLASSES)), dtype=torch.float64, generator=generator)
    return (numbers * scale).to(dtype)


def _classes(rows: int = ROWS) -> Tensor:
    found = torch.arange(rows) * 5 % CLASSES
    found[1::4] = -100
    return found


def _agree(name, *operands, given=(), dim=1, incoming=None, **settings):
    """Compare the loss and the gradients of all logits with those of this rank's.

    ``given``: what the function takes after the logits; all ranks have it.
    """
    whole = [each.detach().clone().requires_grad_() for each in operands]
    mine = [each[_mine(dim)].detach().clone().requires_grad_() for each in operands]
    losses = []
    for module, leaves in ((functional, whole), (sharded, mine)):
        found = getattr(module, name)(*leaves, *given, **settings)
        losses.append(torch.stack(found) if isinstance(found, tuple) else found)
    torch.testing.assert_close(losses[1], losses[0], equal_nan=True)
    for loss in losses:
        loss.backward(torch.ones_like(loss) if incoming is None else incoming)
    for all_of_it, part in zip(whole, mine, strict=True):
        torch.testing.assert_close(part.grad, all_of_it.grad[_mine(dim)], equal_nan=True)


def _raises(kind: type[Exception], said: str, call: Callable[[], Any]) -> None:
    try:
        call()
    except kind as error:
        assert re.search(said, str(error)), str(error)  # noqa: PT017
    else:
        raise AssertionError(f"no {kind.__name__} that says {said!r}")


def _counts(call: Callable[[], Any]) -> dict[str, int]:
    """Return how many collectives of each name a call makes."""
    with CommDebugMode() as communication:
        call()
    found: dict[str, int] = {}
    for name, count in communication.get_comm_counts().items():
        kind = str(name).rpartition(".")[2].strip("_")
        found[kind] = found.get(kind, 0) + count
    return found


def a_step_makes_one_collective() -> None:
    target, x = _classes(), _logits()[_mine()].clone().requires_grad_()
    tokens = target.clamp(min=0)
    hidden = _logits(ROWS, 6).requires_grad_()
    weight = _logits(CLASSES, 6)[_mine(0)].clone().requires_grad_()
    sharded.cross_entropy(x, target)  # asks once how many classes the other ranks have

    def step(loss: Tensor) -> None:
        loss.sum().backward()

    settings: dict[str, Any] = {"label_smoothing": 0.1, "softcap": 3.0, "z_loss": 0.1}
    calls: list[Callable[[], Any]] = [
        lambda: step(sharded.cross_entropy(x, target)),
        lambda: step(sharded.cross_entropy(x, target, torch.ones_like(x[0]).detach(), **settings)),
        lambda: step(sharded.token_log_probs(x, tokens)),
        lambda: step(sum(sharded.token_log_probs(x, tokens, entropy=True))),
        lambda: step(sharded.kl_divergence(x, x.detach())),
        lambda: step(sharded.reverse_kl_divergence(x, x.detach())),
        lambda: sharded.linear_cross_entropy(hidden, weight, target),
        lambda: step(sharded.linear_cross_entropy(hidden.detach(), weight, target)),
    ]
    for call in calls:
        found = _counts(call)
        assert list(found.values()) == [1], found
        assert "gather" in next(iter(found)), found
    loss = sharded.linear_cross_entropy(hidden, weight, target)
    assert list(_counts(loss.backward).items()) == [("allreduce", 1)]


BYTES = {
    "cross_entropy": 12,
    "weights of classes": 16,
    "label smoothing": 16,
    "both": 20,
    "token_log_probs": 12,
    "entropy": 16,
    "kl_divergence": 20,
}
"""Of each row and rank, in float32; docs/sharded.md has the same table."""


def a_collective_has_so_many_bytes_a_row() -> None:
    """The difference between calls of twice as many rows and of so many."""
    sent: list[int] = []
    name = "all_gather_single"
    if not hasattr(distributed, name):
        name = "all_gather_into_tensor"
    original = getattr(distributed, name)

    def counted(to: Tensor, mine: Tensor, **named: Any) -> Any:
        sent.append(mine.numel() * mine.element_size())
        return original(to, mine, **named)

    def calls(rows: int) -> dict[str, Callable[[], Any]]:
        x = _logits(rows, CLASSES, dtype=torch.bfloat16)[_mine()]
        target = _classes(rows)
        weight = torch.ones_like(x[0])
        tokens = target.clamp(min=0)
        return {
            "cross_entropy": lambda: sharded.cross_entropy(x, target),
            "weights of classes": lambda: sharded.cross_entropy(x, target, weight),
            "label smoothing": lambda: sharded.cross_entropy(x, target, label_smoothing=0.1),
            "both": lambda: sharded.cross_entropy(x, target, weight, label_smoothing=0.1),
            "token_log_probs": lambda: sharded.token_log_probs(x, tokens),
            "entropy": lambda: sharded.token_log_probs(x, tokens, entropy=True),
            "kl_divergence": lambda: sharded.kl_divergence(x, x),
        }

    sharded.cross_entropy(_logits()[_mine()], _classes())
    setattr(distributed, name, counted)
    try:
        for few, many in zip(calls(10).items(), calls(20).items(), strict=True):
            sent.clear()
            few[1](), many[1]()
            assert (sent[1] - sent[0]) / 10 == BYTES[few[0]], few[0]
            # Beside the numbers of rows: the classes, the rows and the sum of weights of a rank.
            assert 2 * sent[0] - sent[1] <= 12
    finally:
        setattr(distributed, name, original)


def any_gradient_of_each_row() -> None:
    incoming = _logits(ROWS, scale=1.0)
    target = _classes()
    settings: dict[str, Any] = {"reduction": "none", "label_smoothing": 0.1, "z_loss": 0.1}
    _agree("cross_entropy", _logits(), given=[target], incoming=incoming, **settings)
    both = torch.stack([incoming, incoming.flip(0)])
    tokens = target.clamp(min=0)
    _agree("token_log_probs", _logits(), given=[tokens], incoming=both, entropy=True)
    pair = _logits(), _logits().flip(0)
    _agree("kl_divergence", *pair, incoming=incoming, reduction="none")


def logits_of_any_shape() -> None:
    x = _logits(3, CLASSES, 5)
    target = _classes(15).view(3, 5)
    for reduction in ("none", "mean"):
        _agree("cross_entropy", x, given=[target], reduction=reduction)
    _agree("cross_entropy", _logits(CLASSES), given=[target[0, 0]], dim=0)
    classes_last = x.transpose(1, 2).contiguous()
    _agree("token_log_probs", classes_last, given=[target.clamp(min=0)], dim=2)


def shards_that_are_not_contiguous() -> None:
    target, whole = _classes(), _logits()
    expected = functional.cross_entropy(whole, target)
    whole.requires_grad_()
    view = whole[_mine()]
    by_columns = view.detach().t().contiguous().t().requires_grad_()
    for shard in (view, by_columns):
        loss = sharded.cross_entropy(shard, target)
        torch.testing.assert_close(loss, expected)
        loss.backward()
    torch.testing.assert_close(by_columns.grad, whole.grad[_mine()])


def special_logits() -> None:
    """Logits of -inf in some shards or all, infinite ones, NaN, and of ignored rows."""
    x = _logits()
    first = parts_of(WIDTHS[distributed.get_world_size()])[0]
    x[0, first] = -math.inf  # all of a shard, and with it the target
    x[2, 6:] = -math.inf
    x[3] = -math.inf
    x[4, 2] = math.inf
    x[6, 11] = math.nan
    x[1] = math.nan  # ignored
    x[5, 0] = math.inf  # ignored
    x[8, 3] = -math.inf
    target = _classes()
    _agree("cross_entropy", x, given=[target], reduction="none")
    values: dict[str, Any] = {
        "label_smoothing": 0.1,
        "z_loss": 0.1,
        "temperature": 1.7,
        "softcap": 3.0,
    }
    for setting, value in values.items():
        _agree("cross_entropy", x, given=[target], reduction="none", **{setting: value})
    for entropy in (False, True):
        _agree("token_log_probs", x, given=[target.clamp(min=0)], entropy=entropy)
    y = _logits().flip(0)
    y[0, 4:] = -math.inf
    for pair in ((x, y), (y, x)):
        _agree("kl_divergence", *pair, mask=target >= 0, reduction="none")


def logits_far_from_zero_and_probabilities_near_1_keep_their_digits() -> None:
    """Float32 logits near 1000, whose logarithms of sums are rounded to 6e-5."""
    x = (_logits(dtype=torch.float32) + 1000).double()
    target = _classes()
    whole, mine = x.clone().requires_grad_(), x.float()[_mine()].clone().requires_grad_()
    for module, leaf in ((functional, whole), (sharded, mine)):
        module.cross_entropy(leaf, target, reduction="none", temperature=1.3).sum().backward()
    torch.testing.assert_close(mine.grad.double(), whole.grad[_mine()], rtol=3e-6, atol=3e-7)

    x = _logits(dtype=torch.float32)
    target = torch.arange(ROWS) % CLASSES  # in whatever shard its class is
    x[torch.arange(ROWS), target] = 40.0
    expected = functional.cross_entropy(x.double(), target, reduction="none")
    assert float(expected.max()) < 1e-10
    found = sharded.cross_entropy(x[_mine()], target, reduction="none")
    torch.testing.assert_close(found.double(), expected, rtol=3e-6, atol=0)


def any_or_all_rows_may_be_ignored_and_there_may_be_none() -> None:
    for rows in (ROWS, 0):
        target = torch.full((rows,), -100)
        for reduction in ("mean", "sum", "none"):
            _agree("cross_entropy", _logits(rows, CLASSES), given=[target], reduction=reduction)
    for ignored in (-(2**31), -(2**63), 3):
        target = _classes().masked_fill(_classes() == -100, ignored)
        _agree("cross_entropy", _logits(), given=[target], ignore_index=ignored)
    nothing = torch.empty(0, dtype=torch.int64)
    _agree("token_log_probs", _logits(0, CLASSES), given=[nothing])
    _agree("kl_divergence", *[_logits(0, CLASSES)] * 2, reduction="sum")
    hidden, weight = _logits(3, 6).requires_grad_(), _logits(CLASSES, 6)[_mine(0)]
    sharded.linear_cross_entropy(hidden, weight, torch.full((3,), -100), reduction="sum").backward()
    assert not hidden.grad.any()


def the_same_bits_every_time_on_all_ranks() -> None:
    x = _logits(ROWS, CLASSES, dtype=torch.float32)[_mine()].clone().requires_grad_()
    losses, gradients = [], []
    for _ in range(3):
        loss = sharded.cross_entropy(x, _classes(), label_smoothing=0.1)
        gradients.append(torch.autograd.grad(loss, x)[0])
        losses.append(loss.detach())
    others = losses[0].new_empty(distributed.get_world_size())
    distributed.all_gather(list(others.split(1)), losses[0].view(1))
    assert (torch.stack(losses) == others[0]).all()
    assert (others == others[0]).all()
    assert all(torch.equal(each, gradients[0]) for each in gradients)
    with torch.no_grad():  # nothing is kept
        assert not sharded.cross_entropy(x, _classes()).requires_grad
    assert not sharded.cross_entropy(x.detach(), _classes()).requires_grad


def log_sums_token_weights_and_a_part_of_the_input_gradient() -> None:
    """The latter is left to the caller."""
    hidden, weight = _logits(ROWS, 6), _logits(CLASSES, 6)
    target, of_tokens = _classes(), torch.arange(ROWS).double()
    given: dict[str, Any] = {"return_lse": True, "token_weight": of_tokens}
    expected = functional.linear_cross_entropy(hidden, weight, target, **given)
    found = sharded.linear_cross_entropy(hidden, weight[_mine(0)], target, **given)
    torch.testing.assert_close(found, expected)
    gradients = []
    for reduces in (True, False):
        leaf = hidden.clone().requires_grad_()
        sharded.linear_cross_entropy(
            leaf, weight[_mine(0)], target, reduce_input_gradient=reduces
        ).backward()
        gradients.append(leaf.grad)
    distributed.all_reduce(gradients[1])
    torch.testing.assert_close(gradients[1], gradients[0])


def second_derivatives_are_refused() -> None:
    x = _logits()[_mine()].clone().requires_grad_()
    hidden, weight = _logits(ROWS, 6).requires_grad_(), _logits(CLASSES, 6)[_mine(0)]
    for name, loss, leaf in (
        ("cross_entropy", sharded.cross_entropy(x, _classes()), x),
        ("kl_divergence", sharded.kl_divergence(x, x.detach()), x),
        ("linear_cross_entropy", sharded.linear_cross_entropy(hidden, weight, _classes()), hidden),
    ):
        second = partial(torch.autograd.grad, loss, leaf, create_graph=True)
        alone = f"{name}: losses over ranks have first derivatives alone"
        _raises(NotImplementedError, alone, second)


def bad_arguments_are_named_at_once() -> None:
    x, target = _logits()[_mine()], _classes()
    rank, count = distributed.get_rank(), distributed.get_world_size()
    widths = list(WIDTHS[count])
    wrong = [*widths]
    wrong[rank] += 1
    told = f"of each of the {count} ranks, {widths[rank]} for rank {rank}, but is"
    trained = x[0].detach().clone().requires_grad_()
    cases: list[tuple[type[Exception], str, tuple[Any, ...], dict[str, Any]]] = [
        (TypeError, "target must hold class indices", (x, x), {}),
        (IndexError, "class 12, but there are classes 0 to 11", (x, target.abs() + 3 + 9), {}),
        (ValueError, told, (x, target), {"sizes": wrong}),
        (ValueError, told, (x, target), {"sizes": [*widths, 1]}),
        (ValueError, "target must have", (x, target[1:]), {}),
        (ValueError, "weight has no gradient", (x, target, trained), {}),
        (ValueError, "label_smoothing", (x, target), {"label_smoothing": 2}),
        (ValueError, "reduction must be", (x, target), {"reduction": "max"}),
        *(
            (TypeError, "sizes must have an integer for each rank", (x, target), {"sizes": given})
            for given in (count, str(count), [5.9] * count)
        ),
        (TypeError, "group must be a process", (x, target), {"group": "x"}),
        (ValueError, "one rank at least must", (x[:, :0], target), {"sizes": [0] * count}),
    ]
    for kind, said, given, named in cases:
        _raises(kind, said, partial(sharded.cross_entropy, *given, **named))
    integers = partial(sharded.reverse_kl_divergence, x, x.long())
    _raises(TypeError, "reverse_kl_divergence: target must be float32", integers)
    layer = x.new_ones(ROWS, 2), x.new_ones(x.shape[1], 2), target
    weights: dict[str, Any] = {"weight": x.new_ones(x.shape[1]), "token_weight": x.new_ones(ROWS)}
    both = partial(sharded.linear_cross_entropy, *layer, **weights)
    _raises(NotImplementedError, "not both", both)


def sizes_that_have_changed_are_noticed() -> None:
    """By all ranks, from what comes with the collective."""
    x, target = _logits()[_mine()], _classes()
    wrong = list(WIDTHS[distributed.get_world_size()])
    other = (distributed.get_rank() + 1) % len(wrong)
    wrong[other] += 1
    said = "were known; give sizes= where the shards of a group change"
    _raises(ValueError, said, lambda: sharded.cross_entropy(x, target, sizes=wrong))


def ranks_that_call_differently_are_told() -> None:
    """All but what has another number of bytes, which the backend notices."""
    is_first = distributed.get_rank() == 0
    x, target = _logits(dtype=torch.float32)[_mine()], _classes()
    hidden, weight = _logits(ROWS, 6), _logits(CLASSES, 6)[_mine(0)]
    bias = weight[:, 0].contiguous() if is_first else None
    calls: list[Callable[[], Any]] = [
        lambda: sharded.cross_entropy(x, target, temperature=1.0 + is_first),
        lambda: sharded.cross_entropy(x.bfloat16() if is_first else x, target),
        lambda: sharded.cross_entropy(x, target, reduction="sum" if is_first else "mean"),
        lambda: sharded.kl_divergence(x, x, mask=target >= 0 if is_first else None),
        lambda: sharded.linear_cross_entropy(hidden, weight, target, linear_bias=bias),
        lambda: (sharded.cross_entropy if is_first else sharded.token_log_probs)(
            x, target.abs() % 5
        ),
    ]
    for call in calls:
        _raises(ValueError, "all ranks must call the same loss with the same settings", call)
    # The type of a number is none of its settings.
    sharded.cross_entropy(x, target, temperature=1 if is_first else 1.0)


def under_autocast_losses_are_float32() -> None:
    x, target = _logits(dtype=torch.bfloat16)[_mine()], _classes()
    tokens = target.clamp(min=0)
    with torch.autocast("cpu", torch.bfloat16):
        for loss in (
            sharded.cross_entropy(x, target),
            sharded.token_log_probs(x, tokens),
            sharded.kl_divergence(x, x),
            sharded.reverse_kl_divergence(x, x, reduction="none"),
        ):
            assert loss.dtype == torch.float32
        assert sharded.cross_entropy(x.double(), target).dtype == torch.float64


def a_mesh_of_two_dimensions_is_no_group() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model"))
    x = _logits()
    part = x.chunk(2, 1)[mesh.get_local_rank("model")]
    of_both = partial(sharded.cross_entropy, part, _classes(), group=mesh)
    _raises(ValueError, "is a mesh of 2; give the group of one", of_both)
    found = sharded.cross_entropy(part, _classes(), group=mesh["model"])
    torch.testing.assert_close(found, functional.cross_entropy(x, _classes()))


def subgroups_and_groups_of_one() -> None:
    """All ranks but the first, which is told that it is not in the group; then each rank alone."""
    rank, count = distributed.get_rank(), distributed.get_world_size()
    x, target = _logits(), _classes()
    expected = functional.cross_entropy(x, target)
    others = distributed.new_group(list(range(1, count)))
    if rank == 0:
        outside = partial(sharded.cross_entropy, x, target, group=others)
        _raises(ValueError, "rank 0, is not in the group", outside)
    else:
        part = x.tensor_split(count - 1, 1)[rank - 1]
        torch.testing.assert_close(sharded.cross_entropy(part, target, group=others), expected)
    alone = [distributed.new_group([each]) for each in range(count)][rank]
    x.requires_grad_()
    loss = sharded.cross_entropy(x, target, group=alone)
    torch.testing.assert_close(loss, expected)
    loss.backward()


def what_traces_a_loss_is_told_to_leave_it_out() -> None:
    """A transform here; test_ranks.py compiles a program, which takes seconds."""
    x, target = _logits()[_mine()], _classes()
    traced = torch.func.grad(partial(sharded.cross_entropy, target=target))
    _raises(NotImplementedError, "torch.compiler.disable", partial(traced, x))


OF_FOUR = (a_mesh_of_two_dimensions_is_no_group,)
EVERYWHERE: Sequence[Callable[[], None]] = [
    check
    for name, check in [*globals().items()]
    if getattr(check, "__module__", "") == __name__ and callable(check)
    if not name.startswith("_") and check not in OF_FOUR
]
CHECKS: dict[int, Sequence[Callable[[], None]]] = {
    2: (*EVERYWHERE, *OPERATOR_CHECKS, *DTENSOR_CHECKS),
    4: (*EVERYWHERE, *OF_FOUR, *DTENSOR_CHECKS),
}
"""By the number of ranks: the functions of this file without an underscore, and those of others."""
