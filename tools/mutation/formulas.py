"""Mistakes in the formula of each loss that has none in losses.py, made from its header.

As loss.h asks, ``value`` returns the loss, and ``gradient`` and ``hessian_product`` write ``out``.
So a part of each can be made wrong, whatever it computes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from losscli.losses import LOSSES as REGISTRY
from losscli.losses import LossSpec
from tests.machinery import MACHINERY

from .mutation import Mutation

CSRC = Path(__file__).parents[2] / "csrc"


def mistakes(spec: LossSpec, header: str) -> Iterator[Mutation]:
    """Yield mistakes in the value, in each operand's gradient, and in a second derivative.

    ``header``: the text of the loss's header.
    """
    names = [name for name in spec.names if name in spec.differentiable]
    gradients = [
        ("gradient", rf"out\[{spec.names.index(name)}\] =", f"the gradient of {name}")
        for name in names
    ]
    for method, begins, mistake in (
        ("value", "return", "the value"),
        *gradients,
        ("hessian_product", r"out\[0\] =", "a second derivative"),
    ):
        pattern = rf"{method}\([^{{]*\{{.*?{begins} (?P<term>[^;]*);"
        found = re.search(pattern, header, re.DOTALL)
        if found:
            old = found.group()
            term = found["term"]
            # More than a factor, for second derivatives may be 0 everywhere.
            wrong = f"Real(0.25) + Real(1.25) * ({term})"
            new = f"{old.removesuffix(f'{term};')}{wrong};"
            yield Mutation(
                f"losses/elementwise/{spec.name}.h", old, new, mistake, losses=(spec.name,)
            )


FORMULAS = tuple(
    mutation
    for spec in REGISTRY.values()
    if spec.name not in MACHINERY
    for mutation in mistakes(spec, (CSRC / "losses" / "elementwise" / f"{spec.name}.h").read_text())
)
