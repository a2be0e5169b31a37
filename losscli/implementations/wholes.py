"""Calls of split losses with whole operands; all ranks get the same results."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TypeVar

import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.implementations.errors import SubjectError
from losscli.implementations.implementation import BoundLoss
from losscli.ranks.group import Group, joined, together
from losscli.ranks.placements import CUTS, dimension
from losscli.ranks.shards import Cut, cut, put_together, shared
from losscli.reasons import Code

T = TypeVar("T")


def of_whole(case: Case, bind: Callable[[Case], BoundLoss]) -> BoundLoss:
    """Return a function of whole operands; ``bind`` binds cases with other class counts."""
    cuts, names, group = CUTS[case.loss], case.spec.names, joined()
    bound = cache(lambda classes: bind(case.reshaped((*case.shape[:-1], classes))))

    def loss(*wholes: Tensor) -> Tensor:
        given = dict(zip(names, wholes, strict=True))
        first = next(name for name in names if name in cuts)
        function = bound(given[first].shape[dimension(cuts[first], given[first].dim())])
        parts = [
            Cut.apply(whole, cuts[name])  # type: ignore[no-untyped-call]
            if name in cuts
            else shared(whole, partial(check_equal, group, f"{name} gradient"))
            for name, whole in given.items()
        ]
        return check_equal(group, "loss", together(group, lambda: function(*parts)))

    return loss


def shards_of(case: Case, operands: Mapping[str, Tensor], group: Group) -> dict[str, Tensor]:
    """Return this rank's operands by name."""
    cuts = CUTS[case.loss]
    return {
        name: cut(whole, cuts[name], group.size, group.rank) if name in cuts else whole
        for name, whole in operands.items()
    }


def whole_gradients(
    case: Case, group: Group, gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gather whole gradients from those of shards."""
    cuts = CUTS[case.loss]
    return [
        check_equal(group, f"{name} gradient", gradient)
        if gradient is None or name not in cuts
        else put_together(gradient, cuts[name], case.classes)
        for name, gradient in zip(case.spec.trained, gradients, strict=False)
    ]


def check_equal(group: Group, what: str, result: T) -> T:
    """Return a result; SubjectError on all ranks unless theirs are bitwise equal."""
    bits = group.gather(f"compares a {what}", _bits(result))
    other = next((rank for rank, each in enumerate(bits) if each != bits[0]), None)
    if other is not None:
        raise SubjectError(f"rank {other} has another {what} than rank 0", Code.WRONG)
    return result


def _bits(result: object) -> tuple[object, ...]:
    if not isinstance(result, Tensor):
        return (type(result).__name__,)
    plain = result.detach().contiguous().cpu()
    flat = plain.as_strided((plain.numel(),), (1,))  # a dimension of one number has any stride
    digest = hashlib.blake2b(flat.view(torch.uint8).numpy().data, digest_size=16).hexdigest()
    return tuple(result.shape), str(result.dtype), digest
