"""The losses as the tests use them: each with parameters that are not their defaults."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import losscli.functional  # noqa: F401 - defines the operators
from losscli.cases.case import Case
from losscli.losses import LOSSES, reduce
from losscli.losses import REDUCTIONS as REDUCTIONS
from tests import handmade
from tests.machinery import MACHINERY as MACHINERY

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
PARAMETERS: dict[str, dict[str, float]] = {
    name: {parameter.name: parameter.example for parameter in spec.parameters}
    for name, spec in LOSSES.items()
}


def custom(loss: str, reduction: str = "mean", **parameters: float) -> Callable[..., Tensor]:
    function = LOSSES[loss].loss
    settings = PARAMETERS[loss] | parameters
    return functools.partial(function, reduction=reduction, **settings)


def with_grad(loss: str, reduction: str = "mean") -> Callable[..., tuple[Tensor, Tensor]]:
    function = LOSSES[loss].loss_with_grad
    return functools.partial(function, reduction=reduction, **PARAMETERS[loss])


def reference(loss: str, reduction: str = "mean", **parameters: float) -> Callable[..., Tensor]:
    settings = PARAMETERS[loss] | parameters
    return functools.partial(LOSSES[loss].reference, reduction=reduction, **settings)


def torchs(loss: str, reduction: str) -> Callable[..., Tensor]:
    """Return PyTorch's loss without what its own batching rules fail on.

    Those are broadcasts, and means of nothing.
    """
    function = reference(loss, "none")

    def reduced(input: Tensor, target: Tensor) -> Tensor:
        return reduce(function(input + 0 * target, target + 0 * input), reduction)

    return reduced


def close(got: object, expected: object) -> None:
    torch.testing.assert_close(got, expected, equal_nan=True)


def case_of(loss: str, reduction: str, input: Tensor, target: Tensor) -> Case:
    dtype, shape = str(input.dtype).removeprefix("torch."), tuple(input.shape)
    shapes: Any = {"target_shape": tuple(target.shape), "dtype": dtype, "reduction": reduction}
    rest: Any = {"params": PARAMETERS[loss], "distribution": "normal", "device": str(input.device)}
    made: Case = handmade.case_of(loss, shape, **shapes, **rest)
    return made


def make(dtype: torch.dtype, device: str, seed: int = 0) -> Callable[[tuple[int, ...]], Any]:
    """Return a function that fills a shape with normal values, different ones at each call.

    Normal values fall on both sides of each kink of each loss.
    """
    generator = torch.Generator().manual_seed(seed)

    def filled(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(device, dtype)

    return filled
