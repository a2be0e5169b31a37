"""The process state that later code shares: flags, random states and functions."""

import contextlib
import operator
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pkgutil import resolve_name
from typing import Any, NamedTuple, Self

import torch

from losscli.errors import printable
from losscli.implementations.cuda_cache import persisting_cache, reset_persisting_cache
from losscli.reasons import Code, Reason

_OF_PYTHON = ("builtins", "time", "os", "statistics")
_OF_TORCH = (
    *("torch", "torch.Tensor", "torch.autograd", "torch.autograd.Function", "torch.cuda"),
    *("torch.nn.functional", "torch.nn.Module"),
)
_OF_COMPILERS = (
    "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR",
    "TRITON_PTXAS_PATH",
    "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR",
)
"""Environment variables that torch.compile sets at its first compilation."""


@dataclass(frozen=True)
class Piece:
    """One piece of process state that a call must leave unchanged."""

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object]
    differ: Callable[[Any, Any], str] = lambda before, after: (
        "" if before == after else f" ({before} before, {after} after)"
    )
    code: Code = Code.GLOBAL_STATE_LEAK
    waits: bool = False
    """Whether a reading is None until CUDA has started."""
    mild: bool = False
    """Whether formulas stay the same: an import that changes it is a limitation, not WRONG."""


def _unlike(before: Any, after: Any) -> str:
    return "" if before == after else " (changed)"


def _names(before: Mapping[Any, object], after: Mapping[Any, object]) -> str:
    missing = object()
    both = {key: (before.get(key, missing), after.get(key, missing)) for key in (*before, *after)}
    changed = [str(key) for key, (old, new) in both.items() if old is not new and old != new]
    return f" {', '.join(changed)}" if changed else ""


def _generators() -> dict[str, torch.Tensor]:
    """Return random states by device, except those of broken GPUs."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        with contextlib.suppress(RuntimeError):
            states |= {f"cuda:{n}": own for n, own in enumerate(torch.cuda.get_rng_state_all())}
    return states


def _set_generators(before: Mapping[str, torch.Tensor]) -> None:
    for device in _generators().keys() & before.keys():
        if device == "cpu":
            torch.set_rng_state(before[device])
        else:
            torch.cuda.set_rng_state(before[device], device)


def _unlike_states(before: Mapping[str, torch.Tensor], after: Mapping[str, torch.Tensor]) -> str:
    known = before.keys() & after.keys()
    return "" if all(torch.equal(before[each], after[each]) for each in known) else " (changed)"


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in os.environ if name not in _OF_COMPILERS}


def _set_environment(before: Mapping[str, str]) -> None:
    for name in _environment().keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


_SIGNALS = tuple(signal.valid_signals())


def _handlers() -> dict[signal.Signals, Any]:
    return {number: signal.getsignal(number) for number in _SIGNALS}


def _set_handlers(before: Mapping[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        if handler is not None and signal.getsignal(number) is not handler:
            with contextlib.suppress(OSError, ValueError):  # not allowed, or in another thread
                signal.signal(number, handler)


Namespaces = dict[str, dict[str, Any]]


def _contents(spaces: Mapping[str, Any]) -> Namespaces:
    return {name: dict(vars(space)) for name, space in spaces.items()}


def _is_of_compile(namespace: str, before: object, function: object) -> bool:
    """Tell whether torch.compile replaced a function: in a module, or ``torch.manual_seed``."""
    module: str = getattr(function, "__globals__", {}).get("__name__", "")
    if module == "torch._compile":
        return getattr(function, "__wrapped__", None) is before
    return namespace == "torch.nn.Module" and module == "torch._dynamo.mutation_guard"


def _others(before: Namespaces, after: Namespaces) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each replaced function; an import only adds functions."""
    for name, contents in before.items():
        both = contents.values(), after[name].values()
        if len(contents) == len(after[name]) and all(map(operator.is_, *both)):
            continue  # as nearly always, and fast for thousands of entries
        for key, function in contents.items():
            if not callable(function):
                continue
            now = after[name].get(key)
            follows = (name, key) == ("torch", "Storage")  # the default dtype
            if now is not function and not follows and not _is_of_compile(name, function, now):
                yield name, key


def _patched(before: Namespaces, after: Namespaces) -> str:
    changed = [f"{name}.{key}" for name, key in _others(before, after)]
    return f" {', '.join(changed)}" if changed else ""


def _functions_of(whose: str, names: Sequence[str]) -> Piece:
    spaces = {name: resolve_name(name) for name in names}

    def restore(before: Namespaces) -> None:
        for name, key in _others(before, _contents(spaces)):
            setattr(spaces[name], key, before[name][key])

    read = partial(_contents, spaces)
    return Piece(f"functions of {whose}", read, restore, _patched, Code.MONKEY_PATCHED)


