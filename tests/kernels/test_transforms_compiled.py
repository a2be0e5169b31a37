import itertools
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import compiled_autograd
from torch._dynamo.testing import CompileCounterWithBackend
from torch.func import grad, jvp, vmap

from tests.parameters import few

from . import packaged
from .losses import MACHINERY, REDUCTIONS, close, custom, make

# PyTorch's own, of its compiler.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]
ROWS = (5, 6, 9)
COLUMNS = (4, 7, 8)


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@contextmanager
def compiled_backward() -> Iterator[CompileCounterWithBackend]:
    """Compile the backward passes within, by a backend that needs no compiler."""
    counter = CompileCounterWithBackend("eager")

    def compiler(module: Any) -> Any:
        return torch.compile(module, backend=counter, fullgraph=True, dynamic=True)

    with compiled_autograd._enable(compiler):
        yield counter


def leaves(shapes: tuple[tuple[int, ...], ...], device: str) -> tuple[Tensor, ...]:
    values = make(torch.float64, device)
    return tuple(values(shape).requires_grad_() for shape in shapes)


@pytest.mark.parametrize("reduction", few(REDUCTIONS, ("none",)))
def test_compiled_autograd_gives_the_gradients_of_eager_mode(reduction, device):
    function = custom("smooth_l1", reduction)
    compiled = dict.fromkeys(ROWS, 0)
    for rows in ROWS:
        x, y = leaves(((rows, 4), (4,)), device)
        value = (function(x * 2, y * 3) * 5).sum()
        for wanted in ((x, y), (x,), (y,)):
            expected = torch.autograd.grad(value, wanted, retain_graph=True)
            with compiled_backward() as counter:
                close(torch.autograd.grad(value, wanted, retain_graph=True), expected)
            compiled[rows] += int(counter.frame_count)
    assert list(compiled.values()) == [3, 0, 0], "other shapes are not compiled again"


def test_compiled_autograd_tells_losses_and_parameters_apart(device):
    x, y = leaves(((5, 4), (4,)), device)
    functions = [custom(loss) for loss in MACHINERY] + [custom("smooth_l1", beta=0.3)]
    for function in functions:
        (expected,) = torch.autograd.grad(function(x, y), x)
        with compiled_backward():
            (got,) = torch.autograd.grad(function(x, y), x)
        close(got, expected)


@pytest.mark.parametrize("reduction", few(REDUCTIONS, ("mean",)))
def test_compiled_autograd_gives_second_derivatives(reduction, device):
    x, y = leaves(((5, 4), (4,)), device)
    value = custom("smooth_l1", reduction)(x, y).sin().sum()
    first = torch.autograd.grad(value, (x, y), create_graph=True)
    norm = sum(gradient.square().sum() for gradient in first)
    assert isinstance(norm, Tensor)
    expected = torch.autograd.grad(norm, (x, y), retain_graph=True)
    with compiled_backward() as counter:
        close(torch.autograd.grad(norm, (x, y)), expected)
    assert counter.frame_count == 1


def test_compiled_autograd_uses_saved_tensors_that_hooks_have_kept(device):
    x, y = leaves(((5, 4), (4,)), device)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t.detach() + 1, lambda t: t - 1):
        value = custom("mse")(x, y)
    with compiled_backward():
        got = torch.autograd.grad(value, (x, y))
    close(got, torch.autograd.grad(custom("mse")(x, y), (x, y)))


def test_the_setting_of_compiled_autograd_compiles_a_whole_step(device):
    x, y = leaves(((5, 4), (4,)), device)

    def step(x, y):
        loss = custom("smooth_l1")(x * 2, y)
        loss.backward()
        return loss

    expected = step(x, y), x.grad, y.grad
    x.grad = y.grad = None
    with torch._dynamo.config.patch(compiled_autograd=True):
        got = torch.compile(step, backend="aot_eager")(x, y)
    close((got, x.grad, y.grad), expected)


@pytest.mark.parametrize("reduction", few(REDUCTIONS, ("mean",)))
def test_other_shapes_are_not_compiled_again(reduction, device):
    function = custom("smooth_l1", reduction)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda x, y: function(x, y) * 2, backend=counter, fullgraph=True, dynamic=True
    )
    counts = set()
    for rows, columns in itertools.product(ROWS, COLUMNS):
        x, y = leaves(((rows, columns), (columns,)), device)
        got, expected = compiled(x, y), function(x, y) * 2
        close(got, expected)
        close(torch.autograd.grad(got.sum(), (x, y)), torch.autograd.grad(expected.sum(), (x, y)))
        counts.add(counter.frame_count)
    assert len(counts) == 1


TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "vmap": lambda function: vmap(function, (0, None)),
    "per-sample gradients": lambda function: vmap(grad(function), (0, None)),
    "jvp": lambda function: lambda x, y: jvp(function, (x, y), (y.expand_as(x), y)),
    "Hessian times vector": lambda function: (
        lambda x, y: jvp(grad(function), (x, y), (y.expand_as(x), y))
    ),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_are_compiled_in_one_graph(transform, device):
    transformed = TRANSFORMS[transform](custom("smooth_l1"))
    values = make(torch.float64, device)
    given = values((5, 4)), values((4,))
    compiled = torch.compile(transformed, backend="aot_eager", fullgraph=True)
    close(compiled(*given), transformed(*given))


def test_losses_of_dtensors_are_compiled_in_one_graph():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    values = make(torch.float64, "cpu")
    x, y = values((4, 3)), values((4, 3))
    # One of two ranks, whose collectives do nothing.
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        shards: list[Any] = [
            DTensor.from_local(of, mesh, [Shard(0)]).requires_grad_() for of in (x, y)
        ]
        compiled = torch.compile(
            lambda x, y: custom("smooth_l1")(x * 2, y), backend="aot_eager", fullgraph=True
        )
        loss: Any = compiled(*shards)
        assert loss.placements == (Partial(),)
        close(loss.to_local() * 2, custom("smooth_l1")(x * 2, y))
        loss.backward()
        expected = grad(custom("smooth_l1"))(x * 2, y)
        close(shards[0].grad.to_local(), expected)
    finally:
        torch.distributed.destroy_process_group()


def test_a_program_of_export_takes_other_shapes(device):
    model = packaged.Losses()
    program = packaged.dynamic_program(model, device).module()
    for rows in ROWS:
        x, y = packaged.operands(rows, device)
        close(program(x, y), model(x, y))


@pytest.mark.gpu  # It takes half a minute to compile for the CPU.
@pytest.mark.parametrize("on", ["cpu", "cuda"])
def test_a_package_of_aotinductor_gives_the_losses_of_eager_mode(on, tmp_path):
    packaged.run(on, tmp_path)


DIES = "import os, signal; print({said!r}, flush=True); os.kill(os.getpid(), signal.SIGSEGV)"


def test_only_a_signal_during_the_plain_package_skips_the_test_of_packages():
    def judge(program):
        command = [sys.executable, "-c", program]
        packaged.judge(subprocess.run(command, capture_output=True, text=True))

    judge("")
    with pytest.raises(pytest.skip.Exception, match="SIGSEGV with a package of a plain model"):
        judge(DIES.format(said=""))
    with pytest.raises(AssertionError, match="exit code -11"):
        judge(DIES.format(said=packaged.PLAIN_WORKS))
    with pytest.raises(AssertionError, match=r"exit code 1: .*no compiler"):
        judge("raise SystemExit('no compiler')")
