"""The codes of reasons: why a result was skipped or failed, or a verdict is what it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Code = Literal[
    "",
    "not_applicable",
    "layout",
    "no_gpu",
    "no_room",
    "out_of_memory",
    "device_broken",
    "throttled",
    "raised",
    "overwrote",
    "left_behind",
    "patched",
    "no_gradient",
    "wrong",
    "misfit",
    "limited",
    "wrong_later",
    "no_worse_than_torch",
    "less_accurate",
    "broke_device",
    "process_died",
    "does_not_build",
    "hangs",
    "left_process",
    "forged",
    "flooded_output",
    "memory_limit",
    "clock_disagrees",
    "slows_others",
    "syntax",
    "nothing_to_judge",
    "ambiguous",
    "signature",
    "import_failed",
    "build_failed",
    "refuses",
    "impossible",
    "slower",
    "timeout",
    "bad_reference",
    "bad_job",
    "quarantined",
    "not_isolated",
    "interrupted",
    "busy",
    "error",
]
"""Why, for programs; empty for a good result.

A result is skipped: ``not_applicable`` the implementation or the check does not apply to the case,
``layout`` the size cannot have the layout, ``no_gpu`` a GPU is needed, ``no_room`` the plan needs
more memory than is free, ``out_of_memory`` the memory ran out, ``device_broken`` an earlier call
broke the device, ``throttled`` every sample was discarded.

It fails: ``raised`` the implementation raised an exception, ``overwrote`` it overwrote an operand,
``left_behind`` it changed a flag or other state of the process, ``patched`` it replaced a function
of torch or Python, ``no_gradient`` its loss cannot be differentiated, ``wrong`` it is wrong by the
oracle, ``misfit`` it has another shape or dtype than is due, ``limited`` it is wrong only for
values, dtypes or layouts that a kernel for ordinary operands need not know, ``wrong_later`` it was
correct before timing and wrong while timed, ``broke_device`` it broke the device, ``process_died``
its process or the one that measured it ended, ``interrupted`` a process of losscli's that keeps
its own was killed; of a file, ``does_not_build`` it cannot be imported,
``hangs`` it did not answer in time, ``left_process`` a process that it has started goes on,
``forged`` it wrote to the judge's channel, ``flooded_output`` it wrote too much, ``memory_limit``
it took more memory than it may, ``clock_disagrees`` its time is not what the judge's clock says. It
is a warning: ``no_worse_than_torch`` it is wrong by the oracle, as PyTorch's own formula is on the
same inputs, or of a file a textbook's; of a bench that it is PyTorch's own, wrong in single
elements and right as a whole; ``less_accurate`` a gradient of hidden states is right in each
element and as a whole less accurate than one product.

A verdict has these, and others that no single result has. DOES NOT BUILD: ``syntax`` it is no
Python, ``nothing_to_judge`` it defines no loss, ``ambiguous`` it defines several, ``signature`` its
arguments do not fit, ``import_failed`` it raised while it was imported, ``build_failed`` a compiler
failed. RIGHT: ``refuses`` it raises for operands that it does not take, as of other layouts or
shapes. SLOWER: ``slower``. CHEATS: ``impossible`` faster than the memory,
``slows_others`` what is timed beside it is faster without its process, or cannot be timed. HANGS:
``timeout``. NOT JUDGED: ``bad_reference`` the reference does not run or has no gradient,
``bad_job`` a job that makes no sense, ``quarantined`` a GPU that did not recover, ``not_isolated``
this machine lacks a part of the isolation that the job requires, ``interrupted``, ``busy`` the
device was in use by others until the time was over, ``error`` of losscli itself.
"""


@dataclass(frozen=True)
class Reason:
    """A reason."""

    code: Code
    text: str

    def __str__(self) -> str:
        return self.text
