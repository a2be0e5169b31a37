import pytest
import torch

from losscli.cases.axes import CHANGING, CHANGING_VALUES
from losscli.implementations.passes import Captured, PassFactory, gradients
from tests.handmade import case_of


def operands() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([1.0, 2.0]), torch.tensor([0.0, 5.0])


def passes_of(pass_, reduction, operands, grad_output=1.0):
    """Return the passes of a case, whose loss a test replaces by a function of its own."""
    dtypes = [str(each.dtype).removeprefix("torch.") for each in operands]
    layout = "contiguous" if dtypes[0] == dtypes[1] else "mixed_dtype"
    changes = {"dtype": dtypes[0], "layout": layout, "device": operands[0].device.type}
    case = case_of("mse", (2,), reduction=reduction, grad_output=grad_output, **changes)
    return PassFactory(case, pass_, operands)


def test_forward_builds_no_graph_and_a_timed_backward_frees_the_gradient():
    timed = passes_of("forward", "sum", operands()).make(lambda x, y: (x - y).sum())
    with gradients("forward"):
        timed()
    assert (timed.loss.item(), timed.loss.requires_grad) == (-2, False)
    timed = passes_of("forward_backward", "sum", operands()).make(lambda x, y: (x * y).sum())
    with gradients("forward_backward"):
        timed()
    assert (timed.loss.item(), timed.input.grad) == (10, None)


def test_backward_allocates_a_fresh_gradient_each_time_and_none_for_the_target():
    timed = passes_of("forward_backward", "sum", operands()).make(lambda x, y: (x * y).sum())
    with gradients("forward_backward"):
        timed.compute()
        first = timed.input.grad
        timed.compute()
    assert timed.input.grad is not first
    assert timed.input.grad.tolist() == [0.0, 5.0]  # not accumulated
    assert timed.operands[1].grad is None


def test_without_a_reduction_the_incoming_gradient_is_a_full_tensor_allocated_once():
    passes = passes_of("forward_backward", "none", operands(), 0.5)
    timed, other = passes.make(torch.mul), passes.make(torch.mul)
    assert next(timed.grad_outputs)[1] is next(other.grad_outputs)[1] is passes.full_grad_output
    with gradients("forward_backward"):
        timed.compute()
    assert timed.input.grad.tolist() == [0.0, 2.5]


def test_changing_incoming_gradient_differs_in_every_call():
    passes = passes_of("forward_backward", "sum", operands(), CHANGING)
    timed, other = (passes.make(lambda x, y: (x * y).sum()) for _ in range(2))
    with gradients("forward_backward"):
        for value in (*CHANGING_VALUES, CHANGING_VALUES[0]):
            timed.compute()
            assert timed.incoming == value
            assert timed.input.grad.tolist() == [0.0, 5.0 * value]
        other.compute()
    assert other.incoming == CHANGING_VALUES[0]  # each implementation begins with the first
    assert passes.full_grad_output is None


def test_incoming_gradients_have_the_dtype_of_the_loss():
    x, y = operands()
    passes = passes_of("forward_backward", "mean", (x.bfloat16(), y), 0.5)
    assert [tensor.dtype for _, tensor in passes.grad_outputs] == [torch.float32]


@pytest.mark.gpu
def test_a_replay_reads_the_incoming_gradient_that_was_prepared():
    x, y = (tensor.cuda() for tensor in operands())
    passes = passes_of("forward_backward", "sum", (x, y), CHANGING)
    with gradients("forward_backward"):
        graph = passes.capture(lambda x, y: (x * y).sum())
        for _ in range(3):
            graph.compute()
            assert graph.input.grad.tolist() == [0.0, 5.0 * graph.incoming]


def test_the_tensors_of_the_case_are_shared_not_copied():
    x, y = operands()
    passes = passes_of("forward_backward", "mean", (x, y))
    timed, other = passes.make(torch.mul), passes.make(torch.mul)
    assert timed.input is other.input
    assert timed.input.data_ptr() == x.data_ptr()
    assert not x.requires_grad


@pytest.mark.parametrize("pass_", ["forward", "forward_backward"])
def test_release_frees_what_the_call_made(pass_):
    timed = passes_of(pass_, "mean", operands()).make(lambda x, y: (x * y).mean())
    with gradients(pass_):
        timed.compute()
    timed.release()
    assert timed.loss is timed.input.grad is None


@pytest.mark.gpu
@pytest.mark.parametrize("pass_", ["forward", "forward_backward"])
def test_captured_pass_reads_new_contents_and_coexists_with_others(pass_):
    x, y = (tensor.cuda() for tensor in operands())
    passes = passes_of(pass_, "mean", (x, y))
    with gradients(pass_):
        one = passes.capture(lambda x, y: (x * y).mean())
        two = passes.capture(lambda x, y: (x * y * y).mean())
        assert isinstance(one, Captured)
        x.mul_(-2)
        one()
        two()
        one.compute()
    assert one.loss.item() == -10
    assert two.loss.item() == -50
    if pass_ == "forward_backward":
        assert one.input.grad.tolist() == [0.0, 2.5]
    one.release()
    assert one.input.grad is None


@pytest.mark.gpu
def test_call_that_waits_for_the_gpu_cannot_be_captured():
    x, y = (tensor.cuda() for tensor in operands())
    with gradients("forward"), pytest.raises(RuntimeError, match="captur"):
        passes_of("forward", "mean", (x, y)).capture(lambda x, y: x.mean() + y.sum().item())
