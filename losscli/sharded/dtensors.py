"""Losses over rows of DTensors: each rank computes its rows, and its classes with others' help.

Along each dimension of the mesh the first operand is whole, or its rows are sharded, or its
classes. Rows need nothing of each other, but that a mean divides by what the rows of all ranks
count; the loss is then a partial sum. Classes are what :mod:`losscli.sharded` is for; then all
ranks have the loss.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from losscli.losses import EVERY_ROW_LOSS, ROW_LOSSES, RowSpec
from losscli.losses import operators as bound
from losscli.losses.calling import Arguments
from losscli.losses.rows.calls import RowCalls

from . import divergence, functions

_OF_RANKS: dict[str, Callable[..., Any]] = {
    "cross_entropy": functions.cross_entropy,
    "token_log_probs": functions.token_log_probs,
    "kl_divergence": divergence.kl_divergence,
    "reverse_kl_divergence": divergence.reverse_kl_divergence,
}
"""The losses whose classes may be sharded."""


@dataclass(frozen=True)
class _Layout:
    """What each dimension of a mesh shards."""

    name: str
    """The loss that messages name."""
    mesh: Any
    rows: dict[int, int]
    """The dimensions of the mesh that shard rows, and which dimension of the rows."""
    classes: int | None
    """The dimension of the mesh that shards the classes."""

    @classmethod
    def of(cls, name: str, of: DTensor, dim: int | None) -> _Layout:
        """Return the layout of an operand, of which one dimension, or none, has the classes."""
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
        """Return the placements of a tensor.

        Args:
            of_rows: returns which of its dimensions has a dimension of the rows; None without rows.
            classes: which of its dimensions has the classes; None without.
        """
        found: list[Placement] = [Replicate()] * self.mesh.ndim
        for k, dim in self.rows.items():
            found[k] = found[k] if of_rows is None else Shard(of_rows(dim))
        if self.classes is not None and classes is not None:
            found[self.classes] = Shard(classes)
        return found

    def local(self, said: str, tensor: Any, placements: Sequence[Any]) -> Any:
        """Return what this rank has of an operand, whose gradient is a partial sum where needed."""
        if tensor is None:
            return None
        if not isinstance(tensor, DTensor):
            if any(isinstance(each, Shard) for each in placements):
                raise RuntimeError(
                    f"{self.name}: {said} must be a DTensor as the others are, for parts of it are "
                    "on other ranks; distribute it with distribute_tensor"
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
        """Return the group that has the classes, and how many each rank has."""
        assert self.classes is not None
        count = self.mesh.size(self.classes)
        each = -(-classes // count)
        ends = [min(each * k, classes) for k in range(count + 1)]
        sizes = [end - first for first, end in itertools.pairwise(ends)]
        return {"group": self.mesh.get_group(self.classes), "sizes": sizes}

    def ratio(self, count: Tensor) -> Tensor:
        """Return which part of what the rows of all ranks count this rank's do; 0 of nothing."""
        whole = count.clone()
        for k in self.rows:
            distributed.all_reduce(whole, group=self.mesh.get_group(k))
        return count / whole

    def loss(self, found: Tensor, reduction: str, shape: Sequence[int]) -> DTensor:
        """Return the loss as a DTensor; ``shape`` is that of the rows of all ranks."""
        if reduction != "none":
            shape = ()
            places = [Partial() if k in self.rows else Replicate() for k in range(self.mesh.ndim)]
        else:
            places = self.placements(lambda dim: dim, None)
        strides = torch.empty(shape, device="meta").stride()
        loss: DTensor = DTensor.from_local(
            found, self.mesh, places, run_check=False, shape=torch.Size(shape), stride=strides
        )
        return loss

    def reduced(
        self, call: Callable[[str], Any], count: Callable[[], Tensor], reduction: str, shape: Any
    ) -> Any:
        """Return the loss of a function of the reduction of this rank's rows.

        Args:
            call: computes it.
            count: returns what these rows count in a mean, one number in float64.
            reduction: of the rows of all ranks.
            shape: of the rows of all ranks.
        """
        found = call(reduction)
        if isinstance(found, tuple):
            return tuple(self.loss(each, reduction, shape) for each in found)
        if reduction == "mean" and self.rows:
            own = count()
            # The mean of no row is NaN, and no part of the others' mean.
            part = torch.where(own == 0, 0.0, found) * self.ratio(own)
            found = part.to(found.dtype)
        return self.loss(found, reduction, shape)


