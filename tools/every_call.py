"""All calls that `make sanitize` makes, and the kernels to load for them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.machinery import MACHINERY

from . import element_calls, general_row_calls, part_calls, row_calls

ROWS, PARTS = "rows", "parts"
PARTS_NEED = ("token_log_probs", "kl_divergence")
"""The losses whose libraries give the numbers of a part."""

_sites = itertools.count(1)
"""A site for each call, so that none starts with an earlier call's prediction of grad_output."""


def prepare(only: str = "") -> None:
    """Build and load the kernels: a build under the sanitizer would be watched too."""
    from losscli import functional as functional  # defines the operators
    from losscli.losses import ROW_LOSSES
    from losscli.operators import loading

    for loss in PARTS_NEED if only == PARTS else ROW_LOSSES:
        loading.load_loss(loss, "cuda")
    if only == ROWS:
        return
    loading.load_parts("cuda")
    if only == PARTS:
        return
    loading.load("cuda")
    for loss in MACHINERY:
        loading.load_loss(loss, "cuda", strategies=True)


def every_call(only: str = "") -> Iterator[tuple[object, Callable[[], None]]]:
    """Yield each call's name and the function that makes it."""
    from losscli.losses import ROW_LOSSES

    if only != ROWS:
        for part_call in part_calls.calls():
            yield part_call, partial(part_calls.make, part_call)
    if only == PARTS:
        return
    for row_call in row_calls.calls():
        yield row_call, partial(row_calls.make, row_call, next(_sites))
    for spec in ROW_LOSSES.values():
        if not spec.name.startswith("cross_entropy"):
            for general in general_row_calls.calls(spec.name, spec.rows, spec.roles):
                yield general, partial(general_row_calls.make, general, next(_sites))
    if only == ROWS:
        return
    for call in element_calls.calls():
        yield call, partial(element_calls.make, call, next(_sites))


def loss_of(call: Any) -> str:
    """Return the loss in a call's name."""
    if isinstance(call, row_calls.RowCall):
        form = "_with_probabilities" if call.target == "probabilities" else ""
        return f"cross_entropy{form}"
    return str(call.loss)
