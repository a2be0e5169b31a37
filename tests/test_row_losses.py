"""Losses over rows: each of the registry is what its reference says."""

import copy
import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.testing import assert_close

from losscli import functional, nn
from losscli.implementations.requests import Answer
from losscli.losses import ROW_FORMS, ROW_LOSSES, RowSpec, find_loss
from losscli.machine.memory import free_bytes
from losscli.runs.records import PASS
from losscli.truth.problem import Problem
from losscli.truth.setup import Incoming
from tests.gradients import assert_right, both, ramp
from tests.handmade import case_of
from tests.parameters import SLOW, few, naming

DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
REDUCTIONS = ("none", "mean", "sum")
LENGTHS = (1, 3, 7, 31, 33, 1000, 4097)
"""One element, tails of every kind of vector, and rows of a warp, a block and several packs."""
SHORT_ROWS = ((32, 1), (37, 2), (64, 3), (70, 4), (37, 7), (33, 8), (70, 13))
"""Shapes of rows that a CPU computes 32 at a time: all of them, and some besides."""
LOGITS = (
    *("kl_divergence", "reverse_kl_divergence", "soft_cross_entropy", "total_variation"),
    *("js_divergence", "token_log_probs"),
)
OPS = torch.ops.losscli

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.fixture(params=ROW_LOSSES)
def spec(request):
    return ROW_LOSSES[request.param]


whatever_the_formula = pytest.mark.parametrize("spec", few(ROW_LOSSES), indirect=True)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


class Call(NamedTuple):
    """The arguments of an operator, without the reduction."""

    spec: RowSpec
    operands: tuple[Tensor | None, ...]
    parameters: dict[str, float]

    @property
    def rows(self) -> tuple[Tensor, ...]:
        return tuple(o for o in self.operands[: self.spec.gradients] if o is not None)

    def of(self, function: Callable[..., Any], reduction: str, *more: Any) -> Any:
        return function(*self.operands, reduction, *self.parameters.values(), *more)

    def ours(self, reduction: str = "mean") -> Tensor:
        loss: Tensor = self.of(getattr(OPS, self.spec.name), reduction)
        return loss

    def results(self, reduction: str = "mean") -> tuple[Tensor, ...]:
        loss = self.ours(reduction)
        return both(loss, *self.rows, incoming=ramp(loss))

    def due(self, reduction: str = "mean") -> Tensor:
        return self.spec.reference(*self.operands, reduction=reduction, **self.parameters)

    def exact(self) -> "Call":
        operands = tuple(
            operand
            if operand is None or not operand.is_floating_point()
            else operand.detach().double().requires_grad_(operand.requires_grad)
            for operand in self.operands
        )
        return self._replace(operands=operands)


def make(spec, *shape, device, dtype=torch.float32, optional=False, parameters=None, scale=1.0):
    """Draw the operands of a call with rows of a shape, which lie along the last dimension."""
    shape = tuple(shape)
    if spec.second_dimension and len(shape) > 2:
        shape = (shape[0], shape[-1], *shape[1:-1])
    over = spec.loss_shape([shape])
    classes = spec.terms_in_sum(shape)
    operands: list[Tensor | None] = []
    for role in spec.roles:
        if role == "r":
            rows = (scale * torch.randn(shape, device=device)).to(dtype).requires_grad_()
            operands.append(rows)
        elif role == "R":
            dim = spec.row_dimension(len(shape))
            operands.append(torch.randn(shape, device=device).softmax(dim).to(dtype))
        elif role == "l":
            operands.append(torch.randint(max(classes, 1), over, device=device))
        elif role == "t":
            operands.append(torch.randint(2, over, device=device).mul(2).sub(1).to(dtype))
        elif not optional:
            operands.append(None)
        elif role == "m":
            operands.append(torch.rand(over, device=device) < 0.7)
        else:
            operands.append((0.5 + torch.rand(classes, device=device)).to(dtype))
    return Call(spec, tuple(operands), spec.resolve(parameters or {}))


def reductions(spec: RowSpec) -> tuple[str, ...]:
    return ("none",) if spec.doubling else REDUCTIONS


