"""The implementations by name: losscli's kernels, PyTorch's, other projects' and files."""

from __future__ import annotations

import copyreg
import os
import warnings
from collections.abc import Callable, Iterable
from functools import cache, partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from losscli.build.targets import Target, needed
from losscli.build.toolchain import which
from losscli.errors import UnfitError, UsageError, unknown
from losscli.implementations.implementation import (
    CUSTOM,
    PLAIN,
    BoundLoss,
    Implementation,
    Setting,
    is_own,
)
from losscli.implementations.other_projects import ONLY_SPLIT, PACKAGES, lacking
from losscli.implementations.source import Source, is_file
from losscli.losses import ELEMENT, HIDDEN_STATE, MODEL, aten, find_loss
from losscli.machine.commands import command_in
from losscli.machine.pytorch import Tensor, torch
from losscli.ranks.placements import CUTS, share
from losscli.reasons import Code, Reason

if TYPE_CHECKING:
    from losscli.cases.case import Case

# Checks broadcast on purpose, so no warning is needed.
warnings.filterwarnings("ignore", "Using a target size", UserWarning)


def _custom(case: Case) -> BoundLoss:
    import losscli.functional  # noqa: F401 - defines the operators

    if not case.placement:
        return case.spec.bound(case.reduction, case.params)
    from losscli import sharded

    settings = case.spec.settings(case.reduction, case.params)
    # If ranks know all sizes, no call asks.
    settings["sizes"] = [share(case.classes, case.ranks, n)[1] for n in range(case.ranks)]
    function, names = getattr(sharded, case.spec.function_name), case.spec.names
    return lambda *shards: function(**dict(zip(names, shards, strict=True)), **settings)


def _gathering(formula: Callable[..., Tensor], case: Case) -> BoundLoss:
    """Bind a formula of whole operands; it gathers those that are split over ranks."""
    settings = {"reduction": case.reduction, **case.params}
    if not case.placement:
        return partial(formula, **settings)
    from losscli.ranks.shards import PutTogether, shared, sum_of_ranks

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


def _reference(case: Case) -> BoundLoss:
    if not case.placement or case.spec.unit != HIDDEN_STATE:
        return _gathering(case.spec.reference, case)
    spec = find_loss(case.spec.function_name.removeprefix("linear_"))
    formula = spec.functional or spec.reference
    known = {parameter.name for parameter in spec.parameters}

    def of_logits(logits: Tensor, target: Tensor, **settings: Any) -> Tensor:
        kept = {n: value for n, value in settings.items() if n in known or n == "reduction"}
        return formula(logits, target, **kept)

    return _gathering(of_logits, case)


def _functional(case: Case) -> BoundLoss:
    assert case.spec.functional is not None
    return _gathering(case.spec.functional, case)


def _compile(case: Case) -> BoundLoss:
    torch.compiler.reset()
    return torch.compile(_reference(case), dynamic=False, fullgraph=True)


def _takes_no_split(name: str, case: Case) -> Reason | None:
    if not case.placement:
        return None
    return Reason(Code.NOT_APPLICABLE, f"{name} takes no operands that are split")


def _has_no_compiler(case: Case) -> Reason | None:
    if reason := _takes_no_split("compile", case):
        return reason
    # On a GPU, Triton compiles a launcher in C; on a CPU, Inductor compiles C++.
    of_c, of_cpp = ("CC", ("gcc", "cc", "clang")), ("CXX", ("g++", "c++"))
    variable, usual = of_cpp if case.device == "cpu" else of_c
    try:
        programs = command_in(variable)[:1] or usual
    except UnfitError as error:
        return Reason(Code.MISSING_TOOL, f"torch.compile needs a compiler: {error}")
    if any(which(program, os.environ) for program in programs):
        return None
    text = f"torch.compile needs a compiler, and the PATH has no {' or '.join(programs)}"
    return Reason(Code.MISSING_TOOL, text)


def _finished_by(strategy: str, case: Case) -> BoundLoss:
    import losscli.functional  # noqa: F401 - defines the operators
    from losscli.operators import loading

    loading.load_loss(case.loss, case.device.partition(":")[0], strategies=True)
    operator = getattr(torch.ops.losscli_bench, case.loss).default
    settings = (case.reduction, *case.spec.resolve(case.params).values(), strategy)
    return lambda *operands: operator(*operands, *settings)


def _needs_no_sum(strategy: str, case: Case) -> Reason | None:
    if reason := _takes_no_split(f"{CUSTOM}:{strategy}", case):
        return reason
    if case.spec.unit != ELEMENT:
        return Reason(Code.NOT_APPLICABLE, "row-wise losses have one way to finish the sum")
    if case.reduction != "none":
        return None
    return Reason(Code.NOT_APPLICABLE, "without a reduction there is no sum to finish")


