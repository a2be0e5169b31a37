# expect: WRONG wrong: a sum that the trials of its tuning leave behind
# gpu
import triton
from honest_triton import forward_kernel
from honest_triton_autotuned import CONFIGS, LEAST, backward, loss_of

forward = triton.autotune(CONFIGS, key=["count"])(forward_kernel)
smooth_l1_loss = loss_of(forward, backward, LEAST)
