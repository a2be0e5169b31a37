"""Computes operators by PyTorch's formulas if their kernels cannot be loaded or built.

``LOSSCLI_FALLBACK=torch``, the default, warns once; ``error`` raises the build's error, always in
processes that measure or check kernels.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from losscli.build.targets import DEVICES, PARTS, Target, needed
from losscli.errors import BuildError, LosscliError, UnfitError, UsageError, first_line
from losscli.losses import CLASS_INDICES, RowSpec, Spec
from losscli.losses.formulas import widened
from losscli.losses.kinds import not_floating
from losscli.processes.process import FALLBACK_VARIABLE

from . import loading, rows
from .elementwise import promoted, wanted_of

TORCH, ERROR = "torch", "error"
_loaded: set[tuple[str, str]] = set()
_missing: dict[tuple[str, str], LosscliError] = {}
"""Why there are no kernels, by loss and device; they are not looked for again."""
_has_warned = False
_BINDING = ("", "")


def has_kernels(loss: str, device: str) -> bool:
    """Load a loss's kernels; False, after one warning, if its formula must be used."""
    return _try(loss, device, lambda: loading.load_targets(needed(loss, device)))


def has_parts(loss: str, device: str) -> bool:
    """Load a loss's kernels and those for parts of its rows; see ``has_kernels``."""
    targets = [*needed(loss, device), Target(PARTS, device)]
    return _try(f"parts of {loss}", device, lambda: loading.load_targets(targets))


def has_binding() -> bool:
    """Load the operators' implementation alone; see ``has_kernels``."""
    return _try(*_BINDING, loading.load)


def _try(loss: str, device: str, load: Callable[[], None]) -> bool:
    global _has_warned
    if (loss, device) in _loaded:
        return True
    error = _missing.get((loss, device)) or _missing.get(_BINDING)
    if error is None:
        try:
            load()
        except (BuildError, UnfitError) as raised:
            error = raised
        except OSError as raised:
            error = UnfitError(f"kernels cannot be stored or loaded: {raised}")
        else:
            _loaded.add((loss, device))
            return True
        _missing[loss, device] = error
    mode = os.environ.get(FALLBACK_VARIABLE) or TORCH
    if mode not in (TORCH, ERROR):
        raise UsageError(f"{FALLBACK_VARIABLE} must be {TORCH} or {ERROR}, but is '{mode}'")
    if mode == ERROR:
        raise error
    if not _has_warned:
        _has_warned = True
        warnings.warn(
            "losscli computes losses by PyTorch's formulas, slower and with more memory, because "
            f"kernels cannot be built: {first_line(error).rstrip('.')}. `losscli doctor` checks "
            f"what a build needs; {FALLBACK_VARIABLE}={ERROR} makes this an error.",
            RuntimeWarning,
            stacklevel=1,
        )
    if (loss, device) != _BINDING:
        has_binding()  # otherwise each loss would try to build it again
    return False


def compute(spec: Spec, suffix: str, arguments: Sequence[Any], *, below_autograd: bool) -> Any:
    """Compute ``NAME`` + ``suffix``; ``below_autograd``: the dispatcher has passed autograd."""
    if not (computed := _COMPUTED.get(suffix)):
        raise BuildError(f"{spec.name}{suffix} has no formula, only kernels")
    kind = "" if below_autograd else device_of(x for x in arguments if isinstance(x, Tensor))
    if below_autograd and suffix:
        with _autograd_keys():
            found = computed(spec, *map(_plain, arguments))
    elif kind not in DEVICES or not torch.is_autocast_enabled(kind):
        found = computed(spec, *arguments)
    else:
        # As kernels do; see csrc/torch/boxed.h.
        with torch.autocast(kind, enabled=False):
            found = computed(spec, *(_of_autocast(each, kind) for each in arguments))
    if suffix != _IN_PLACE:
        return found
    value, gradient = found
    with torch.no_grad():
        arguments[0].copy_(gradient)
    return value.to(widened(value.dtype))


def device_of(tensors: Iterable[Tensor]) -> str:
    """Return the tensors' kind of device: the first other than the CPU, if any."""
    return next((x.device.type for x in tensors if not x.is_cpu), "cpu")


def _of_autocast(argument: Any, kind: str) -> Any:
    if not isinstance(argument, Tensor) or argument.device.type != kind:
        return argument
    narrow = argument.is_floating_point() and argument.dtype != torch.float64
    return argument.float() if narrow else argument


def _plain(argument: Any) -> Any:
    if not isinstance(argument, Tensor):
        return argument
    return argument.clone() if argument.is_inference() else argument.detach()


