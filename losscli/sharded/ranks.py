"""The ranks of a group: how many classes each has, and the one collective of a call.

The collective is an all-gather of one flat tensor in float32 (of float64 in float64): two words
that hold the bits of how many classes and rows the rank has, a third with the sum of its weights
of classes where label smoothing asks for that, then a few numbers of each row.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed

from losscli.linear.parts import Shard, Terms, together
from losscli.linear.rows import Rows

_WORDS = 2
"""Words before the numbers of rows: the classes and the rows of a rank."""
_known_sizes: WeakKeyDictionary[Any, dict[int, tuple[int, ...]]] = WeakKeyDictionary()
"""The classes of all ranks of a group, by how many this rank has."""


_tensors: dict[tuple[tuple[int, ...], torch.dtype, torch.device], Tensor] = {}
"""Tensors of sizes on a device, to which the host copies them once."""


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

    def gather(self, numbers: Sequence[Tensor], words: Sequence[Tensor] = ()) -> Gathered:
        """Return some numbers of each row, ``(N)`` each, of all ranks, by one collective.

        Args:
            numbers: in one dtype.
            words: more numbers, of shape ``(1)``, that are not of rows.

        Raises:
            ValueError: on the CPU, the ranks have different numbers of rows or other classes than
                is known. On a GPU nothing waits for what came: :attr:`Gathered.is_right` tells.
        """
        rows, first = len(numbers[0]), numbers[0]
        mine = torch.cat([*self._words(first, rows), *words, *numbers])
        at = _WORDS + len(words)
        if len(self.sizes) == 1:
            of_rows = mine[at:].view(len(numbers), 1, rows)
            return Gathered(of_rows, mine[_WORDS:at].unsqueeze(1), None)
        try:
            found = _all_gathered(mine, self.group)
        except RuntimeError as error:
            if mine.is_cuda:
                raise
            raise RuntimeError(
                f"{self.name}: the ranks could not exchange {mine.numel()} numbers of {rows} rows; "
                "all ranks must have the same rows and call the same losses in the same order"
            ) from error
        widths, counts = _as_integers(found[:, :_WORDS]).unbind(1)
        if not mine.is_cuda:
            self._check(widths.tolist(), counts.tolist(), rows)
        is_right = None
        if mine.is_cuda:
            is_right = (widths == _tensor_of(self.sizes, widths.dtype, widths.device)).all()
        of_rows = found[:, at:].view(len(self.sizes), len(numbers), rows)
        return Gathered(of_rows.transpose(0, 1), found[:, _WORDS:at].t(), is_right)

    def exchange(self, rows: Rows, terms: Terms) -> tuple[Rows, Terms, Tensor]:
        """Make the terms of this rank's classes those of all ranks' classes."""
        smooths = rows.settings.label_smoothing != 0
        numbers = [each for each in terms if each is not None]
        words = []
        if rows.class_weight is not None:
            numbers.append(self._own_weight(rows).to(terms.log.dtype))
            if smooths:
                words.append(rows.class_weight.sum(dtype=terms.log.dtype).view(1))
        found = self.gather(numbers, words)
        of_ranks = iter(found.numbers)
        parts = Terms(*(None if each is None else next(of_ranks) for each in terms))  # type: ignore[arg-type]
        own = self.owners(rows.known)
        whole, shares = together(parts, own, rows.settings.divisor)
        if found.is_right is not None:
            whole = whole._replace(log=torch.where(found.is_right, whole.log, torch.nan))
            whole = whole._replace(surprise=torch.where(found.is_right, whole.surprise, torch.nan))
        if rows.class_weight is not None:
            own_weight = torch.where(own, next(of_ranks), 0.0).sum(0)
            rows = rows.with_gathered(own_weight, found.words[0].sum() if smooths else None)
        return rows, whole, shares[self.rank]

    def owners(self, known: Tensor) -> Tensor:
        """Return which rank has the class of each row, ``(ranks, N)``."""
        ends = tuple(itertools.accumulate(self.sizes))
        if len(ends) == 1:
            return torch.ones_like(known, dtype=torch.bool).unsqueeze(0)
        owner = torch.bucketize(known, _tensor_of(ends[:-1], known.dtype, known.device), right=True)
        return owner == torch.arange(len(ends), device=known.device).unsqueeze(1)

    def summed(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the ranks."""
        if len(self.sizes) > 1:
            tensor = tensor.contiguous()
            distributed.all_reduce(tensor, group=self.group)
        return tensor

    def _own_weight(self, rows: Rows) -> Tensor:
        """Return the weight of each row's class, where it is this rank's, else any number."""
        assert rows.class_weight is not None
        width = self.sizes[self.rank]
        if width == 0:
            return rows.class_weight.new_zeros(len(rows.target))
        place = (rows.known - self.first).clamp(0, width - 1)
        return rows.class_weight[place]

    def _words(self, like: Tensor, rows: int) -> list[Tensor]:
        integer = torch.int64 if like.dtype == torch.float64 else torch.int32
        return [
            torch.full((1,), number, dtype=integer, device=like.device).view(like.dtype)
            for number in (self.sizes[self.rank], rows)
        ]

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
    """``(numbers, ranks, N)``."""
    words: Tensor
    """``(words, ranks)``."""
    is_right: Tensor | None
    """On a GPU, whether the ranks have the classes that were known."""


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


def _tensor_of(numbers: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of numbers, the same one each time."""
    key = (numbers, dtype, device)
    if (found := _tensors.get(key)) is not None:
        return found
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        # By kernels alone, in memory that is the graph's.
        return torch.cat([torch.full((1,), each, dtype=dtype, device=device) for each in numbers])
    found = _tensors[key] = torch.tensor(numbers, dtype=dtype, device=device)
    return found


def _as_integers(words: Tensor) -> Tensor:
    """Return the integers whose bits floats are."""
    integer = torch.int64 if words.dtype == torch.float64 else torch.int32
    return words.contiguous().view(integer)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor
