"""Implementations of split losses, from a rank's shards to the loss over all classes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from losscli.implementations.implementation import BoundLoss
from losscli.losses import HIDDEN_STATE, aten, find_loss
from losscli.machine.pytorch import Tensor, torch
from losscli.ranks.placements import CUTS, share

if TYPE_CHECKING:
    from losscli.cases.case import Case


def custom(case: Case) -> BoundLoss:
    """Bind losscli's own kernels."""
    import losscli.functional  # noqa: F401 - defines the operators
    from losscli import sharded

    settings = case.spec.settings(case.reduction, case.params)
    # If ranks know all sizes, no call asks.
    settings["sizes"] = [share(case.classes, case.ranks, n)[1] for n in range(case.ranks)]
    function, names = getattr(sharded, case.spec.function_name), case.spec.names
    return lambda *shards: function(**dict(zip(names, shards, strict=True)), **settings)


def gathered(formula: Callable[..., Tensor], case: Case) -> BoundLoss:
    """Bind a formula of whole operands, which it gathers."""
    from losscli.ranks.shards import PutTogether, shared, sum_of_ranks

    settings = {"reduction": case.reduction, **case.params}
    cuts, classes, names = CUTS[case.loss], case.classes, case.spec.names

    def together(shard: Tensor, dim: int) -> Tensor:
        return cast(Tensor, PutTogether.apply(shard, dim, classes))  # type: ignore[no-untyped-call]

    def of_logits(*shards: Tensor) -> Tensor:
        wholes = (
            together(shard, cuts[name]) if name in cuts else shard
            for name, shard in zip(names, shards, strict=True)
        )
        return formula(*wholes, **settings)

    def of_hidden_states(input: Tensor, target: Tensor, *layer: Tensor) -> Tensor:
        # Gather the logits, which are smaller than a large vocabulary's weight.
        logits = together(aten.linear(shared(input, sum_of_ranks), *layer), -1)
        return formula(logits, target, **settings)

    return of_hidden_states if case.spec.unit == HIDDEN_STATE else of_logits


def reference(case: Case) -> BoundLoss:
    """Bind the reference."""
    if case.spec.unit != HIDDEN_STATE:
        return gathered(case.spec.reference, case)
    spec = find_loss(case.spec.function_name.removeprefix("linear_"))
    formula = spec.functional or spec.reference
    known = {parameter.name for parameter in spec.parameters}

    def of_logits(logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        kept = {n: value for n, value in settings.items() if n in known or n == "reduction"}
        return formula(logits, target, **kept)

    return gathered(of_logits, case)


def loss_parallel(case: Case) -> BoundLoss:
    """Bind PyTorch's cross entropy of a DTensor."""
    from torch.distributed.tensor import DTensor, Shard

    _allow_loss_parallel()
    mesh = _mesh(case.device.partition(":")[0], case.ranks)
    settings = {"ignore_index": case.settings["ignore_index"], "reduction": case.reduction}

    def loss(input: Tensor, target: Tensor) -> Tensor:
        shape = torch.Size((len(input), case.classes))
        logits = DTensor.from_local(
            input, mesh, [Shard(-1)], run_check=False, shape=shape, stride=(case.classes, 1)
        )
        found: Any = aten.cross_entropy(logits, target, **settings)
        return cast(Tensor, found.full_tensor())

    return loss


@cache
def _allow_loss_parallel() -> ExitStack:
    """Enter ``loss_parallel`` for good: backward needs it, and it only affects DTensors."""
    from torch.distributed.tensor.parallel import loss_parallel

    stack = ExitStack()
    stack.enter_context(loss_parallel())
    return stack


@cache
def _mesh(kind: str, ranks: int) -> Any:
    return torch.distributed.device_mesh.init_device_mesh(kind, (ranks,))


def transformer_engine(case: Case) -> BoundLoss:
    """Bind TransformerEngine's cross entropy."""
    from transformer_engine.pytorch.cross_entropy import parallel_cross_entropy

    params = case.settings
    rest = (params["label_smoothing"], False, torch.distributed.group.WORLD, params["ignore_index"])
    return _of_rows(
        case, lambda logits, target: parallel_cross_entropy(logits[None], target[None], *rest)
    )


def liger(case: Case) -> BoundLoss:
    """Bind Liger Kernel's cross entropy."""
    from liger_kernel.transformers.vocab_parallel_cross_entropy import (
        LigerVocabParallelCrossEntropy,
    )

    params = case.settings
    module = LigerVocabParallelCrossEntropy(params["ignore_index"], params["label_smoothing"])
    ranks = torch.distributed.group.WORLD
    return _of_rows(case, lambda logits, target: module(logits[:, None], target[:, None], ranks))


def _of_rows(case: Case, rows: BoundLoss) -> BoundLoss:
    def loss(input: Tensor, target: Tensor) -> Tensor:
        found = rows(input.clone(), target).flatten()  # some write the gradient over the logits
        if case.reduction != "none":
            found = found.sum()
        if case.reduction == "mean":
            found = found / (target != case.settings["ignore_index"]).sum()
        return found.to(input.dtype)

    return loss
