"""The ranks of a group: their classes, and a call's collective.

It is an all-gather of one flat tensor in float32 (float64 for float64): the rank's numbers of
classes and rows, its sum of class weights for label smoothing, then a few numbers per row. The
first two are XORed with a digest of what ranks must agree on.
"""

import functools
import operator
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed

from losscli.linear.parts import Rows, Shard, Whole, join
from losscli.ranks.shards import gather_into

_WORDS = 2
"""Words before the rows' numbers: the rank's numbers of classes and rows."""
_known_sizes: WeakKeyDictionary[Any, dict[int, tuple[int, ...]]] = WeakKeyDictionary()
"""All ranks' numbers of classes in a group, by this rank's number."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a group, which share the classes in rank order."""

    name: str
    group: Any
    rank: int
    sizes: tuple[int, ...]
    """Each rank's number of classes."""
    digest: int

    @property
    def first(self) -> int:
        """This rank's first class."""
        return sum(self.sizes[: self.rank])

    @property
    def classes(self) -> int:
        """The number of classes on all ranks."""
        return sum(self.sizes)

    def shard(self, *, reduces: bool = True) -> Shard:
        """Return this rank's shard; ``reduces``: sum partial gradients over ranks."""
        summed = self.summed if reduces else None
        return Shard(self.name, self.first, self.classes, self.exchange, summed)

    def gather(
        self, numbers: Tensor, words: Sequence[Tensor] = ()
    ) -> tuple[Tensor, Tensor, Tensor]:
        """All-gather numbers per row, ``(numbers, N)``, and further words, with one collective.

        Return ``(ranks, numbers, N)``, ``(ranks, words)`` and the ranks' numbers of classes. On the
        CPU, ValueError if ranks differ in rows, classes or settings. On a GPU the sum of the
        numbers of classes shows it.
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
                    "rows. All ranks must have the same rows, dtypes, settings and optional "
                    "operands, and call the same losses in the same order; another rank may have "
                    "raised an error. If the number of a rank's classes changes between calls, "
                    "pass sizes="
                ) from error
        integer = torch.int64 if found.dtype == torch.float64 else torch.int32
        sizes = found.view(integer)[:, :_WORDS] ^ self.digest
        if not mine.is_cuda:
            self._check(sizes.tolist(), rows)
        at = _WORDS + len(words)
        of_rows = found[:, at:].view(len(self.sizes), count, rows)
        return of_rows, found[:, _WORDS:at], sizes[:, 0]

    def exchange(self, rows: Rows, numbers: Tensor) -> Whole:
        """Combine this rank's numbers with the others'."""
        total = rows.total_weight
        words = [] if total is None else [total.to(numbers.dtype).view(1)]
        numbers, found, widths = self.gather(numbers, words)
        if total is not None:
            total = found.sum()
        return join(rows, numbers, widths, slice(0, self.classes), total, self.rank)

    def summed(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the ranks."""
        if len(self.sizes) > 1:
            tensor = tensor.contiguous()
            distributed.all_reduce(tensor, group=self.group)
        return tensor

    def _words(self, like: Tensor, rows: int) -> Tensor:
        """Encode this rank's numbers of classes and rows as floating-point numbers."""
        width, rows = self.sizes[self.rank] ^ self.digest, rows ^ self.digest
        if like.dtype == torch.float64:
            words = torch.full((2,), rows, dtype=torch.int64, device=like.device)
            words[:1].fill_(width)
            return words.view(torch.float64)
        # One kernel writes both.
        both = torch.full((1,), width | rows << 32, dtype=torch.int64, device=like.device)
        return both.view(torch.float32)

    def _check(self, found: list[list[int]], rows: int) -> None:
        known = [[size, rows] for size in self.sizes]
        if found == known:
            return
        widths, counts = map(list, zip(*found, strict=True))
        if counts == [rows] * len(counts):
            raise ValueError(
                f"{self.name}: the ranks have {widths} classes, but {list(self.sizes)} were known; "
                "give sizes= where the shards of a group change"
            )
        # A different digest is in both words, so it cancels in their XOR.
        if all(a ^ b == c ^ d for (a, b), (c, d) in zip(found, known, strict=True)):
            others = ", ".join(str(k) for k, count in enumerate(counts) if count != rows)
            raise ValueError(
                f"{self.name}: all ranks must call the same loss with the same settings, "
                "reduction, dtypes and optional operands, but rank "
                f"{self.rank} of the group has others than {others}"
            )
        raise ValueError(
            f"{self.name}: all ranks must have the same rows, and call the same loss with the same "
            f"settings, but rank {self.rank} of the group has {rows} rows and other ranks have not"
        )


