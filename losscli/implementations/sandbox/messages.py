"""The JSON messages between judge and worker, decoded by type because they may be forged."""

from pathlib import Path
from typing import Any, Literal

import msgspec

from losscli.cases.case import Case
from losscli.cases.model_case import ModelCase
from losscli.implementations.implementation import Mend
from losscli.processes import Channel
from losscli.reasons import Code


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
    """The case, if it is a Model's."""
    generation: int = 0
    """The implementation is bound again for each."""
    mends: tuple[Mend, ...] = ()


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
    kind: Literal[
        "raised", "no_second_derivatives", "out_of_memory", "build", "import", "error", "forked"
    ]
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

ASKED = msgspec.json.Decoder(Asked)
REPLY: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


def plain(value: Any) -> Any:
    """Return what JSON holds of a path, or of the parameters of a loss."""
    return str(value) if isinstance(value, Path) else dict(value)


def send(channel: Channel, message: Asked | Reply) -> None:
    """Send a message."""
    channel.send(msgspec.json.encode(message, enc_hook=plain))
