"""Calls of fused linear losses: checks, a plan, and reduction."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from losscli.losses import find_loss
from losscli.losses.calling import Calls
from losscli.losses.linear.logits_plan import SLICES, WHOLE, Plan, Size, candidates, choose, least
from losscli.losses.rows.forms import NO_INDEX
from losscli.machine.memory import free_bytes, is_out_of_memory
from losscli.operators import fallback
from losscli.units import format_bytes

from .kernels import Settings
from .operands import Operands, check_classes, check_mask, check_shape, is_eager, operands_of
from .parts import Rows, Shard
from .plans import Losses, by_formula, composed
from .products import Layer

_NO_TOKEN = int(NO_INDEX)
"""Replaces the token of masked rows."""


class Given(NamedTuple):
    """The arguments that all fused linear losses share."""

    hidden: Tensor
    linear_weight: Tensor
    numbers: Tensor
    linear_bias: Tensor | None
    of_shard: Callable[..., Shard] | None = None
    """Returns a rank's shard from its hidden states and what ranks must agree on."""
    wide: bool = False
    """Whether a 16-bit loss stays in float32."""

    @classmethod
    def taken(cls, arguments: dict[str, Any]) -> Self:
        """Take them out of a public function's arguments."""
        hidden, weight, numbers = (arguments.pop(each) for each in list(arguments)[:3])
        return cls(hidden, weight, numbers, arguments.pop("linear_bias"))


def settings_of(ignore_index: int | None, *others: float, **named: float) -> Settings:
    """Return settings from cross entropy's arguments."""
    return Settings(-100 if ignore_index is None else ignore_index, *others, **named)  # type: ignore[arg-type]


def compute_cross_entropy(
    name: str,
    given: Given,
    *,
    weight: Tensor | None,
    reduction: str,
    token_weight: Tensor | None,
    return_lse: bool,
    memory_budget: int | None,
    **of_logits: Any,
) -> Any:
    """Compute ``linear_cross_entropy``; ``of_logits`` are its settings."""
    settings = settings_of(**of_logits)
    check_settings(name, settings, reduction)
    hidden, linear_weight, target, bias, of_shard, wide = given
    operands = operands_of(name, hidden, linear_weight, target, bias, "target")
    check_shape(name, "weight", weight, linear_weight.shape[:1], "a number for each class")
    check_class_weight(name, weight)
    check_shape(name, "token_weight", token_weight, operands.shape, "the shape of target")
    weight = None if weight is None else weight.to(operands.weight.dtype)
    missing = [x is None for x in (bias, weight, token_weight)]
    shard = of_shard(operands.hidden, *settings, reduction, *missing) if of_shard else None
    both = weight is not None and token_weight is not None
    if shard is not None and both and reduction == "mean":
        raise NotImplementedError(
            f"{name}: a mean over ranks takes weight or token_weight, not both; call it with "
            "reduction='none' and divide the sum"
        )
    classes = len(operands.weight) if shard is None else shard.classes
    inner = reduction if token_weight is None else "none"
    rows = Rows(operands.class_numbers, classes, weight, settings, inner, True, return_lse, shard)
    losses, log_sums = _compute(name, operands, rows, memory_budget)
    if token_weight is not None:
        weights = token_weight.to(losses.dtype)
        losses = losses * weights
        losses = losses if reduction == "none" else losses.sum()
        if reduction == "mean":
            losses = losses / rows.weighted(weights.reshape(-1)).sum()
    losses = losses if wide else losses.to(operands.dtype)
    if return_lse:
        assert log_sums is not None
        return losses, log_sums.view(operands.shape)
    return losses


def compute_token_log_probs(
    name: str, given: Given, *, mask: Tensor | None, memory_budget: int | None, **of_logits: Any
) -> Any:
    """Compute ``linear_token_log_probs``; ``of_logits`` are its settings."""
    hidden, linear_weight, tokens, bias, of_shard, _ = given
    operands = operands_of(name, hidden, linear_weight, tokens, bias, "tokens")
    check_mask(name, mask, operands.shape, "tokens")
    numbers = operands.class_numbers
    if mask is not None:
        numbers = torch.where(mask.reshape(-1), numbers, _NO_TOKEN)
    settings = Settings(_NO_TOKEN, **of_logits)
    check_settings(name, settings)
    shard = of_shard(operands.hidden, *settings, bias is None) if of_shard else None
    classes = len(operands.weight) if shard is None else shard.classes
    rows = Rows(numbers, classes, None, settings, "none", True, False, shard)
    found, _ = _compute(name, operands, rows, memory_budget)
    return (found[0], found[1]) if settings.entropy else -found