@contextmanager
def _autograd_keys() -> Iterator[None]:
    """Record gradients, although the dispatcher has passed autograd."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in ("AutogradCPU", "AutogradCUDA", "AutogradMeta", "AutogradOther", "ADInplaceOrView"):
        excluded = excluded.remove(getattr(torch._C.DispatchKey, key))
    included = torch._C._dispatch_tls_local_include_set()
    with (
        torch.inference_mode(False),
        torch._C._ForceDispatchKeyGuard(included, excluded),
        torch.no_grad(),
    ):
        yield


def loss(spec: Spec, *arguments: Any) -> Tensor:
    """Return the loss of operands, reduction, parameters."""
    reduction, settings = arguments[len(spec.operands)], rows.settings_of(spec, arguments)
    operands = [
        x if x is None or operand.differentiable else x.detach()
        for operand, x in zip(spec.operands, arguments, strict=False)
    ]
    if isinstance(spec, RowSpec):
        dtype = rows.checked(spec, operands)
        _check_classes(spec, operands, settings)
        return spec.reference(*operands, reduction=reduction, **settings).to(dtype)
    dtype = promoted([(operand.dtype, operand.dim() > 0) for operand in operands])
    if not dtype.is_floating_point:
        raise TypeError(f"operands {not_floating(*(operand.dtype for operand in operands))}")
    # Each step of a formula would round 16 bits.
    wide = [operand.to(widened(dtype)) for operand in operands]
    return spec.reference(*wide, reduction=reduction, **settings).to(dtype)


def _check_classes(spec: RowSpec, operands: Sequence[Any], settings: dict[str, Any]) -> None:
    if torch._C._len_torch_dispatch_stack() or torch._C._functorch.peek_interpreter_stack():
        return
    for operand, numbers in zip(spec.operands, operands, strict=True):
        if operand.kind != CLASS_INDICES or type(numbers) is not Tensor or not numbers.is_cpu:
            continue
        classes = operands[0].shape[spec.row_dimension(operands[0].dim())]
        wrong = (numbers < 0) | (numbers >= classes)
        if "ignore_index" in settings:
            wrong &= numbers.long() != int(settings["ignore_index"])
        if wrong.any():
            raise IndexError(
                f"{spec.name}: {operand.name} has class {int(numbers[wrong][0])}, but there are "
                f"classes 0 to {classes - 1}"
            )


def _with_grad(spec: Spec, *arguments: Any) -> tuple[Tensor, Tensor]:
    if isinstance(spec, RowSpec):
        rest, grad_output, factor = arguments[1:], None, 1.0
    else:
        rest, (grad_output, factor) = arguments[1:-2], arguments[-2:]
    with torch.enable_grad():
        leaf = arguments[0].detach().requires_grad_()
        value = loss(spec, leaf, *(x.detach() if isinstance(x, Tensor) else x for x in rest))
        # Of several values per row, kernels differentiate the first.
        doubled = isinstance(spec, RowSpec) and rows.settings_of(spec, arguments).get(spec.doubling)
        output = value[0] if doubled else value
        by = torch.full_like(output, factor) if grad_output is None else grad_output * factor
        (gradient,) = torch.autograd.grad(output, leaf, by.to(value.dtype).expand(output.shape))
    return value.detach(), gradient


def _backward(spec: Spec, grad_output: Tensor, *arguments: Any) -> Any:
    *given, wanted = arguments
    return wanted_of(given[: len(wanted)], _gradients(spec, grad_output, given, wanted), wanted)


def _gradients(
    spec: Spec, grad_output: Tensor, given: Sequence[Any], wanted: Sequence[bool]
) -> list[Tensor]:
    """Return gradients, differentiable if grad mode is on; zeros for those not wanted."""
    count = len(wanted)
    recorded = torch.is_grad_enabled()
    with torch.enable_grad():
        # Views, so that relations between operands do not enter the gradient.
        views = [x.view_as(x) if x.requires_grad else x.detach() for x in given[:count]]
        views = [
            x.requires_grad_() if x.is_leaf and w else x for x, w in zip(views, wanted, strict=True)
        ]
        value = loss(spec, *views, *given[count:])
        leaves = [view for view, wants in zip(views, wanted, strict=True) if wants]
        output = grad_output.to(value.dtype).expand(value.shape)
        found = torch.autograd.grad(
            value, leaves, output, create_graph=recorded, materialize_grads=True
        )
    each = iter(found)
    return [next(each) if w else torch.zeros_like(v) for v, w in zip(views, wanted, strict=True)]


def _double_backward(spec: Spec, *arguments: Any) -> tuple[Tensor, ...]:
    """Return the gradients of ``sum(vectors * gradients)``."""
    count = len(spec.operands)
    vectors, grad_output = arguments[:count], arguments[count]
    operands, rest = arguments[count + 1 : 2 * count + 1], arguments[2 * count + 1 :]
    with torch.enable_grad():
        leaves = [x.detach() for x in (grad_output, *operands)]
        leaves = [x.requires_grad_(x.is_floating_point()) for x in leaves]
        wanted = [leaf.requires_grad for leaf in leaves[1:]]
        gradients = _gradients(spec, leaves[0], [*leaves[1:], *rest], wanted)
        products = [(g * v).sum() for g, v in zip(gradients, vectors, strict=True)]
        total = torch.stack([product.to(widened(product.dtype)) for product in products]).sum()
        return torch.autograd.grad(total, leaves, materialize_grads=True)


_IN_PLACE = "_with_grad_"
_COMPUTED: dict[str, Callable[..., Any]] = {
    "": loss,
    "_with_grad": _with_grad,
    _IN_PLACE: _with_grad,
    "_backward": _backward,
    "_double_backward": _double_backward,
}
