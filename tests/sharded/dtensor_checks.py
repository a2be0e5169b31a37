"""What ranks check of DTensors: the functions of losscli.functional, whatever is sharded."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.testing import assert_close

from losscli import functional

CLASSES = 11
ROWS = 7
IGNORED = -100
PLACES: tuple[Any, Any, Any] = Shard(0), Shard(1), Replicate()


def _operands() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return two sets of logits, class indices that ranks ignore unequally, and weights."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, ROWS, CLASSES, dtype=torch.float64, generator=generator) * 4
    target = torch.randint(0, CLASSES, (ROWS,), generator=generator)
    target[2:4] = IGNORED
    return x, y, target, torch.rand(CLASSES, dtype=torch.float64, generator=generator) + 0.5


def _meshes() -> Iterator[tuple[Any, list[list[Any]]]]:
    """Yield meshes of all ranks, and placements of logits on them."""
    count = distributed.get_world_size()
    rows, classes, whole = PLACES
    yield init_device_mesh("cpu", (count,)), [[rows], [classes], [whole]]
    if count == 4:
        every = [[rows, classes], [rows, rows], [classes, whole], [rows, whole], [classes, rows]]
        yield init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "model")), every


def _of_rows(places: Sequence[Any]) -> list[Any]:
    return [each if each == Shard(0) else Replicate() for each in places]


def _of_classes(places: Sequence[Any]) -> list[Any]:
    return [Shard(0) if each == Shard(1) else Replicate() for each in places]


def _agree(call, operands, sharded, *more):
    """Compare losses and gradients of whole tensors and of DTensors; return the latter loss.

    ``more``: what the call takes besides, of whole tensors, then of DTensors.
    """
    whole = [each.detach().clone().requires_grad_() for each in operands]
    parts = [each.detach().requires_grad_() for each in sharded]
    expected, found = call(*whole, *more[: len(more) // 2]), call(*parts, *more[len(more) // 2 :])
    expected, found = (x if isinstance(x, tuple) else (x,) for x in (expected, found))
    for one, other in zip(found, expected, strict=True):
        assert_close(one.full_tensor(), other.detach())
    sum(each.sum() for each in expected if each.requires_grad).backward()
    sum(each.sum() for each in found if each.requires_grad).backward()
    for leaf, part in zip(whole, parts, strict=True):
        for place, of_gradient in zip(part.placements, part.grad.placements, strict=True):
            # That of an operand which all ranks have may be a partial sum.
            assert of_gradient == place or (place.is_replicate() and of_gradient.is_partial())
        assert_close(part.grad.full_tensor(), leaf.grad)
    return found[0]


def losses_of_dtensors_are_those_of_whole_logits() -> None:
    x, y, target, weight = _operands()
    settings: list[dict[str, Any]] = [
        {},
        {"reduction": "sum", "label_smoothing": 0.1},
        {"reduction": "none", "softcap": 3.0},
        {"ignore_index": 3},
    ]
    for mesh, every in _meshes():
        for places in every:
            x_, y_ = (distribute_tensor(each, mesh, places) for each in (x, y))
            rows = _of_rows(places)
            target_, weight_ = (
                distribute_tensor(target, mesh, rows),
                distribute_tensor(weight, mesh, _of_classes(places)),
            )
            for given in settings:
                own = target.clamp(min=0) if "ignore_index" in given else target
                own_ = distribute_tensor(own, mesh, rows)
                _agree(lambda x, t: functional.cross_entropy(x, t, **given), [x], [x_], own, own_)  # noqa: B023
            _agree(functional.cross_entropy, [x], [x_], target, weight, target_, weight_)
            tokens = target.clamp(min=0)
            for entropy in (False, True):
                _agree(
                    lambda x, t: functional.token_log_probs(x, t, entropy=entropy),  # noqa: B023
                    [x],
                    [x_],
                    tokens,
                    distribute_tensor(tokens, mesh, rows),
                )
            mask = target >= 0
            for loss in (functional.kl_divergence, functional.reverse_kl_divergence):
                _agree(
                    lambda x, y, mask: loss(x, y, mask=mask),  # noqa: B023
                    *([x, y], [x_, y_]),
                    *(mask, distribute_tensor(mask, mesh, rows)),
                )


def any_loss_over_rows_takes_sharded_rows() -> None:
    x, y, target, weight = _operands()
    mesh, _ = next(_meshes())
    x_, y_, target_ = (distribute_tensor(each, mesh, [Shard(0)]) for each in (x, y, target))
    weight_ = distribute_tensor(weight, mesh, [Replicate()])
    for reduction in ("none", "mean"):
        _agree(
            lambda x, t, w: functional.nll_loss(x, t, w, reduction=reduction),  # noqa: B023
            *([x], [x_]),
            *(target, weight, target_, weight_),
        )
        for loss in (functional.total_variation, functional.js_divergence):
            _agree(lambda x, y: loss(x, y, reduction=reduction), [x, y], [x_, y_])  # noqa: B023
    # The weight's gradient is that of the rows of all ranks, of which a mean is also divided by it.
    for reduction in ("sum", "mean"):
        _agree(
            lambda x, w, t: functional.cross_entropy(x, t, w, reduction=reduction),  # noqa: B023
            *([x, weight], [x_, weight_]),
            *(target, target_),
        )
    classes = torch.arange(3).expand(ROWS, 3).contiguous()
    teacher = torch.log_softmax(y, -1)[:, :3].contiguous()
    _agree(
        lambda x, classes, teacher: functional.topk_kl_divergence(x, classes, teacher),
        *([x], [x_]),
        *(classes, teacher),
        *(distribute_tensor(each, mesh, [Shard(0)]) for each in (classes, teacher)),
    )


def hidden_states_and_weights_may_be_sharded() -> None:
    _, _, target, of_classes = _operands()
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(ROWS, 6, dtype=torch.float64, generator=generator)
    weight = torch.randn(CLASSES, 6, dtype=torch.float64, generator=generator)
    bias = torch.randn(CLASSES, dtype=torch.float64, generator=generator)
    rows, _, whole = PLACES
    layouts = {
        1: [([whole], [rows]), ([rows], [whole]), ([rows], [rows])],
        2: [([rows, whole], [whole, rows]), ([rows, rows], [whole, rows])],
    }
    for mesh, _ in _meshes():
        for of_hidden, of_weight in layouts[mesh.ndim]:
            operands = (hidden, weight, bias)
            places = (of_hidden, of_weight, of_weight)
            sharded = [
                distribute_tensor(x, mesh, at) for x, at in zip(operands, places, strict=True)
            ]
            target_ = distribute_tensor(target, mesh, of_hidden)
            of_classes_ = distribute_tensor(of_classes, mesh, of_weight)
            for given in ({}, {"reduction": "none"}, {"return_lse": True}):
                _agree(
                    lambda h, w, b, t: functional.linear_cross_entropy(
                        *(h, w, t),
                        linear_bias=b,
                        **given,  # noqa: B023
                    ),
                    *(operands, sharded, target, target_),
                )
            _agree(
                lambda h, w, b, t, c: functional.linear_cross_entropy(
                    *(h, w, t), linear_bias=b, weight=c
                ),
                *(operands, sharded, target, of_classes, target_, of_classes_),
            )
            of_rows = torch.arange(1.0, ROWS + 1).double()
            _agree(
                lambda h, w, of_rows, t: functional.linear_cross_entropy(
                    h, w, t, token_weight=of_rows
                ),
                [hidden, weight, of_rows],
                [*sharded[:2], distribute_tensor(of_rows, mesh, of_hidden)],
                *(target, target_),
            )
            tokens = target.clamp(min=0)
            _agree(
                lambda h, w, b, t: functional.linear_token_log_probs(
                    *(h, w, t), linear_bias=b, entropy=True
                ),
                *(operands, sharded, tokens, distribute_tensor(tokens, mesh, of_hidden)),
            )


def rows_that_count_nothing_have_a_loss() -> None:
    """Of classes whose weight is 0, with smoothing: all rows of the last ranks."""
    x, _, target, weight = _operands()
    target[2:], weight[3] = 3, 0.0
    mesh, _ = next(_meshes())
    of_ranks = [distribute_tensor(each, mesh, [Shard(0)]) for each in (x, target)]
    weight_ = distribute_tensor(weight, mesh, [Replicate()])
    for given in ({"label_smoothing": 0.2}, {"z_loss": 0.1}, {"reduction": "sum", "z_loss": 0.1}):
        _agree(
            lambda x, t, w: functional.cross_entropy(x, t, w, **given),  # noqa: B023
            *([x], of_ranks[:1]),
            *(target, weight, of_ranks[1], weight_),
        )


def where_no_row_counts_a_mean_is_nan_and_its_gradient_0() -> None:
    x, _, target, _ = _operands()
    mesh, _ = next(_meshes())
    target_ = distribute_tensor(torch.full_like(target, IGNORED), mesh, [Shard(0)])
    weight = distribute_tensor(torch.eye(CLASSES, dtype=torch.float64), mesh, [Replicate()])
    for call in (
        lambda x: functional.cross_entropy(x, target_),
        lambda x: functional.linear_cross_entropy(x, weight, target_),
    ):
        leaf = distribute_tensor(x, mesh, [Shard(0)]).requires_grad_()
        loss = call(leaf)
        loss.backward()
        assert loss.to_local().isnan()
        assert not leaf.grad.full_tensor().any()


def a_mean_of_16_bits_is_rounded_once() -> None:
    """Whatever the ranks' sums are: those of float16 would be infinite."""
    mesh, _ = next(_meshes())
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(4096, CLASSES, generator=generator) * 40
    target = torch.randint(0, CLASSES, (4096,), generator=generator)
    for dtype in (torch.bfloat16, torch.float16):
        x, layer = logits.to(dtype), torch.eye(CLASSES, dtype=dtype)
        exact = functional.cross_entropy(x.double(), target).to(dtype)
        x_, target_ = (distribute_tensor(each, mesh, [Shard(0)]) for each in (x, target))
        layer_ = distribute_tensor(layer, mesh, [Replicate()])
        for found in (
            functional.cross_entropy(x_, target_),
            functional.linear_cross_entropy(x_, layer_, target_),
        ):
            assert torch.equal(found.to_local(), exact)


