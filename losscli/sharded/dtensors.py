"""Losses of DTensors whose mesh dimensions shard rows or classes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from losscli.linear.calls import Given, settings_of
from losscli.linear.operands import loss_dtype
from losscli.linear.parts import Rows
from losscli.losses import EVERY_ROW_LOSS, Operand
from losscli.losses import operators as bound
from losscli.losses.calling import Arguments
from losscli.losses.rows.calls import RowCalls
from losscli.ranks.placements import share

from . import functions
from .hidden_states import shard_of


@dataclass(frozen=True)
class Layout:
    """How an operand lies over a mesh: which of its dimensions shard rows and classes."""

    name: str
    mesh: Any
    rows: dict[int, int]
    """Mesh dimensions that shard rows, with the rows' dimension."""
    classes: int | None
    """The mesh dimension that shards the classes."""

    @classmethod
    def of(cls, name: str, of: DTensor, dim: int | None) -> Self:
        """Return an operand's layout; ``dim`` is its class dimension, if any."""
        rows, classes = {}, None
        for k, placement in enumerate(of.placements):
            if type(placement) is Shard and placement.dim % of.dim() == dim:
                if classes is not None:
                    raise NotImplementedError(
                        f"{name}: two dimensions of the mesh shard the classes, {classes} and {k}; "
                        "flatten them, or redistribute one to Replicate()"
                    )
                classes = k
            elif type(placement) is Shard:
                own = placement.dim % of.dim()
                rows[k] = own - (dim is not None and own > dim)
            elif not isinstance(placement, Replicate | Partial):
                raise NotImplementedError(
                    f"{name}: {placement} of dimension {k} of the mesh is not supported; "
                    "redistribute to Shard(dim) or Replicate()"
                )
        return cls(name, of.device_mesh, rows, classes)

    def placements(self, of_rows: Callable[[int], int] | None, classes: int | None) -> list[Any]:
        """Return placements from a tensor's dimension for each of the rows', and its classes'."""
        found: list[Placement] = [Replicate()] * self.mesh.ndim
        for k, dim in self.rows.items():
            found[k] = found[k] if of_rows is None else Shard(of_rows(dim))
        if self.classes is not None and classes is not None:
            found[self.classes] = Shard(classes)
        return found

    def local(self, said: str, tensor: Any, placements: Sequence[Any]) -> Any:
        """Return the local part of an operand; its gradient may be a partial sum."""
        if tensor is None:
            return None
        if not isinstance(tensor, DTensor):
            is_sharded = any(isinstance(each, Shard) for each in placements)
            if is_sharded or (self.rows and tensor.requires_grad):
                why = "each rank needs a part of it"
                if not is_sharded:
                    why = "its gradient is a sum over the ranks"
                raise RuntimeError(
                    f"{self.name}: {said} must be a DTensor as the others are, because {why}; "
                    "distribute it with distribute_tensor"
                )
            return tensor
        if tensor.device_mesh != self.mesh:
            raise NotImplementedError(f"{self.name}: the DTensors must be on one device mesh")
        if tuple(placements) != tensor.placements:
            tensor = tensor.redistribute(self.mesh, placements)
        sums = [
            Partial() if k in self.rows and not isinstance(each, Shard) else each
            for k, each in enumerate(placements)
        ]
        return tensor.to_local(grad_placements=sums)

    def ranks(self, classes: int) -> dict[str, Any]:
        """Return the group that shares the classes, and each rank's number."""
        assert self.classes is not None
        count = self.mesh.size(self.classes)
        sizes = [share(classes, count, rank)[1] for rank in range(count)]
        return {"group": self.mesh.get_group(self.classes), "sizes": sizes}

    def reduced(self, mean: bool, parts: Callable[[], tuple[Tensor, Tensor]]) -> Tensor:
        """Return the sum or mean over all ranks' rows, with one float64 all-reduce.

        ``parts`` returns this rank's losses and their weights in a mean. If it raises on another
        rank, RuntimeError on the CPU, NaN on a GPU.
        """
        try:
            losses, counts = parts()
        except Exception:
            # Tell the other ranks, so that they do not wait.
            failed = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
            self.summed(failed.to(self.mesh.device_type))
            raise
        own = [values.sum(dtype=torch.float64) for values in (losses, counts)]
        sums = self.summed(torch.stack([*own, torch.zeros_like(own[0])]))
        total, count, failed = sums.unbind()
        if not failed.is_cuda and failed:
            raise RuntimeError(
                f"{self.name}: another rank of the mesh has raised an error, which says why"
            )
        total = total.masked_fill(failed != 0, torch.nan)
        if mean:
            # If no row counts, the mean is NaN and its gradient 0.
            nothing = count == 0
            quotient = total / count.masked_fill(nothing, 1.0)
            total = torch.where(nothing, (total / count).detach(), quotient)
        return total.to(losses.dtype)

    def summed(self, numbers: Tensor) -> Tensor:
        """Sum numbers over the ranks that share rows."""
        places = [Partial() if k in self.rows else Replicate() for k in range(self.mesh.ndim)]
        sums = DTensor.from_local(numbers, self.mesh, places, run_check=False)
        for k in self.rows:  # PyTorch warns of several at once
            places[k] = Replicate()
            sums = sums.redistribute(self.mesh, places)
        return sums.to_local()

    def loss(self, found: Any, reduction: str, shape: Sequence[int]) -> Any:
        """Return results as DTensors; ``shape`` is that of all ranks' rows."""
        if isinstance(found, tuple):
            return tuple(self.loss(each, reduction, shape) for each in found)
        if reduction != "none":
            shape, places = (), [Replicate()] * self.mesh.ndim
        else:
            places = self.placements(lambda dim: dim, None)
        strides = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(
            found, self.mesh, places, run_check=False, shape=torch.Size(shape), stride=strides
        )


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
    locals_ = tuple(
        layout.local(of.name, each, _places(layout, of, each, first, dim))
        for of, each in zip(spec.operands, given.operands, strict=False)
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


def _places(layout: Layout, of: Operand, operand: Any, first: Tensor, dim: int) -> list[Any]:
    if of.shared:
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
