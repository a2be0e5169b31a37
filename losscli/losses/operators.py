"""Calls the losses' operators for their functions and modules.

``losscli.operators.registration`` defines the operators and stores them here, as ``NAME`` and
``NAME_with_grad``, beside ``incoming`` and ``is_compiling``, when ``losscli.functional`` or
``losscli.nn`` is imported; ``losscli.linear`` stores the functions of hidden states. Before that
the losses are only described, which needs no torch.
"""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"the operators of the losses are not defined yet, {name} among them: import "
        "losscli.functional or losscli.nn"
    )