def _modes(of: str, stack: str, *popped: None) -> Piece:
    length, pop = (getattr(torch._C, f"_{verb}_torch_{stack}_stack") for verb in ("len", "pop"))
    at = getattr(torch._C, f"_get_{stack}_stack_at")

    def read() -> list[Any]:
        return [at(number) for number in range(length())]

    def restore(before: list[Any]) -> None:
        while length() > len(before):
            pop(*popped)

    return Piece(f"modes of torch's {of}", read, restore, _unlike)


def _saved_hooks() -> object:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def _drop_saved_hooks(before: object) -> None:
    while _saved_hooks() not in (None, before):
        torch._C._autograd._pop_saved_tensors_default_hooks()


def _others_kernels(before: set[str], after: set[str]) -> str:
    # The first vmap loads PyTorch's own kernels for vmap.
    added = (name for name in after - before if not name.endswith("/FuncTorchBatched"))
    given = sorted(name for name in added if name.startswith("aten/"))
    return f" {', '.join(given)}" if given else ""


def _flag(name: str, owner: Any, attribute: str) -> Piece:
    read, restore = partial(getattr, owner, attribute), partial(setattr, owner, attribute)
    return Piece(name, read, restore, mild=True)


def _autocast(device: str) -> Piece:
    read = partial(torch.is_autocast_enabled, device)
    return Piece(f"autocast of {device}", read, partial(torch.set_autocast_enabled, device))


_MATMUL, _CUDNN = torch.backends.cuda.matmul, torch.backends.cudnn
PIECES: tuple[Piece, ...] = (
    Piece("number of threads", torch.get_num_threads, torch.set_num_threads, mild=True),
    Piece("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Piece("default device", torch.get_default_device, torch.set_default_device),
    Piece("torch's random state", _generators, _set_generators, _unlike_states, mild=True),
    Piece("Python's random state", random.getstate, random.setstate, _unlike, mild=True),
    Piece("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    _modes("functions", "function"),
    _modes("operators", "dispatch", None),
    Piece("hooks of saved tensors", _saved_hooks, _drop_saved_hooks, _unlike),
    Piece(
        "kernels of operators",
        lambda: set(torch.library._impls),
        lambda before: None,  # a kernel goes with the library that has it
        _others_kernels,
        Code.MONKEY_PATCHED,
    ),
    Piece("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    Piece(
        "flush-denormal mode", lambda: sys.float_info.min / 4 * 1.0 == 0.0, torch.set_flush_denormal
    ),
    Piece(
        "determinism of algorithms",
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        mild=True,
    ),
    Piece(
        "precision of float32 products",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        mild=True,
    ),
    _flag("TF32 of products", _MATMUL, "allow_tf32"),
    _flag("TF32 of cuDNN", _CUDNN, "allow_tf32"),
    _flag("reduced precision of float16 sums", _MATMUL, "allow_fp16_reduced_precision_reduction"),
    _flag("reduced precision of bfloat16 sums", _MATMUL, "allow_bf16_reduced_precision_reduction"),
    _flag("determinism of cuDNN", _CUDNN, "deterministic"),
    _flag("benchmark mode of cuDNN", _CUDNN, "benchmark"),
    _autocast("cpu"),
    _autocast("cuda"),
    Piece("persisting L2 cache", persisting_cache, reset_persisting_cache, waits=True),
    Piece("working directory", os.getcwd, os.chdir, mild=True),
    Piece("environment variables", _environment, _set_environment, _names, mild=True),
    Piece("signal handlers", _handlers, _set_handlers, _names, mild=True),
    _functions_of("torch", _OF_TORCH),
    _functions_of("Python", _OF_PYTHON),
)


class StateChange(NamedTuple):
    """What a call changed; see :class:`Piece`."""

    text: str
    code: Code
    mild: bool = False


def reason_of(changes: Sequence[StateChange]) -> Reason:
    """Return the reason for changes; a replaced function has precedence."""
    replaced = any(change.code == Code.MONKEY_PATCHED for change in changes)
    text = printable(f"changed state that remains: {'; '.join(change.text for change in changes)}")
    return Reason(Code.MONKEY_PATCHED if replaced else Code.GLOBAL_STATE_LEAK, text)


@dataclass(frozen=True)
class ProcessState:
    """A reading of all pieces."""

    readings: tuple[Any, ...]

    @classmethod
    def read(cls) -> Self:
        """Read all pieces."""
        return cls(tuple(piece.read() for piece in PIECES))

    def completed(self) -> Self:
        """Return this reading, with unreadable pieces read now."""
        both = zip(PIECES, self.readings, strict=True)
        readings = (p.read() if p.waits and r is None else r for p, r in both)
        return replace(self, readings=tuple(readings))

    def restore(self) -> list[StateChange]:
        """Undo and return all changes since this reading."""
        # Read all first: restoring one may restore another, as of TF32's two flags.
        readings = ProcessState.read().readings
        changed = []
        for piece, before, after in zip(PIECES, self.readings, readings, strict=True):
            is_missing = piece.waits and None in (before, after)
            if not is_missing and (told := piece.differ(before, after)):
                piece.restore(before)
                changed.append(StateChange(f"{piece.name}{told}", piece.code, piece.mild))
        return changed
