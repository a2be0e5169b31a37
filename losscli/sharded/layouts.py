"""How an operand lies over a mesh of ranks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from losscli.ranks.placements import share


@dataclass(frozen=True)
class Layout:
    """Which mesh dimensions shard rows and classes."""

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
        found: Tensor = sums.to_local()
        return found

    def loss(self, found: Any, reduction: str, shape: Sequence[int]) -> Any:
        """Return results as DTensors; ``shape`` is that of all ranks' rows."""
        if isinstance(found, tuple):
            return tuple(self.loss(each, reduction, shape) for each in found)
        if reduction != "none":
            shape, places = (), [Replicate()] * self.mesh.ndim
        else:
            places = self.placements(lambda dim: dim, None)
        strides = torch.empty(shape, device="meta").stride()
        loss: DTensor = DTensor.from_local(
            found, self.mesh, places, run_check=False, shape=torch.Size(shape), stride=strides
        )
        return loss
