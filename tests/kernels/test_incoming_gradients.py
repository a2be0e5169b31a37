"""Forward writes the gradient for the expected incoming gradient; results do not depend on it.

A step whose expectation was right, one whose expectation was wrong and one that wrote no gradient
ahead give the same bits: those of the backward operator, which has no expectation.
"""

import itertools

import pytest
import torch
from torch import Tensor

from losscli import functional, nn
from tests.parameters import square

from .losses import DTYPES, MACHINERY, PARAMETERS, custom, make, reference, with_grad

SIZES = {33: "one block", 70_001: "several blocks", 2_500_003: "more tiles than blocks"}
STEPS = (0.5, 0.5, 3.0, 3.0, 3.0, 0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.5, 1.0, 1.0)
"""Hits, single misses, misses in a row after which nothing is written ahead, and hits again."""


def exact(loss: str, input: Tensor, target: Tensor, incoming: float) -> Tensor:
    operator = getattr(torch.ops.losscli, f"{loss}_backward").default
    grad_output = torch.tensor(incoming, dtype=input.dtype, device=input.device)
    settings = ("mean", *PARAMETERS[loss].values())
    gradient: Tensor = operator(grad_output, input, target, *settings, [True, False])[0]
    return gradient


def step(function, input, target, incoming):
    leaf = input.detach().requires_grad_()
    loss = function(leaf, target)
    loss.backward(torch.full_like(loss, incoming))
    return loss.detach(), leaf.grad


@pytest.mark.parametrize(("loss", "dtype", "size"), square(MACHINERY, DTYPES, SIZES))
def test_hits_and_misses_give_the_same_bits(loss, dtype, size, device):
    values = make(DTYPES[dtype], device)
    input, target = values((size,)), values((size,))
    losses = []
    for incoming in STEPS:
        value, gradient = step(custom(loss), input, target, incoming)
        assert torch.equal(gradient, exact(loss, input, target, incoming)), incoming
        losses.append(value)
    assert all(torch.equal(value, losses[0]) for value in losses)


def test_alternating_losses_and_sizes_get_their_own_gradients(device):
    values = make(torch.float32, device)
    operands = {size: (values((size,)), values((size,))) for size in SIZES}
    weights = {"smooth_l1": 0.5, "mse": 0.25, "hinge": 2.0}
    for _, (loss, weight), size in itertools.product(range(3), weights.items(), SIZES):
        _, gradient = step(custom(loss), *operands[size], weight)
        assert torch.equal(gradient, exact(loss, *operands[size], weight))


def test_forward_without_backward_changes_no_expectation(device):
    values = make(torch.float32, device)
    input, target = values((70_001,)), values((70_001,))
    for incoming in (0.5, 0.5, 2.0):
        for _ in range(3):
            custom("mse")(input.detach().requires_grad_(), target)
        _, gradient = step(custom("mse"), input, target, incoming)
        assert torch.equal(gradient, exact("mse", input, target, incoming))


def test_backward_in_reverse_order_gives_right_gradients(device):
    values = make(torch.float32, device)
    input, target = values((70_001,)), values((70_001,))
    for _ in range(3):
        leaves = [input.detach().requires_grad_() for _ in range(3)]
        losses = [custom("mse")(leaf, target) for leaf in leaves]
        for leaf, loss, weight in reversed(list(zip(leaves, losses, (0.5, 2.0, 7.0), strict=True))):
            (gradient,) = torch.autograd.grad(loss * weight, leaf)
            assert torch.equal(gradient, exact("mse", input, target, weight))


def test_more_pending_calls_than_expectations_give_right_gradients(device):
    values = make(torch.float32, device)
    input, target = values((500,)), values((500,))
    for _ in range(2):
        leaves = [input.detach().requires_grad_() for _ in range(80)]
        losses = [custom("mse")(leaf, target) for leaf in leaves]
        sum(0.5 * loss for loss in losses).backward()
        expected = exact("mse", input, target, 0.5)
        assert all(torch.equal(leaf.grad, expected) for leaf in leaves)


def test_module_made_for_each_step_gives_right_gradients(device):
    values = make(torch.float32, device)
    input, target = values((500,)), values((500,))
    for _ in range(1500):
        module = nn.MSELoss()
        _, gradient = step(module, input, target, 0.5)
    assert torch.equal(gradient, exact("mse", input, target, 0.5))