def examples(spec: RowSpec) -> dict[str, float]:
    return {parameter.name: parameter.example for parameter in spec.parameters}


PREFIXES = {"mask": "masked_", "weight": "weighted_"}
"""Of the forms with an optional operand, by its name."""


def judge(call: Call, reduction: str, has_gradients: bool = True) -> None:
    """Judge a loss, and the gradients of rows where they are wanted, by the oracle."""
    names = call.spec.names[: call.spec.gradients] if has_gradients else ()
    given = dict(zip(call.spec.names, call.operands, strict=True))
    operands = {name: each.detach() for name, each in given.items() if each is not None}
    form = find_loss(
        "".join(prefix for name, prefix in PREFIXES.items() if name in operands)
        + call.spec.name
        + ("_with_entropy" if call.parameters.get("entropy") else "")
    )
    rows = call.rows[0]
    case = case_of(
        form.name,
        tuple(rows.shape),
        dtype=str(rows.dtype).removeprefix("torch."),
        reduction=reduction,
        device=str(rows.device),
        params={p.name: call.parameters[p.name] for p in form.parameters},
    )
    with torch.set_grad_enabled(has_gradients):
        loss = call.ours(reduction)
    incoming = Incoming("ramp", names, ramp(loss))
    gradients = torch.autograd.grad(loss, call.rows, incoming.grad_output) if names else ()
    answer = Answer(loss.detach(), dict(zip(names, gradients, strict=True)))
    assert_right(Problem(case, operands, excuses=False), answer, incoming, allowed=(PASS,))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_losses_and_gradients_equal_the_references(spec, dtype, device):
    shapes, in_turn = [(5, length) for length in LENGTHS], itertools.cycle(reductions(spec))
    usual = [*zip(shapes, in_turn, strict=False)]
    if dtype == torch.float32:
        usual = [*itertools.product(shapes, reductions(spec))]
    for shape, reduction in (*usual, *zip(SHORT_ROWS, in_turn, strict=False)):
        torch.manual_seed(0)
        for parameters in ({}, examples(spec)):
            call = make(spec, *shape, device=device, dtype=dtype, parameters=parameters)
            with naming(f"rows of {shape}", reduction, parameters):
                judge(call, reduction)


@pytest.mark.parametrize(
    "spec", [n for n, of in ROW_LOSSES.items() if {*"mwW"} & {*of.roles}], indirect=True
)
def test_masks_and_weights_count(spec, device):
    for shape, reduction in itertools.product(((40, 33), (70, 3)), REDUCTIONS):
        with naming(shape, reduction):
            judge(make(spec, *shape, device=device, optional=True), reduction)


def test_masked_rows_count_for_nothing_and_may_hold_anything(device):
    for name in ("kl_divergence", "js_divergence", "total_variation", "soft_cross_entropy"):
        for reduction in REDUCTIONS:
            call = make(ROW_LOSSES[name], 4, 9, device=device)
            mask = torch.zeros(4, dtype=torch.bool, device=device)
            call = call._replace(operands=(*call.operands[:2], mask))
            found = call.results(reduction)
            assert bool(found[0].isnan().all()) == (reduction == "mean")
            assert all(not gradient.any() for gradient in found[1:])
        for rows in (3, 37):
            input, target, _ = (call := make(ROW_LOSSES[name], rows, 9, device=device)).operands
            mask = torch.arange(rows, device=device) != 1
            due = call._replace(operands=(input, target, mask)).ours()
            wild = input.detach().clone()
            wild[1] = math.nan
            wild.requires_grad_()
            found = both(call._replace(operands=(wild, target, mask)).ours(), wild)
            assert_close(found[0], due.detach())
            assert found[1].isfinite().all()
            assert not found[1][1].any()


def test_score_of_nan_is_as_torchs_in_multi_margin(device):
    target = torch.tensor([3, 1], device=device)
    for p, where in itertools.product((1, 2), (0, 3)):
        scores = torch.randn(2, 9, device=device)
        scores[0, where] = math.nan
        scores.requires_grad_()
        losses = [
            module.multi_margin_loss(scores, target, p=p, reduction="none")
            for module in (functional, torch.nn.functional)
        ]
        assert_close(*(both(each, scores, incoming=torch.ones_like(each)) for each in losses))


def test_nan_of_a_distance_leaves_the_other_without_a_gradient(device):
    for p in (1.0, 2.0, 3.0):
        anchor, positive, negative = torch.randn(3, 2, 9, device=device)
        positive[0, 4] = math.nan
        rows = tuple(each.requires_grad_() for each in (anchor, positive, negative))
        loss = functional.triplet_margin_loss(*rows, p=p, reduction="none")
        assert loss.isnan().tolist() == [True, False]
        assert not torch.autograd.grad(loss.sum(), negative)[0][0].any()


def test_js_divergence_of_a_subnormal_probability_has_a_gradient():
    target = torch.zeros(1, 2, requires_grad=True)
    input = torch.tensor([[0.0, -89.0]], requires_grad=True)  # e^-89 is 2.2e-39
    loss = functional.js_divergence(input, target, reduction="sum")
    (found,) = torch.autograd.grad(loss, input)
    exact = functional.js_divergence(input.double(), target.double(), reduction="sum")
    (due,) = torch.autograd.grad(exact, input)
    assert found[0, 1] != 0
    assert_close(found[0, 1], due[0, 1], rtol=1e-4, atol=0.0)


def test_a_class_that_only_the_target_has_makes_the_divergence_infinite(device):
    input = torch.zeros(2, 5, device=device)
    input[0, 2] = -math.inf
    loss = functional.kl_divergence(input, torch.zeros(2, 5, device=device), reduction="none")
    assert loss.tolist() == [math.inf, 0.0]
    back = functional.reverse_kl_divergence(
        torch.zeros(2, 5, device=device), input, reduction="none"
    )
    assert back.tolist() == [math.inf, 0.0]


def test_one_class_that_holds_all_the_weight_keeps_its_gradient(device):
    logits = torch.zeros(1, 50, device=device)
    logits[0, 7] = 30.0
    logits.requires_grad_()
    tokens = torch.tensor([7], device=device)
    found = both(functional.token_log_probs(logits, tokens), logits)
    exact = logits.detach().double().requires_grad_()
    due = both(torch.log_softmax(exact, -1)[:, 7], exact)
    # One minus a number near 1 has lost its digits in float64, too.
    due[1][0, 7] = 0
    due[1][0, 7] = -due[1].sum()
    due[0][0] = -torch.log1p(due[1][0, 7])
    for ours, theirs in zip(found, due, strict=True):
        assert_close(ours.double(), theirs, rtol=1e-6, atol=0)


def test_relations_between_losses(device):
    x, y = (torch.randn(6, 40, device=device, dtype=torch.float64) for _ in range(2))
    assert_close(functional.kl_divergence(x, y), functional.reverse_kl_divergence(y, x))
    assert_close(functional.js_divergence(x, y), functional.js_divergence(y, x))
    assert_close(functional.total_variation(x, y), functional.total_variation(y, x))
    _, entropy = functional.token_log_probs(
        y, torch.zeros(6, dtype=torch.int64, device=device), entropy=True
    )
    assert_close(
        functional.soft_cross_entropy(x, y) - entropy.mean(), functional.kl_divergence(x, y)
    )
    for function in (functional.kl_divergence, functional.js_divergence):
        assert_close(function(x, x), torch.zeros((), device=device, dtype=torch.float64))


# --- derivatives ---


# Each loss with one of the reductions, in turn.
@pytest.mark.parametrize(
    ("spec", "reduction"),
    [
        pytest.param(name, reduction, marks=[] if k == place % len(reductions(spec)) else [SLOW])
        for place, (name, spec) in enumerate(ROW_LOSSES.items())
        for k, reduction in enumerate(reductions(spec))
    ],
    indirect=["spec"],
)
def test_derivative_tests_pass(spec, reduction, device):
    call = make(
        spec, 3, 4, device=device, dtype=torch.float64, optional=True, parameters=examples(spec)
    )
    others = call.operands[spec.gradients :]

    def loss(*rows):
        return Call(spec, (*rows, *others), call.parameters).ours(reduction)

    assert torch.autograd.gradcheck(
        loss,
        call.rows,
        check_batched_grad=True,
        check_forward_ad=True,
        check_batched_forward_grad=True,
    )
    assert torch.autograd.gradgradcheck(loss, call.rows, gen_non_contig_grad_outputs=True)


def test_backward_reads_nothing_where_forward_has_written_the_gradient(device):
    for name in ("cross_entropy", "multi_margin", "cosine_embedding"):
        call = make(ROW_LOSSES[name], 9, 5, device=device)
        due = both(call.ours(), *call.rows)
        loss = call.ours()
        for operand in call.operands:
            if operand is not None:
                operand.data.fill_(99)  # no class, where it is class indices
        for ours, theirs in zip(torch.autograd.grad(loss, call.rows), due[1:], strict=True):
            assert torch.equal(ours, theirs)


@whatever_the_formula
def test_runs_and_threads_do_not_change_the_bits(spec, device):
    reduction, threads = reductions(spec)[-1], torch.get_num_threads()
    for shape in ((20_000, 3), (40, 1000), (70, 5000)):
        call, runs = make(spec, *shape, device=device), []
        try:
            for count in (1, 2, 3, threads, threads):
                torch.set_num_threads(count)
                runs.append(call.results(reduction))
        finally:
            torch.set_num_threads(threads)
        for run in runs[1:]:
            assert all(map(torch.equal, run, runs[0]))


def test_with_grad_returns_the_gradient(spec, device):
    for reduction in reductions(spec):
        call = make(spec, 6, 33, device=device, optional=True)
        operator = getattr(OPS, f"{spec.name}_with_grad")
        due = both(loss := call.ours(reduction), call.rows[0], incoming=torch.ones_like(loss))
        found = call.of(operator, reduction)
        for ours, theirs in zip(found, due, strict=True):
            assert torch.equal(ours, theirs)


@whatever_the_formula
def test_transforms_compose(spec, device):
    call = make(spec, 4, 5, device=device, dtype=torch.float64, parameters=examples(spec))
    others = call.operands[1:]

    def ours(row):
        return call._replace(operands=(row, *others)).ours("none").sum()

    def due(row):
        return call._replace(operands=(row, *others)).due("none").sum()

    row = call.rows[0].detach()
    for transform in (
        torch.func.grad,
        torch.func.hessian,
        lambda f: lambda x: torch.func.jvp(f, (x,), (x + 1,))[1],
        lambda f: lambda x: torch.func.vmap(f)(torch.stack([x, 2 * x])),
        lambda f: lambda x: torch.func.vmap(torch.func.grad(f))(torch.stack([x, 2 * x])),
    ):
        assert_close(transform(ours)(row), transform(due)(row))

    def with_grad(row):
        operator = getattr(OPS, f"{spec.name}_with_grad")
        return call._replace(operands=(row, *others)).of(operator, "none")

    several = torch.stack([row, 2 * row])
    each = zip(*map(with_grad, several), strict=True)
    assert_close(torch.func.vmap(with_grad)(several), tuple(map(torch.stack, each)))


# --- compilers, autocast, modules ---


PROBABILITIES = "cross_entropy_with_probabilities"
OPCHECKED = {
    # Both kinds of shape, what is written in place, and a target with a gradient.
    "kl_divergence": ("none",),
    "cross_entropy": ("mean",),
    PROBABILITIES: ("sum",),
}


@pytest.mark.parametrize(
    ("form", "reduction"),
    [
        pytest.param(name, reduction, marks=[] if reduction in OPCHECKED.get(name, ()) else [SLOW])
        for name, spec in {**ROW_LOSSES, PROBABILITIES: ROW_LOSSES["cross_entropy"]}.items()
        for reduction in reductions(spec)
    ],
)
def test_operators_pass_opcheck(form, reduction, device):
    spec = ROW_LOSSES[form.removesuffix("_with_probabilities")]
    call = make(spec, 4, 5, device=device, optional=reduction != "mean")
    if form == PROBABILITIES:
        input, _, weight = call.operands
        call = call._replace(operands=(input, torch.rand(4, 5, device=device), weight))
    arguments = call.of(lambda *given: given, reduction)
    plain = [each.detach() if isinstance(each, Tensor) else each for each in arguments]
    grad_output = torch.ones_like(call.of(getattr(OPS, form), reduction))
    calls = {
        "": arguments,
        "_with_grad": plain,
        "_with_grad_": plain,
        "_backward": (grad_output, *arguments, [True] * spec.gradients),
    }
    for suffix, given in calls.items():
        if hasattr(OPS, f"{form}{suffix}"):
            torch.library.opcheck(getattr(OPS, f"{form}{suffix}").default, given)


@whatever_the_formula
@pytest.mark.parametrize("dynamic", [pytest.param(False, marks=SLOW), True])
def test_compiled_training_step_calls_the_kernels_and_equals_the_eager_one(spec, dynamic, device):
    seen: list[str] = []

    def compiler(module, example):
        seen.extend(str(node.target) for node in module.graph.nodes)
        return make_boxed_func(module.forward)

    def step(*operands):
        first = 2 * operands[0]
        return spec.loss(first, *operands[1:], **named).sum()

    for reduction in reductions(spec)[-1:] if dynamic else reductions(spec):
        torch._dynamo.reset()
        seen.clear()
        named = {} if spec.doubling else {"reduction": reduction}
        backend = aot_autograd(fw_compiler=compiler)
        compiled = torch.compile(step, fullgraph=True, backend=backend, dynamic=dynamic)
        for rows in (3, 6):
            call = make(spec, rows, 5, device=device)
            operands = [operand for operand in call.operands if operand is not None]
            found = both(compiled(*operands), *call.rows)
            assert_close(found, both(step(*operands), *call.rows))
        assert {f"losscli.{spec.name}.default", f"losscli.{spec.name}_backward.default"} <= {*seen}


@whatever_the_formula
def test_autocast_computes_in_float32_and_mixed_dtypes_are_promoted(spec, device):
    for dtype in (torch.float16, torch.bfloat16):
        call = make(spec, 4, 7, device=device, dtype=dtype)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = call.ours("none")
        assert loss.dtype == torch.float32
    if spec.gradients > 1:
        call = make(spec, 4, 7, device=device)
        rows = list(call.rows)
        rows[1] = rows[1].detach().half().requires_grad_()
        mixed = call._replace(operands=(*rows, *call.operands[spec.gradients :]))
        found = both(mixed.ours(), *rows)
        assert [each.dtype for each in found[1:3]] == [torch.float32, torch.float16]
        assert_close(found[0], mixed.due().detach())


def test_modules_are_the_functions(spec, device):
    kinds = {True: int, False: float}
    settings = {
        each.name: bool(each.example) if each.is_switch else kinds[each.is_integer](each.example)
        for each in ROW_FORMS[spec.name].parameters
    }
    call = make(spec, 4, 7, device=device)
    module = getattr(nn, spec.module.__name__)(**settings)
    assert isinstance(module, torch.nn.Module)
    operands = [operand for operand in call.operands if operand is not None]
    assert_close(module(*operands), spec.loss(*operands, **settings))
    assert copy.deepcopy(module)._site != module._site
    assert all(name in repr(module) for name in settings)


OUT_OF_DOMAIN = [(name, "temperature", 0.0) for name in (*LOGITS, "cross_entropy")] + [
    ("cross_entropy", "softcap", -1.0),
    ("cross_entropy", "z_loss", -1.0),
]


def test_parameters_and_operands_that_do_not_fit_are_refused(device):
    for name, setting, value in OUT_OF_DOMAIN:
        spec = ROW_LOSSES[name]
        operands = [o for o in make(spec, 4, 7, device=device).operands if o is not None]
        with pytest.raises(ValueError, match=f"{setting} must be"):
            spec.loss(*operands, **{setting: value})
        with pytest.raises(ValueError, match=f"{setting} must be"):
            getattr(nn, spec.module.__name__)(**{setting: value})
    x = torch.randn(3, 4, device=device)
    short, floats = torch.ones(4, dtype=torch.bool, device=device), torch.ones(3, device=device)
    for function, given, named, said in (
        ("kl_divergence", (x, x[:, :3]), {}, "target must have the shape of input"),
        ("kl_divergence", (x, x), {"mask": short}, "mask must have the shape of the rows of input"),
        ("kl_divergence", (x, x), {"mask": floats}, "mask must be bool"),
        ("token_log_probs", (x, x[:, 0]), {}, "tokens must hold class indices"),
        ("kl_divergence", (x.long(), x.long()), {}, "float32, float64, float16 or bfloat16"),
    ):
        with pytest.raises((RuntimeError, TypeError), match=said):
            getattr(functional, function)(*given, **named)


OF_CLASSES = ("token_log_probs", "multi_margin", "nll", "cross_entropy")


def test_class_that_is_none_is_an_index_error_on_the_cpu():
    for name, place, wrong in itertools.product(OF_CLASSES, (1, 36), (5, -1)):
        target = torch.ones(place + 2, dtype=torch.int64)
        target[place] = wrong
        said = f"target {wrong} of row {place} is not one of the 5 classes"
        with pytest.raises(IndexError, match=said):
            ROW_LOSSES[name].loss(torch.randn(place + 2, 5), target)


# --- torch's own functions ---

TORCHS: dict[str, tuple[str, tuple[dict[str, Any], ...]]] = {
    "nll": ("nll_loss", ({}, {"ignore_index": 2})),
    "multi_margin": ("multi_margin_loss", ({}, {"p": 2, "margin": 0.3})),
    "cosine_embedding": ("cosine_embedding_loss", ({}, {"margin": 0.2})),
    "triplet_margin": (
        "triplet_margin_loss",
        ({}, {"p": 1}, {"p": 3.5, "swap": True}, {"p": math.inf}, {"swap": True, "eps": 1e-3}),
    ),
}


@pytest.mark.parametrize("name", TORCHS)
def test_torchs_functions_are_replaced(name, device):
    function, every = TORCHS[name]
    shapes = ((7,), (6, 7), (1, 1), (33, 1000), (67, 3))
    for shape, reduction, named in itertools.product(shapes, REDUCTIONS, every):
        call = make(ROW_LOSSES[name], *shape, device=device, dtype=torch.float64)
        # PyTorch's on the CPU: its devices differ where all rows are ignored.
        theirs = call._replace(
            operands=tuple(o if o is None else o.detach().cpu() for o in call.operands)
        )
        results = []
        for module, of in ((functional, call), (torch.nn.functional, theirs)):
            for row in of.rows:
                row.requires_grad_()
            operands = [operand for operand in of.operands if operand is not None]
            loss = getattr(module, function)(*operands, reduction=reduction, **named)
            results.append(both(loss, *of.rows, incoming=ramp(loss)))
        with naming(shape, reduction, named):
            for our, their in zip(*results, strict=True):
                assert_close(our.cpu(), their, equal_nan=True)


def test_nll_takes_any_class_dimension(device):
    for shape in ((3, 5, 2), (2, 3, 4, 5), (3, 4, 50), (5000, 300)):
        input = torch.randn(shape, device=device, requires_grad=True)
        target = torch.randint(shape[1], (shape[0], *shape[2:]), device=device)
        weights = (None, torch.rand(shape[1], device=device))
        for weight, reduction in itertools.product(weights, REDUCTIONS):
            results = []
            for function in (functional.nll_loss, torch.nn.functional.nll_loss):
                loss = function(input, target, weight, reduction=reduction, ignore_index=1)
                results.append(both(loss, input, incoming=ramp(loss)))
            assert_close(*results)