def of_rows(calls: RowCalls, given: Arguments) -> Any:
    """Return the loss over rows of operands of which some are DTensors."""
    name = calls.name
    operator = given.operator or name
    spec = ROW_LOSSES.get(operator) or EVERY_ROW_LOSS[operator]
    first = given.operands[0]
    if not isinstance(first, DTensor):
        raise RuntimeError(
            f"{name}: where one operand is a DTensor, {spec.names[0]} must be, but it is a "
            f"torch.Tensor of shape {list(first.shape)}; distribute it with distribute_tensor"
        )
    dim = spec.row_dimension(first.dim())
    layout = _Layout.of(name, first, dim)
    of_ranks = _OF_RANKS.get(operator)
    if layout.classes is not None and of_ranks is None:
        raise NotImplementedError(
            f"{operator}: its classes cannot be sharded, only its rows; redistribute to "
            f"Replicate() along dimension {layout.classes} of the mesh. Sharded classes have "
            f"{', '.join(_OF_RANKS)}"
        )
    for operand, value in zip(spec.operands, given.operands, strict=False):
        wants = operand.shared and value is not None and value.requires_grad
        if wants and layout.rows and given.reduction == "mean":
            raise NotImplementedError(
                f"{name}: a mean over sharded rows has no gradient of {operand.name}, by which it "
                f"is divided; give {operand.name}.detach(), or divide the sum"
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

    def count() -> Tensor:
        with torch.no_grad():
            operands = list(locals_)
            for k, operand in enumerate(spec.operands):
                if operand.shared and isinstance(given.operands[k], DTensor):
                    operands[k] = given.operands[k].full_tensor()  # type: ignore[attr-defined]
            if spec.counts is None:
                rows = locals_[0].numel() // max(locals_[0].shape[dim], 1)
                return torch.tensor(float(rows), dtype=torch.float64, device=first.device)
            found: Tensor = spec.counts(*operands, **settings).sum(dtype=torch.float64)
            return found

    return layout.reduced(call, count, given.reduction, shape)


def _places(
    layout: _Layout, spec: RowSpec, operand: Any, k: int, first: Tensor, dim: int
) -> list[Any]:
    """Return the placements of an operand beside the first."""
    if spec.operands[k].shared:
        return layout.placements(None, 0)
    if operand is not None and operand.dim() == first.dim():
        return layout.placements(lambda of: of + (of >= dim), dim)
    return layout.placements(lambda of: of, None)


def of_hidden_states(name: str, alone: Callable[..., Any], operands: dict[str, Any]) -> Any:
    """Return the loss of hidden states where some operands are DTensors.

    Args:
        name: of the function.
        alone: the function of plain tensors.
        operands: its arguments by name, hidden states, weight and class numbers first.
    """
    said, of_weight, of_numbers = list(operands)[:3]
    hidden, weight = operands[said], operands[of_weight]
    for called, each in ((said, hidden), (of_weight, weight)):
        if not isinstance(each, DTensor):
            raise RuntimeError(
                f"{name}: where one operand is a DTensor, {said} and {of_weight} must be, but "
                f"{called} is a torch.Tensor of shape {list(each.shape)}; distribute it with "
                "distribute_tensor"
            )
    layout = _of_linear(name, hidden, weight)
    shape = hidden.shape[:-1]
    rows, whole = layout.placements(lambda dim: dim, None), layout.placements(None, 0)
    places = dict.fromkeys((said, of_numbers, "token_weight", "mask"), rows)
    places |= dict.fromkeys((of_weight, "linear_bias", "weight"), whole)
    locals_ = {
        each: layout.local(each, value, places[each]) if each in places else value
        for each, value in operands.items()
    }

    def call(reduction: str) -> Any:
        given = locals_ | ({"reduction": reduction} if "reduction" in operands else {})
        if layout.classes is None:
            return alone(**given)
        return getattr(functions, name)(**given, **layout.ranks(weight.shape[0]))

    def count() -> Tensor:
        with torch.no_grad():
            target = locals_[of_numbers].long()
            ignored = operands["ignore_index"]
            kept = target != (-100 if ignored is None else ignored)
            found = kept.double()
            class_weight = operands["weight"]
            if class_weight is not None:
                is_whole = not isinstance(class_weight, DTensor)
                full = class_weight if is_whole else class_weight.full_tensor()
                found = torch.where(kept, full[torch.where(kept, target, 0)].double(), 0.0)
            if locals_["token_weight"] is not None:
                found = found * locals_["token_weight"].double()
            total: Tensor = found.sum()
            return total

    if operands.get("return_lse"):
        lse: list[Tensor] = []

        def first(reduction: str) -> Any:
            loss, sums = call(reduction)
            lse.append(sums)
            return loss

        loss = layout.reduced(first, count, operands["reduction"], shape)
        return loss, layout.loss(lse[0], "none", shape)
    return layout.reduced(call, count, operands.get("reduction", "none"), shape)


def _of_linear(name: str, hidden: DTensor, weight: DTensor) -> _Layout:
    """Return the layout of hidden states and the weight that makes logits of them."""
    of_weight = _Layout.of(name, weight, 0)
    if of_weight.rows:
        raise NotImplementedError(
            f"{name}: the width of linear_weight cannot be sharded; redistribute it to Shard(0), "
            "which shards the classes, or to Replicate()"
        )
    rows = _Layout.of(name, hidden, None).rows
    if hidden.dim() - 1 in rows.values():
        raise NotImplementedError(
            f"{name}: the width of hidden states cannot be sharded; redistribute to Shard(0), "
            "which shards the rows, or to Replicate()"
        )
    # Where a dimension has both, as with sequence parallelism, each rank needs all rows.
    rows = {k: dim for k, dim in rows.items() if k != of_weight.classes}
    return _Layout(name, weight.device_mesh, rows, of_weight.classes)


bound.of_rows, bound.of_hidden_states, bound.DTensor = of_rows, of_hidden_states, DTensor
