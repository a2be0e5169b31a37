"""The ranks of a group: how many classes each has, and the one collective of a call.

The collective is an all-gather of one flat tensor in float32 (of float64 in float64): two words
that hold the bits of how many classes and rows the rank has, a third with the sum of its weights
of classes where label smoothing asks for that, then a few numbers of each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed

from losscli.linear.parts import Shard, Whole, join
from losscli.linear.rows import Rows

_WORDS = 2
"""Words before the numbers of rows: the classes and the rows of a rank."""
_known_sizes: WeakKeyDictionary[Any, dict[int, tuple[int, ...]]] = WeakKeyDictionary()
"""The classes of all ranks of a group, by how many this rank has."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a group, which have the classes in the order of their numbers."""

    name: str
    """The loss that messages name."""
    group: Any
    rank: int
    """This process in the group."""
    sizes: tuple[int, ...]
    """How many classes each rank has."""

    @classmethod
    def of(
        cls,
        name: str,
        group: Any,
        width: int,
        sizes: Sequence[int] | None,
        device: torch.device,
    ) -> Ranks:
        """Return the ranks of a group; the first call of a group and a width asks the others.

        Args:
            name: the loss that messages name.
            group: a process group, a mesh of one dimension, or None for all processes.
            width: how many classes this rank has.
            sizes: how many classes each rank has, or None to ask the others.
            device: of the tensor by which they are asked.

        Raises:
            RuntimeError: there is no process group.
            ValueError: this process is not in the group, or ``sizes`` does not fit.
        """
        group = _process_group(name, group)
        rank, count = distributed.get_rank(group), distributed.get_world_size(group)
        if sizes is None:
            of_group = _known_sizes.setdefault(group, {})
            found = of_group.get(width)
            if found is None:
                found = of_group[width] = _asked(group, width, device)
        else:
            found = tuple(map(int, sizes))
            _check_sizes(name, found, rank, count, width)
        return cls(name, group, rank, found)

    @property
    def first(self) -> int:
        """Return the number of this rank's first class."""
        return sum(self.sizes[: self.rank])

    @property
    def classes(self) -> int:
        """Return how many classes all ranks have."""
        return sum(self.sizes)

    def shard(self, *, reduces: bool = True) -> Shard:
        """Return what the losses of parts ask of ranks; ``reduces``: sums are made of parts."""
        summed = self.summed if reduces else _as_it_is
        return Shard(self.first, self.classes, self.exchange, summed)

    def gather(self, numbers: Tensor, words: Sequence[Tensor] = ()) -> Gathered:
        """Return some numbers of each row, ``(numbers, N)``, of all ranks, by one collective.

        Args:
            numbers: dense.
            words: more numbers, of shape ``(1)``, that are not of rows.

        Raises:
            ValueError: on the CPU, the ranks have different numbers of rows or other classes than
                is known. On a GPU nothing waits for what came: :attr:`Gathered.widths` tells.
        """
        count, rows = numbers.shape
        mine = torch.cat([self._words(numbers, rows), *words, numbers.view(-1)])
        found = mine.unsqueeze(0)
        if len(self.sizes) > 1:
            try:
                found = _all_gathered(mine, self.group)
            except RuntimeError as error:
                if mine.is_cuda:
                    raise
                raise RuntimeError(
                    f"{self.name}: the ranks could not exchange {mine.numel()} numbers of {rows} "
                    "rows; all ranks must have the same rows and call the same losses in the same "
                    "order"
                ) from error
        integer = torch.int64 if found.dtype == torch.float64 else torch.int32
        widths, counts = found.view(integer)[:, :_WORDS].unbind(1)
        if not mine.is_cuda:
            self._check(widths.tolist(), counts.tolist(), rows)
        at = _WORDS + len(words)
        of_rows = found[:, at:].view(len(self.sizes), count, rows)
        return Gathered(of_rows, found[:, _WORDS:at], widths)

    def exchange(self, rows: Rows, numbers: Tensor) -> Whole:
        """Make the numbers of this rank's classes those of all ranks' classes."""
        total = rows.total_weight
        words = [] if total is None else [total.to(numbers.dtype).view(1)]
        found = self.gather(numbers, words)
        if total is not None:
            total = found.words.sum()
        return join(rows, found.numbers, found.widths, slice(0, self.classes), total, self.rank)

    def summed(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks."""
        if len(self.sizes) > 1:
            tensor = tensor.contiguous()
            distributed.all_reduce(tensor, group=self.group)
        return tensor

    def _words(self, like: Tensor, rows: int) -> Tensor:
        """Return the bits of how many classes and rows this rank has, as numbers of a dtype."""
        width = self.sizes[self.rank]
        if like.dtype == torch.float64:
            words = torch.full((2,), rows, dtype=torch.int64, device=like.device)
            words[:1].fill_(width)
            return words.view(torch.float64)
        # One kernel writes both.
        both = torch.full((1,), width | rows << 32, dtype=torch.int64, device=like.device)
        return both.view(torch.float32)

    def _check(self, widths: list[int], counts: list[int], rows: int) -> None:
        if counts != [rows] * len(counts):
            raise ValueError(
                f"{self.name}: all ranks must have the same rows, but they have {counts}"
            )
        if widths != list(self.sizes):
            raise ValueError(
                f"{self.name}: the ranks have {widths} classes, but {list(self.sizes)} were known; "
                "give sizes= where the shards of a group change"
            )


@dataclass(frozen=True)
class Gathered:
    """What a collective has brought."""

    numbers: Tensor
    """``(ranks, numbers, N)``."""
    words: Tensor
    """``(ranks, words)``."""
    widths: Tensor
    """How many classes each rank says that it has, ``(ranks)``."""


def _process_group(name: str, group: Any) -> Any:
    if not distributed.is_available() or not distributed.is_initialized():
        raise RuntimeError(
            f"{name}: there is no process group; call torch.distributed.init_process_group first, "
            "in processes that torchrun started"
        )
    if hasattr(group, "get_group"):
        group = group.get_group()
    if group is None:
        group = distributed.group.WORLD
    if distributed.get_rank(group) < 0:
        raise ValueError(
            f"{name}: this process, rank {distributed.get_rank()}, is not in the group; only the "
            "processes of a group call its losses"
        )
    return group


def _all_gathered(mine: Tensor, group: Any) -> Tensor:
    """Return a flat tensor of each rank, ``(ranks, ...)``."""
    count = distributed.get_world_size(group)
    found = mine.new_empty(count * mine.numel())
    # PyTorch 2.13 renamed it.
    name = "all_gather_single"
    gather = getattr(distributed, name, None) or distributed.all_gather_into_tensor
    gather(found, mine, group=group)
    return found.view(count, mine.numel())


def _asked(group: Any, width: int, device: torch.device) -> tuple[int, ...]:
    """Return how many classes each rank has; the host waits for it."""
    mine = torch.full((1,), width, dtype=torch.int64, device=device)
    return tuple(_all_gathered(mine, group).flatten().tolist())


def _check_sizes(name: str, sizes: tuple[int, ...], rank: int, count: int, width: int) -> None:
    if len(sizes) != count:
        raise ValueError(
            f"{name}: sizes must have the classes of each of the {count} ranks, but has "
            f"{len(sizes)}: {list(sizes)}"
        )
    if sizes[rank] != width:
        raise ValueError(
            f"{name}: sizes says that rank {rank} has {sizes[rank]} classes, but its shard has "
            f"{width}"
        )
    if min(sizes) < 0:
        raise ValueError(f"{name}: sizes must be at least 0, but are {list(sizes)}")


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor
