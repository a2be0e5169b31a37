"""Losses of DTensors whose mesh dimensions shard rows or classes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from losscli.linear.calls import Given, settings_of
from losscli.linear.operands import loss_dtype
from losscli.linear.rows import Rows
from losscli.losses import EVERY_ROW_LOSS, RowSpec
from losscli.losses import operators as bound
from losscli.losses.calling import Arguments
from losscli.losses.rows.calls import RowCalls

from . import functions
from .hidden_states import shard_of
from .layouts import Layout

_OF_RANKS: dict[str, Callable[..., Any]] = {
    name: getattr(functions, name)
    for name in ("cross_entropy", "token_log_probs", "kl_divergence", "reverse_kl_divergence")
}
"""The losses whose classes may be sharded."""


def of_rows(calls: RowCalls, given: Arguments) -> Any:
    """Return a row-wise loss of operands that include DTensors."""
    name = calls.name
    operator = given.operator or name
    spec = EVERY_ROW_LOSS[operator]
    first = given.operands[0]
    if not isinstance(first, DTensor):
        raise RuntimeError(
            f"{name}: where one operand is a DTensor, {spec.names[0]} must be, but it is a "
            f"torch.Tensor of shape {list(first.shape)}; distribute it with distribute_tensor"
        )
    dim = spec.row_dimension(first.dim())
    layout = Layout.of(name, first, dim)
    of_ranks = _OF_RANKS.get(operator)
    if layout.classes is not None and of_ranks is None:
        form = operator.partition(f"{name}_with_")[2]
        where = f" where {spec.names[1]} has {form}" if form else ""
        raise NotImplementedError(
            f"{name}: its classes cannot be sharded{where}, only its rows; "
            f"redistribute to Replicate() along dimension {layout.classes} of the mesh. Sharded "
            f"classes have {', '.join(_OF_RANKS)}"
        )
    shape = first.shape[:dim] + first.shape[dim + 1 :]
    places = [_places(layout, spec, each, k, first, dim) for k, each in enumerate(given.operands)]
    locals_ = tuple(
        layout.local(said, each, place)
        for said, each, place in zip(spec.names, given.operands, places, strict=False)
    )
    settings = {p.name: value for p, value in zip(calls.parameters, given.parameters, strict=True)}

    def call(reduction: str) -> Any:
        if of_ranks is None or layout.classes is None:
            return calls.loss(given._replace(operands=locals_, reduction=reduction))
        named = dict(zip(spec.names[2:], locals_[2:], strict=True)) | settings
        if len(spec.reductions) > 1:
            named["reduction"] = reduction
        if "entropy" in named:
            named["entropy"] = bool(named["entropy"])
        return of_ranks(*locals_[:2], **named, **layout.ranks(first.shape[dim]))

    if given.reduction == "none" or not layout.rows:
        return layout.loss(call(given.reduction), given.reduction, shape)

    def parts() -> tuple[Tensor, Tensor]:
        losses = call("none")
        if spec.counts is None:
            return losses, torch.ones_like(losses)
        operands = list(locals_)
        for k, value in enumerate(given.operands):
            if layout.classes is not None and spec.operands[k].shared and value is not None:
                operands[k] = value.full_tensor()
        return losses, spec.counts(*operands, **settings)

    total = layout.reduced(given.reduction == "mean", parts)
    return layout.loss(total, given.reduction, shape)


def _places(
    layout: Layout, spec: RowSpec, operand: Any, k: int, first: Tensor, dim: int
) -> list[Any]:
    if spec.operands[k].shared:
        return layout.placements(None, 0)
    if operand is not None and operand.dim() == first.dim():
        return layout.placements(lambda of: of + (of >= dim), dim)
    return layout.placements(lambda of: of, None)


def of_hidden_states(name: str, compute: Callable[..., Any], operands: dict[str, Any]) -> Any:
    """Return a fused linear loss of DTensors; ``compute`` takes plain tensors."""
    said, of_weight, of_numbers, of_bias = list(operands)[:4]
    hidden, weight = operands[said], operands[of_weight]
    for called, each in ((said, hidden), (of_weight, weight)):
        if not isinstance(each, DTensor):
            raise RuntimeError(
                f"{name}: where one operand is a DTensor, {said} and {of_weight} must be, but "
                f"{called} is a torch.Tensor of shape {list(each.shape)}; distribute it with "
                "distribute_tensor"
            )
    layout = _of_linear(name, hidden, weight)
    shape, classes = hidden.shape[:-1], weight.shape[0]
    rows, whole = layout.placements(lambda dim: dim, None), layout.placements(None, 0)
    places = dict.fromkeys((said, of_numbers, "token_weight", "mask"), rows)
    places |= dict.fromkeys((of_weight, of_bias, "weight"), whole)
    settings = {
        each: layout.local(each, value, places[each]) if each in places else value
        for each, value in operands.items()
    }
    given = Given.taken(settings)
    if layout.classes is not None:
        of_shard = shard_of(name, len(given.linear_weight), **layout.ranks(classes))
        given = given._replace(of_shard=of_shard)
    reduction = settings.get("reduction", "none")
    if reduction == "none" or not layout.rows:
        found = compute(name, given, **settings)
        if not settings.get("return_lse"):
            return layout.loss(found, reduction, shape)
        return layout.loss(found[0], reduction, shape), layout.loss(found[1], "none", shape)
    log_sums: list[Tensor] = []

    def parts() -> tuple[Tensor, Tensor]:
        total = compute(name, given._replace(wide=True), **settings | {"reduction": "sum"})
        if settings["return_lse"]:
            total, of_rows = total
            log_sums.append(of_rows)
        class_weight = operands["weight"]
        if isinstance(class_weight, DTensor):
            class_weight = class_weight.full_tensor()
        ignored = settings_of(operands["ignore_index"])
        target = given.numbers.reshape(-1).long()
        counted = Rows(target, classes, class_weight, ignored, "mean", True, False)
        of_tokens = settings["token_weight"]
        of_tokens = torch.ones_like(given.numbers) if of_tokens is None else of_tokens
        return total, counted.weighted(of_tokens.double().reshape(-1))

    total = layout.reduced(reduction == "mean", parts).to(loss_dtype(given.hidden))
    loss = layout.loss(total, reduction, shape)
    return (loss, layout.loss(log_sums[0], "none", shape)) if log_sums else loss


def _of_linear(name: str, hidden: DTensor, weight: DTensor) -> Layout:
    of_weight = Layout.of(name, weight, 0)
    if of_weight.rows:
        raise NotImplementedError(
            f"{name}: the width of linear_weight cannot be sharded; redistribute it to Shard(0), "
            "which shards the classes, or to Replicate()"
        )
    rows = Layout.of(name, hidden, None).rows
    if hidden.dim() - 1 in rows.values():
        raise NotImplementedError(
            f"{name}: the width of hidden states cannot be sharded; redistribute to Shard(0), "
            "which shards the rows, or to Replicate()"
        )
    # If a dimension shards both, as in sequence parallelism, each rank needs all rows.
    rows = {k: dim for k, dim in rows.items() if k != of_weight.classes}
    return Layout(name, weight.device_mesh, rows, of_weight.classes)


bound.OF_DTENSORS.update(rows=of_rows, hidden_states=of_hidden_states)
bound.DTensor = DTensor