def an_error_of_one_rank_is_told_to_the_others() -> None:
    x, _, target, _ = _operands()
    mesh, _ = next(_meshes())
    target[0] = CLASSES
    x_, target_ = (distribute_tensor(each, mesh, [Shard(0)]) for each in (x, target))
    weight = distribute_tensor(torch.eye(CLASSES, dtype=torch.float64), mesh, [Replicate()])
    is_first = distributed.get_rank() == 0
    kind, said = (IndexError, str(CLASSES)) if is_first else (RuntimeError, "another rank")
    for call in (
        lambda: functional.cross_entropy(x_, target_),
        lambda: functional.linear_cross_entropy(x_, weight, target_),
    ):
        try:
            call()
        except (IndexError, RuntimeError) as error:
            assert type(error) is kind and said in str(error), error  # noqa: PT017, PT018
        else:
            raise AssertionError("no error")


def the_loss_is_on_all_ranks() -> None:
    """But that of each row, which stays where the row is."""
    x, _, target, _ = _operands()
    mesh, _ = next(_meshes())
    for place, collectives in (
        (Shard(1), {"mean": 1, "sum": 1, "none": 1}),
        (Shard(0), {"mean": 1, "sum": 1, "none": 0}),
    ):
        leaf = distribute_tensor(x, mesh, [place]).requires_grad_()
        target_ = distribute_tensor(target, mesh, _of_rows([place]))
        for reduction, count in collectives.items():
            with CommDebugMode() as communication:
                loss = functional.cross_entropy(leaf, target_, reduction=reduction)
            assert communication.get_total_counts() == count, (place, reduction)
            expected = Replicate() if reduction != "none" else _of_rows([place])[0]
            assert loss.placements == (expected,)


