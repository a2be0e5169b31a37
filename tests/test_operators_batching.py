"""The batching rules serve any number of operands: with operators of one, three and four."""

import math
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from losscli.losses import LOSSES, Operand
from losscli.losses import reduce as reduce_elements
from losscli.operators import batching, elementwise

BATCH = 3
SHAPES = ((5, 1, 2), (4, 2), (), (2,))


def elements(operands: tuple[Tensor, ...]) -> Tensor:
    """A loss in which each operand has a part of its own."""
    terms = [(k + 1) * operand for k, operand in enumerate(operands)]
    return torch.sin(reduce(torch.add, terms)) + reduce(torch.mul, operands)


def gradients(grad_output, operands, reduction, graph=False):
    """The gradients of that loss, as autograd finds them."""
    with torch.enable_grad():
        leaves = tuple(operand if graph else operand.detach() for operand in operands)
        leaves = tuple(leaf if leaf.requires_grad else leaf.requires_grad_() for leaf in leaves)
        loss = reduce_elements(elements(leaves), reduction)
        return torch.autograd.grad(loss, leaves, grad_output.expand_as(loss), create_graph=graph)


@pytest.fixture(scope="module", params=[1, 3, 4])
def count(request):
    """How many operands: of operators without kernels of losscli's, but with its batching rules."""
    count: int = request.param
    spec = replace(
        LOSSES["mse"], name="loss", operands=tuple(Operand(f"x{k}") for k in range(count))
    )
    library = torch.library.Library(f"losscli_batching_{count}", "DEF")
    for full_name, schema in elementwise.schemas(spec).items():
        if full_name.startswith("losscli::"):
            library.define(full_name.removeprefix("losscli::") + schema)

    def value(*arguments):
        return reduce_elements(elements(arguments[:count]), arguments[count])

    def with_grad(*arguments):
        grad_output = arguments[count + 1] if len(arguments) > count + 1 else None
        factor = arguments[count + 2] if len(arguments) > count + 2 else 1.0
        incoming = torch.ones(()) if grad_output is None else grad_output
        found = gradients(incoming * factor, arguments[:count], arguments[count])
        return value(*arguments), found[0]

    def backward(grad_output, *arguments):
        *operands, reduction, wanted = arguments
        found = gradients(grad_output, tuple(operands), reduction)
        some = tuple(g if wants else g.new_empty(0) for g, wants in zip(found, wanted, strict=True))
        return some if count > 1 else some[0]

    def double_backward(*arguments):
        vectors, (grad_output, *operands, reduction) = arguments[:count], arguments[count:]
        with torch.enable_grad():
            leaves = [t.detach().clone().requires_grad_() for t in (grad_output, *operands)]
            found = gradients(leaves[0], tuple(leaves[1:]), reduction, graph=True)
            return torch.autograd.grad(
                found, leaves, [v.to(g.dtype) for v, g in zip(vectors, found, strict=True)]
            )

    kernels = {
        "": value,
        "_with_grad": with_grad,
        "_backward": backward,
        "_double_backward": double_backward,
    }
    for suffix, rule in batching.RULES.items():
        library.impl(f"loss{suffix}", kernels[suffix], "CPU")
        operator = getattr(getattr(torch.ops, library.ns), f"loss{suffix}").default
        torch.library.register_vmap(
            f"{library.ns}::loss{suffix}", partial(rule, operator, count), lib=library
        )
    yield count
    library._destroy()


def operator(count: int, suffix: str) -> Any:
    return getattr(getattr(torch.ops, f"losscli_batching_{count}"), f"loss{suffix}").default


def operands(count: int) -> tuple[list[Tensor], list[int | None]]:
    dims = [None if k % 2 else 0 for k in range(count)]
    made = [
        torch.randn(*(() if dim is None else (BATCH,)), *SHAPES[k], dtype=torch.float64)
        for k, dim in enumerate(dims)
    ]
    return made, dims


def check(function: Any, given: list[Tensor], dims: list[int | None]) -> None:
    """Compare with one sample at a time."""
    got = vmap(function, tuple(dims))(*given)
    samples = [
        function(*(t if dim is None else t[k] for t, dim in zip(given, dims, strict=True)))
        for k in range(BATCH)
    ]
    if isinstance(got, Tensor):
        torch.testing.assert_close(got, torch.stack(samples))
    else:
        torch.testing.assert_close(got, tuple(map(torch.stack, zip(*samples, strict=True))))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_rules_give_what_one_sample_at_a_time_gives(count, reduction):
    torch.manual_seed(0)
    given, dims = operands(count)
    shape = torch.broadcast_shapes(*SHAPES[:count])
    check(lambda *of: operator(count, "")(*of, reduction), given, dims)
    check(lambda *of: operator(count, "_with_grad")(*of, reduction), given, dims)
    check(lambda *of: operator(count, "_with_grad")(*of, reduction, None, 0.3), given, dims)
    of_loss = shape if reduction == "none" else ()
    incoming = torch.randn(BATCH, *of_loss, dtype=torch.float64)
    for grad_output, dim in ((incoming, 0), (incoming[0], None)):
        for wanted in ([True] * count, [k == count - 1 for k in range(count)]):

            def backward(grad_output, *of):
                found = operator(count, "_backward")(grad_output, *of, reduction, wanted)  # noqa: B023
                some = (found,) if count == 1 else found
                return tuple(one for one, wants in zip(some, wanted, strict=True) if wants)  # noqa: B023

            check(backward, [grad_output, *given], [dim, *dims])
        vectors = [torch.randn_like(operand) for operand in given]
        check(
            lambda *of: operator(count, "_double_backward")(*of, reduction),
            [*vectors, grad_output, *given],
            [*dims, dim, *dims],
        )
    assert math.prod(shape) > 1
