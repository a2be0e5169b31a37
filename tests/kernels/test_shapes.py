"""The public functions and modules take the shapes that torch's of their name take, and no others.

Outcomes are compared with torch's: the loss, or the kind of error, and the warnings of a broadcast.
"""

import inspect
import itertools
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from losscli import functional, nn
from losscli.losses import CLASS_INDICES, EVERY_ROW_LOSS, LOSSES, LossSpec, Spec
from losscli.losses.shapes import Shape, broadcasts_to
from tests.parameters import SLOW, few, naming

TORCH: Any = torch.nn.functional
SPECS: dict[str, Spec] = {
    spec.function_name: spec
    for spec in (*LOSSES.values(), *EVERY_ROW_LOSS.values())
    if hasattr(TORCH, spec.function_name) and not spec.name.endswith("_with_probabilities")
}
"""The losses whose functions have names of torch's."""


def shapes(dimensions: int, extents: Iterable[int]) -> list[Shape]:
    extents = tuple(extents)
    return [s for n in range(dimensions + 1) for s in itertools.product(extents, repeat=n)]


FEW = shapes(2, (1, 2))
SMALL = list(dict.fromkeys([*shapes(2, (1, 2, 3)), *shapes(3, (1, 2))]))
"""Where one extent differs from another, either is 1 or none is."""
ALL = shapes(3, (1, 2, 3))


def operands(spec: Spec, given: Sequence[Shape]) -> list[Tensor]:
    return [
        torch.zeros(shape, dtype=torch.int64)
        if operand.kind == CLASS_INDICES
        else operand.domain.of_draws(torch.rand(shape))
        for operand, shape in zip(spec.operands, given, strict=False)
    ]


def outcome(function: Any, *given: Any, **named: Any) -> tuple[Any, int]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = function(*given, **named)
        except Exception as error:
            result = type(error)
    return result, sum("Using a target size" in str(warning.message) for warning in caught)


def are_alike(one: Any, other: Any) -> bool:
    """Tell whether two results are the same error, or losses of one shape and the same values."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return one is other
    return one.shape == other.shape and torch.allclose(one, other, atol=1e-5)


def required(spec: Spec) -> int:
    return sum(not operand.optional for operand in spec.operands)


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=SLOW)])
@pytest.mark.parametrize("name", SPECS)
def test_function_takes_the_shapes_that_torchs_takes(name, every):
    spec, own, torchs = SPECS[name], getattr(functional, name), getattr(TORCH, name)
    count = required(spec)
    few, many = (SMALL, ALL) if count == 2 else (FEW, shapes(3, (1, 2)))
    for given in itertools.product(many if every else few, repeat=count):
        drawn = operands(spec, given)
        found = outcome(own, *drawn, reduction="none")
        due = outcome(torchs, *drawn, reduction="none")
        assert are_alike(found[0], due[0]), (given, found, due)
        assert found[1] == due[1], given
        if spec.refused(given):
            assert isinstance(found[0], type), given
        elif isinstance(spec, LossSpec) and isinstance(found[0], type):
            assert found[0] is RuntimeError, given  # the shapes do not broadcast


def test_cross_entropy_takes_the_shapes_of_probabilities_that_torchs_takes():
    for given in itertools.product(SMALL, repeat=2):
        drawn = [torch.rand(shape) for shape in given]
        found, due = (
            outcome(each.cross_entropy, *drawn, reduction="none")[0] for each in (functional, TORCH)
        )
        assert are_alike(found, due), (given, found, due)


@pytest.mark.parametrize("name", SPECS)
def test_module_and_gradient_take_the_shapes_that_the_function_takes(name):
    spec = SPECS[name]
    module = getattr(nn, spec.module.__name__)(reduction="sum")
    for given in itertools.product(FEW, repeat=required(spec)):
        drawn = operands(spec, given)
        due, warned = outcome(getattr(functional, name), *drawn, reduction="sum")
        with_grad, *of_gradient = outcome(spec.loss_with_grad, *drawn, reduction="sum")
        loss = with_grad[0] if isinstance(with_grad, tuple) else with_grad
        assert are_alike(loss, due), given
        assert (*outcome(module, *drawn)[1:], *of_gradient) == (warned, warned), given
        assert are_alike(outcome(module, *drawn)[0], due), given


WEIGHTS = [
    pytest.param(name, weight, id=f"{name}-{weight}")
    for name, spec in SPECS.items()
    if spec.name in LOSSES
    for weight in ("weight", "pos_weight")
    if weight in inspect.signature(spec.loss).parameters
]


@pytest.mark.parametrize(("name", "weight"), WEIGHTS)
def test_weight_makes_no_more_elements_than_the_loss_has(name, weight):
    """Any weight that broadcasts to the loss is taken, where torch asks for the input's shape."""
    spec, torchs = SPECS[name], getattr(TORCH, name)
    in_torch = weight in inspect.signature(torchs).parameters
    for shape, given in itertools.product([*FEW, (3,), (2, 3)], repeat=2):
        drawn = [*operands(spec, [shape] * len(spec.operands)), torch.rand(given)]
        due, _ = outcome(torchs, *drawn[:-1], **{weight: drawn[-1]}, reduction="none")
        # Of tensors without memory kernels compute nothing, and none is built.
        *drawn, last = (each.to("meta") for each in drawn)
        found, _ = outcome(spec.loss, *drawn, **{weight: last}, reduction="none")
        if broadcasts_to(given, shape):
            assert found.shape == shape, (shape, given)
        elif in_torch:
            assert found is due, (shape, given, found, due)
        else:
            assert found in (ValueError, RuntimeError), (shape, given, found)


