# expect: WRONG wrong: a sum that the trials of its tuning leave behind
# gpu
import honest_triton_autotuned as right
import triton

right.forward_kernel = triton.autotune(right.CONFIGS, key=["count"])(right.forward_kernel.fn)
smooth_l1_loss = right.smooth_l1_loss