def test_multi_margin_of_one_row_has_torchs_value_gradient_and_shape(device):
    for shape, of_target in (((), ()), ((), (1,)), ((5,), ()), ((5,), (1,)), ((1, 1), (1,))):
        input = torch.randn(shape, device=device, dtype=torch.float64, requires_grad=True)
        number = torch.zeros(of_target, dtype=torch.long, device=device)
        of_classes = torch.rand(shape[-1] if shape else 1, device=device).double()
        for weight, reduction in itertools.product((None, of_classes), REDUCTIONS):
            named: dict[str, Any] = {"margin": 0.7, "weight": weight, "reduction": reduction}
            results = []
            for module in (functional, torch.nn.functional):
                loss = module.multi_margin_loss(input, number, p=2, **named)
                results.append(both(loss, input, incoming=ramp(loss)))
            with naming(shape, of_target, reduction):
                assert_close(*results)
                found = functional.multi_margin_loss_with_grad(input, number, p=2, **named)
                assert_close(found[0], results[1][0])
                assert found[1].shape == input.shape
                of = functools.partial(functional.multi_margin_loss, target=number, p=2, **named)
                assert torch.autograd.gradgradcheck(of, input)
                several = torch.stack([input, 2 * input]).detach()
                assert_close(torch.func.vmap(of)(several), torch.stack([*map(of, several)]))
    step = torch.compile(functional.multi_margin_loss, fullgraph=True, backend="aot_eager")
    input, number = torch.randn((), device=device), torch.tensor([0], device=device)
    assert_close(step(input, number, reduction="none"), torch.zeros(1, device=device))


def test_operands_broadcast_as_torchs_and_gradients_have_the_shape_of_what_was_given(device):
    ones = {"target": torch.ones(4, device=device)}
    for name, shapes, settings in (
        ("triplet_margin_loss", ((1, 5), (4, 5), (4, 5)), {}),
        ("cosine_similarity_loss", ((5, 1), (5, 4)), {"dim": 0}),
        ("cosine_similarity_loss", ((5,), (4, 5)), {}),
        ("cosine_embedding_loss", ((1, 5), (4, 5)), ones),
    ):
        given = [torch.randn(shape, device=device) for shape in shapes]
        found = getattr(functional, f"{name}_with_grad")(*given, **settings)
        first = given[0].requires_grad_()
        assert_close(found, both(getattr(functional, name)(*given, **settings), first))
    a, b, c = (torch.randn(n, 5, device=device, requires_grad=True) for n in (4, 1, 4))
    ours, theirs = (
        both(module.triplet_margin_loss(a, b, c), a, b, c)
        for module in (functional, torch.nn.functional)
    )
    assert_close(ours, theirs)
    x, y = torch.randn(4, 5, 6, device=device), torch.randn(5, 1, device=device)
    for dim in (0, 1, -1):
        due = 1 - torch.nn.functional.cosine_similarity(x, y, dim)
        assert_close(functional.cosine_similarity_loss(x, y, dim, reduction="none"), due)


PAIR, NUMBERS = torch.randn(2, 5), torch.tensor([1, 2])
IMAGES = torch.randn(2, 3, 4)
ERRORS: list[tuple[str, tuple[Tensor, ...], dict[str, Any]]] = [
    ("nll_loss", (torch.randn(3, 5), NUMBERS), {}),
    ("nll_loss", (PAIR, NUMBERS, torch.ones(4)), {}),
    ("multi_margin_loss", (PAIR, NUMBERS), {"p": 3}),
    ("multi_margin_loss", (PAIR, NUMBERS), {"weight": torch.ones(1, 5)}),
    ("cosine_embedding_loss", (PAIR, PAIR, torch.ones(2, 1)), {}),
    ("triplet_margin_loss", (PAIR, PAIR[0], PAIR), {}),
    ("triplet_margin_loss", (PAIR,) * 3, {"reduction": "max"}),
    ("cross_entropy", (torch.randn(3, 5), NUMBERS), {}),
    ("cross_entropy", (IMAGES, torch.zeros(2, 5, dtype=torch.int64)), {}),
    ("cross_entropy", (IMAGES, torch.zeros(2, dtype=torch.int64)), {}),
    ("cross_entropy", (torch.randn(3, 5), torch.ones(3)), {}),
    ("cross_entropy", (PAIR, PAIR.long()), {}),
    ("cross_entropy", (PAIR, PAIR.softmax(1)), {"ignore_index": 2}),
    ("cross_entropy", (PAIR, NUMBERS), {"weight": torch.ones(4)}),
    ("cross_entropy", (PAIR, NUMBERS), {"weight": torch.ones(5).double()}),
    ("cross_entropy", (PAIR, NUMBERS), {"reduction": "max"}),
    ("cross_entropy", (PAIR, NUMBERS), {"label_smoothing": 1.5}),
]


