"""What each of two processes checks of sharded losses, for test_transforms_sharded.py."""

import copy
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

from losscli import functional, nn  # before torch.distributed.tensor is imported

from .losses import MACHINERY, REDUCTIONS, close, custom, make, with_grad

RANKS, BACKEND = 2, "gloo"
SHAPES = (
    ((7, 4), (7, 4)),
    ((7, 4), (4,)),
    ((4,), (7, 1)),
    ((3, 1, 4), (5, 1)),
    ((1, 4), (1, 4)),
    ((), (7,)),
)


def full(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.full_tensor()  # type: ignore[attr-defined]
    return [full(one) for one in value]


def derivatives(function: Any, *operands: Tensor) -> list[Any]:
    """The loss, its gradients, and those of the sum of their squares."""
    leaves = [operand.detach().requires_grad_() for operand in operands]
    loss = function(*leaves)
    first = torch.autograd.grad(loss.sin().sum(), leaves, create_graph=True)
    total = functools.reduce(torch.add, [gradient.square().sum() for gradient in first])
    return [loss.detach(), list(first), list(torch.autograd.grad(total, leaves))]


def placements(shape: tuple[int, ...]) -> list[Any]:
    from torch.distributed.tensor import Replicate, Shard

    return [Replicate(), *(Shard(dim) for dim in range(len(shape)))]


def sharded_cases() -> Any:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    for shapes in SHAPES:
        values = make(torch.float64, "cpu")
        operands = [values(shape) for shape in shapes]
        for places in itertools.product(*map(placements, shapes)):
            yield (
                operands,
                [
                    distribute_tensor(operand, mesh, [place])
                    for operand, place in zip(operands, places, strict=True)
                ],
            )


def settings() -> Iterator[tuple[str, str]]:
    return itertools.cycle(itertools.product(MACHINERY, REDUCTIONS))


def derivatives_of_dtensors_are_those_of_whole_tensors() -> None:
    for (operands, sharded), (loss, reduction) in zip(sharded_cases(), settings(), strict=False):
        function = custom(loss, reduction)
        close(full(derivatives(function, *sharded)), derivatives(function, *operands))


def with_grad_of_dtensors_is_that_of_whole_tensors() -> None:
    from torch.distributed.tensor import distribute_tensor

    for (operands, sharded), (loss, reduction) in zip(sharded_cases(), settings(), strict=False):
        function = with_grad(loss, reduction)
        incoming: list[Any] = [-0.3, torch.tensor(0.7)]
        if reduction == "none":
            incoming.append(make(torch.float64, "cpu", seed=1)(function(*operands)[0].shape))
        for one in incoming:
            given = one
            if isinstance(one, Tensor) and one.dim() > 0:
                places = placements(tuple(one.shape))[-1:]
                given = distribute_tensor(one, sharded[0].device_mesh, places)
            close(
                full(function(*sharded, grad_output=given)),
                list(function(*operands, grad_output=one)),
            )


def weighted_losses_of_dtensors_are_those_of_whole_tensors() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    values = make(torch.float64, "cpu")
    for shapes in (((7, 4), (4,), (7, 4)), ((7, 4), (7, 1), (4,))):
        operands = [values(shape) for shape in shapes]
        operands[-1] = operands[-1].abs() + 1
        sharded = [
            distribute_tensor(operand, mesh, placements(tuple(operand.shape))[1:2])
            for operand in operands
        ]
        for loss, reduction in itertools.product(MACHINERY, REDUCTIONS):
            loss_of = custom(loss, reduction)

            def function(x: Tensor, y: Tensor, w: Tensor) -> Tensor:
                return loss_of(x, y, weight=w)  # noqa: B023

            close(full(derivatives(function, *sharded)), derivatives(function, *operands))


def operands_that_are_sharded_alike_stay_where_they_are() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Partial, Shard, distribute_tensor
    from torch.distributed.tensor.debug import CommDebugMode

    mesh = init_device_mesh("cpu", (RANKS,))
    values = make(torch.float32, "cpu")
    x, y = (distribute_tensor(values((7, 4)), mesh, [Shard(0)]) for _ in range(2))
    expected = {"none": Shard(0), "mean": Partial(), "sum": Partial()}
    for reduction, place in expected.items():
        leaf = x.detach().requires_grad_()
        with CommDebugMode() as communication:
            loss: Any = custom("mse", reduction)(leaf, y)
            loss.sum().backward()
        assert communication.get_total_counts() <= (0 if reduction == "none" else 1)
        assert loss.placements == (place,)
        assert leaf.grad.placements == (Shard(0),)


def meshes_of_two_dimensions_are_sharded_along_both() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS, 1), mesh_dim_names=("data", "model"))
    values = make(torch.float64, "cpu")
    x, y = values((7, 4)), values((4,))
    for places in itertools.product((Shard(0), Shard(1)), repeat=2):
        sharded = distribute_tensor(x, mesh, places), distribute_tensor(y, mesh, [Shard(0)] * 2)
        function = custom("smooth_l1")
        close(full(derivatives(function, *sharded)), derivatives(function, x, y))