def _same_as_reference(case: Case) -> Reason | None:
    spec = case.spec
    if case.placement and spec.unit == HIDDEN_STATE:
        text = f"the reference of {case.loss} is what one writes with PyTorch"
        return Reason(Code.NOT_APPLICABLE, text)
    if spec.functional is None:
        text = f"the reference of {case.loss} is already the usual PyTorch code"
        return Reason(Code.NOT_APPLICABLE, text)
    if spec.unit == HIDDEN_STATE and not _torch_has_linear_losses():
        return Reason(Code.NOT_APPLICABLE, f"this PyTorch has no {case.loss}; 2.13 has")
    takes = spec.functional_takes
    return None if takes is None else lacking("PyTorch", takes, case)


@cache
def _torch_has_linear_losses() -> bool:
    return tuple(map(int, version("torch").split(".")[:2])) >= (2, 13)


STRATEGIES = {
    "atomic": "one atomic add per block: one launch, results differ from run to run",
    "two_pass": "block sums, then a second kernel adds them: two launches, bitwise deterministic",
    "tree": "block sums, then a tree of kernels that add groups: one launch per level",
    "torch_sum": "block sums, then torch.sum, a product and a cast: more launches, by PyTorch",
}
"""Other ways to finish a sum."""

IMPLEMENTATIONS: dict[str, Implementation] = {
    each.name: each
    for each in (
        Implementation(
            CUSTOM,
            "losscli's own kernel, through losscli.functional",
            _custom,
            temporaries=0,
            exact_sums=True,
            fixed_order=True,
            held_to_oracle=True,
        ),
        Implementation("reference", "the plain PyTorch formula that defines the loss", _reference),
        Implementation(
            "functional",
            "the usual PyTorch code: a function of torch.nn.functional if it has one; left out "
            "where the reference is that code",
            _functional,
            _same_as_reference,
            torchs_own=True,
        ),
        Implementation("compile", "torch.compile of the reference", _compile, _has_no_compiler),
        *(
            Implementation(
                f"{CUSTOM}:{strategy}",
                description,
                partial(_finished_by, strategy),
                partial(_needs_no_sum, strategy),
                temporaries=0,
                fixed_order=strategy != "atomic",
                held_to_oracle=True,
            )
            for strategy, description in STRATEGIES.items()
        ),
        *PACKAGES,
        *ONLY_SPLIT,
    )
}


def libraries(asked: Iterable[tuple[Case, str]], device: str) -> list[Target]:
    """Return the kernel libraries that cases need."""
    kind = device.partition(":")[0]
    found: dict[Target, None] = {}
    for case, name in asked:
        if is_own(name) and not IMPLEMENTATIONS[name].unavailable(case):
            # Their kernels compute parts of rows, which those of fused linear losses join.
            of_parts = ("cross_entropy", "token_log_probs") if case.placement else ()
            for loss in (case.loss, *of_parts):
                found |= dict.fromkeys(needed(loss, kind, strategies=name != CUSTOM))
    return list(found)


def of_file(file: Source, setting: Setting = PLAIN) -> Implementation:
    """Return the implementation that a file defines, which a separate process binds."""

    def unavailable(case: Case) -> Reason | None:
        if case.placement:
            return Reason(Code.NOT_APPLICABLE, "a file takes no operands that are split over ranks")
        if case.spec.unit == MODEL:
            return None
        return file.unavailable(case.loss, case.reduction, case.spec, case.params)

    about = f"{file.path.name}, in a separate process"
    return Implementation(file.named, about, unavailable=unavailable, file=file, setting=setting)


@cache
def _of_name(name: str) -> Implementation:
    file = Source.read(name)
    _ = file.parsed
    return of_file(file)


def _sent(one: Implementation) -> tuple[Callable[..., Implementation], tuple[object, ...]]:
    return (of_file, (one.file, one.setting)) if one.file else (find_implementation, (one.name,))


copyreg.pickle(Implementation, _sent)


TORCHS_OWN = (IMPLEMENTATIONS["reference"], IMPLEMENTATIONS["functional"])
"""PyTorch's own formulas, even if others are registered under these names later."""


def find_implementation(name: str) -> Implementation:
    """Look up an implementation or read the named file; UsageError lists the candidates."""
    if is_file(name):
        return _of_name(name)
    if name not in IMPLEMENTATIONS:
        raise UsageError(unknown("implementation", name, IMPLEMENTATIONS))
    return IMPLEMENTATIONS[name]