def test_torchs_errors_are_raised_and_deprecated_arguments_say_what_to_write(device):
    for function, tensors, settings in ERRORS:
        # What the others refuse does not depend on the device.
        where = device if function == "cross_entropy" else "cpu"
        given = [each.to(where) for each in tensors]
        named = {k: v.to(where) if isinstance(v, Tensor) else v for k, v in settings.items()}
        kinds = []
        for module in (functional, torch.nn.functional):
            with pytest.raises((ValueError, RuntimeError)) as caught:
                getattr(module, function)(*given, **named)
            kinds.append(caught.type)
        with naming(function, settings):
            assert kinds[0] is kinds[1]
    for name in ("nll_loss", "cross_entropy"):
        given = [PAIR.to(device), NUMBERS.to(device)]
        with pytest.warns(UserWarning, match="reduction='sum'") as warned:
            loss = getattr(functional, name)(*given, size_average=False)
        assert warned[0].filename == __file__
        assert_close(loss, getattr(torch.nn.functional, name)(*given, reduction="sum"))


# --- what only a GPU shows ---


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("rows", "length"), [(3, 32768), (300, 40001), (9, 151936), (2, 300001)])
def test_long_rows_of_blocks_and_clusters(spec, rows, length, dtype):
    call = make(spec, rows, length, device="cuda", dtype=dtype)
    if spec.name == "total_variation":
        # Eighths, of which no two probabilities are so near that rounding decides which is larger.
        drawn = [((row.detach() * 8).round() / 8).requires_grad_() for row in call.rows]
        call = call._replace(operands=(*drawn, *call.operands[2:]))
    judge(call, "none")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("rows", "length"), [(3301, 257), (4100, 1000), (5003, 1003)])
def test_many_short_rows_of_which_a_warp_takes_several(spec, rows, length, dtype):
    for optional, parameters in ((False, {}), (True, examples(spec))):
        call = make(
            spec, rows, length, device="cuda", dtype=dtype, optional=optional, parameters=parameters
        )
        with naming(f"with parameters {parameters}"):
            judge(call, "none", has_gradients=False)
            if not spec.doubling:
                judge(call, "mean", has_gradients=False)


# Of cross entropy each length of row that has kernels of its own, and rows that any kernel takes.
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ("kl_divergence", "token_log_probs", "cosine_similarity")),
        *(("cross_entropy", {"label_smoothing": smoothing}) for smoothing in (0.0, 0.1)),
    ],
)
def test_rows_are_right_beyond_2_to_the_31_elements(name, settings):
    spec = ROW_LOSSES[name]
    shapes = ((2**27 + 3, 17), (2**20 + 3, 2049), (2**16 + 3, 2**15 + 8), (8197, 262144))
    for rows, length in shapes if name == "cross_entropy" else ((16400, 131072),):
        if free_bytes("cuda:0") < 5 * spec.gradients * rows * length:
            pytest.skip(f"needs {5 * spec.gradients * rows * length} bytes of GPU memory")
        drawn = [
            torch.empty(rows, length, dtype=torch.bfloat16, device="cuda").normal_()
            for _ in range(spec.gradients)
        ]
        others: list[Any] = [None] * (len(spec.roles) - spec.gradients)
        if "l" in spec.roles:
            others[0] = torch.randint(length, (rows,), device="cuda")
        leaves = [each.requires_grad_() for each in drawn]
        call = Call(spec, (*leaves, *others), spec.resolve(settings))
        loss = call.ours("none")
        found = both(loss, *leaves, incoming=ramp(loss))
        for part in (slice(0, 3), slice(rows // 2, rows // 2 + 3), slice(rows - 3, rows)):
            cut = tuple(o if o is None else o.detach()[part] for o in call.operands)
            cut = tuple(
                o.requires_grad_() if o is not None and o.is_floating_point() else o for o in cut
            )
            exact = call._replace(operands=cut).exact()
            due = both(exact.due("none"), *exact.rows, incoming=ramp(loss)[part].double())
            for ours, theirs in zip(found, due, strict=True):
                size = float(theirs.abs().max())
                assert_close(ours[part].double(), theirs, rtol=2**-7, atol=2**-18 * size)