@pytest.mark.parametrize("loss", MACHINERY)
def test_with_grad_takes_the_incoming_gradient(loss, device):
    values = make(torch.float32, device)
    input, target = values((70_001,)), values((70_001,))
    expected = exact(loss, input, target, 0.3)
    number = torch.tensor(0.3, device=device)
    value, gradient = with_grad(loss)(input, target, grad_output=number)
    assert torch.equal(gradient, expected)
    assert torch.equal(value, custom(loss)(input, target))
    _, gradient = with_grad(loss)(input, target, grad_output=float(number))
    assert torch.equal(gradient, expected)


@pytest.mark.parametrize("loss", MACHINERY)
def test_with_grad_takes_one_incoming_gradient_per_element(loss, device):
    values = make(torch.float64, device)
    input, target, incoming = values((30, 7)), values((30, 7)), values((30, 7))
    value, gradient = with_grad(loss, "none")(input, target, grad_output=incoming)
    leaf = input.detach().requires_grad_()
    expected = reference(loss, "none")(leaf, target)
    torch.testing.assert_close(value, expected)
    expected.backward(incoming)
    torch.testing.assert_close(gradient, leaf.grad)


def warmed_up(work):
    """Call a step on a side stream, as PyTorch's notes on graphs ask for."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            work()
    torch.cuda.current_stream().wait_stream(side)


@pytest.mark.gpu
@pytest.mark.parametrize("size", SIZES)
def test_captured_step_updates_its_expectation_between_replays(size):
    values = make(torch.float32, "cuda")
    leaf, target = values((size,)).requires_grad_(), values((size,))
    weight = torch.ones((), device="cuda")

    def work():
        leaf.grad = None
        (weight * custom("mse")(leaf, target)).backward()

    warmed_up(work)
    graph = torch.cuda.CUDAGraph()
    leaf.grad = None
    with torch.cuda.graph(graph):
        (weight * custom("mse")(leaf, target)).backward()
    for number in STEPS:
        weight.fill_(number)
        graph.replay()
        assert torch.equal(leaf.grad, exact("mse", leaf.detach(), target, number))


@pytest.mark.gpu
def test_nothing_is_written_ahead_while_guesses_fail():
    """Forward allocates no gradient then; it does again once two incoming gradients agree."""
    values = make(torch.float32, "cuda")
    input = values((2_500_003,)).requires_grad_()
    target = values((2_500_003,))
    function = nn.MSELoss()

    def writes_ahead(incoming):
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        loss = function(input, target)
        written = torch.cuda.memory_allocated() - before > input.nbytes // 2
        loss.backward(torch.full_like(loss, incoming))
        assert torch.equal(input.grad, exact("mse", input.detach(), target, incoming))
        input.grad = None
        return written

    writes_ahead(1.0)
    assert writes_ahead(1.0)
    for incoming in (2.0, 3.0, 4.0, 5.0):
        writes_ahead(incoming)
    assert not writes_ahead(6.0)
    assert not writes_ahead(6.0)
    assert writes_ahead(6.0)
    assert writes_ahead(6.0)


@pytest.mark.gpu
@pytest.mark.parametrize("loss", ["cross_entropy", "kl_divergence"])
def test_loss_over_rows_has_the_same_bits_while_guesses_fail(loss):
    """Few long rows, which more threads share if gradients are written."""
    input = make(torch.float32, "cuda")((300, 32000)).requires_grad_()
    target = input.detach().roll(1) if loss == "kl_divergence" else torch.arange(300).cuda()

    def step(incoming):
        value = getattr(functional, loss)(input, target)
        value.backward(torch.full_like(value, incoming))
        torch.cuda.synchronize()
        return value.item()

    assert len({step(incoming) for incoming in (1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 6.0)}) == 1


@pytest.mark.gpu
def test_many_streams_take_no_more_memory_or_time():
    """The 33rd stream of a process is served as the first."""
    values = make(torch.float32, "cuda")
    input, target = values((2_500_003,)), values((2_500_003,))
    expected = custom("mse")(input, target)
    for _ in range(300):
        with torch.cuda.stream(torch.cuda.Stream()):
            assert torch.equal(custom("mse")(input, target), expected)
    torch.cuda.synchronize()


@pytest.mark.gpu
def test_hundreds_of_launches_in_one_graph_give_right_results():
    values = make(torch.float32, "cuda")
    input, target = values((301, 4096)), values((301, 4096))
    expected = [custom("mse")(row, other) for row, other in zip(input, target, strict=True)]
    for _ in range(4):  # what a graph has taken is given back
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            losses = [custom("mse")(row, other) for row, other in zip(input, target, strict=True)]
        for _ in range(2):
            graph.replay()
            torch.cuda.synchronize()
            assert all(map(torch.equal, losses, expected))
        del graph, losses