def check_settings(name: str, settings: Settings, reduction: str = "none") -> None:
    """Raise cross entropy's error for an invalid setting."""
    calls = Calls(name)
    calls.parameters = find_loss("cross_entropy").parameters
    calls.check({"reduction": reduction, **settings._asdict()})


def check_class_weight(name: str, weight: Tensor | None) -> None:
    """Raise ValueError for class weights that require grad."""
    if weight is not None and weight.requires_grad:
        raise ValueError(f"{name}: weight has no gradient here; give weight.detach()")


def _compute(
    name: str, operands: Operands, rows: Rows, budget: int | None
) -> tuple[Tensor, Tensor | None]:
    hidden, target, ignore_index = operands.hidden, rows.target, rows.settings.ignore_index
    kept = None
    eager = is_eager(hidden, operands.weight, operands.bias, target)
    if eager and not target.is_cuda:
        check_classes(name, target, rows.classes, target != ignore_index)
    is_captured = hidden.is_cuda and torch.cuda.is_current_stream_capturing()
    if eager and not (rows.with_log_sums or is_captured):
        kept = (target != ignore_index).nonzero().squeeze(1)
        if len(kept) == len(target):
            kept = None
        else:
            hidden = hidden.index_select(0, kept)
            rows = replace(rows, target=target.index_select(0, kept), may_ignore=False)
    layer = Layer(hidden, operands.weight, operands.bias)
    if not eager:
        if rows.shard is not None:
            raise NotImplementedError(
                f"{name}: losses over ranks take plain tensors, and nothing traces them"
            )
        losses, log_sums = composed(rows, layer)
        shape = (*losses.shape[:-1], *operands.shape) if rows.reduction == "none" else ()
        return losses.reshape(shape), log_sums
    size = _size(layer, rows)
    plan = _plan(name, size, budget, hidden.device)
    if rows.shard is None and not _has_kernels(plan, hidden.device.type, rows.with_log_sums):
        losses, log_sums = by_formula(rows, layer, budget)
        return _placed(losses, rows, operands, kept), log_sums
    try:
        losses, log_sums = Losses.apply(*layer, rows, plan)  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        smallest = least(size)
        raise torch.OutOfMemoryError(
            f"{name}: out of memory with the plan {plan.kind!r}, which takes "
            f"{format_bytes(plan.bytes)} besides operands and gradients. Give a smaller "
            f"memory_budget; the least is {smallest.bytes} bytes ({format_bytes(smallest.bytes)})"
        ) from error
    return _placed(losses, rows, operands, kept), log_sums


def _has_kernels(plan: Plan, device: str, with_log_sums: bool) -> bool:
    """Load what a plan calls; False if PyTorch's formula must be used."""
    if plan.kind == SLICES:
        return fallback.has_parts("token_log_probs", device)
    with_them = ("token_log_probs",) if with_log_sums else ()
    return all(fallback.has_kernels(loss, device) for loss in ("cross_entropy", *with_them))


def _placed(losses: Tensor, rows: Rows, operands: Operands, kept: Tensor | None) -> Tensor:
    if rows.reduction != "none":
        return losses
    if kept is not None:
        shape = (*losses.shape[:-1], operands.class_numbers.numel())
        losses = losses.new_zeros(shape).index_copy(-1, kept, losses)
    elif rows.settings.entropy and rows.ignored is not None:
        losses = losses.masked_fill(rows.ignored, 0.0)
    return losses.reshape((*losses.shape[:-1], *operands.shape))


def _size(layer: Layer, rows: Rows) -> Size:
    hidden, weight, _ = layer
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in layer)
    return Size(
        rows=len(hidden),
        width=hidden.shape[1],
        classes=len(weight),
        item=hidden.element_size(),
        gradients=wanted,
        # Forward knows no gradient before the ranks' exchange.
        whole=not rows.settings.entropy and rows.shard is None,
        reduced=rows.reduction != "none" and not rows.weigh_apart(hidden.dtype),
        bent=rows.settings.softcap != 0,
    )


def _plan(name: str, size: Size, budget: int | None, device: torch.device) -> Plan:
    if budget is None:
        # Querying free memory takes longer than a loss that needs so little.
        few = 2**26
        if device.type == "cuda":
            few = int(torch.cuda.get_device_properties(device).total_memory / 16)
        best = candidates(size, few)[0]
        if best.bytes <= few and (best.kind == WHOLE or best.part == size.classes):
            return best
    try:
        return choose(size, budget, free_bytes(str(device)) if budget is None else 0)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None