def class_indices_may_be_plain_where_rows_are_whole() -> None:
    x, _, target, _ = _operands()
    mesh, _ = next(_meshes())
    found: Any = functional.cross_entropy(distribute_tensor(x, mesh, [Shard(1)]), target)
    assert_close(found.full_tensor(), functional.cross_entropy(x, target))


def what_is_not_supported_says_what_to_do() -> None:
    x, y, target, _ = _operands()
    for mesh, _ in _meshes():
        whole = [Replicate()] * mesh.ndim
        by_rows, by_classes = ([*whole[1:], Shard(dim)] for dim in (0, 1))
        place = partial(distribute_tensor, device_mesh=mesh)
        x_, target_ = place(x, placements=by_classes), place(target, placements=whole)
        rows_, of_rows = place(x, placements=by_rows), place(target, placements=by_rows)
        bias = x[:, 0].clone().requires_grad_()
        over_all = place(x, placements=[Shard(1)] * mesh.ndim)
        hidden, width = place(x, placements=whole), place(y, placements=by_classes)
        cross_entropy, of_hidden = functional.cross_entropy, functional.linear_cross_entropy
        calls: list[tuple[str, Any, tuple[Any, ...]]] = [
            ("total_variation: its classes cannot be shard", functional.total_variation, (x_, x_)),
            ("distribute_tensor", cross_entropy, (rows_, target)),
            ("distribute_tensor", cross_entropy, (x, target_)),
            (
                "linear_bias must be a DTensor as the others are, because its gradient is a sum",
                partial(of_hidden, linear_bias=bias),
                (rows_, hidden, of_rows),
            ),
            (
                "cross_entropy: its classes cannot be sharded where target has probabilities",
                cross_entropy,
                (x_, x_.detach().softmax(1)),
            ),
            ("takes no DTensors", functional.cross_entropy_with_grad, (x_, target_)),
            ("the width of linear_weight cannot be sharded", of_hidden, (hidden, width, target_)),
        ]
        if mesh.ndim > 1:
            two = "two dimensions of the mesh shard the classes"
            calls.append((two, cross_entropy, (over_all, target_)))
        for said, call, given in calls:
            try:
                call(*given)
            except (NotImplementedError, RuntimeError) as error:
                is_missing = "distribute_tensor" in said or said.startswith("linear_bias")
                kind = RuntimeError if is_missing else NotImplementedError
                assert type(error) is kind and said in str(error), error  # noqa: PT017, PT018
            else:
                raise AssertionError(f"no error that says {said!r}")


DTENSOR_CHECKS: Sequence[Callable[[], None]] = [
    check
    for name, check in [*globals().items()]
    if getattr(check, "__module__", "") == __name__ and callable(check)
    if not name.startswith("_")
]
