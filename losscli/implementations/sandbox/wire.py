"""What judge and worker send each other: JSON, and tensors as bytes in two files in memory.

Messages are decoded by type, because they may be forged. An operand travels with its whole storage,
so that the worker sees its strides and the bytes around a view. The worker writes changes back, so
that checks find modified inputs. Results are contiguous.
"""

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import torch
from torch import Tensor

from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.implementations.implementation import Mends
from losscli.processes import Channel
from losscli.reasons import Code

_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}
_PIECE = 2**24
"""Bytes copied at once, so that the allocator reuses memory."""
_SMALL = 2**26
"""Bytes of earlier operands that a worker need not free."""


class Storage(msgspec.Struct):
    """An operand's storage; its bytes are in the operand file."""

    key: int
    """Identifies the judge's memory, so that it keeps its address in the worker."""
    bytes: int
    at: int
    device: str


class Asked(msgspec.Struct):
    """A request and the case of its subject."""

    number: int
    """A random number that the response must repeat."""
    request: msgspec.Raw
    storages: list[Storage]
    case: Case | None = None
    model: ModelCase | None = None
    generation: int = 0
    """The implementation is bound again for each."""
    mends: Mends = ()


class Ready(msgspec.Struct, tag="ready"):
    """The worker is isolated."""

    reached: list[str]
    scratch: str


class Replied(msgspec.Struct, tag="replied"):
    """The response to a request."""

    number: int
    value: msgspec.Raw
    changed: list[int] = []
    """Keys of modified operands."""


class Raised(msgspec.Struct, tag="raised"):
    """The candidate raised or returned an invalid result."""

    text: str
    kind: Literal["raised", "no_second_derivatives", "out_of_memory", "build", "error", "forked"]
    refused: bool = False
    """Whether it was RuntimeError."""
    code: Code = Code.RAISED
    broke: bool = False
    """Whether the worker can no longer use the GPU."""
    number: int = 0


class Tunes(msgspec.Struct, tag="tunes"):
    """The candidate is tuning a kernel, which has its own time limit."""

    number: int


Reply = Ready | Replied | Raised | Tunes


def _plain(value: Any) -> Any:
    """Return what JSON holds of a path, or of the parameters of a loss."""
    return str(value) if isinstance(value, Path) else dict(value)


def send(channel: Channel, message: Asked | Reply) -> None:
    """Send a message."""
    channel.send(msgspec.json.encode(message, enc_hook=_plain))


class Sent(msgspec.Struct):
    """An operand: a view of a storage."""

    storage: int
    dtype: str
    shape: list[int]
    stride: list[int]
    offset: int


class Result(msgspec.Struct):
    """A result; its bytes are in the result file."""

    dtype: str
    shape: list[int]
    device: str
    at: int