def ranks_of(
    name: str, group: Any, width: int, sizes: Sequence[int] | None, like: Tensor, *alike: Any
) -> Ranks:
    """Return the ranks of a ``group``; see ``OF_SHARDS`` for that, ``sizes`` and errors.

    ``width`` is this rank's number of classes; the dtype of ``like`` and what is ``alike`` must be
    equal on all ranks.
    """
    group = _process_group(name, group)
    rank, count = distributed.get_rank(group), distributed.get_world_size(group)
    if sizes is None:
        of_group = _known_sizes.setdefault(group, {})
        found = of_group.get(width)
        if found is None:
            mine = torch.full((1,), width, dtype=torch.int64, device=like.device)
            found = of_group[width] = tuple(_all_gathered(mine, group).flatten().tolist())
    else:
        found = _taken_sizes(name, sizes, rank, count, width)
    if not any(found):
        raise ValueError(f"{name}: one rank at least must have a class, but none has any")
    return Ranks(name, group, rank, found, _digest(name, like.dtype, *alike))


def _process_group(name: str, group: Any) -> Any:
    if not distributed.is_available() or not distributed.is_initialized():
        raise RuntimeError(
            f"{name}: there is no process group; call torch.distributed.init_process_group first, "
            "in processes that torchrun started"
        )
    if hasattr(group, "get_group"):
        if group.ndim != 1:
            raise ValueError(
                f"{name}: group must be a process group or a mesh of one dimension, but is a mesh "
                f"of {group.ndim}; give the group of one, as in mesh.get_group(0)"
            )
        group = group.get_group()
    if group is None:
        group = distributed.group.WORLD
    outside = distributed.GroupMember.NON_GROUP_MEMBER
    if not (isinstance(group, distributed.ProcessGroup) or group == outside):
        raise TypeError(
            f"{name}: group must be a process group, a mesh of one dimension or None, but is "
            f"{group!r}"
        )
    if distributed.get_rank(group) < 0:
        raise ValueError(
            f"{name}: this process, rank {distributed.get_rank()}, is not in the group; only the "
            "processes of a group call its losses"
        )
    return group


def _all_gathered(mine: Tensor, group: Any) -> Tensor:
    count = distributed.get_world_size(group)
    found = mine.new_empty(count * mine.numel())
    gather_into(found, mine, group)
    return found.view(count, mine.numel())


@functools.lru_cache(256)  # 10 us otherwise, in each call
def _digest(*alike: Any) -> int:
    # Equal numbers hash alike, in 31 bits.
    words = [float(x) if isinstance(x, int | float) else x for x in alike]
    return zlib.crc32(repr(words).encode()) >> 1


def _taken_sizes(
    name: str, given: Sequence[int], rank: int, count: int, width: int
) -> tuple[int, ...]:
    try:
        sizes = tuple(map(operator.index, given))
    except TypeError:
        raise TypeError(
            f"{name}: sizes must have an integer for each rank, its number of classes, but is "
            f"{given!r}"
        ) from None
    if len(sizes) != count or sizes[rank] != width or min(sizes) < 0:
        raise ValueError(
            f"{name}: sizes must have the number of classes of each of the {count} ranks, {width} "
            f"for rank {rank}, but is {list(sizes)}"
        )
    return sizes
