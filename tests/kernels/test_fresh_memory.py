import copy
import io
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd.profiler import profile

from losscli import functional

LARGE = 2**23
"""Elements of float32 in the smallest output that is taken care of: 32 MiB."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="by calls and files of Linux")


def kilobytes(file: str, key: str) -> int:
    for line in (Path("/proc/self") / file).read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise AssertionError(f"no {key} in {file}")


def operands(size: int = LARGE) -> tuple[Tensor, Tensor]:
    return torch.full((size,), 0.75), torch.full((1,), 0.5)


def gradient(input: Tensor, target: Tensor) -> Tensor:
    return functional.mse_loss_with_grad(input, target, reduction="sum")[1]


def test_memory_of_a_freed_gradient_is_reused():
    input, target = operands()
    first = gradient(input, target)
    place = first.data_ptr()
    del first
    again = gradient(input, target)
    assert again.data_ptr() == place
    assert place % 2**21 == 0  # whole huge pages
    assert (again == 0.5).all()


def test_live_gradients_and_views_of_gradients_keep_their_memory():
    input, target = operands()
    view = gradient(input, target)[LARGE // 2 :]
    first, second = gradient(input, target), gradient(-input, target)
    assert (view == 0.5).all()
    assert (first == 0.5).all()
    assert (second == -2.5).all()


def test_system_may_take_the_pages_of_a_freed_gradient():
    input, target = operands(9 * LARGE)  # beyond what is held back for the next step
    result = gradient(input, target)
    before = kilobytes("smaps_rollup", "LazyFree")
    del result
    assert kilobytes("smaps_rollup", "LazyFree") - before >= 9 * 2**15


def test_blocks_are_kept_up_to_a_bound():
    """Four gradients are kept of those that grow, each too large for the blocks before it."""
    sizes = [LARGE * 5**k // 4**k for k in range(6)]
    target = torch.ones(1)
    inputs = torch.ones(sizes[-1])
    gradient(inputs[:LARGE], target)
    before = kilobytes("status", "VmSize")
    for size in sizes:
        gradient(inputs[:size], target)
    kept = kilobytes("status", "VmSize") - before
    # One gradient of the smallest: less than the two that are to be gone by now.
    slack = 4 * LARGE // 2**10
    assert kept <= sum(4 * size // 2**10 for size in sizes[-4:]) + slack


def test_a_small_output_does_not_take_a_large_block():
    large, target = operands(4 * LARGE)
    place = gradient(large, target).data_ptr()
    assert gradient(large[:LARGE], target).data_ptr() != place


def test_memory_is_freed_and_reused_across_threads():
    input, target = operands()
    held = [gradient(input, target) for _ in range(6)]
    wrong: list[int] = []

    def work(index):
        held[index] = torch.empty(0)
        for _ in range(3):
            sign = 1.0 if index % 2 else -1.0
            result = gradient(input * sign, target)
            if not (result == (0.5 if index % 2 else -2.5)).all():
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_profiler_sees_allocation_and_release():
    input, target = operands()
    gradient(input, target)  # in the cache: what comes from there counts as well
    with profile(profile_memory=True) as profiler:
        result = gradient(input, target)
        del result
    events = profiler.kineto_results.events()
    changes = [event.nbytes() for event in events if event.name() == "[memory]"]
    assert changes.count(4 * LARGE) == 1
    assert changes.count(-4 * LARGE) == 1


def test_gradient_behaves_as_any_other_tensor():
    input, target = operands()
    result = gradient(input, target)
    assert torch.equal(copy.deepcopy(result), result)
    file = io.BytesIO()
    torch.save(result, file)
    file.seek(0)
    assert torch.equal(torch.load(file), result)
    result.resize_(LARGE + 5)
    assert (result[:LARGE] == 0.5).all()
    result.fill_(2.0)
    result.resize_(3)
    assert result.tolist() == [2.0] * 3
    shared = gradient(input, target).share_memory_()
    assert shared.is_shared()
    assert (shared == 0.5).all()


FORKING = """
import os, torch
from losscli import functional
input, target = torch.full((2**23,), 0.75), torch.full((1,), 0.5)
gradient = lambda sign: functional.mse_loss_with_grad(sign * input, target, reduction="sum")[1]
kept, live = gradient(1), gradient(1)
del kept
child = os.fork()
# OpenMP's threads do not survive a fork.
torch.set_num_threads(1)
other = gradient(-1 if child else -3)
well = (other == (-2.5 if child else -5.5)).all() and (live == 0.5).all()
del other, live
if not child:
    os._exit(0 if well else 1)
status = os.waitpid(child, 0)[1]
raise SystemExit(0 if well and status == 0 else 1)
"""


def test_forked_child_has_its_own_memory():
    command = [sys.executable, "-W", "ignore", "-c", FORKING]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0


def test_each_large_output_of_a_call_has_its_own_block():
    input = torch.full((LARGE,), 0.75, dtype=torch.float64).requires_grad_()
    target = torch.full((LARGE,), 0.5, dtype=torch.float64).requires_grad_()
    loss = functional.mse_loss(input, target, reduction="none")
    loss.backward(torch.ones_like(loss))
    assert (loss == 0.0625).all()
    assert (input.grad == 0.5).all()
    assert (target.grad == -0.5).all()
    assert len({t.data_ptr() % 2**21 for t in (loss, input.grad, target.grad)}) == 1
