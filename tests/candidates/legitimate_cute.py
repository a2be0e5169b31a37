# expect: RIGHT|SLOWER: a kernel in CuTe DSL, forward and backward
# gpu
# needs: cutlass
import cuda.bindings.driver as cuda
import cutlass
import torch
from bases.elements import loss_of_elements
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 256
compiled = []


@cute.kernel
def elements_kernel(
    x: cute.Tensor,
    y: cute.Tensor,
    loss: cute.Tensor,
    slope: cute.Tensor,
    count: cutlass.Int32,
    beta: cutlass.Float32,
):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    at = block * THREADS + thread
    if at < count:
        d = x[at] - y[at]
        sign = d  # of zero and NaN
        if d > 0.0:
            sign = cutlass.Float32(1.0)
        if d < 0.0:
            sign = cutlass.Float32(-1.0)
        size = d * sign
        value = size - 0.5 * beta
        if size < beta:
            value = 0.5 * size * (size / beta)
            sign = d / beta
        loss[at] = value
        slope[at] = sign


@cute.jit
def launch(
    x: cute.Tensor,
    y: cute.Tensor,
    loss: cute.Tensor,
    slope: cute.Tensor,
    count: cutlass.Int32,
    beta: cutlass.Float32,
    stream: cuda.CUstream,
):
    elements_kernel(x, y, loss, slope, count, beta).launch(
        grid=[cute.ceil_div(count, THREADS), 1, 1], block=[THREADS, 1, 1], stream=stream
    )


def elements(x, y, beta):
    loss, slope = torch.empty_like(x), torch.empty_like(x)
    tensors = [from_dlpack(each).mark_layout_dynamic() for each in (x, y, loss, slope)]
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if not compiled:
        compiled.append(cute.compile(launch, *tensors, x.numel(), beta, stream))
    compiled[0](*tensors, x.numel(), beta, stream)
    return loss, slope


smooth_l1_loss = loss_of_elements(elements)