def plain_tensors_beside_dtensors_are_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (RANKS,))
    x = torch.ones(4, 4)
    try:
        functional.mse_loss(distribute_tensor(x, mesh, [Shard(0)]), x)
    except RuntimeError as error:
        assert "distribute_tensor" in str(error)  # noqa: PT017
    else:
        raise AssertionError("it did not raise")


class Model(torch.nn.Module):
    def __init__(self, loss: torch.nn.Module) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(4, 5, dtype=torch.float64)
        self.second = torch.nn.Linear(5, 3, dtype=torch.float64)
        self.loss = loss

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        result: Tensor = self.loss(self.second(torch.tanh(self.first(x))), y)
        return result


def trains_as_one_process(parallel: Callable[[Model], torch.nn.Module]) -> None:
    """Three steps on two halves of each batch against three on the whole."""
    values = make(torch.float64, "cpu")
    steps = [(values((6, 4)), values((6, 3))) for _ in range(3)]
    for module in (nn.SmoothL1Loss, nn.MSELoss, nn.HingeLoss):
        alone = Model(module())
        model = parallel(copy.deepcopy(alone))
        mine = slice(distributed.get_rank(), None, RANKS)
        for x, y in steps:
            losses = []
            for of, (part_x, part_y) in ((alone, (x, y)), (model, (x[mine], y[mine]))):
                optimizer = torch.optim.SGD(of.parameters(), lr=0.1)
                loss = of(part_x, part_y)
                loss.backward()
                losses.append(loss.detach())
                gradients = [
                    getattr(parameter.grad, "full_tensor", lambda p=parameter: p.grad)()
                    for parameter in of.parameters()
                ]
                if of is alone:
                    expected = gradients
                else:
                    close(gradients, expected)
                optimizer.step()
                optimizer.zero_grad()
            mean = losses[1] / RANKS
            distributed.all_reduce(mean)
            close(mean, losses[0])


def fully_sharded_models_train_as_one_process() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (RANKS,))

    def parallel(model: Model) -> torch.nn.Module:
        for part in (model.first, model.second, model):
            fully_shard(part, mesh=mesh)
        return model

    trains_as_one_process(parallel)


def data_parallel_models_train_as_one_process() -> None:
    trains_as_one_process(torch.nn.parallel.DistributedDataParallel)


CHECKS: tuple[Callable[[], None], ...] = (
    operands_that_are_sharded_alike_stay_where_they_are,
    derivatives_of_dtensors_are_those_of_whole_tensors,
    with_grad_of_dtensors_is_that_of_whole_tensors,
    weighted_losses_of_dtensors_are_those_of_whole_tensors,
    meshes_of_two_dimensions_are_sharded_along_both,
    plain_tensors_beside_dtensors_are_refused,
    fully_sharded_models_train_as_one_process,
    data_parallel_models_train_as_one_process,
)
