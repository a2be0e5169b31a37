"""Calls the losses' operators for their functions and modules.

``losscli.extension.operators`` defines the operators and puts them here, as ``NAME`` and
``NAME_with_grad``, beside ``incoming``; importing ``losscli.functional`` or ``losscli.nn`` has it
done. Until then the losses are only described, which needs no torch.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"the operators of the losses are not defined yet, {name} among them: import "
        "losscli.functional or losscli.nn"
    )
