"""A job: which file to judge, against what, and how. Plain data, one line of JSON."""

from typing import Literal

import msgspec

from losscli.cases.axes import DType
from losscli.files.record import Record
from losscli.implementations.allowance import Allowance
from losscli.losses import Shape


class Job(Record, frozen=True, forbid_unknown_fields=True):
    """What ``losscli judge`` is asked for one file."""

    file: str
    """``FILE``, ``FILE:NAME``, ``FILE@REVISION``, ``FILE@REVISION:NAME`` or
    ``PACKAGE.MODULE:NAME``."""
    id: str = ""
    """Comes back in the verdict; the file's name where there is none."""
    loss: str = ""
    """The loss whose oracle it is compared with; found by name or by value where it is empty."""
    reference: str = ""
    """A file whose ``Model`` it is compared with; the candidate's own where both are empty."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    call: str = ""
    """How to call it: an expression over the names of the loss's operands, its parameters and
    ``reduction``, in the file's namespace; empty to find it."""
    arguments: tuple[str, ...] = ()
    """The order of the forward's arguments, as ``input,target``, where names do not tell."""
    sizes: tuple[Shape, ...] = ()
    """The sizes to be timed; from the file's ``get_inputs`` or the default config where empty."""
    dtypes: tuple[DType, ...] = ()
    """The dtypes to be judged and timed.

    Where empty, float32: then value and gradients are judged in each other dtype that a file takes.
    A Model is judged in the dtype of its ``get_inputs``.
    """
    parameters: dict[str, float] = msgspec.field(default_factory=dict)
    """The parameters of the loss."""
    reduction: str = ""
    """``mean`` where empty and the candidate takes none."""
    quick: bool = False
    """Whether small checks and a short timing are enough."""
    timed: bool = True
    """Whether it is timed."""
    until_first: bool = False
    """Whether the first reason ends the judging, not the first that leaves nothing to judge."""
    own_kernel: Literal["", "require"] = ""
    """``require``: a file whose work is PyTorch's is NO KERNEL OF ITS OWN."""
    require_isolation: bool = False
    """Whether the file is not to run where a part of the isolation is missing."""
    limits: Allowance = Allowance()
    """What it may take: ``build_seconds``, ``call_seconds``, ``total_seconds``, ``memory_bytes``,
    ``tuning_seconds``."""

    def __post_init__(self) -> None:
        if not self.id:
            msgspec.structs.force_setattr(self, "id", self.file)
