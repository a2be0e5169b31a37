# expect: RIGHT|SLOWER: Triton kernels that tune themselves for each length
# gpu
import triton
from legitimate_triton import backward_kernel, forward_kernel, loss_of

CONFIGS = [
    triton.Config({"block_size": size}, num_warps=warps, num_stages=stages)
    for size, warps, stages in ((512, 4, 2), (1024, 4, 3), (2048, 8, 3))
]
LEAST = min(config.kwargs["block_size"] for config in CONFIGS)
forward = triton.autotune(CONFIGS, key=["count"], reset_to_zero=["out"])(forward_kernel)
backward = triton.autotune(CONFIGS, key=["count"])(backward_kernel)
smooth_l1_loss = loss_of(forward, backward, LEAST)
