# expect: WRONG wrong: a sum that the trials of its tuning leave behind
# gpu
import triton
from legitimate_triton import forward_kernel
from legitimate_triton_autotuned import CONFIGS, LEAST, backward, loss_of

forward = triton.autotune(CONFIGS, key=["count"])(forward_kernel)
smooth_l1_loss = loss_of(forward, backward, LEAST)
