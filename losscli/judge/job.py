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
    """Returned in the verdict; by default the file's name."""
    loss: str = ""
    """The loss whose oracle decides; if empty, it is found by name or by value."""
    reference: str = ""
    """A file whose ``Model`` decides; if ``loss`` is empty too, the candidate's own ``Model``."""
    device: str = "auto"
    """``auto``, ``cpu``, ``cuda`` or ``cuda:N``."""
    call: str = ""
    """An expression that calls the candidate, with the names of the loss's operands, its
    parameters, ``reduction`` and the file; if empty, losscli finds the function."""
    arguments: tuple[str, ...] = ()
    """The order of the arguments, such as ``["target", "input"]``; by default by their names."""
    sizes: tuple[Shape, ...] = ()
    """The sizes to be timed; by default those of ``get_inputs`` or of the default config."""
    dtypes: tuple[DType, ...] = ()
    """The dtypes to be judged and timed.

    By default float32, and value and gradients also in each other dtype that a file takes. A
    Model is judged in the dtype of its ``get_inputs``.
    """
    parameters: dict[str, float] = msgspec.field(default_factory=dict)
    """The parameters of the loss."""
    reduction: str = ""
    """The reduction; by default all that it takes, and its usual one is timed."""
    quick: bool = False
    """Whether to run fewer checks and a short timing."""
    timed: bool = True
    """Whether to time the file."""
    until_first: bool = False
    """Whether judging ends at the first mistake."""
    own_kernel: Literal["", "require"] = ""
    """``require``: if PyTorch's own kernels do the work, the verdict is NO KERNEL OF ITS OWN."""
    require_isolation: bool = False
    """Whether the file must not run if a part of the isolation is missing."""
    limits: Allowance = Allowance()
    """Limits of the judging: ``build_seconds``, ``call_seconds``, ``total_seconds``,
    ``memory_bytes``, ``tuning_seconds``."""

    def __post_init__(self) -> None:
        if not self.id:
            msgspec.structs.force_setattr(self, "id", self.file)