class JudgeEnd:
    """The judge's side: writes operands, takes back changes, reads results."""

    def __init__(self, operands: int, results: int, device: str) -> None:
        self.operands, self.results, self.device = operands, results, device
        self._keys: dict[tuple[str, int, int], int] = {}
        self._sending: dict[int, tuple[Storage, Tensor]] = {}
        self._end = 0

    def encode(self, request: Any) -> tuple[msgspec.Raw, list[Storage]]:
        """Return a request as JSON, and where its tensors are written."""
        self._sending, self._end = {}, 0
        encoded = msgspec.Raw(msgspec.json.encode(request, enc_hook=self._send))
        return encoded, [storage for storage, _ in self._sending.values()]

    def take_back(self, changed: Sequence[int]) -> None:
        """Copy changed operands back from the worker; KeyError if it had no such operand."""
        for key in {*changed}:
            stored, whole = self._sending[key]
            _read_into(self.operands, stored.at, whole)

    def decode(self, raw: msgspec.Raw, kind: Any) -> Any:
        """Return a worker's response with its tensors; ValueError if it is invalid."""
        return msgspec.json.decode(raw, type=kind, dec_hook=self._result)

    def _send(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return _plain(value)
        storage = value.untyped_storage()
        place = (str(value.device), storage.data_ptr(), storage.nbytes())
        key = self._keys.setdefault(place, len(self._keys))
        if key not in self._sending:
            whole = torch.empty(0, dtype=torch.uint8, device=value.device).set_(storage)
            stored = Storage(key, storage.nbytes(), self._end, str(value.device))
            _write(self.operands, self._end, whole)
            self._end += -(-storage.nbytes() // 4096) * 4096
            self._sending[key] = stored, whole
        dtype = str(value.dtype).removeprefix("torch.")
        return Sent(key, dtype, [*value.shape], [*value.stride()], int(value.storage_offset()))

    def _result(self, kind: Any, found: Any) -> Any:
        if kind is not Tensor:
            raise ValueError(f"no {kind}")
        result = msgspec.convert(found, Result)
        dtype = _DTYPES.get(result.dtype)
        if dtype is None or min(result.shape, default=0) < 0 or result.at < 0:
            raise ValueError("no tensor")
        device = torch.device(result.device)
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"a tensor on {device}")
        count = math.prod(result.shape) * dtype.itemsize
        return _read(self.results, result.at, count, device).view(dtype).view(result.shape)


class WorkerEnd:
    """The worker's side: keeps operands at fixed addresses and writes results."""

    def __init__(self, operands: int, results: int) -> None:
        self.operands, self.results = operands, results
        self._kept: dict[int, Tensor] = {}
        self.pinned: set[int] = set()
        """Keys of operands that stay in place."""
        self._stored: Sequence[Storage] = ()
        self._end = 0

    def read(self, storages: Sequence[Storage]) -> None:
        """Load a request's operands; free earlier ones unless they are small or kept."""
        self._end, self._stored = 0, storages
        wanted = self.pinned | {stored.key for stored in storages}
        small = sum(t.nbytes for t in self._kept.values()) <= _SMALL
        self._kept = {key: t for key, t in self._kept.items() if small or key in wanted}
        for stored in storages:
            kept = self._kept.get(stored.key)
            if kept is None or kept.nbytes != stored.bytes:
                kept = torch.empty(stored.bytes, dtype=torch.uint8, device=stored.device)
                self._kept[stored.key] = kept
            _read_into(self.operands, stored.at, kept)

    def write_back(self) -> list[int]:
        """Write changed operands back; return their keys."""
        changed = []
        for stored in self._stored:
            kept = self._kept[stored.key]
            pieces = _pieces(stored.at, kept)
            if not all(torch.equal(p.cpu(), _read(self.operands, at, len(p))) for at, p in pieces):
                _write(self.operands, stored.at, kept)
                changed.append(stored.key)
        return changed

    def decode(self, raw: msgspec.Raw, kind: Any) -> Any:
        """Return a decoded request."""
        return msgspec.json.decode(raw, type=kind, dec_hook=self._operand)

    def encode(self, value: Any) -> msgspec.Raw:
        """Return a response as JSON and write its tensors."""
        return msgspec.Raw(msgspec.json.encode(value, enc_hook=self._result))

    def _operand(self, kind: Any, found: Any) -> Any:
        if kind is not Tensor:
            return kind(found)  # a path
        sent = msgspec.convert(found, Sent)
        whole = self._kept[sent.storage]
        empty = torch.empty(0, dtype=_DTYPES[sent.dtype], device=whole.device)
        return empty.set_(
            whole.untyped_storage(), sent.offset, tuple(sent.shape), tuple(sent.stride)
        )

    def _result(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return _plain(value)
        stored = Tensor.detach(value).resolve_conj().resolve_neg()
        if torch._is_zerotensor(stored):  # autograd's, which has no memory
            stored = torch.zeros_like(stored)
        if not stored.is_contiguous():
            stored = stored.cpu().contiguous()
        at = self._end
        # A dimension of one number may have any stride.
        whole = stored.as_strided((stored.numel(),), (1,)).view(torch.uint8)
        _write(self.results, at, whole)
        self._end += -(-whole.nbytes // 4096) * 4096
        dtype = str(value.dtype).removeprefix("torch.")
        return Result(dtype, list(value.shape), str(value.device), at)


def _pieces(at: int, data: Tensor) -> Iterator[tuple[int, Tensor]]:
    for start in range(0, data.numel(), _PIECE):
        yield at + start, data[start : start + _PIECE]


def _write(file: int, at: int, data: Tensor) -> None:
    for place, piece in _pieces(at, data):
        left = piece.cpu().numpy().data
        while left:
            count = os.pwrite(file, left, place)
            left, place = left[count:], place + count


def _read(file: int, at: int, count: int, device: torch.device | str = "cpu") -> Tensor:
    """Read bytes into a tensor; ValueError if they are missing."""
    if count > max(os.fstat(file).st_size - at, 0):
        raise ValueError(f"{count} bytes are not there")
    data = torch.empty(count, dtype=torch.uint8, device=device)
    _read_into(file, at, data)
    return data


def _read_into(file: int, at: int, data: Tensor) -> None:
    for place, piece in _pieces(at, data):
        here = piece if piece.device.type == "cpu" else torch.empty_like(piece, device="cpu")
        left = here.numpy().data
        while left:
            count = os.preadv(file, [left], place)
            if not count:
                raise ValueError(f"{len(left)} bytes are not there")
            left, place = left[count:], place + count
        if here is not piece:
            piece.copy_(here)