@pytest.mark.parametrize("name", ["l1_loss", "mse_loss", "huber_loss"])
def test_weight_may_be_as_large_as_the_loss_of_a_target_that_broadcasts(name):
    x, y, w = torch.rand(3, 1), torch.rand(4), torch.rand(3, 4)
    function = getattr(functional, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        due = function(x, y, reduction="none") * w
        torch.testing.assert_close(function(x, y, reduction="none", weight=w), due)
        with pytest.raises(ValueError, match="weight must have a shape that broadcasts to that of"):
            function(x, y, weight=torch.rand(2, 3, 4))


def test_losses_that_torch_has_not_broadcast():
    x, y = torch.rand(3, 1), torch.rand(4)
    for function in (functional.hinge_loss, functional.log_cosh_loss, functional.kl_estimate):
        assert function(x, y, reduction="none").shape == (3, 4)
        assert function(x, x, reduction="none", weight=y).shape == (3, 4)


# ---------------------------------------------------------------- within compilers and transforms


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # PyTorch's own
@pytest.mark.parametrize(
    "name",
    few(
        ["binary_cross_entropy_with_logits", "soft_margin_loss", "gaussian_nll_loss"],
        ("gaussian_nll_loss",),
    ),
)
def test_compiled_function_takes_and_refuses_the_same_shapes(name):
    torch.compiler.reset()
    function, count = getattr(functional, name), required(SPECS[name])
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    for rows in (3, 4, 5):
        drawn = [torch.rand(rows, 2) for _ in range(count)]
        torch.testing.assert_close(compiled(*drawn), function(*drawn))
    drawn[-1] = torch.rand(7, 5, 2)
    with pytest.raises(Exception, match="must have "):
        compiled(*drawn)


def test_vmap_looks_at_the_shape_of_a_sample():
    function, x = functional.binary_cross_entropy_with_logits, torch.rand(6, 3)
    of_samples = torch.func.vmap(function, in_dims=(0, None))(x, x[0])
    torch.testing.assert_close(of_samples, torch.stack([function(row, x[0]) for row in x]))
    with pytest.raises(ValueError, match="target must have the shape of input"):
        torch.func.vmap(function)(x, x[:, :1])


# ------------------------------------------------------------------- what a message says to write

EXPRESSION = re.compile(r"\w+(\.\w+\([^()]*\))+")


def ways(message: str) -> list[list[str]]:
    """Return the expressions of each way that a message tells, alternatives apart."""
    _, _, told = message.partition("write ")
    found = [EXPRESSION.finditer(way) for way in told.split(", or ")]
    return [[match.group(0) for match in way] for way in found]


N, T, C = 6, 5, 4
NUMBERS = torch.zeros(N, T, dtype=torch.int64)
ROWS = NUMBERS[:, 0]
HIDDEN, LAYER = torch.rand(N, 3), torch.rand(C, 3)
Wrong = tuple[str, tuple[Tensor, ...]] | tuple[str, tuple[Tensor, ...], dict[str, Tensor]]
WRONG: dict[str, Wrong] = {
    "classes last": ("cross_entropy", (torch.rand(N, T, C), NUMBERS)),
    "classes last of many": ("cross_entropy", (torch.rand(2, N, T, C), NUMBERS.expand(2, N, T))),
    "classes first": ("cross_entropy", (torch.rand(C, N), ROWS)),
    "classes in the middle": ("token_log_probs", (torch.rand(N, C, T), NUMBERS)),
    "log-probabilities": ("nll_loss", (torch.rand(N, T, C), NUMBERS)),
    "a column": ("cross_entropy", (torch.rand(N, C), ROWS.unsqueeze(1))),
    "a row": ("nll_loss", (torch.rand(N, C), ROWS.unsqueeze(0))),
    "flat logits": ("cross_entropy", (torch.rand(N * T, C), NUMBERS)),
    "flat numbers": ("token_log_probs", (torch.rand(N, T, C), NUMBERS.flatten())),
    "one-hot": ("cross_entropy", (torch.rand(N, C), torch.eye(C, dtype=torch.int64)[ROWS])),
    "one row of logits": ("kl_divergence", (torch.rand(N, C), torch.rand(C))),
    "mask of columns": (
        *("kl_divergence", (torch.rand(N, C), torch.rand(N, C))),
        {"mask": torch.ones(N, 1, dtype=torch.bool)},
    ),
    "weight of one row": ("cross_entropy", (torch.rand(N, C), ROWS, torch.rand(1, C))),
    "column of labels": ("binary_cross_entropy", (torch.rand(N), torch.rand(N, 1))),
    "column of logits": ("binary_cross_entropy_with_logits", (torch.rand(N, 1), torch.rand(N))),
    "row of labels": ("binary_cross_entropy_with_logits", (torch.rand(N, C), torch.rand(C))),
    "column of signs": ("soft_margin_loss", (torch.rand(N), torch.ones(N, 1))),
    "weight of rows": ("mse_loss", (torch.rand(N, C), torch.rand(N, C)), {"weight": torch.rand(N)}),
    "labels of rows": ("binary_cross_entropy", (torch.rand(N, C), torch.rand(N))),
    "mask of sequences": (
        *("policy_loss", (torch.rand(N, T), torch.rand(N, T), torch.rand(N, 1))),
        {"mask": torch.ones(N)},
    ),
    "linear weight of columns": ("linear_cross_entropy", (HIDDEN, LAYER.t()), {"target": ROWS}),
    "row of values": ("mse_loss", (torch.rand(N, C), torch.rand(N))),
    "scores of tokens": ("multi_margin_loss", (torch.rand(N, T, C), NUMBERS)),
    "column of pairs": ("cosine_embedding_loss", (*torch.rand(2, N, C), torch.ones(N, 1))),
    "one anchor": ("triplet_margin_loss", (torch.rand(C), *torch.rand(2, N, C))),
    "flat hidden states": (
        "linear_cross_entropy",
        (torch.rand(N * T, 3), LAYER),
        {"target": NUMBERS},
    ),
    "column of hidden states": (
        "linear_cross_entropy",
        (HIDDEN, LAYER),
        {"target": ROWS.unsqueeze(1)},
    ),
}
"""What is wrong, the function, and its operands, those without a place by their names."""


@pytest.mark.parametrize("what", WRONG)
def test_call_that_a_shape_error_suggests_works(what):
    name, operands, *named = WRONG[what]
    function = getattr(functional, name)
    given = dict(zip(inspect.signature(function).parameters, operands, strict=False))
    given |= named[0] if named else {}
    with pytest.raises((ValueError, RuntimeError)) as caught:
        function(**given)
    found = ways(str(caught.value))
    assert all(found), str(caught.value)
    for way in found:
        with naming(way):
            changed = {e.split(".")[0]: eval(e, dict(given)) for e in way}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                function(**given | changed)


def test_logits_with_their_classes_last_are_told_both_ways_out():
    input, target = torch.rand(2, 128, 10), torch.zeros(2, 128, dtype=torch.int64)
    message = (
        r"classes are dimension 1 of input: write input\.flatten\(0, 1\) and "
        r"target\.flatten\(0, 1\), or input\.transpose\(1, 2\)"
    )
    for function in (functional.cross_entropy, functional.nll_loss):
        with pytest.raises(RuntimeError, match=message):
            function(input, target)
